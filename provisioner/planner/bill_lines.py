"""A bill line by line: so many units at a published price, with its source and date, for a month or for a run.

Every total of a plan is the sum of these lines. Quantities have six places and amounts four, so that whoever multiplies a line
by hand gets the same cent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import ROUND_HALF_EVEN, Decimal
from typing import NamedTuple

from provisioner.catalog.billing import BillingRule
from provisioner.catalog.prices import Price, Tiers
from provisioner.planner.account import ZERO, Account, Origin, Terms, decimal_of, is_of_other_region
from provisioner.planner.plan import BillLine
from provisioner.planner.storage import paid_speed, round_usd
from provisioner.units import HOURS_PER_MONTH

SECONDS_PER_HOUR = 3600
SPEED_UNITS = {"iops": "IOPS-month", "mib_per_s": "MiB/s-month"}
_PLACES = Decimal("0.000001")
_BLOCK_STEPS_DAYS = ((14, 1), (182, 7))
"""Capacity blocks are sold by the day up to 14 days, then by the week up to 182. Source: Capacity Blocks for ML, EC2 guide."""


class Span(NamedTuple):
    """A month or a run, as the clock of each part of the bill sees it. Hours are those of one machine."""

    per: str
    machine_hours: float
    """As billed, without work that is done again."""
    rework_hours: float
    running_hours: float
    """From start to end, whatever is billed."""
    root_hours: float
    lasting_hours: float
    traffic_share: float
    """Share of a month's traffic."""
    fetches: float
    """How often each machine reads the weights."""


def month_of(terms: Terms, account: Account, rule: BillingRule | None) -> Span:
    """A month of use."""
    useful = terms.month_hours
    if terms.run_hours == useful:
        useful = billed_hours(useful, rule)
    rework = terms.month_hours * (terms.known_stretch - 1)
    return Span(
        per="month",
        machine_hours=useful,
        rework_hours=rework,
        running_hours=terms.month_hours + rework,
        root_hours=account.root_hours(terms.known_stretch, can_stop=terms.can_stop),
        lasting_hours=float(HOURS_PER_MONTH),
        traffic_share=1.0,
        fetches=_fetches(terms),
    )


def run_of(terms: Terms, rule: BillingRule | None) -> Span | None:
    """One run; ``None`` where its length is unknown. Its disks are billed while it lasts."""
    if terms.run_hours is None:
        return None
    expected = terms.run_hours * terms.known_stretch
    rework = expected - terms.run_hours
    return Span(
        per="run",
        machine_hours=billed_hours(expected, rule) - rework,
        rework_hours=rework,
        running_hours=expected,
        root_hours=expected,
        lasting_hours=expected,
        traffic_share=expected / HOURS_PER_MONTH,
        fetches=_fetches(terms),
    )


def billed_hours(hours: float, rule: BillingRule | None) -> float:
    """Hours that one start of a machine is billed for: rounded up to what the cloud counts in, and not below its minimum."""
    if rule is None or rule.granularity_s is None:
        return hours
    if rule.purchase_model == "capacity_block":
        days = block_days(hours)
        return hours if days is None else days * 24.0
    seconds = math.ceil(round(hours * SECONDS_PER_HOUR / rule.granularity_s, 6)) * rule.granularity_s
    return max(seconds, rule.minimum_charge_s or 0) / SECONDS_PER_HOUR


def block_days(hours: float) -> int | None:
    """Whole days of a capacity block that holds so many hours; ``None`` where none is long enough."""
    days = max(1, math.ceil(round(hours / 24, 6)))
    for longest, step in _BLOCK_STEPS_DAYS:
        if days <= longest:
            return math.ceil(days / step) * step
    return None


def bill_lines(terms: Terms, origin: Origin, span: Span) -> tuple[BillLine, ...]:
    """All items of a span, those without any quantity left out but for compute and the disks."""
    return (
        *_compute(terms, origin, span),
        *_way_out(terms, origin, span),
        *_disks(origin, span),
        *_traffic(origin, span),
        *_weights(origin, span),
    )


class Item(NamedTuple):
    """What a line is for."""

    name: str
    per: str
    unit: str
    note: str | None = None


def line_of(item: Item, quantity: Decimal, price: Price | None) -> BillLine:
    """One item: its quantity at a price, unknown without one."""
    name, per, unit, note = item
    amount = _exact(quantity)
    if price is None:
        return BillLine(name, per, amount, unit, None, None, note=note)
    if is_of_other_region(price):
        note = "; ".join(filter(None, (note, f"price of {price.region}")))
    usd = round_usd(amount * price.amount_usd)
    return BillLine(name, per, amount, unit, price.amount_usd, usd, price.source, price.as_of, note)


def tier_lines(item: Item, quantity: Decimal, tiers: Tiers) -> list[BillLine]:
    """An item whose price depends on volume: a line for each tier that is reached; unknown beyond the last."""
    found: list[BillLine] = []
    reached = ZERO
    for tier in tiers:
        if quantity <= reached or tier.from_units > reached:
            break
        upper = quantity if tier.to_units is None else min(quantity, tier.to_units)
        if upper > reached:
            found.append(line_of(item, upper - reached, tier.price))
            reached = upper
    if quantity > reached:
        found.append(line_of(item, quantity - reached, None))
    return found


