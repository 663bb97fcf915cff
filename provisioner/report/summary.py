"""A plan as titled sections of short rows: what tables, Markdown and HTML print, in one place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from provisioner.planner.explain import GROUPS_SHOWN, group_rejections
from provisioner.planner.plan import Plan, PlannedOffer
from provisioner.report.bill import bill_section, commitments_section, lines_section, spoken_total, storage_section
from provisioner.report.section import UNKNOWN, Section, usd
from provisioner.report.working import limits_section, load_rows, start_section
from provisioner.units import format_gib

SHOWN_SHORT = 5
"""Failover offers and alternatives without ``--explain``."""
WHY_NOT_SHORT = 3
"""Alternatives that are told apart from the choice without ``--explain``."""
WHAT_IF = "What would change the answer"
BAR_CELLS = 24

_TERMS = (
    ("weights", "weights_bytes"),
    ("KV cache", "kv_cache_bytes"),
    ("activations", "activation_bytes"),
    ("gradients", "gradient_bytes"),
    ("optimizer", "optimizer_bytes"),
    ("overhead", "overhead_bytes"),
)


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole plan for people: a headline, sentences, tables, warnings."""

    title: str
    verdict: str
    headline: str
    reasons: tuple[str, ...]
    sections: tuple[Section, ...]
    warnings: tuple[str, ...]
    closest: tuple[str, ...]
    footer: str
    what_if: tuple[str, ...] = ()


def summarise(plan: Plan, *, explain: bool = False) -> Summary:
    """The plan in sections; ``explain`` shows all failover offers, alternatives, rejections and assumptions."""
    return Summary(
        title=f"{plan.workload_name} ({plan.task})",
        verdict=plan.verdict,
        headline=headline(plan),
        reasons=plan.choice.reasons if plan.choice else (),
        sections=tuple(section for section in _sections(plan, explain=explain) if section.rows),
        warnings=plan.warnings,
        closest=plan.closest,
        footer=f"catalog of {plan.catalog_as_of} ({plan.catalog_digest[:19]})",
        what_if=plan.what_if,
    )


def headline(plan: Plan) -> str:
    """The choice in one line, or that there is none."""
    choice = plan.choice
    if choice is None:
        return "nothing fits under the requirements"
    price = f"{usd(choice.price_usd_per_hour, 4)}/h" + (
        f" (price of {choice.price_as_of})" if choice.price_as_of else ""
    )
    count = f"{choice.instances} x " if choice.instances > 1 else ""
    return f"{count}{choice.instance_type} in {place(choice)}, {choice.capacity_type}, {price}: {gpus(choice)}"


def place(offer: PlannedOffer) -> str:
    """Where an offer is: ``aws us-east-1 (use1-az1)``."""
    return f"{offer.cloud} {offer.region}" + (f" ({offer.zone})" if offer.zone else "")


def gpus(offer: PlannedOffer) -> str:
    """What an offer holds and how it is used: ``2 x H100 over nvlink, tensor parallel 2``."""
    count = f"{offer.gpus_per_instance:g}" if offer.gpus_per_instance < 1 else f"{offer.gpus_per_instance:.0f}"
    layout = offer.layout
    degrees = (
        ("tensor parallel", layout.tensor_parallel),
        ("pipeline parallel", layout.pipeline_parallel),
        ("data parallel", layout.data_parallel),
        ("copies", layout.replicas),
    )
    used = "".join(f", {name} {degree}" for name, degree in degrees if degree > 1)
    link = f" over {offer.interconnect}" if offer.interconnect != "none" else ""
    return f"{count} x {offer.gpu}{link}{used}"


def short_gpus(offer: PlannedOffer) -> str:
    """The same in a few letters: ``2 x RTX-PRO-6000 TP2``, ``8 x H100 FSDP``."""
    layout = offer.layout
    count = f"{offer.gpus_per_instance:g} x {offer.gpu}"
    parts = [f"TP{layout.tensor_parallel}"] if layout.tensor_parallel > 1 else []
    parts += [f"PP{layout.pipeline_parallel}"] if layout.pipeline_parallel > 1 else []
    parts += [layout.sharding.value.upper()] if layout.data_parallel > 1 else []
    return " ".join((count, *parts))


