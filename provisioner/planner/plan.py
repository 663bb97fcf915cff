"""The plan: what was chosen, why, at what cost, what else was possible; frozen, JSON both ways (CONTRACTS section 5)."""

from __future__ import annotations

from dataclasses import field
from decimal import Decimal
from typing import Any

from provisioner.records import record
from provisioner.sizing.footprint import Footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.throughput import Throughput

SCHEMA = "gpuprov.plan/1"


@record(frozen=True, slots=True)
class PlannedOffer:
    """An offer as a plan names it, in the order in which it is tried."""

    cloud: str
    region: str
    zone: str | None
    instance_type: str
    instances: int
    gpu: str
    gpus_per_instance: float
    """Devices, or the share of one GPU for a fractional instance type."""
    capacity_type: str
    price_usd_per_hour: Decimal | None
    price_as_of: str | None
    interconnect: str
    layout: Layout
    reasons: tuple[str, ...] = ()
    supply: str = "unknown"
    """Whether a launch is likely to succeed: ``likely``, ``scarce`` or ``unknown``, as the catalog's observations say."""
    supply_as_of: str | None = None
    """When that was seen."""

    @property
    def key(self) -> str:
        """The same text as ``catalog.offers.Offer.key``."""
        return f"{self.cloud}/{self.region}/{self.zone or '*'}/{self.instance_type}/{self.capacity_type}"


@record(frozen=True, slots=True)
class SpotEconomics:
    """What spot costs beyond its price. ``interruption_rate`` is a share per month."""

    interruption_rate: float | None
    expected_rework_usd: Decimal | None
    breakeven: Decimal | None


@record(frozen=True, slots=True)
class Cost:
    """The bill. ``None`` is unknown, never zero."""

    compute_usd_per_hour: Decimal | None
    storage_usd_per_month: Decimal | None
    egress_usd_per_month: Decimal | None
    stopped_usd_per_month: Decimal | None
    total_usd_per_month: Decimal | None
    run_usd: Decimal | None
    usd_per_million_tokens: Decimal | None
    spot: SpotEconomics | None
    public_ip_usd_per_month: Decimal | None = None
    rework_usd_per_month: Decimal | None = None
    """Expected work done again after spot interruptions; part of the total where it is known."""
    hours_per_month: float | None = None
    run_hours: float | None = None
    """Predicted length of a fine-tuning, pre-training or batch; ``None`` where the spec gives no amount of work."""


@record(frozen=True, slots=True)
class Alternative:
    """Another offer that holds the workload, with its own footprint and bill."""

    offer: PlannedOffer
    footprint: Footprint
    cost: Cost


@record(frozen=True, slots=True)
class Rejection:
    """Why an offer (or a group of offers) is out: the filter that said no, what was needed and what there is."""

    offer: str
    filter: str
    reason: str
    needed: str | None = None
    available: str | None = None


@record(frozen=True, slots=True)
class StorageItem:
    """A disk or share of the workload. ``kind`` is root, data, checkpoints, shared or local.

    There are ``count`` of them of ``size_bytes`` each (one root disk per instance); the price is that of all.
    """

    name: str
    kind: str
    size_bytes: int
    service: str | None
    usd_per_month: Decimal | None
    count: int = 1


@record(frozen=True, slots=True)
class Plan:
    """A whole answer. ``choice`` is ``None`` and ``closest`` says what would fit when the verdict is ``nothing-fits``."""

    workload_name: str
    task: str
    workload_digest: str
    workload_spec: dict[str, Any]
    """The normalised spec (JSON-able), so that a saved plan can be judged and applied without its YAML."""
    catalog_digest: str
    catalog_as_of: str
    verdict: str
    choice: PlannedOffer | None
    footprint: Footprint | None
    throughput: Throughput | None
    cost: Cost | None
    storage: tuple[StorageItem, ...] = ()
    launch_argv: tuple[str, ...] = ()
    launch_env: dict[str, str] = field(default_factory=dict)
    failover: tuple[PlannedOffer, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    rejections: tuple[Rejection, ...] = ()
    warnings: tuple[str, ...] = ()
    largest: dict[str, int] = field(default_factory=dict)
    """Numbers of the demand at their largest that fits on the choice, all else as asked; empty without a choice."""
    closest: tuple[str, ...] = ()
    """Smallest changes that would fit, in words a person can act on."""
