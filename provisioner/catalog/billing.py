"""Billing granularity, minimum charge, reclaim and stop behaviour of each cloud's capacity types."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.catalog.files import CatalogFiles
from provisioner.records import record
from provisioner.vocabulary import CapacityType

_MODELS: Mapping[CapacityType, tuple[str, ...]] = {
    CapacityType.ON_DEMAND: ("on_demand",),
    CapacityType.SPOT: ("spot",),
    CapacityType.CAPACITY_BLOCK: ("capacity_block", "calendar_reservation"),
    CapacityType.RESERVED: ("calendar_reservation",),
    CapacityType.FLEX_START: ("flex_start",),
}


@record(frozen=True, slots=True)
class BillingRule:
    """One row of billing_rules.csv. Times are seconds; ``None`` is not known or not applicable."""

    cloud: str
    purchase_model: str
    granularity_s: int | None
    minimum_charge_s: int | None
    reclaim_notice_s: int | None
    on_reclaim: str
    user_stop: str
    billed_while_stopped: str
    local_disk_on_stop: str
    source: str
    as_of: str
    confidence: str


def read_billing_rules(files: CatalogFiles) -> dict[tuple[str, str], BillingRule]:
    """All rules by (cloud, purchase model)."""
    return {
        (row["cloud"], row["purchase_model"]): BillingRule(
            cloud=row["cloud"],
            purchase_model=row["purchase_model"],
            granularity_s=_seconds(row["granularity_s"]),
            minimum_charge_s=_seconds(row["minimum_charge_s"]),
            reclaim_notice_s=_seconds(row["reclaim_notice_s"]),
            on_reclaim=row["on_reclaim"],
            user_stop=row["user_stop"],
            billed_while_stopped=row["billed_while_stopped"],
            local_disk_on_stop=row["local_disk_on_stop"],
            source=row["source"],
            as_of=row["as_of"],
            confidence=row["confidence"],
        )
        for row in files.records("billing_rules.csv")
    }


def billing_rule(
    rules: Mapping[tuple[str, str], BillingRule], cloud: str, capacity: CapacityType
) -> BillingRule | None:
    """The rule that an offer is billed by, or ``None`` where it is not known."""
    return next((rules[cloud, model] for model in _MODELS[capacity] if (cloud, model) in rules), None)


def _seconds(cell: str) -> int | None:
    return int(float(cell)) if cell else None