def _sections(plan: Plan, *, explain: bool) -> Iterator[Section]:
    yield memory_section(plan)
    yield speed_section(plan)
    yield limits_section(plan, explain=explain)
    yield bill_section(plan)
    if explain:
        yield lines_section(plan)
    yield commitments_section(plan)
    yield storage_section(plan)
    yield failover_section(plan, None if explain else SHOWN_SHORT)
    yield alternatives_section(plan, None if explain else SHOWN_SHORT)
    yield why_not_section(plan, None if explain else WHY_NOT_SHORT)
    yield rejections_section(plan)
    if explain:
        yield start_section(plan)
        yield assumptions_section(plan)


def memory_section(plan: Plan) -> Section:
    """Memory of the fullest GPU by term, each with its share of what is usable as a number and a bar."""
    footprint = plan.footprint
    if footprint is None:
        return Section("", (), ())
    terms, usable = footprint.per_gpu, footprint.usable_bytes
    rows = [(name, getattr(terms, key)) for name, key in _TERMS]
    shown = [_memory_row(name, size, usable) for name, size in rows if size]
    shown.append(_memory_row("need", terms.total_bytes, usable))
    shown.append(_memory_row("headroom", footprint.headroom_bytes, usable))
    note = f"predicted between {format_gib(terms.low_bytes)} and {format_gib(terms.high_bytes)}; {format_gib(usable)} usable; peaks of the terms need not fall together"
    if room := largest_text(plan.largest):
        note = f"{note}; {room}"
    return Section(
        "Memory per GPU", ("term", "size", "share", "of usable memory"), tuple(shown), frozenset({1, 2}), note
    )


LARGEST_WORDS = {
    "context_tokens": "a context of {:,} tokens",
    "concurrency": "{:,} requests at once",
    "micro_batch": "a micro batch of {:,}",
    "sequence_tokens": "sequences of {:,} tokens",
    "batch": "a batch of {:,}",
    "frames": "{:,} frames",
    "seconds": "pieces of {:,} s",
}


def largest_text(largest: Mapping[str, int]) -> str:
    """How far the choice goes, in words; empty where nothing is known of it."""
    words = [LARGEST_WORDS[name].format(value) for name, value in largest.items() if name in LARGEST_WORDS and value]
    return f"all else as asked, the upper end of the prediction leaves room for {', or '.join(words)}" if words else ""


def _memory_row(name: str, size: int, usable: int) -> tuple[str, str, str, str]:
    share = size / usable
    return name, format_gib(size), f"{share:.0%}", bar(share)


def bar(share: float) -> str:
    """A share as a row of blocks, at least one for anything above 0."""
    cells = min(BAR_CELLS, round(share * BAR_CELLS))
    return "\u2588" * max(cells, 1 if share > 0 else 0)


def speed_section(plan: Plan) -> Section:
    """Predicted rates with the band of the main one."""
    speed = plan.throughput
    if speed is None:
        return Section("", (), ())
    rates = (
        ("generated tokens/s, one copy", speed.decode_tokens_per_s_per_replica, "{:,.0f}"),
        ("tokens/s of one request", speed.tokens_per_s_per_request, "{:,.1f}"),
        ("time to first token, s", speed.time_to_first_token_s, "{:,.2f}"),
        ("trained tokens/s", speed.train_tokens_per_s, "{:,.0f}"),
        ("trained samples/s", speed.train_samples_per_s, "{:,.3g}"),
        ("images/s", speed.images_per_s, "{:,.3g}"),
        ("seconds of sound a second", speed.realtime_factor, "{:,.3g}"),
        ("requests/s, one copy", speed.requests_per_s, "{:,.3g}"),
    )
    rows = tuple((name, form.format(value)) for name, value, form in rates if value is not None) + load_rows(plan)
    if not rows and speed.unknown:
        rows = (("not predicted", speed.unknown),)
    band = (
        f"main rate between {speed.low:,.4g} and {speed.high:,.4g}; "
        if speed.low is not None and speed.high is not None
        else ""
    )
    return Section(
        "Predicted speed", (), rows, frozenset({1}), f"{band}bound by {speed.bound_by}" if speed.bound_by else None
    )


