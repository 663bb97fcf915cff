"""Offers: instance type x region x zone x capacity type with a dated price."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from provisioner.catalog.instances import InstanceType
from provisioner.vocabulary import CapacityType


@dataclass(frozen=True, slots=True)
class Offer:
    """What can be bought. ``price_usd_per_hour`` is one instance, bundled local disks included; ``None`` is unknown.

    ``zone`` is an AWS zone id or a GCP zone; ``None`` where no listing names zones. ``suspect`` holds codes of
    suspect_reasons.csv; a suspect code never disappears silently.
    """

    instance: InstanceType
    region: str
    zone: str | None
    capacity_type: CapacityType
    price_usd_per_hour: Decimal | None
    price_as_of: str | None
    price_source: str | None
    suspect: tuple[str, ...] = ()

    @property
    def cloud(self) -> str:
        """``aws`` or ``gcp``."""
        return self.instance.cloud

    @property
    def key(self) -> str:
        """Stable text of the offer for records, tokens and rejections: ``aws/us-east-1/use1-az1/g6.xlarge/on-demand``."""
        return f"{self.cloud}/{self.region}/{self.zone or '*'}/{self.instance.name}/{self.capacity_type}"
