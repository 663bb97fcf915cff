"""``gpuprov:index:GpuInstance``: one machine on the first offer that has capacity (docs/decisions/0004)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from provisioner import tags
from provisioner.catalog.disk_kinds import INCLUDED_SPEED
from provisioner.clouds.cloud import ROOT_SPEED, Instance, InstanceState
from provisioner.errors import CapacityError, GpuprovError, NotFound, QuotaError
from provisioner.units import DiskSpeed
from provisioner.vocabulary import CapacityType
from stacks import failures, foreign, health
from stacks.failures import Attempt
from stacks.provider import instance_diff, journal, shutdown
from stacks.provider.alterations import CHANGES, RULES, Alterations, asked_of
from stacks.provider.disks import Zone, lost_words
from stacks.provider.failover import Failed, Failover, Unfinished
from stacks.provider.identity import Slot
from stacks.provider.inputs import (
    ROOT_VOLUME_BYTES,
    InstanceInputs,
    Power,
    at,
    read_launch,
    read_mapping,
    read_offers,
    read_power,
    read_size,
    read_speed,
    read_tags,
    read_volumes,
    read_wait,
)
from stacks.provider.inputs import failures as wrong_inputs
from stacks.provider.journal import Journal
from stacks.provider.lifetime import part
from stacks.provider.machine import is_loss, is_over, live
from stacks.provider.machine_state import ECHOED, OUTPUTS, MachineState
from stacks.provider.recovery import KIND, Recovery
from stacks.provider.rerun import Given, Live, Rerun, later, rerun, words
from stacks.provider.session import (
    Checked,
    Created,
    Difference,
    Found,
    PartialFailure,
    ProviderFailure,
    Session,
    echo,
)
from stacks.provider.unavailable import Unavailable
from stacks.provider.upkeep import Upkeep
from stacks.provider.values import UNKNOWN, Properties, has_unknown, plain_map, replaced, wrap_map

_READERS = {
    "launch": read_launch,
    "workload": read_mapping,
    "offers": read_offers,
    "rootVolume": read_size,
    "rootSpeed": read_speed,
    "volumes": read_volumes,
    "tags": read_tags,
    "power": read_power,
    "wait": read_wait,
    "node": read_mapping,
}


@dataclass(frozen=True, slots=True)
class GpuInstances:
    """Operations on machines."""

    session: Session

    def check(self, urn: str, olds: Properties, news: Properties) -> Checked:
        """The inputs with defaults and sizes in bytes, or what is wrong with them."""
        values = plain_map(news)
        wrong = wrong_inputs(values, ("launch", "workload", "offers"), _READERS)
        own_name = Slot.of(urn, "").resource
        if "volumes" not in wrong and own_name in _names(values.get("volumes")):
            wrong["volumes"] = f"a data disk has the machine's own name {own_name!r}: their tags would be the same"
        if wrong:
            return Checked(news, wrong)
        filled = dict(news)
        filled["rootVolume"] = checked_root_volume(olds, news)
        if "power" not in values:
            filled["power"] = replaced(None, Power.RUNNING.value)
        return Checked(filled)

    def diff(self, urn: str, olds: Properties, news: Properties) -> Difference:
        """What changes; raises ``GpuprovError`` where the change is refused."""
        before, values = plain_map(olds), plain_map(news)
        state = MachineState.read(before)
        again = self._rerun(state, before, values)
        found = instance_diff.diff(urn, before, values, again)
        if found.replaces and not is_over(state.power):
            self._check_room(state, values)
        if again is not None:
            added = _added(before, values)
            self.session.warn(urn, words(again, state.instance_id, state.power, _given(values), added))
        elif state.power is InstanceState.RUNNING and not found.replaces and (keys := _later(before, values)):
            self.session.warn(
                urn, f"{', '.join(keys)}: the live machine learns of it when `up` next starts it (`stop`, then `up`)"
            )
        if not is_over(state.power) and not found.replaces:
            self._say_ending(urn, state, before, values)
        return found

    def preview_create(self, news: Properties) -> Properties:
        """What is known of a machine before it is made."""
        unknown = dict.fromkeys((name for name in OUTPUTS if name not in ("endpoint", "health")), UNKNOWN)
        return {**echo(news, ECHOED), **wrap_map({**unknown, "provider": self.session.provider})}

    def create(self, urn: str, news: Properties) -> Created:
        """Make or adopt the one machine of this slot, and make it whole.

        Raises:
            ProviderFailure: nothing was made.
            PartialFailure: a machine exists and is not whole.
        """
        inputs = InstanceInputs.read(plain_map(news))
        slot = Slot.of(urn, inputs.launch.stack_id)
        with self._journal(slot) as calls:
            walk = self._walk(urn, slot, inputs, calls)
            note = calls.read()
            recovery = Recovery(self.session, slot, inputs, self.session.cloud.now())
            try:
                instance = recovery.existing(walk, note) or walk.run(recovery.offers(), recovery.unsettled(note))
            except Failed as failure:
                raise ProviderFailure(failure.cause, failure.attempts) from failure
            except Unfinished as failure:
                upkeep = Upkeep(self.session, slot, inputs, walk, failure.instance)
                raise self._partial(upkeep, news, failure.cause) from failure
            except GpuprovError as error:
                raise ProviderFailure(error, walk.attempts) from error
            state = self._keep_up(Upkeep(self.session, slot, inputs, walk, instance), news)
        return Created(state.instance_id, self._outputs(state, news))

    def preview_update(self, olds: Properties, news: Properties) -> Properties:
        """What an update in place would leave."""
        state = MachineState.read(plain_map(olds))
        values = plain_map(news)
        wanted = values.get("power", Power.RUNNING)
        is_moved = wanted != state.power or self._rerun(state, plain_map(olds), values) is not None
        moving = dict.fromkeys(("power", "ready", "publicIp", "expiresAt"), UNKNOWN) if is_moved else {}
        return {**self._outputs(state, news), **wrap_map(moving)}

    def update(self, urn: str, olds: Properties, news: Properties) -> Properties:
        """Bring a live machine in line with its inputs.

        Raises:
            ProviderFailure: nothing was changed.
            PartialFailure: a part was changed.
        """
        inputs = InstanceInputs.read(plain_map(news))
        before = plain_map(olds)
        state = MachineState.read(before)
        slot = Slot.of(urn, state.stack_id)
        with self._journal(slot) as calls:
            walk = self._walk(urn, slot, inputs, calls)
            walk.attempts.extend(state.attempts)
            walk.groups.update({(group.cloud, group.region): group.id for group in state.groups})
            try:
                instance = self._visible(state)
                if instance is None or is_over(instance.state):
                    raise NotFound(
                        f"machine {state.instance_id} is gone since the last refresh; nothing was made",
                        remedy="run the command again: it refreshes, and makes a new one",
                    )
            except GpuprovError as error:
                raise ProviderFailure(error) from error
            altered = foreign.read(before.get(CHANGES))
            mended = [change for change in altered if change.undo is None]
            # One that somebody has changed is given its own again.
            moved = any(change.what == ROOT_SPEED for change in mended) or inputs.root_speed != _root_speed(before)
            upkeep = Upkeep(
                self.session,
                slot,
                inputs,
                walk,
                instance,
                list(state.volume_ids),
                (inputs.root_speed or INCLUDED_SPEED) if moved else None,
                state.asked,
                is_altered=bool(mended),
            )
            after = self._keep_up(upkeep, news, instance_diff.expiry_after(before, inputs.workload, state))
        return self._outputs(after, news) | wrap_map(
            {CHANGES: [foreign.document(change) for change in foreign.left(altered)]}
        )

    def read(self, urn: str, olds: Properties, inputs: Properties) -> Found:
        """The machine as it is now; gone without a trace is gone."""
        state = MachineState.read(plain_map(olds))
        slot = Slot.of(urn, state.stack_id)
        instance = self._visible(state)
        if instance is None or instance.state.is_gone:
            instance = next(iter(live(self.session.watch.find(slot, [state.placement]))), instance)
        if instance is None:
            self.session.tell(urn, f"machine {state.instance_id} in {state.placement.region} is not there any more")
            return Found(None)
        attached = [volume for volume in state.volume_ids if volume in instance.volume_ids]
        for volume_id in self._lost(state, set(state.volume_ids) - set(attached)):
            self.session.warn(urn, lost_words(volume_id))
        if is_loss(state.power, instance) and self.session.is_shared:
            Unavailable(self.session.home).note_loss(instance.placement, self.session.cloud.now())
        given = InstanceInputs.read(plain_map(inputs))
        known = state.asked if instance.id == state.instance_id else None
        now = MachineState.of(
            self.session.provider,
            state.stack_id,
            instance,
            attached,
            state.groups,
            state.attempts,
            given.tags,
            asked_of(given, slot, instance, known),
        )
        if instance.state is InstanceState.RUNNING:
            now = replace(now, health=self._health(urn, instance))
        altered = Alterations(self.session, urn).look(olds, given, now)
        outputs = {**self._outputs(now, olds), **echo(inputs, ECHOED), **altered}
        return Found(instance.id, outputs, inputs)

    def delete(self, urn: str, olds: Properties) -> None:
        """End the machine, and any other of its slot, and the groups; return when the cloud confirms it.

        Raises:
            GpuprovError: something is left; the resource stays in the state.
        """
        state = MachineState.read(plain_map(olds))
        slot = Slot.of(urn, state.stack_id)
        watch = self.session.watch
        with self._journal(slot) as calls:
            if not state.is_gone:
                made_at = state.created_at if state.power is InstanceState.PENDING else None
                watch.end(state.placement, state.instance_id, maybe_unseen_since=made_at)
            elif state.placement.capacity_type is CapacityType.SPOT:
                # Its request may stand although it is gone, and start another machine at any time.
                self.session.cloud.terminate_instance(state.placement, state.instance_id)
            for other in live(watch.find(slot, [state.placement, *(group.placement for group in state.groups)])):
                watch.end(other.placement, other.id)
            for group in state.groups:
                watch.drop_group(group.placement, group.id)
            calls.forget()

    def _lost(self, state: MachineState, unattached: set[str]) -> list[str]:
        """Data disks of the state that exist no more; one that is only detached is attached again."""
        if not unattached:
            return []
        found = self.session.cloud.find_volumes({tags.STACK_ID: state.stack_id}, [state.placement])
        missing = unattached - {disk.id for disk in found}
        # Tags can be taken off by hand; the disk and its data are there all the same.
        return sorted(one for one in missing if self.session.cloud.get_volume(state.placement, one) is None)

    def _health(self, urn: str, instance: Instance) -> str | None:
        """How a machine that runs is; where its cloud does not tell, that is said once."""
        found = health.look(self.session.cloud, instance.placement, instance.id)
        if found is not None and found.unknown is not None:
            self.session.warn(urn, f"whether {instance.id} is impaired is not known: {found.unknown}")
        return health.spoken(found)

    def _rerun(self, state: MachineState, before: Mapping[str, Any], values: Mapping[str, Any]) -> Rerun | None:
        """What is to be done where the live machine has to run something else; nothing while the inputs are not known."""
        if is_over(state.power) or has_unknown(values.get("workload")) or has_unknown(values.get("node")):
            return None
        given = _given(values)
        was = before.get("workload")
        try:
            live = Live(state.placement, state.instance_id, state.cloud_tags)
            return rerun(self.session.cloud, live, given, was if isinstance(was, Mapping) else {})
        except NotFound:
            return None  # it went a moment ago: the update tells

    def _say_ending(self, urn: str, state: MachineState, before: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Tell what an edit of ``lifecycle.idle.then`` does to the live machine."""
        if has_unknown(values.get("workload")) or has_unknown(values.get("node")):
            return
        said = shutdown.words(part(before, "workload"), *_given(values), state.placement, state.instance_id)
        if said is not None:
            needs_attention, text = said
            (self.session.warn if needs_attention else self.session.tell)(urn, text)

    def _check_room(self, state: MachineState, news: Mapping[str, Any]) -> None:
        """Refuse a replacement that would end a live machine where every offer is known to refuse the new one.

        Raises:
            CapacityError, QuotaError: nothing was changed.
        """
        if has_unknown(news.get("offers")):
            return
        offers = at("offers", news, read_offers)
        zone = state.placement.zone
        if state.volume_ids and zone is not None:
            offers = Zone(state.placement.cloud, state.placement.region, zone).narrow(offers)
        refusals: list[GpuprovError] = []
        for offer in offers:
            try:
                self.session.cloud.check_room(offer, ending=state.instance_id)
            except (CapacityError, QuotaError) as error:
                refusals.append(error)
            except GpuprovError:
                return  # it cannot be told; the create will
            else:
                return
        if refusals:
            raise type(refusals[0])(
                f"a new machine is needed, and no offer has room for it: {refusals[0].message}; "
                f"machine {state.instance_id} was left as it is",
                remedy=refusals[0].remedy,
            )

    def _keep_up(self, upkeep: Upkeep, news: Properties, expires_at: str | None = None) -> MachineState:
        try:
            upkeep.run(expires_at)
        except GpuprovError as error:
            raise self._partial(upkeep, news, error) from error
        return upkeep.state

    def _partial(self, upkeep: Upkeep, news: Properties, cause: GpuprovError) -> PartialFailure:
        state = upkeep.state
        return PartialFailure(state.instance_id, self._outputs(state, news), cause, state.attempts)

    def _outputs(self, state: MachineState, inputs: Properties) -> Properties:
        """The machine's outputs with the inputs that they repeat; tags that hold a secret stay sealed."""
        written = wrap_map({**state.outputs(), RULES: [], CHANGES: []})
        written["cloudTags"] = replaced(inputs.get("tags"), state.cloud_tags)
        return {**echo(inputs, ECHOED), **written}

    def _visible(self, state: MachineState) -> Instance | None:
        """The machine of the state; one that has just been made may need a while to show."""
        if state.power is InstanceState.PENDING:
            return self.session.watch.until_visible(state.placement, state.instance_id, state.created_at)
        return self.session.watch.look_again(state.placement, state.instance_id)

    def _journal(self, slot: Slot) -> AbstractContextManager[Journal]:
        path = journal.slot_path(self.session.home, slot.stack_id, KIND, slot.resource)
        return journal.hold(path, self.session.lifeline)

    def _walk(self, urn: str, slot: Slot, inputs: InstanceInputs, calls: Journal) -> Failover:
        session = self.session

        def tell(attempt: Attempt) -> None:
            text = failures.encode_attempt(attempt)
            session.tell(urn, text if failures.wants_marks() else failures.strip(text))

        unavailable = Unavailable(session.home) if session.is_shared else None
        return Failover(session.cloud, session.lifeline, calls, slot, inputs, session.quota_family, tell, unavailable)


