"""Account quotas that gate GPU starts: which one an offer takes from, in which unit, how it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from provisioner.catalog.files import QUOTAS, CatalogFiles
from provisioner.catalog.instances import InstanceType
from provisioner.vocabulary import CapacityType


@dataclass(frozen=True, slots=True)
class Quota:
    """One row of quotas.csv. ``code`` is an AWS quota code or a GCP metric name."""

    cloud: str
    code: str
    service: str
    name: str
    unit: str
    scope: str
    applies_to: str | None
    how_to_read: str
    permission: str
    source: str
    as_of: str


@dataclass(frozen=True, slots=True)
class QuotaNeed:
    """What one instance takes: so many units of a quota."""

    quota: Quota
    units: float


@dataclass(frozen=True, slots=True)
class AccountQuota:
    """What one account may use of a quota in a region, in the quota's unit, and the day on which that was read."""

    limit: float
    as_of: str


def read_account_quotas(files: CatalogFiles) -> dict[tuple[str, str, str], AccountQuota]:
    """Limits of the account by (cloud, region, code); none where nothing was read."""
    return {
        (cloud, region, code): AccountQuota(float(limit), as_of)
        for cloud, region, code, limit, as_of in files.rows(QUOTAS, "cloud", "region", "quota_code", "limit", "as_of")
    }


def read_quotas(files: CatalogFiles) -> dict[tuple[str, str], Quota]:
    """All quotas by (cloud, code)."""
    return {
        (row["cloud"], row["quota_code"]): Quota(
            cloud=row["cloud"],
            code=row["quota_code"],
            service=row["service"],
            name=row["quota_name"],
            unit=row["unit"],
            scope=row["scope"],
            applies_to=row["applies_to"] or None,
            how_to_read=row["how_to_read"],
            permission=row["permission"],
            source=row["source"],
            as_of=row["as_of"],
        )
        for row in files.records("quotas.csv")
    }


def quota_need(
    quotas: Mapping[tuple[str, str], Quota], instance: InstanceType, capacity: CapacityType
) -> QuotaNeed | None:
    """The quota that one instance takes from, or ``None`` where it is not known.

    Spot has a quota of its own on both clouds; GCP flex-start takes from that of spot. A capacity block is paid for in
    advance and takes no vCPU quota; the number of blocks is limited, which is not a need of one instance.

    Source: quotas.csv and the notes of billing_rules.csv.
    """
    if capacity in (CapacityType.CAPACITY_BLOCK, CapacityType.RESERVED):
        return None
    code = instance.quota_on_demand if capacity is CapacityType.ON_DEMAND else instance.quota_spot
    if code is None or instance.quota_units is None:
        return None
    quota = quotas.get((instance.cloud, code))
    return QuotaNeed(quota, instance.quota_units) if quota else None
