"""The ``cost`` object of a plan, both ways: the contracted amounts, and the lines that they are sums of."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from provisioner.planner.plan import BillLine, Commitment, CommittedRate, Cost, SpotEconomics
from provisioner.units import decimal_string

Document = dict[str, Any]

MONEY_FIELDS = (
    "compute_usd_per_hour",
    "storage_usd_per_month",
    "egress_usd_per_month",
    "stopped_usd_per_month",
    "total_usd_per_month",
    "run_usd",
    "usd_per_million_tokens",
)
"""Money of the contracted ``cost`` object, in its order."""
OTHER_MONEY_FIELDS = (
    "public_ip_usd_per_month",
    "rework_usd_per_month",
    "transfer_usd_per_month",
    "total_usd_per_hour",
    "snapshot_usd_per_month",
)
"""Money beside the contracted terms."""


def cost_summary(cost: Cost) -> Document:
    """The amounts, without the lines that they are made of."""
    document: Document = {key: money(getattr(cost, key)) for key in MONEY_FIELDS}
    document["spot"] = _spot_document(cost.spot) if cost.spot else None
    document |= {key: money(getattr(cost, key)) for key in OTHER_MONEY_FIELDS}
    document["hours_per_month"] = plain_number(cost.hours_per_month)
    document["run_hours"] = plain_number(cost.run_hours)
    document["commitment"] = _commitment_document(cost.commitment) if cost.commitment else None
    return document


def cost_document(cost: Cost) -> Document:
    """The whole object: amounts, lines, and contracts beside on-demand."""
    return cost_summary(cost) | {
        "commitments": [_rate_document(rate) for rate in cost.commitments],
        "lines": [_line_document(line) for line in cost.lines],
    }


def read_cost(document: Mapping[str, Any]) -> Cost:
    """The cost of a document; what plans of earlier versions lack is unknown.

    Raises:
        KeyError, TypeError, ValueError, InvalidOperation: a part is missing or of another kind.
    """
    spot, commitment = document["spot"], document.get("commitment")
    amounts: dict[str, Any] = {key: read_money(document[key]) for key in MONEY_FIELDS}
    amounts |= {key: read_money(document.get(key)) for key in OTHER_MONEY_FIELDS}
    return Cost(
        **amounts,
        hours_per_month=read_number(document.get("hours_per_month")),
        run_hours=read_number(document.get("run_hours")),
        spot=_read_spot(spot) if spot else None,
        lines=tuple(_read_line(line) for line in document.get("lines", ())),
        commitment=_read_commitment(commitment) if commitment else None,
        commitments=tuple(_read_rate(rate) for rate in document.get("commitments", ())),
    )


def _spot_document(spot: SpotEconomics) -> Document:
    return {
        "interruption_rate": spot.interruption_rate,
        "expected_rework_usd": money(spot.expected_rework_usd),
        "breakeven": money(spot.breakeven),
        "saved_usd": money(spot.saved_usd),
        "expected_interruptions": plain_number(spot.expected_interruptions),
        "lost_hours_each": plain_number(spot.lost_hours_each),
    }


def _read_spot(document: Mapping[str, Any]) -> SpotEconomics:
    return SpotEconomics(
        interruption_rate=read_number(document["interruption_rate"]),
        expected_rework_usd=read_money(document["expected_rework_usd"]),
        breakeven=read_money(document["breakeven"]),
        saved_usd=read_money(document.get("saved_usd")),
        expected_interruptions=read_number(document.get("expected_interruptions")),
        lost_hours_each=read_number(document.get("lost_hours_each")),
    )


def _line_document(line: BillLine) -> Document:
    return {
        "item": line.item,
        "per": line.per,
        "quantity": money(line.quantity),
        "unit": line.unit,
        "unit_price_usd": money(line.unit_price_usd),
        "amount_usd": money(line.amount_usd),
        "source": line.source,
        "as_of": line.as_of,
        "note": line.note,
        "in_total": line.in_total,
    }


def _read_line(document: Mapping[str, Any]) -> BillLine:
    return BillLine(
        item=str(document["item"]),
        per=str(document["per"]),
        quantity=read_money(document["quantity"]),
        unit=str(document["unit"]),
        unit_price_usd=read_money(document["unit_price_usd"]),
        amount_usd=read_money(document["amount_usd"]),
        source=document["source"],
        as_of=document["as_of"],
        note=document["note"],
        in_total=bool(document["in_total"]),
    )


def _commitment_document(commitment: Commitment) -> Document:
    return {
        "kind": commitment.kind,
        "start": commitment.start,
        "days": commitment.days,
        "upfront_usd": money(commitment.upfront_usd),
        "terms": commitment.terms,
    }


def _read_commitment(document: Mapping[str, Any]) -> Commitment:
    return Commitment(
        kind=str(document["kind"]),
        start=document["start"],
        days=document["days"],
        upfront_usd=read_money(document["upfront_usd"]),
        terms=str(document["terms"]),
    )


def _rate_document(rate: CommittedRate) -> Document:
    return {
        "years": rate.years,
        "usd_per_hour": money(rate.usd_per_hour),
        "usd_per_month": money(rate.usd_per_month),
        "saved_usd_per_month": money(rate.saved_usd_per_month),
        "breakeven_hours_per_month": plain_number(rate.breakeven_hours_per_month),
        "as_of": rate.as_of,
        "source": rate.source,
    }


def _read_rate(document: Mapping[str, Any]) -> CommittedRate:
    return CommittedRate(
        years=int(document["years"]),
        usd_per_hour=read_money(document["usd_per_hour"]),
        usd_per_month=read_money(document["usd_per_month"]),
        saved_usd_per_month=read_money(document["saved_usd_per_month"]),
        breakeven_hours_per_month=read_number(document["breakeven_hours_per_month"]),
        as_of=document["as_of"],
        source=document["source"],
    )


def money(amount: Decimal | None) -> str | None:
    """A decimal string; ``None`` for unknown."""
    return None if amount is None else decimal_string(amount)


def read_money(text: Any) -> Decimal | None:
    """The decimal of such a string.

    Raises:
        TypeError: it is no string.
    """
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"money is a decimal string, not {text!r}")
    return Decimal(text)


def plain_number(value: float | None) -> float | int | None:
    """``1`` for ``1.0``: a whole count reads as one."""
    return int(value) if value is not None and value == int(value) else value


def read_number(value: Any) -> float | None:
    """A number that JSON wrote as whole or not."""
    return None if value is None else float(value)
