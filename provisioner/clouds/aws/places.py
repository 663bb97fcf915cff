"""Regions and zones of the account. Zones are known by id: letters differ from account to account.

Source: AWS RAM user guide, "Availability Zone IDs"; skypilot-org/skypilot#1459.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from provisioner.clouds.aws.session import AwsApi
from provisioner.errors import Ambiguous, CredentialsError, Rejected

_NOT_ENABLED = "not-opted-in"
_REGIONAL = "availability-zone"
"""Source: EC2 API reference, AvailabilityZone: zoneType is that, ``local-zone`` or ``wavelength-zone``."""


class Places:
    """What the account can reach; asked once and kept. Safe to share between threads."""

    def __init__(self, api: AwsApi) -> None:
        self._api = api
        self._lock = threading.Lock()
        self._regions: tuple[str, ...] | None = None
        self._zones: dict[str, Mapping[str, str]] = {}
        self._others: dict[str, frozenset[str]] = {}
        """Local and wavelength zones by region."""

    def regions(self) -> tuple[str, ...]:
        """Regions that are enabled for the account, sorted. Only there can anything of ours be started."""
        with self._lock:
            if self._regions is None:
                answer = self._ask_regions(self._api.home_region)
                found = (entry for entry in answer["Regions"] if entry.get("OptInStatus") != _NOT_ENABLED)
                self._regions = tuple(sorted(str(entry["RegionName"]) for entry in found))
            return self._regions

    def _ask_regions(self, home: str) -> dict[str, Any]:
        try:
            return self._api.call("ec2", "DescribeRegions", home, AllRegions=False)
        except Ambiguous as error:
            if self._api.knows_region(home):
                raise
            raise CredentialsError(
                f"AWS does not answer in region {home}, which its SDK does not know",
                where="your AWS configuration",
                remedy="set AWS_REGION, or `region` in ~/.aws/config, to a region such as us-east-1",
            ) from error

    def require(self, region: str) -> None:
        """Refuse a region that is not enabled before it is called: it would answer as if the keys were wrong.

        Raises:
            Rejected: it is not.
        """
        if region not in self.regions():
            raise Rejected(
                f"region {region} does not exist or is not enabled for this account",
                remedy=f"`aws account enable-region --region-name {region}`, or leave it out of placement.regions",
            )

    def zone_name(self, region: str, zone_id: str) -> str:
        """This account's letter for a zone.

        Raises:
            Rejected: the account has no such zone.
        """
        zones = self._of(region)
        if zone_id not in zones:
            raise Rejected(
                f"there is no zone {zone_id} in {region} for this account; it has {', '.join(sorted(zones))}",
                remedy="use one of those, or leave the zone open",
            )
        return zones[zone_id]

    def zone_id(self, region: str, zone_name: str | None) -> str | None:
        """The id of a zone by this account's letter; ``None`` where it is not known."""
        return next((zone_id for zone_id, name in self._of(region).items() if name == zone_name), None)

    def is_regional(self, region: str, zone_id: str | None) -> bool:
        """Whether a zone is one of the region itself; the others have few types and prices of their own."""
        self._of(region)
        with self._lock:
            return zone_id not in self._others[region]

    def _of(self, region: str) -> Mapping[str, str]:
        with self._lock:
            known = self._zones.get(region)
        if known is None:
            answer = self._api.call("ec2", "DescribeAvailabilityZones", region)
            known = {str(zone["ZoneId"]): str(zone["ZoneName"]) for zone in answer["AvailabilityZones"]}
            others = (z for z in answer["AvailabilityZones"] if z.get("ZoneType", _REGIONAL) != _REGIONAL)
            with self._lock:
                self._zones[region] = known
                self._others[region] = frozenset(str(zone["ZoneId"]) for zone in others)
        return known
