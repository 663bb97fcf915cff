"""What a refresh finds to be changed by hand on a machine and its group, beside what the state would take over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from provisioner.clouds.cloud import ForeignChange, Instance, Terms
from stacks import foreign
from stacks.provider import node, shutdown
from stacks.provider.asked import Asked, asked
from stacks.provider.identity import Slot
from stacks.provider.inputs import InstanceInputs, at, read_mapping
from stacks.provider.machine import generation_of
from stacks.provider.machine_state import Group, MachineState
from stacks.provider.offers import access
from stacks.provider.recovery import places_of
from stacks.provider.session import Session
from stacks.provider.values import Properties, plain_map, wrap_map

RULES, CHANGES = "foreignRules", "foreignChanges"
"""Outputs beside those of the machine's state."""
_HERE = "`up` puts it right"


@dataclass(frozen=True, slots=True)
class Alterations:
    """Looks at one machine beside what it was asked for."""

    session: Session
    urn: str

    def look(self, olds: Properties, inputs: InstanceInputs, now: MachineState) -> Properties:
        """The outputs that tell of changes by hand; each is said as long as it is so."""
        rules = self._opened(plain_map(olds), now)
        changes = [] if now.is_gone else self._altered(inputs, now)
        return wrap_map({RULES: rules, CHANGES: [foreign.document(change) for change in changes]})

    def _opened(self, before: Mapping[str, Any], now: MachineState) -> list[str]:
        """Rules that somebody has changed on the machine's group: a port opened by hand stays open until the next ``up``."""
        found: list[str] = []
        for group in _here(now) if not now.is_gone else ():
            cidrs, ports = access(at("workload", before, read_mapping))
            found += self.session.cloud.foreign_rules(group.placement, group.id, cidrs, ports)
        if found:
            self.session.tell(self.urn, f"security group: {'; '.join(found)}, and the spec says otherwise; {_HERE}")
        return found

    def _altered(self, inputs: InstanceInputs, now: MachineState) -> tuple[ForeignChange, ...]:
        found = self.session.cloud.inspect(now.placement, now.instance_id, terms_of(inputs, now))
        if found.unknown is not None:
            self.session.warn(
                self.urn, f"whether somebody has changed {now.instance_id} is not known in full: {found.unknown}"
            )
        for change in found.changes:
            self.session.tell(self.urn, f"{now.instance_id}: {foreign.words(change)}; {change.undo or _HERE}")
        return found.changes


def asked_of(inputs: InstanceInputs, slot: Slot, instance: Instance, before: Asked | None) -> Asked:
    """What a machine was asked for; see ``stacks.provider.asked``. What its shutdown does follows the spec where that can change."""
    launch = inputs.launch
    generation = generation_of(instance) or launch.generation
    found = asked(instance, slot, generation, (*inputs.offers, *places_of(tuple(launch.image))), launch, before=before)
    if not shutdown.can_change(inputs.node, found.placement):
        return found
    return replace(found, stops=node.stops(inputs.workload, inputs.node, found.placement))


def terms_of(inputs: InstanceInputs, state: MachineState) -> Terms:
    """What the cloud compares a machine with."""
    known = state.asked
    return Terms(
        placement=None if known is None else known.placement,
        image=None if known is None else known.image,
        root_volume_bytes=inputs.root_volume_bytes,
        root_speed=inputs.root_speed,
        stop_on_shutdown=None if known is None else known.stops,
        security_groups=tuple(group.id for group in _here(state)),
        data_disks=state.volume_ids,
    )


def _here(state: MachineState) -> list[Group]:
    """The machine's groups in its own region."""
    place = state.placement
    return [group for group in state.groups if (group.cloud, group.region) == (place.cloud, place.region)]
