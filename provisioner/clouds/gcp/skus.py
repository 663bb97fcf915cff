"""Google's price list as rates: what a core, a GiB of memory, a GPU, a GiB of local SSD or of disk cost in a region and market.

SKUs are told apart by their description alone: usageType is wrong for some (spot B200 rates carry ``OnDemand``), and on-demand,
spot, DWS flex-start ("DWS Defined Duration") and DWS calendar rates of one part differ by half. Descriptions are matched as a
whole, never by a part of them: "Nvidia Tesla A100 GPU" is no A100 80GB, and a "Reserved" rate of 0 is nobody's price.

Source: Cloud Billing Catalog API, services 6F81-5844-456A; phrases as read by SkyPilot's fetch_gcp.py and gpuhunt's gcp.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from provisioner.catalog.fetched import CALENDAR, COMMIT_1Y, COMMIT_3Y, FLEX_START, ON_DEMAND, SPOT

MARKETS = (ON_DEMAND, SPOT, FLEX_START, CALENDAR, COMMIT_1Y, COMMIT_3Y)
CORE, RAM, LOCAL_SSD, DISK = "core", "ram", "local_ssd", "disk"

_UNITS = {CORE: "h", RAM: "GiBy.h", LOCAL_SSD: "GiBy.mo", DISK: "GiBy.mo"}
_GPU_UNIT = "h"
_DROPPED = ("commitment", "custom", "premium", "reserved", "sole tenancy", "upgrade", "capacity optimized")
_PREFIX = re.compile(r"^(?:Spot Preemptible|DWS Defined Duration|DWS Calendar Mode|Commitment v1:) ")
_COMMITMENT = re.compile(r"^Commitment v1: (?P<part>.+) for (?P<years>[13]) Years?$")
_COMMITTED = {("Commit1Yr", "1"): COMMIT_1Y, ("Commit3Yr", "3"): COMMIT_3Y}
"""(usageType, years of the description) -> market; where the two disagree, neither is believed."""
_NO_CONTRACT = ("custom", "premium", "reserved", "sole tenancy", "upgrade", "local ssd")
_PLACE = r"(?: running)?(?: in\b.*)?$"
_HOST = re.compile(rf"^(\w+)(?: Predefined)?(?: Instance)? (Core|Cpu|Ram){_PLACE}")
_ATTACHED = r"(?: attached to (?:Spot Preemptible|DWS Defined Duration|DWS Calendar Mode) VMs)?"
_GPU = re.compile(rf"^(?:Nvidia )?(?:Tesla )?(.+?)(?: GPU)?{_ATTACHED}{_PLACE}")
_SLICE = re.compile(rf"^(?:A4X? (?:Max )?)?Nvidia (\w+) \(1 gpu slice\){_ATTACHED}{_PLACE}")
_SSD = re.compile(rf"^SSD backed Local Storage{_ATTACHED}{_PLACE}")

_DISK = re.compile(r"^(Storage PD|Balanced PD|SSD backed PD|Hyperdisk Balanced) Capacity(?: in .*)?$")
DISK_PHRASES: Mapping[str, str] = {
    "Storage PD": "pd_standard",
    "Balanced PD": "pd_balanced",
    "SSD backed PD": "pd_ssd",
    "Hyperdisk Balanced": "hyperdisk_balanced",
}
"""What stands in a description -> disk service. Regional disks and those of confidential machines begin with other words."""

GPU_PHRASES: Mapping[str, str] = {
    "P4": "nvidia-tesla-p4",
    "P100": "nvidia-tesla-p100",
    "V100": "nvidia-tesla-v100",
    "T4": "nvidia-tesla-t4",
    "A100": "nvidia-tesla-a100",
    "A100 80GB": "nvidia-a100-80gb",
    "H100 80GB": "nvidia-h100-80gb",
    "H100 80GB Mega": "nvidia-h100-mega-80gb",
    "H100 Mega 80GB": "nvidia-h100-mega-80gb",
    "H100 80GB Plus": "nvidia-h100-mega-80gb",
    "H200 141GB": "nvidia-h200-141gb",
    "L4": "nvidia-l4",
    "RTX 6000 96GB": "nvidia-rtx-pro-6000",
}
"""What stands in a description -> accelerator type."""
SLICE_PHRASES: Mapping[str, str] = {"B200": "nvidia-b200", "GB200": "nvidia-gb200", "GB300": "nvidia-gb300"}
"""GPUs whose rate holds their share of the machine: there are no core and memory rates beside it."""

Part = tuple[str, str]
"""(``core``, series), (``ram``, series), (``gpu``, accelerator), (``slice``, accelerator), (``local_ssd``, "") or (``disk``, service)."""


@dataclass(frozen=True, slots=True)
class Rate:
    """USD per unit, and the SKU that says so."""

    amount_usd: Decimal
    sku: str


@dataclass(slots=True)
class Rates:
    """Rates by (region, market, part). Where several SKUs say one rate, the highest counts."""

    table: dict[tuple[str, str, Part], Rate] = field(default_factory=dict)

    def of(self, region: str, market: str, part: Part) -> Rate | None:
        """The rate of a part, or ``None`` where none is listed."""
        return self.table.get((region, market, part))

    def regions(self) -> tuple[str, ...]:
        """Regions with the rate of any GPU, sorted."""
        return tuple(sorted({region for region, _, part in self.table if part[0] in ("gpu", "slice")}))


def read_rates(skus: Iterable[Mapping[str, Any]]) -> Rates:
    """The rates of all SKUs that price a part of a GPU machine, or its disks.

    Raises:
        KeyError, TypeError, ValueError: a SKU has another form than the documented one.
    """
    rates = Rates()
    for sku in skus:
        description = sku["description"]
        market, part = market_of(sku), part_of(description)
        if market is None or part is None:
            continue
        expression = sku["pricingInfo"][0]["pricingExpression"] if sku.get("pricingInfo") else None
        if expression is None or expression["usageUnit"] != _UNITS.get(part[0], _GPU_UNIT):
            continue
        tiers = expression.get("tieredRates") or ()
        price = tiers[0]["unitPrice"] if tiers else None
        if price is None or price.get("currencyCode", "USD") != "USD":
            continue
        rate = Rate(_amount(price), str(sku.get("skuId", "")))
        for region in sku["serviceRegions"]:
            key = (str(region), market, part)
            if key not in rates.table or rates.table[key].amount_usd < rate.amount_usd:
                rates.table[key] = rate
    return rates


def market_of(sku: Mapping[str, Any]) -> str | None:
    """How a SKU is bought, ``None`` for what no machine is made of (reservations, custom machines, flexible commitments, ...)."""
    usage, words = sku["category"]["usageType"], sku["description"].lower()
    if found := _COMMITMENT.match(sku["description"]):
        return None if any(word in words for word in _NO_CONTRACT) else _COMMITTED.get((usage, found["years"]))
    if "calendar mode" in words:
        return CALENDAR
    if usage.startswith("Commit") or any(word in words for word in _DROPPED):
        return None
    if "dws defined duration" in words:
        return FLEX_START
    if "spot preemptible" in words or usage == "Preemptible":
        return SPOT
    return ON_DEMAND if usage == "OnDemand" else None


def part_of(description: str) -> Part | None:
    """What a SKU prices, ``None`` for what is no part of a GPU machine."""
    text = _PREFIX.sub("", description)
    if _SSD.match(text):
        return (LOCAL_SSD, "")
    if found := _DISK.match(text):
        return (DISK, DISK_PHRASES[found[1]])
    if found := _SLICE.match(text):
        accelerator = SLICE_PHRASES.get(found[1])
        return ("slice", accelerator) if accelerator else None
    if found := _HOST.match(text):
        return (RAM if found[2] == "Ram" else CORE, found[1].lower())
    if (found := _GPU.match(text)) and found[1] in GPU_PHRASES:
        return ("gpu", GPU_PHRASES[found[1]])
    return None


def _amount(price: Mapping[str, Any]) -> Decimal:
    """Whole units and billionths; int64 arrives as text, zero may be left out."""
    return Decimal(int(price.get("units") or 0)) + Decimal(int(price.get("nanos") or 0)) / Decimal(10**9)
