"""How a choice does at work, in sections for every report: rates under load, what bounds them, what would lift them, the start."""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.planner.plan import Plan
from provisioner.report.section import Section
from provisioner.sizing.bottleneck import Diagnosis
from provisioner.sizing.outlook import SteadyFigures
from provisioner.sizing.start_up import StartUp, idle_after_s
from provisioner.units import format_gib

REMEDIES_SHOWN = 4
GB = 1e9


def load_rows(plan: Plan) -> tuple[tuple[str, str], ...]:
    """Rates of one serving copy under load, or what a training asks of storage; for the section of predicted speed."""
    outlook = plan.outlook
    if outlook is None:
        return ()
    rows = list(_steady(outlook.steady)) if outlook.steady else []
    if outlook.storage is not None:
        storage = outlook.storage
        rows.append(
            (
                f"a checkpoint of {format_gib(storage.checkpoint_bytes)}, written in time, GB/s",
                f"{storage.checkpoint_bytes_per_s / GB:,.2g}",
            )
        )
        if storage.data_bytes_per_s is not None:
            rows.append(("reading the data, GB/s", f"{storage.data_bytes_per_s / GB:,.2g}"))
    return tuple(rows)


def _steady(steady: SteadyFigures) -> Iterator[tuple[str, str]]:
    yield "requests at once that memory holds as predicted, one copy", f"{steady.memory_concurrency:,}"
    yield "generated tokens/s with so many", f"{steady.memory_tokens_per_s:,.0f}"
    yield "largest requests/s that keep the targets, one copy", f"{steady.largest_requests_per_s:,.3g}"
    if steady.asked_requests_per_s is None:
        return
    rate = f"{steady.asked_requests_per_s:,.3g} requests/s a copy"
    if steady.asked_time_to_first_token_s is None or steady.asked_tokens_per_s_per_request is None:
        yield f"at {rate}", "the queue grows without end"
        return
    yield f"time to first token at {rate}, s", f"{steady.asked_time_to_first_token_s:,.2f}"
    yield "tokens/s of one request at that rate", f"{steady.asked_tokens_per_s_per_request:,.1f}"


def limits_section(plan: Plan, *, explain: bool) -> Section:
    """What bounds the speed and what would lift it, largest gain first."""
    diagnosis = plan.outlook.diagnosis if plan.outlook else None
    if diagnosis is None or not diagnosis.remedies:
        return Section("", (), ())
    remedies = diagnosis.remedies if explain else diagnosis.remedies[:REMEDIES_SHOWN]
    rows = tuple((remedy.words, f"{remedy.gain:.2f} x", remedy.costs or "") for remedy in remedies)
    return Section(
        "What would make it faster", ("change", "speed", "costs"), rows, frozenset({1}), limits_note(diagnosis)
    )


def limits_note(diagnosis: Diagnosis) -> str:
    """What bounds the speed, with each cause's share of the time."""
    shares = ", ".join(f"{name} {share:.0%}" for name, share in diagnosis.shares if share >= 0.01)
    return f"bound by {diagnosis.bound_by}; share of a step: {shares} (memory and compute overlap)"


def start_section(plan: Plan) -> Section:
    """Time from asking for a machine to ready, by phase, as a band."""
    start = plan.outlook.start if plan.outlook else None
    if start is None:
        return Section("", (), ())
    rows = [(phase.name, f"{phase.low_s:,.0f}", f"{phase.high_s:,.0f}") for phase in start.phases]
    rows.append(("ready", f"{start.low_s:,.0f}", f"{start.high_s:,.0f}"))
    return Section("Start, in seconds", ("phase", "from", "to"), tuple(rows), frozenset({1, 2}), start_note(start))


def start_note(start: StartUp) -> str:
    """How long an idle machine is worth keeping for what starting another takes."""
    return f"usually {start.usual_s / 60:.0f} min; an idle machine pays for up to {idle_after_s(start) / 60:.0f} min of waiting"