def _given(values: Mapping[str, Any]) -> Given:
    """The spec, and what the plan adds to it."""
    facts = values.get("node")
    return at("workload", values, read_mapping), facts if isinstance(facts, Mapping) else {}


def _later(before: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    was, now = before.get("workload"), values.get("workload")
    if not isinstance(was, Mapping) or not isinstance(now, Mapping):
        return []
    # A disk is attached at once, and mounted by the boot script; a bare machine mounts none.
    mounts = now.get("run") is not None
    return [*later(was, now), *(f"data disk {name}" for name in _added(before, values) if mounts)]


def _added(before: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """Data disks that the machine does not have yet; those that the plan names, where the inputs are not known yet."""
    wanted = part(values, "node").get("volumes") or _names(values.get("volumes"))
    return [name for name in wanted if isinstance(name, str) and name not in _names(before.get("volumes"))]


def _root_speed(outputs: Mapping[str, Any]) -> DiskSpeed | None:
    """What was bought for the root disk, as the state has it."""
    return at("rootSpeed", outputs, read_speed) if outputs.get("rootSpeed") else None


def _names(volumes: Any) -> list[Any]:
    entries = volumes if isinstance(volumes, list) else []
    return [entry.get("name") for entry in entries if isinstance(entry, Mapping)]


def checked_root_volume(olds: Properties, news: Properties) -> Any:
    """The size of the root disk in bytes: stated, else what it was, else the default.

    What it was: a later version with another default must not replace machines.
    """
    stated = news.get("rootVolume")
    if stated is not None and stated.value is not None:
        value = plain_map({"rootVolume": stated})["rootVolume"]
        return stated if has_unknown(value) else replaced(stated, read_size(value))
    before = plain_map(olds).get("rootVolume")
    return replaced(None, before if isinstance(before, int) else ROOT_VOLUME_BYTES)