def prorated(per_month: Decimal, hours: float, hours_in_month: int = HOURS_PER_MONTH) -> Decimal:
    """Units that a month counts, for some of its hours."""
    return per_month * decimal_of(hours) / hours_in_month


def _compute(terms: Terms, origin: Origin, span: Span) -> Iterator[BillLine]:
    offer, machines = origin.offer, origin.account.arrangement.instances

    def hours(item: str, each: float, note: str | None = None) -> BillLine:
        quantity, price = _exact(machines * decimal_of(each)), offer.price_usd_per_hour
        usd = None if price is None else round_usd(quantity * price)
        source, as_of = offer.price_source, offer.price_as_of
        return BillLine(item, span.per, quantity, "instance-hour", price, usd, source, as_of, note)

    yield hours("compute", span.machine_hours)
    if terms.risk is None:
        return
    if terms.risk.interruption_rate is None:
        note = "nobody publishes how often it is interrupted"
        yield BillLine("rework", span.per, None, "instance-hour", None, None, note=note, in_total=False)
    elif span.rework_hours > 0:
        yield hours("rework", span.rework_hours, "expected after interruptions")


def _way_out(terms: Terms, origin: Origin, span: Span) -> Iterator[BillLine]:
    """Public addresses, or the NAT gateway instead; it is billed by the hour begun."""
    account, offer = origin.account, origin.offer
    tariff, machines = account.tariff, account.arrangement.instances
    if not tariff.has_nat:
        price = tariff.address(offer.cloud, is_spot=terms.risk is not None)
        yield line_of(
            Item("public-address", span.per, "address-hour"), machines * decimal_of(span.running_hours), price
        )
        return
    gateway = tariff.gateway(offer.cloud, offer.region, machines)
    begun = Decimal(math.ceil(round(span.running_hours, 6)))
    yield line_of(
        Item("nat-gateway", span.per, "gateway-hour", "while machines run"), gateway.units * begun, gateway.hour
    )


def _disks(origin: Origin, span: Span) -> Iterator[BillLine]:
    tariff, offer = origin.account.tariff, origin.offer
    for disk in origin.account.disks:
        if disk.kind == "local":
            continue
        hours = span.root_hours if disk.kind == "root" else span.lasting_hours
        price = tariff.disk(offer.cloud, disk.service, offer.region)
        quantity = prorated(disk.total_gib, hours)
        yield line_of(Item(f"disk:{disk.kind}", span.per, "GiB-month", disk.service), quantity, price)
        for part in paid_speed(tariff.catalog, offer.cloud, disk, offer.region):
            item = Item(
                f"disk:{disk.kind}:{part.metric}", span.per, SPEED_UNITS[part.metric], "beyond what is included"
            )
            yield line_of(item, prorated(part.units, hours), part.price)


def _traffic(origin: Origin, span: Span) -> Iterator[BillLine]:
    """Traffic to the internet. Its tiers count a month's traffic, of which a run is a share."""
    tariff, offer = origin.account.tariff, origin.offer
    share = decimal_of(span.traffic_share)
    passing = (
        tariff.gateway(offer.cloud, offer.region, origin.account.arrangement.instances).gib if tariff.has_nat else None
    )
    for line in tier_lines(
        Item("egress", span.per, "GiB"), tariff.egress_gib, tariff.egress(offer.cloud, offer.region)
    ):
        yield _share_of(line, share)
    if passing is not None and tariff.egress_gib:
        for line in tier_lines(
            Item("nat-processing", span.per, "GiB", "traffic to the internet"), tariff.egress_gib, passing
        ):
            yield _share_of(line, share)


def _weights(origin: Origin, span: Span) -> Iterator[BillLine]:
    account, offer = origin.account, origin.offer
    tariff, way = account.tariff, account.tariff.way(offer.cloud, offer.region)
    quantity = account.fetched_gib * decimal_of(span.fetches)
    if not way.is_known:
        note = "model.source_region is not given" if tariff.bucket.region is None else "no price is known"
        exact = _exact(quantity)
        yield BillLine("weights-transfer", span.per, exact, "GiB", None, None, note=note, in_total=False)
    elif way.tiers:
        yield from tier_lines(
            Item("weights-transfer", span.per, "GiB", f"from {tariff.bucket.region}"), quantity, way.tiers
        )
    if tariff.has_nat and way.passes_nat:
        gateway = tariff.gateway(offer.cloud, offer.region, account.arrangement.instances)
        yield from tier_lines(Item("nat-processing", span.per, "GiB", "weights"), quantity, gateway.gib)


def _share_of(line: BillLine, share: Decimal) -> BillLine:
    if share == 1 or line.quantity is None:
        return line
    quantity = _exact(line.quantity * share)
    usd = None if line.unit_price_usd is None else round_usd(quantity * line.unit_price_usd)
    return BillLine(
        line.item,
        line.per,
        quantity,
        line.unit,
        line.unit_price_usd,
        usd,
        line.source,
        line.as_of,
        line.note,
        line.in_total,
    )


def _fetches(terms: Terms) -> float:
    """Each machine reads the weights once, and again after each interruption that is expected."""
    return 1.0 + (terms.interruptions_each or 0.0)


def _exact(quantity: Decimal) -> Decimal:
    return quantity.quantize(_PLACES, rounding=ROUND_HALF_EVEN)
