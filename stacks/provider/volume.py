"""``gpuprov:index:Volume``: a data disk that outlives machines; a ``GpuInstance`` makes it in the zone that it wins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from provisioner import tags
from provisioner.catalog.disk_kinds import INCLUDED_SPEED
from provisioner.clouds.cloud import Placement, Volume
from provisioner.errors import Rejected, UsageError
from provisioner.units import DiskSpeed
from provisioner.vocabulary import CapacityType
from stacks.provider.disks import lost_words, placement_of, refuse_to_shrink, volume_tags
from stacks.provider.identity import Slot, owner_of
from stacks.provider.inputs import (
    SPEED_CLOUDS,
    UNKNOWN_OWNER,
    at,
    read_mapping,
    read_offers,
    read_size,
    read_speed,
    speed_document,
)
from stacks.provider.inputs import failures as wrong_inputs
from stacks.provider.session import Checked, Created, Difference, Found, Session, cloud_settings, echo, settings_output
from stacks.provider.values import Properties, has_unknown, plain_map, replaced, wrap_map

DISK_KIND = "gp3"
"""Disks that have a speed to choose; a cloud with others tells no kind."""
_ECHOED = ("stackId", "name", "size", "offers", "speed")


def _read_text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a text")
    return value


_READERS = {
    "stackId": _read_text,
    "name": _read_text,
    "size": read_size,
    "speed": read_speed,
    "offers": read_offers,
    "workload": read_mapping,
}


@dataclass(frozen=True, slots=True)
class Volumes:
    """Operations on data disks."""

    session: Session

    def check(self, urn: str, olds: Properties, news: Properties) -> Checked:
        """The inputs with name and size filled in, or what is wrong with them."""
        del olds
        values = plain_map(news)
        wrong = wrong_inputs(values, ("stackId", "size", "offers"), _READERS)
        if wrong:
            return Checked(news, wrong)
        filled = dict(news)
        if "name" not in values:
            filled["name"] = replaced(None, Slot.of(urn, "").resource)
        if not has_unknown(values["size"]):
            filled["size"] = replaced(news["size"], read_size(values["size"]))
        return Checked(filled)

    def diff(self, olds: Properties, news: Properties) -> Difference:
        """What changes.

        Raises:
            Rejected: the disk would shrink, or be another one.
        """
        before, values = plain_map(olds), plain_map(news)
        known = {key: value for key, value in values.items() if not has_unknown(value)}
        for key in ("stackId", "name"):
            if key in known and key in before and known[key] != before[key]:
                raise Rejected(
                    f"data disk {before['name']} would become another disk ({key} changed); its data would be deleted",
                    remedy="keep it as it is, or add a second Volume, copy the data, and then take this one out",
                )
        changed: dict[str, bool] = {}
        if "size" not in known:
            changed["size"] = False
        elif known["size"] < before["size"]:
            raise refuse_to_shrink(before["name"], before["size"], known["size"])
        elif known["size"] > before["size"] or known["size"] > before.get("diskSize", known["size"]):
            changed["size"] = False
        if not has_unknown(values.get("speed")) and (_speed(known) != _speed(before) or _is_other(before, known)):
            changed["speed"] = False
        if "offers" in known and self._must_look(before, known):
            changed["offers"] = False
        if "workload" in known and self._settings(known) != before.get("cloudSettings"):
            changed["workload"] = False
        if before.get("lacksTags"):
            changed["workload"] = False
        return Difference(changed, stable=("stackId", "name", "provider"))

    def preview_create(self, news: Properties) -> Properties:
        """The inputs: where the disk will be is known after its machine is made."""
        return {**echo(news, _ECHOED), **wrap_map({"provider": self.session.provider})}

    def create(self, urn: str, news: Properties) -> Created:
        """Take the disk into the state; it is made with the first machine that carries it."""
        values = plain_map(news)
        resource_id = f"{at('stackId', values, str)}/{at('name', values, str)}"
        return Created(resource_id, self._outputs(news, self._find(urn, values, values)))

    def preview_update(self, olds: Properties, news: Properties) -> Properties:
        """What an update would leave."""
        return {**olds, **echo(news, _ECHOED)}

    def update(self, urn: str, olds: Properties, news: Properties) -> Properties:
        """Grow the disk and give it its speed, if it exists; note where it is."""
        before, values = plain_map(olds), plain_map(news)
        disk = self._find(urn, before, values) or self._untagged(urn, before)
        size_bytes = at("size", values, read_size)
        if disk is not None and _lacks_tags(disk):
            disk = self._tagged(urn, values, disk)
        if disk is not None:
            is_changed = bool(before.get("speed")) or _is_other(before, values)
            bought = _speed(values) or (INCLUDED_SPEED if is_changed else None)
            speed = bought if disk.cloud in SPEED_CLOUDS else None
            if disk.size_bytes < size_bytes or speed not in (None, disk.speed):
                size_bytes = max(size_bytes, disk.size_bytes)
                disk = self.session.cloud.grow_volume(placement_of(disk), disk.id, size_bytes, speed)
        return self._outputs(news, disk)

    def read(self, urn: str, resource_id: str, olds: Properties, inputs: Properties) -> Found:
        """The disk as it is now; one that was never made, or was deleted by somebody, stays in the state without a place.

        One that a run of this host made just before it was cut off is waited for: once the state holds its id, whoever ends
        the stack on another host deletes it, though no list may show it to them yet.
        """
        before, values = plain_map(olds), plain_map(inputs)
        disk = self.session.disks.find_settled(self._slot(urn, values or before), _places(before, values))
        if disk is None:
            disk = self._untagged(urn, before)
        if disk is None and before.get("volumeId"):
            self.session.warn(urn, lost_words(str(before["volumeId"])))
        if disk is not None and _lacks_tags(disk):
            self.session.warn(urn, f"data disk {disk.id} has lost tags of ours; `up` writes them again")
        return Found(resource_id, self._outputs(inputs, disk), inputs)

    def delete(self, urn: str, olds: Properties) -> None:
        """Delete the disk and its data; return when the cloud has it no more.

        Raises:
            GpuprovError: it is attached to a machine, or the cloud refused; it stays in the state.
        """
        before = plain_map(olds)
        bound = _bound(before)
        known = (bound, str(before["volumeId"])) if bound is not None else None
        self.session.disks.delete(self._slot(urn, before), at("offers", before, read_offers), known)

    def _find(self, urn: str, before: Mapping[str, Any], values: Mapping[str, Any]) -> Volume | None:
        return self.session.disks.find(self._slot(urn, values or before), _places(before, values))

    def _untagged(self, urn: str, before: Mapping[str, Any]) -> Volume | None:
        """The disk of the state under its id, where somebody has taken off the tags that it is found by; not one of another stack."""
        bound = _bound(before)
        if bound is None:
            return None
        disk = self.session.cloud.get_volume(bound, str(before["volumeId"]))
        own = self._slot(urn, before).stack_id
        return disk if disk is not None and disk.tags.get(tags.STACK_ID, own) == own else None

    def _tagged(self, urn: str, values: Mapping[str, Any], disk: Volume) -> Volume:
        """The disk with all tags of ours again; those that it still has stay."""
        workload = values.get("workload")
        spec = workload if isinstance(workload, Mapping) else {}
        owner = owner_of(spec) or UNKNOWN_OWNER
        written = {**volume_tags(self._slot(urn, values), spec, 1, owner, {}), **disk.tags}
        self.session.cloud.set_tags(placement_of(disk), disk.id, written)
        return replace(disk, tags=written)

    def _slot(self, urn: str, values: Mapping[str, Any]) -> Slot:
        own = Slot.of(urn, at("stackId", values, str), at("name", values, str))
        if not own.stack_id:
            raise UsageError("a Volume needs the stackId of its Launch", where="stackId")
        return own

    def _must_look(self, before: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
        """Whether new offers are in regions where the disk could come to be without the state knowing them."""
        now = {(offer.cloud, offer.region) for offer in at("offers", known, read_offers)}
        bound = _bound(before)
        if bound is not None:
            return (bound.cloud, bound.region) not in now
        return now != {(offer.cloud, offer.region) for offer in _offers(before)}

    def _settings(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        return cloud_settings(self.session.provider, values.get("workload"))

    def _outputs(self, inputs: Properties, disk: Volume | None) -> Properties:
        outputs = {
            **echo(inputs, _ECHOED),
            **settings_output(self.session.provider, inputs),
            **wrap_map({"provider": self.session.provider}),
        }
        if disk is None:
            return outputs
        # Not what it is attached to: that changes with every machine and would show as drift.
        binding: dict[str, Any] = {
            "volumeId": disk.id,
            "cloud": disk.cloud,
            "region": disk.region,
            "zone": disk.zone,
            "diskSize": disk.size_bytes,
        }
        binding["lacksTags"] = _lacks_tags(disk)
        if disk.kind is not None:
            binding["diskSpeed"] = _words(disk.kind, disk.speed)
        if disk.speed is not None and (inputs.get("speed") is not None or disk.speed != INCLUDED_SPEED):
            binding["speed"] = speed_document(disk.speed)
        return outputs | wrap_map(binding)


def _speed(values: Mapping[str, Any]) -> DiskSpeed | None:
    """What a disk is made to do beyond what is included, of inputs or outputs."""
    speed = at("speed", values, read_speed) if values.get("speed") else None
    return None if speed == INCLUDED_SPEED else speed


def _lacks_tags(disk: Volume) -> bool:
    """Whether somebody has taken off tags that every object of ours has."""
    return not set(tags.REQUIRED) <= set(disk.tags)


def _words(kind: str, speed: DiskSpeed | None) -> str:
    """What a disk is, for people: ``gp3, 3000 IOPS, 125 MiB/s``."""
    return kind if speed is None else f"{kind}, {speed.iops} IOPS, {speed.mib_per_s} MiB/s"


def _is_other(before: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether the disk was last seen as another kind, or with another speed, than it should have."""
    found = before.get("diskSpeed")
    return found is not None and found != _words(DISK_KIND, _speed(known) or INCLUDED_SPEED)


def _bound(values: Mapping[str, Any]) -> Placement | None:
    """Where the disk is, as far as the state knows."""
    if not values.get("volumeId"):
        return None
    return Placement(values["cloud"], values["region"], values.get("zone"), "", CapacityType.ON_DEMAND)


def _places(before: Mapping[str, Any], values: Mapping[str, Any]) -> list[Placement]:
    """Where the disk is, or may come to be."""
    bound = _bound(before)
    return [*([bound] if bound else []), *_offers(before), *_offers(values)]


def _offers(values: Mapping[str, Any]) -> tuple[Placement, ...]:
    offers = values.get("offers")
    return () if offers is None or has_unknown(offers) else read_offers(offers)
