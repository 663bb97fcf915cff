"""The plan: what was chosen, why, at what cost, what else was possible; frozen, JSON both ways (CONTRACTS section 5)."""

from __future__ import annotations

from dataclasses import field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from provisioner.records import record
from provisioner.sizing.footprint import Footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.throughput import Throughput
from provisioner.units import DiskSpeed

if TYPE_CHECKING:
    from provisioner.sizing.outlook import Outlook

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
    saved_usd: Decimal | None = None
    """Against on-demand in the same region over the run, else the month, rework counted."""
    expected_interruptions: float | None = None
    """Over the run, else the month."""
    lost_hours_each: float | None = None
    """Work and waiting lost by one: half a checkpoint interval, then a new machine and its weights."""


@record(frozen=True, slots=True)
class BillLine:
    """One item of a month's or a run's bill: ``quantity`` of ``unit`` at ``unit_price_usd`` makes ``amount_usd``."""

    item: str
    """``compute``, ``rework``, ``public-address``, ``nat-gateway``, ``disk:<name>``, ``disk:<name>:iops``,
    ``disk:<name>:mib_per_s``, ``egress``, ``nat-processing`` or
    ``weights-transfer``."""
    per: str
    """``month`` or ``run``."""
    quantity: Decimal | None
    unit: str
    unit_price_usd: Decimal | None
    amount_usd: Decimal | None
    source: str | None = None
    as_of: str | None = None
    note: str | None = None
    in_total: bool = True
    """Not for an item whose amount is unknown and that the total leaves out; the plan warns of each."""


@record(frozen=True, slots=True)
class Commitment:
    """What buying capacity ahead means. ``None`` is what only the cloud's own offer says."""

    kind: str
    """The capacity type: ``reserved``, ``capacity-block`` or ``flex-start``."""
    start: str | None
    days: int | None
    """Whole days that are paid for."""
    upfront_usd: Decimal | None
    """Paid at the purchase, used or not; ``0`` where use is billed."""
    terms: str


@record(frozen=True, slots=True)
class CommittedRate:
    """A one- or three-year contract beside on-demand; ``None`` where no price is known. Never bought by ``up``."""

    years: int
    usd_per_hour: Decimal | None
    """All instances."""
    usd_per_month: Decimal | None
    """Of 730 hours, used or not."""
    saved_usd_per_month: Decimal | None
    """Against on-demand for the hours a month of this workload; below 0 where it is dearer."""
    breakeven_hours_per_month: float | None
    """Hours of use from which it is cheaper; ``None`` also where it never is."""
    as_of: str | None = None
    source: str | None = None


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
    transfer_usd_per_month: Decimal | None = None
    """Fetching the weights from another region or cloud, and the NAT gateway where there is one."""
    total_usd_per_hour: Decimal | None = None
    """Everything that is billed by time while the machines run: compute, addresses or gateway, disks."""
    snapshot_usd_per_month: Decimal | None = None
    """What a month of the disks would cost as snapshots at most, instead of ``stopped_usd_per_month``."""
    lines: tuple[BillLine, ...] = ()
    """Every item of the month, then of the run; those in the total add up to it. Of the choice alone."""
    commitment: Commitment | None = None
    """What buying ahead means, where the capacity type asks for it."""
    commitments: tuple[CommittedRate, ...] = ()
    """Contracts beside on-demand, for an endpoint on demand. Of the choice alone."""


@record(frozen=True, slots=True)
class Alternative:
    """Another offer that holds the workload, with its own footprint and bill."""

    offer: PlannedOffer
    footprint: Footprint
    cost: Cost
    why_not: str = ""
    """Why it is not the choice, in one line."""


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
    speed: DiskSpeed | None = None
    """Bought beyond what the kind of disk includes; ``None``: nothing is. Its price is in ``usd_per_month``."""


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
    outlook: Outlook | None = None
    """How the choice does at work: steady state, limits, start, storage."""
    closest: tuple[str, ...] = ()
    """Smallest changes that would fit, in words a person can act on."""
    what_if: tuple[str, ...] = ()
    """Changes that would move the answer, each planned; only where an explanation was asked for."""
