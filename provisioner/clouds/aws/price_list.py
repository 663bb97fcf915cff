"""Entries of the AWS Price List as quotes: the on-demand price of an instance type, and its reserved terms of one and three years.

A reserved term is compared by its effective price an hour: what is paid ahead spread over the term, plus what is paid by the hour.
The standard class without anything paid ahead is taken where it is sold, else the one with the least paid ahead.

Source: AWS Price List Query API, GetProducts of AmazonEC2, format aws_v1: ``terms.OnDemand`` and ``terms.Reserved`` with
``termAttributes`` LeaseContractLength, OfferingClass and PurchaseOption, ``priceDimensions`` in ``Hrs`` and ``Quantity``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from provisioner.catalog.fetched import COMMIT_1Y, COMMIT_3Y, DiskQuote, PriceQuote
from provisioner.errors import CloudError

HOURS_PER_YEAR = 8760
_YEARS = {"1yr": (1, COMMIT_1Y), "1 yr": (1, COMMIT_1Y), "3yr": (3, COMMIT_3Y), "3 yr": (3, COMMIT_3Y)}
_OPTIONS = ("No Upfront", "Partial Upfront", "All Upfront")
"""How a term is paid, that with the least risk first."""
_PLACES = Decimal("0.000001")
_DISKS = {"EBS:VolumeUsage.gp3": "ebs_gp3", "EBS:SnapshotUsage": "ebs_snapshot_standard"}
"""End of a usage type, whose start names the region -> service. Archived and shared snapshots have other ends."""


class Listed(NamedTuple):
    """What an entry says of an instance type."""

    instance_type: str
    has_gpus: bool
    on_demand: PriceQuote | None
    committed: Mapping[str, PriceQuote]
    """Purchase model (``commit_1y``, ``commit_3y``) -> its effective price an hour."""


def read_entry(entry: str | Mapping[str, Any], region: str) -> Listed:
    """An entry of the Price List.

    Raises:
        CloudError: it has another form than the documented one.
    """
    try:
        product = json.loads(entry) if isinstance(entry, str) else entry
        attributes, terms = product["product"]["attributes"], product["terms"]
        name = str(attributes["instanceType"])
        hourly = [price for term in terms.get("OnDemand", {}).values() for price in _in_usd(term, "Hrs")]
        committed = _committed(name, terms.get("Reserved", {}).values())
        gpus = str(attributes.get("gpu", "0"))
    except (ValueError, KeyError, TypeError, AttributeError, InvalidOperation) as error:
        raise _of_another_form(region, error) from None
    on_demand = PriceQuote(name, "*", hourly[0]) if hourly else None
    return Listed(name, gpus not in ("", "0", "NA"), on_demand, committed)


def read_disk(entry: str | Mapping[str, Any], region: str) -> DiskQuote | None:
    """The price of an EBS volume or snapshot type; ``None`` for an entry about anything else.

    Raises:
        CloudError: it has another form than the documented one.
    """
    try:
        product = json.loads(entry) if isinstance(entry, str) else entry
        usage = str(product["product"]["attributes"].get("usagetype", ""))
        service = next((name for ending, name in _DISKS.items() if usage.endswith(ending)), None)
        terms = product["terms"].get("OnDemand", {}).values() if service else ()
        monthly = [price for term in terms for price in _in_usd(term, "GB-Mo")]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _of_another_form(region, error) from None
    return DiskQuote(service, monthly[0]) if service and monthly else None


def _of_another_form(region: str, error: Exception) -> CloudError:
    return CloudError(
        f"the price list of {region} has an entry of another form: {type(error).__name__} {error}",
        where=f"pricing:GetProducts of {region}",
        remedy="try again later; if it stays, please report it",
    )


def _in_usd(term: Mapping[str, Any], unit: str) -> list[str]:
    """Prices of a term in one unit, as they are written."""
    dimensions = term["priceDimensions"].values()
    # Reserved terms write ``Hrs`` and ``hrs``.
    return [
        str(each["pricePerUnit"]["USD"])
        for each in dimensions
        if str(each["unit"]).lower() == unit.lower() and "USD" in each["pricePerUnit"]
    ]


def _committed(name: str, terms: Iterable[Mapping[str, Any]]) -> dict[str, PriceQuote]:
    found: dict[str, tuple[int, PriceQuote]] = {}
    for term in terms:
        attributes = term["termAttributes"]
        length, option = attributes.get("LeaseContractLength"), attributes.get("PurchaseOption")
        if length not in _YEARS or option not in _OPTIONS or attributes.get("OfferingClass", "standard") != "standard":
            continue
        hourly, upfront = _in_usd(term, "Hrs"), _in_usd(term, "Quantity")
        if not hourly and not upfront:
            continue
        years, model = _YEARS[length]
        ahead = sum(map(Decimal, upfront), Decimal(0)) / (years * HOURS_PER_YEAR)
        price = (sum(map(Decimal, hourly), Decimal(0)) + ahead).quantize(_PLACES)
        rank, quote = _OPTIONS.index(option), PriceQuote(name, "*", str(price), notes=f"reserved, standard, {option}")
        if model not in found or rank < found[model][0]:
            found[model] = (rank, quote)
    return {model: quote for model, (_, quote) in found.items()}
