"""What a plan costs, as sections: the bill and its lines, contracts beside on-demand, disks."""

from __future__ import annotations

from decimal import Decimal

from provisioner.planner.machine_facts import lifetime_of_run
from provisioner.planner.plan import BillLine, CommittedRate, Cost, Plan, StorageItem
from provisioner.reaper.ending import STOP, ending
from provisioner.report.section import UNKNOWN, Section, usd
from provisioner.sizing.start_up import LONGEST_IDLE_S, idle_after_s
from provisioner.units import decimal_string, format_gib, format_usd, parse_duration
from provisioner.vocabulary import CapacityType

HOURS_A_DAY = 24
_CENT = Decimal("0.01")


def bill_section(plan: Plan) -> Section:
    """The whole bill, by what it is made of."""
    cost = plan.cost
    if cost is None:
        return Section("", (), ())
    hours = f"{cost.hours_per_month:g} h" if cost.hours_per_month is not None else "the hours used"
    rows = [
        ("compute, an hour", usd(cost.compute_usd_per_hour, 4)),
        ("everything that runs, an hour", usd(cost.total_usd_per_hour, 4)),
        ("disks, a month", usd(cost.storage_usd_per_month)),
        (f"public address, {hours} a month", usd(cost.public_ip_usd_per_month)),
        ("traffic to the internet, a month", usd(cost.egress_usd_per_month)),
    ]
    if cost.transfer_usd_per_month:
        rows.append(("weights and NAT gateway, a month", usd(cost.transfer_usd_per_month)))
    rows += [*_stopped_rows(cost), (f"total, {hours} a month", usd(cost.total_usd_per_month))]
    if cost.run_usd is not None:
        rows.append(
            (f"one run, {cost.run_hours:,.1f} h" if cost.run_hours is not None else "one run", usd(cost.run_usd))
        )
    if cost.usd_per_million_tokens is not None:
        trained = plan.throughput is not None and plan.throughput.train_tokens_per_s is not None
        tokens = "per million tokens trained" if trained else "per million tokens at full load"
        rows.append((tokens, usd(cost.usd_per_million_tokens, 4)))
    rows += [*_spot_rows(cost), *_ahead_rows(cost)]
    return Section("Bill", (), tuple(rows), frozenset({1}), ending_note(plan))


def _stopped_rows(cost: Cost) -> list[tuple[str, str]]:
    rows = [("while stopped, a month", usd(cost.stopped_usd_per_month))]
    if cost.snapshot_usd_per_month is not None and cost.stopped_usd_per_month:
        rows.append(("the same disks as snapshots, at most", usd(cost.snapshot_usd_per_month)))
    return rows


def _spot_rows(cost: Cost) -> list[tuple[str, str]]:
    if cost.spot is None:
        return []
    rate = f"{cost.spot.interruption_rate:.0%}" if cost.spot.interruption_rate is not None else UNKNOWN
    rows = [("machines interrupted in a month", rate), ("expected rework", usd(cost.spot.expected_rework_usd, 4))]
    if cost.spot.saved_usd is not None:
        rows.append(("saved against on-demand", usd(cost.spot.saved_usd)))
    if cost.spot.breakeven is not None:
        rows.append(("stays cheaper up to, interruptions an hour", decimal_string(cost.spot.breakeven)))
    return rows


def _ahead_rows(cost: Cost) -> list[tuple[str, str]]:
    """What is bought ahead."""
    ahead = cost.commitment
    if ahead is None:
        return []
    days = "" if ahead.days is None else f", {ahead.days} day{'s' if ahead.days > 1 else ''}"
    return [
        (f"{ahead.kind}{days}, paid ahead", usd(ahead.upfront_usd)),
        (f"{ahead.kind} starts", ahead.start or UNKNOWN),
        ("terms", ahead.terms),
    ]


def ending_note(plan: Plan) -> str | None:
    """What an idle machine does and an idle day costs, and when it ends at the latest; ``None`` where the price is not known."""
    lifecycle = plan.workload_spec.get("lifecycle", {})
    hourly = plan.cost.compute_usd_per_hour if plan.cost else None
    if hourly is None:
        return None
    a_day, after = format_usd(hourly * HOURS_A_DAY), lifecycle.get("idle", {}).get("after")
    lives = _lifetime(plan)
    if after == "off":
        if lives is None:
            return f"no idle limit and no lifetime: {a_day} a day until it is stopped"
        return f"no idle limit: {a_day} a day until it is stopped, at the latest after {lives}"
    wait_h = _wait_hours(plan, after)
    if wait_h is None:
        return None
    spent = format_usd(hourly * Decimal(f"{wait_h:.6f}"))
    latest = f", and {lives} after its start at the latest" if lives else ""
    return (
        f"{_idle_end(plan)} after {wait_h * 60:.0f} min idle{latest}: "
        f"a day without work costs {spent} of compute instead of {a_day}"
    )


