"""What carries our tags and no command of ours makes or ends by itself: for ``gc`` alone.

A network interface is made by ``RunInstances`` and ends with its machine, unless somebody changed that. Elastic addresses and
snapshots are never made here; a backup service copies the tags of a disk to its snapshots.

Source: AWS Backup developer guide, "Copying tags onto backups"; EC2 API reference, NetworkInterface, Address, Snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from provisioner.clouds.aws import tagging, views
from provisioner.clouds.aws.instances import Instances
from provisioner.clouds.aws.rates import Rates
from provisioner.clouds.aws.session import filters
from provisioner.clouds.cloud import AGE_UNKNOWN, BillableObject
from provisioner.errors import NotFound, Rejected
from provisioner.units import GIB

_ENDS = {
    "network-interface": ("DeleteNetworkInterface", "NetworkInterfaceId"),
    "address": ("ReleaseAddress", "AllocationId"),
    "snapshot": ("DeleteSnapshot", "SnapshotId"),
}
"""Kind -> the call that ends it, and how that names it."""


@dataclass(frozen=True, slots=True)
class Strays:
    """Such objects of one account."""

    instances: Instances
    rates: Rates

    def list_region(self, region: str) -> Iterator[BillableObject]:
        """Interfaces without a machine, elastic addresses, and snapshots.

        Raises:
            GpuprovError: one of the lists failed.
        """
        api, ours = self.instances.api, filters({})
        for found in api.pages("ec2", "DescribeNetworkInterfaces", region, "NetworkInterfaces", Filters=ours):
            if found.get("Status") == "available":
                yield self._object("network-interface", region, found, "NetworkInterfaceId", "TagSet", price="0")
        for found in api.call("ec2", "DescribeAddresses", region, Filters=ours)["Addresses"]:
            state = "in-use" if found.get("AssociationId") else "available"
            price = self.rates.address()
            yield self._object("address", region, found, "AllocationId", "Tags", price=price, state=state)
        for found in api.pages("ec2", "DescribeSnapshots", region, "Snapshots", Filters=ours, OwnerIds=["self"]):
            yield self._object("snapshot", region, found, "SnapshotId", "Tags", price=None, state=str(found["State"]))

    def end(self, region: str, kind: str, object_id: str) -> None:
        """End one; one that is gone is fine.

        Raises:
            GpuprovError: AWS refused, or the kind is another one.
        """
        if kind not in _ENDS:
            raise Rejected(f"gpuprov does not know how to end a {kind}")
        operation, key = _ENDS[kind]
        try:
            self.instances.api.call("ec2", operation, region, **_named(key, object_id))
        except NotFound:
            return

    def _object(
        self,
        kind: str,
        region: str,
        found: Mapping[str, Any],
        key: str,
        tags: str,
        *,
        price: str | None,
        state: str = "available",
    ) -> BillableObject:
        shown = tagging.read(found.get(tags))
        begun: datetime | None = found.get("StartTime")
        size = found.get("VolumeSize")
        extra = {"provider": views.CLOUD, "name": shown.name}
        extra |= {"size_bytes": str(int(size) * GIB)} if size else {}
        extra |= {} if begun else {AGE_UNKNOWN: "true"}
        return BillableObject(
            cloud=views.CLOUD,
            kind=kind,
            id=str(found[key]),
            region=region,
            zone=self.instances.places.zone_id(region, found.get("AvailabilityZone")),
            state=state,
            tags=shown.tags,
            price_usd_per_hour=price,
            created_at=(begun or datetime.now(UTC)).astimezone(UTC),
            extra=extra,
        )


def _named(key: str, object_id: str) -> dict[str, Any]:
    return {key: object_id}
