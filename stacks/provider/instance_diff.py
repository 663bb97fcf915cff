"""What changes on a machine when its inputs change: nothing, an update in place, a replacement, or a refusal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner import tags
from provisioner.clouds.cloud import InstanceState
from provisioner.errors import GpuprovError, Rejected, UsageError
from stacks import foreign
from stacks.provider import lifetime, shutdown
from stacks.provider.alterations import CHANGES, RULES
from stacks.provider.disks import Zone, move_steps, refuse_to_shrink
from stacks.provider.identity import Slot, object_tags
from stacks.provider.inputs import (
    UNKNOWN_OWNER,
    Power,
    WantedVolume,
    at,
    read_mapping,
    read_offers,
    read_power,
    read_tags,
    read_volumes,
    root_volume,
)
from stacks.provider.machine import Wanted, is_over, reasons_for_new
from stacks.provider.machine_state import STABLE, MachineState
from stacks.provider.rerun import Rerun
from stacks.provider.session import Difference
from stacks.provider.values import UNKNOWN, has_unknown

_UP = (InstanceState.RUNNING, InstanceState.PENDING)


def diff(urn: str, olds: Mapping[str, Any], news: Mapping[str, Any], again: Rerun | None = None) -> Difference:
    """The difference between a machine's outputs and its new inputs.

    Args:
        urn: of the resource.
        olds: its outputs.
        news: its inputs.
        again: what is to be done where it has to run something else.

    Raises:
        UsageError: a new machine is needed and its launch does not know of it.
        Rejected: data disks would shrink, move or get lost.
    """
    state = MachineState.read(olds)
    known = {key: value for key, value in news.items() if not has_unknown(value)}
    power = at("power", known, read_power) if "power" in known else Power.RUNNING
    reasons = _reasons_for_new(state, olds, news, known)
    if again is not None and again.refusal is not None:
        reasons[again.key] = f"it has to run something else, and {again.refusal}"
    stack_id = _mapping(news.get("launch")).get("stackId")
    if stack_id not in (None, UNKNOWN, state.stack_id):
        reasons["launch"] = "its launch is another one, with another stack-id"
    is_missing = is_over(state.power) and power is Power.RUNNING
    if is_missing:
        reasons["power"] = f"the machine is {state.power}"
    volumes = _check_volumes(olds, news, known)
    if reasons:
        _check_replacement(state, olds, news, known, reasons, is_missing=is_missing)
        return Difference(dict.fromkeys(reasons, True))
    changed = _changes_in_place(urn, state, olds, news, known=known, volumes=volumes)
    if again is not None:
        changed[again.key] = False
    if (power is Power.RUNNING) != (state.power in _UP) and not is_over(state.power):
        changed["power"] = False
    return Difference(changed, stable=STABLE)


def expiry_after(olds: Mapping[str, Any], workload: Mapping[str, Any], state: MachineState) -> str:
    """When the machine ends under a new spec: as its tag says, unless its lifetime was edited.

    The lifetime counts from the creation or the last start, which the old end and the old lifetime tell.
    """
    before = lifetime.max_lifetime(_mapping(olds.get("workload")))
    if before == lifetime.max_lifetime(workload):
        return state.expires_at
    ends = tags.parse_time(state.expires_at)
    since = state.created_at if ends is None or before is None else ends - before
    return lifetime.expires_at(workload, since)


def wanted_tags(
    urn: str,
    olds: Mapping[str, Any],
    state: MachineState,
    *,
    workload: Mapping[str, Any],
    stated: Mapping[str, str],
    owner: str | None,
) -> dict[str, str]:
    """All tags that the machine should carry now."""
    return object_tags(
        Slot.of(urn, state.stack_id),
        workload,
        generation=state.generation,
        expires_at=expiry_after(olds, workload, state),
        owner=owner or state.cloud_tags.get(tags.OWNER, UNKNOWN_OWNER),
        stated=stated,
    )


def _reasons_for_new(
    state: MachineState, olds: Mapping[str, Any], news: Mapping[str, Any], known: Mapping[str, Any]
) -> dict[str, str]:
    """Why a live machine cannot stay: input -> reason; what is not known yet is no reason."""
    if "offers" not in known or "workload" not in known:
        return {}
    is_root_known = olds.get("rootVolume") is not None and ("rootVolume" in known or "rootVolume" not in news)
    wanted = Wanted(at("offers", known, read_offers), at("workload", known, read_mapping), root_volume(known))
    root_bytes = root_volume(olds) if is_root_known else None
    reasons = reasons_for_new(wanted, state.placement, state.image, root_bytes)
    if state.asked is None or _is_ahead(state, news):
        return reasons
    # What somebody has changed by hand is told, and is no reason to end a machine: as it was asked for it could stay.
    return {} if not reasons else reasons_for_new(wanted, state.asked.placement, state.asked.image, root_bytes)


def _is_ahead(state: MachineState, news: Mapping[str, Any]) -> bool:
    """Whether the launch is one for another machine."""
    generation = _mapping(news.get("launch")).get("generation", UNKNOWN)
    return generation is UNKNOWN or int(generation) > state.generation


def _check_replacement(
    state: MachineState,
    olds: Mapping[str, Any],
    news: Mapping[str, Any],
    known: Mapping[str, Any],
    reasons: Mapping[str, str],
    *,
    is_missing: bool,
) -> None:
    """Refuse a replacement before it ends the old machine, where the new one could not be made."""
    if olds.get("volumes") and state.placement.zone is not None and "offers" in known:
        zone = Zone(state.placement.cloud, state.placement.region, state.placement.zone)
        if not zone.narrow(at("offers", known, read_offers)):
            raise Rejected(
                f"the data disks of the machine are in {zone.zone}, and no offer is there",
                remedy=move_steps("them", "the new zone"),
            )
    if not is_missing and "launch" not in reasons and not _is_ahead(state, news):
        raise UsageError(
            f"a new machine is needed ({'; '.join(reasons.values())}), but its launch is still of generation "
            f"{state.generation}; nothing was changed",
            remedy="give the Launch the same workload, offers and rootVolume as its GpuInstance",
        )


def _check_volumes(
    olds: Mapping[str, Any], news: Mapping[str, Any], known: Mapping[str, Any]
) -> tuple[WantedVolume, ...]:
    """The wanted disks; the old ones where the new are not known yet.

    Raises:
        Rejected: one is smaller than it was, or gone from the list.
    """
    before = {volume.name: volume for volume in read_volumes(olds.get("volumes") or ())}
    if "volumes" in news and "volumes" not in known:
        return tuple(before.values())
    now = at("volumes", known, read_volumes) if known.get("volumes") else ()
    for volume in now:
        old = before.pop(volume.name, None)
        if old is not None and volume.size_bytes < old.size_bytes:
            raise refuse_to_shrink(volume.name, old.size_bytes, volume.size_bytes)
    if before:
        raise _lost(sorted(before))
    return now


def _lost(names: list[str]) -> GpuprovError:
    return Rejected(
        f"data disk {', '.join(names)} was taken out of a live machine; an update never deletes or detaches data",
        remedy="put it back, or end the stack with `down` (which names each disk first)",
    )


def _changes_in_place(
    urn: str,
    state: MachineState,
    olds: Mapping[str, Any],
    news: Mapping[str, Any],
    *,
    known: Mapping[str, Any],
    volumes: tuple[WantedVolume, ...],
) -> dict[str, bool]:
    changed: dict[str, bool] = {}
    for key in ("workload", "tags", "volumes", "rootSpeed"):
        if has_unknown(news.get(key)) or (news.get(key) or None) != (olds.get(key) or None):
            changed[key] = False
    if is_over(state.power):
        return changed
    if len(volumes) != len(state.volume_ids):
        changed["volumes"] = False
    if olds.get(RULES):
        changed["workload"] = False  # its `access`
    if any(change.undo is None for change in foreign.read(olds.get(CHANGES))):
        changed["workload"] = False
    if "workload" in known and ("tags" in known or "tags" not in news):
        stated = at("tags", known, read_tags) if known.get("tags") else {}
        owner = _mapping(news.get("launch")).get("owner")
        written = wanted_tags(
            urn,
            olds,
            state,
            workload=read_mapping(known["workload"]),
            stated=stated,
            owner=owner if isinstance(owner, str) else None,
        )
        if "node" in known or "node" not in news:
            facts = _mapping(news.get("node"))
            written |= shutdown.wanted(read_mapping(known["workload"]), facts, state.placement, state.cloud_tags)
        if not written.items() <= state.cloud_tags.items():
            changed["tags"] = False
    return changed


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