def _lifetime(plan: Plan) -> str | None:
    """How long the machine lives, as stated or by its run's predicted length; ``None`` without a limit."""
    stated = plan.workload_spec.get("lifecycle", {}).get("max_lifetime")
    hours = plan.cost.run_hours if plan.cost else None
    if stated is None and hours is not None:
        return lifetime_of_run(hours)
    return None if stated == "off" else stated


def _idle_end(plan: Plan) -> str:
    """``stops`` where the market and the disks of the choice allow it and the spec does not say otherwise, else ``ends``."""
    choice, lifecycle = plan.choice, plan.workload_spec.get("lifecycle", {})
    wanted = lifecycle.get("idle", {}).get("then")
    if choice is None:
        return "ends"
    market = CapacityType(choice.capacity_type)
    if market is CapacityType.SPOT and wanted is None:
        return "ends"
    disk = "local" if any(item.kind == "local" for item in plan.storage) else "network"
    if ending(choice.cloud, market, disk, wanted).how != STOP:
        return "ends"
    kept = lifecycle.get("stopped", {}).get("terminate_after")
    return f"stops (and ends {kept} later)" if kept else "stops"


def _wait_hours(plan: Plan, after: object) -> float | None:
    """Hours that an idle machine is kept; a bare one without a stated limit is kept for the longest."""
    if isinstance(after, str) and after != "auto":
        return parse_duration(after).total_seconds() / 3600
    start = plan.outlook.start if plan.outlook else None
    if plan.workload_spec.get("run") is None:
        return LONGEST_IDLE_S / 3600
    return idle_after_s(start) / 3600 if start is not None else None


def lines_section(plan: Plan) -> Section:
    """Each item of the month and of the run, with where its price is from."""
    lines = plan.cost.lines if plan.cost else ()
    header = ("item", "per", "quantity", "unit", "at", "amount", "price of", "source", "note")
    return Section("Bill, line by line", header, tuple(map(_line, lines)), frozenset({2, 4, 5}))


def _line(line: BillLine) -> tuple[str, ...]:
    return (
        line.item,
        line.per,
        UNKNOWN if line.quantity is None else f"{line.quantity:,.2f}",
        line.unit,
        UNKNOWN if line.unit_price_usd is None else f"${decimal_string(line.unit_price_usd)}",
        "left out" if not line.in_total else _small(line.amount_usd),
        line.as_of or "",
        line.source or "",
        line.note or "",
    )


def _small(amount: Decimal | None) -> str:
    """Cents; fractions of them where there is no whole one."""
    return usd(amount, 4 if amount and amount < _CENT else 2)


def commitments_section(plan: Plan) -> Section:
    """Contracts of one and three years beside on-demand, for an endpoint; ``up`` never buys one."""
    rates = plan.cost.commitments if plan.cost else ()
    if not any(rate.usd_per_hour is not None for rate in rates):
        return Section("", (), ())
    header = ("commitment", "an hour", "a month of 730 h", "saves a month", "cheaper from, hours a month", "price of")
    rows = tuple(map(_rate, rates))
    return Section("Beside on-demand", header, rows, frozenset({1, 2, 3, 4}), "for comparison: `up` buys no contract")


def _rate(rate: CommittedRate) -> tuple[str, ...]:
    name = f"{rate.years} year{'s' if rate.years > 1 else ''}"
    if rate.usd_per_hour is None:
        return (name, UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN, "")
    even = f"{rate.breakeven_hours_per_month:g}" if rate.breakeven_hours_per_month is not None else "never"
    saved = usd(rate.saved_usd_per_month)
    return (name, usd(rate.usd_per_hour, 4), usd(rate.usd_per_month), saved, even, rate.as_of or "")


def storage_section(plan: Plan) -> Section:
    """Disks with their size and price."""
    rows = tuple(
        (
            item.name if item.count == 1 else f"{item.name} x {item.count}",
            format_gib(item.size_bytes),
            _service(item),
            usd(item.usd_per_month),
        )
        for item in plan.storage
    )
    return Section("Disks", ("disk", "size", "service", "a month"), rows, frozenset({1, 3}))


def _service(item: StorageItem) -> str:
    """The kind of disk, with the speed that is bought for it."""
    if item.speed is None:
        return item.service or "in the instance"
    return f"{item.service}, {item.speed.iops} IOPS, {item.speed.mib_per_s} MiB/s"


def spoken_total(cost: Cost) -> str:
    """The bill that a person compares: a run where its length is known, else a month."""
    return usd(cost.run_usd if cost.run_usd is not None else cost.total_usd_per_month)