def failover_section(plan: Plan, limit: int | None) -> Section:
    """Offers in the order they are tried."""
    shown = plan.failover[:limit]
    header: tuple[str, ...] = ("", "instance type", "place", "capacity", "price")
    rows: tuple[tuple[str, ...], ...] = tuple(
        (str(number), offer.instance_type, place(offer), offer.capacity_type, f"{usd(offer.price_usd_per_hour, 4)}/h")
        for number, offer in enumerate(shown, start=1)
    )
    if any(offer.supply != UNKNOWN for offer in plan.failover):
        header = (*header, "supply")
        rows = tuple((*row, _supply(offer)) for row, offer in zip(rows, shown, strict=True))
    left = len(plan.failover) - len(shown)
    note = f"and {left} more (--explain)" if left else None
    return Section("Tried in this order", header, rows, frozenset({0, 4}), note, frozenset({1}))


def _supply(offer: PlannedOffer) -> str:
    """What is known of an offer's supply, with the day on which it was seen."""
    return f"{offer.supply} ({offer.supply_as_of[:10]})" if offer.supply_as_of else offer.supply


def alternatives_section(plan: Plan, limit: int | None) -> Section:
    """Other instance types that meet everything, best first."""
    shown = plan.alternatives[:limit]
    rows = tuple(
        (
            f"{each.offer.instances} x {each.offer.instance_type}"
            if each.offer.instances > 1
            else each.offer.instance_type,
            short_gpus(each.offer),
            f"{each.offer.cloud} {each.offer.region}",
            usd(each.offer.price_usd_per_hour, 4),
            spoken_total(each.cost),
        )
        for each in shown
    )
    left = len(plan.alternatives) - len(shown)
    note = f"and {left} more (--explain)" if left else None
    per = "a run" if any(each.cost.run_usd is not None for each in shown) else "a month"
    header = ("instance type", "GPUs", "place", "an hour", per)
    return Section("Alternatives", header, rows, frozenset({3, 4}), note, frozenset({0}))


def why_not_section(plan: Plan, limit: int | None) -> Section:
    """Why the next of the ranking are not the choice."""
    rows = tuple((each.offer.instance_type, each.why_not) for each in plan.alternatives[:limit] if each.why_not)
    return Section("Why not the next", (), rows, whole=frozenset({0}))


def rejections_section(plan: Plan) -> Section:
    """Every no, grouped by filter, with the nearest miss as an example."""
    groups = group_rejections(plan.rejections)
    rows = []
    for group in groups[:GROUPS_SHOWN]:
        example = group.example
        name = example.offer.split("/")[3]
        facts = [
            f"needed {example.needed}" if example.needed else "",
            f"available {example.available}" if example.available else "",
        ]
        detail = ", ".join(fact for fact in facts if fact)
        subject = f"{name}: " if name != "*" else ""
        kinds = sum(kind != "*" for kind in group.instance_types)
        rows.append(
            (
                group.words,
                str(kinds) if kinds else "all",
                f"{subject}{example.reason}" + (f" ({detail})" if detail else ""),
            )
        )
    left = len(groups) - len(rows)
    note = f"and {left} more groups in the JSON" if left else None
    return Section("Not chosen", ("why", "types", "nearest miss"), tuple(rows), frozenset({1}), note)


def assumptions_section(plan: Plan) -> Section:
    """Numbers that the footprint rests on, with their source."""
    assumptions = plan.footprint.assumptions if plan.footprint else ()
    rows = tuple((each.name, each.value, each.source) for each in assumptions)
    return Section("Assumptions", ("what", "value", "source"), rows)
