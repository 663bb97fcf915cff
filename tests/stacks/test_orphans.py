"""Whose an object is, and whether `gc --yes` ends it: pure decisions, and the law that nothing else is ever ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner import tags
from provisioner.clouds.cloud import BillableObject
from stacks.orphans import Books, Verdict, in_order, judge_all

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
OURS, HELD, THEIRS = "ours", "held", "theirs"
BOOKS = Books(held={HELD: "chat"}, made={OURS: "old", HELD: "chat"})


def machine(stack_id: str = OURS, **changes: object) -> BillableObject:
    carried = {tags.STACK_ID: stack_id, tags.EXPIRES_AT: tags.NONE, tags.TERMINATE_AFTER: "7d"}
    entry = BillableObject(
        "aws", "instance", "i-1", "us-east-1", "use1-az1", "running", carried, "1.2", NOW - timedelta(days=30)
    )
    return replace(entry, **changes)  # type: ignore[arg-type]


def only(entry: BillableObject, books: Books = BOOKS, named: frozenset[str] = frozenset()) -> Verdict | None:
    found = judge_all([entry], books, NOW, named)
    return found[0].verdict if found else None


def ending(ago: timedelta, stack_id: str = THEIRS) -> BillableObject:
    entry = machine(stack_id)
    return replace(entry, tags={**entry.tags, tags.EXPIRES_AT: tags.format_time(NOW - ago)})


def stopped(ago: timedelta | None, allowed: str = "7d") -> BillableObject:
    entry = machine(THEIRS, state="stopped")
    extra = {} if ago is None else {"stopped_at": tags.format_time(NOW - ago)}
    return replace(entry, tags={**entry.tags, tags.TERMINATE_AFTER: allowed}, extra=extra)


def test_what_this_backend_made_and_no_longer_holds_is_an_orphan() -> None:
    assert only(machine()) is Verdict.ORPHAN


def test_what_a_state_holds_is_not_listed() -> None:
    assert only(machine(HELD)) is None


def test_a_colleagues_stack_is_foreign_also_with_empty_books() -> None:
    assert only(machine(THEIRS)) is Verdict.FOREIGN
    assert only(machine(OURS), Books()) is Verdict.FOREIGN
    assert only(machine(HELD), Books()) is Verdict.FOREIGN


def test_young_objects_and_stacks_under_a_lock_are_in_progress() -> None:
    assert only(machine(created_at=NOW - timedelta(minutes=14))) is Verdict.IN_PROGRESS
    assert only(machine(created_at=NOW - timedelta(minutes=16))) is Verdict.ORPHAN
    busy = replace(BOOKS, busy=frozenset({"old"}))
    assert only(machine(), busy) is Verdict.IN_PROGRESS
    assert only(ending(timedelta(days=1), HELD), replace(BOOKS, busy=frozenset({"chat"}))) is Verdict.IN_PROGRESS


def test_a_state_that_cannot_be_read_may_hold_it() -> None:
    assert only(machine(), replace(BOOKS, unreadable=("broken",))) is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("minutes", "verdict"), [(59, Verdict.FOREIGN), (60, Verdict.EXPIRED), (6000, Verdict.EXPIRED)]
)
def test_a_machine_past_its_end_goes_an_hour_later_whoever_made_it(minutes: int, verdict: Verdict) -> None:
    assert only(ending(timedelta(minutes=minutes))) is verdict


def test_a_held_machine_past_its_end_goes_too() -> None:
    assert only(ending(timedelta(hours=2), HELD)) is Verdict.EXPIRED


@pytest.mark.parametrize(
    ("entry", "verdict"),
    [
        (stopped(timedelta(days=7, minutes=59)), Verdict.FOREIGN),
        (stopped(timedelta(days=7, hours=1)), Verdict.FORGOTTEN),
        (stopped(timedelta(hours=2), "30m"), Verdict.FORGOTTEN),
        (stopped(None), Verdict.FOREIGN),
        (stopped(timedelta(days=300), "none"), Verdict.FOREIGN),
        (stopped(timedelta(days=300), "soon"), Verdict.FOREIGN),
    ],
)
def test_a_stopped_machine_goes_an_hour_past_what_it_may(entry: BillableObject, verdict: Verdict) -> None:
    assert only(entry) is verdict


def test_disks_and_groups_do_not_expire_and_root_disks_go_with_their_machine() -> None:
    entry = ending(timedelta(hours=2))
    root = replace(entry, kind="volume", id="vol-r", state="in-use", extra={"role": "root", "instance": "i-1"})
    data = replace(entry, kind="volume", id="vol-d", state="in-use", extra={"role": "data", "instance": "i-1"})
    verdicts = {j.entry.id: j.verdict for j in judge_all([entry, root, data], BOOKS, NOW)}
    assert verdicts == {"i-1": Verdict.EXPIRED, "vol-r": Verdict.EXPIRED, "vol-d": Verdict.FOREIGN}


def test_naming_a_stack_id_judges_it_alone() -> None:
    found = judge_all([machine(THEIRS), machine(OURS, id="i-2")], BOOKS, NOW, frozenset({THEIRS}))
    assert [(j.entry.id, j.verdict) for j in found] == [("i-1", Verdict.NAMED)]


def test_machines_end_before_disks_and_groups() -> None:
    kinds = ("security-group", "volume", "instance", "spot-request")
    found = judge_all([machine(kind=kind, id=kind) for kind in kinds], BOOKS, NOW)
    assert [j.entry.kind for j in in_order(found)] == ["spot-request", "instance", "volume", "security-group"]


@given(
    stack_id=st.sampled_from((OURS, HELD, THEIRS, "")),
    state=st.sampled_from(("pending", "running", "stopping", "stopped", "terminating")),
    age_min=st.integers(0, 60 * 24 * 40),
    end_min=st.integers(-100, 10_000) | st.none(),
    stop_min=st.integers(0, 20_000) | st.none(),
    allowed=st.sampled_from(("none", "30m", "7d", "?")),
    books=st.builds(
        Books,
        held=st.just({HELD: "chat"}),
        made=st.sampled_from(({}, {OURS: "old"}, {OURS: "old", HELD: "chat"})),
        busy=st.sampled_from((frozenset(), frozenset({"old"}), frozenset({"chat"}))),
        unreadable=st.sampled_from(((), ("broken",))),
    ),
)
def test_only_what_the_contract_allows_is_ever_removable(  # noqa: PLR0917 - one argument a fact
    stack_id: str,
    state: str,
    age_min: int,
    end_min: int | None,
    stop_min: int | None,
    allowed: str,
    books: Books,
) -> None:
    entry = machine(stack_id, state=state, created_at=NOW - timedelta(minutes=age_min))
    ends = tags.NONE if end_min is None else tags.format_time(NOW - timedelta(minutes=end_min))
    extra = {} if stop_min is None else {"stopped_at": tags.format_time(NOW - timedelta(minutes=stop_min))}
    entry = replace(entry, tags={**entry.tags, tags.EXPIRES_AT: ends, tags.TERMINATE_AFTER: allowed}, extra=extra)
    verdict = only(entry, books)
    name = books.held.get(stack_id) or books.made.get(stack_id)
    is_free = name not in books.busy
    is_lost = stack_id in books.made and stack_id not in books.held and age_min >= 15 and not books.unreadable
    is_over = state in ("pending", "running") and end_min is not None and end_min >= 60
    may_stop_min = {"30m": 30, "7d": 7 * 1440}.get(allowed)
    is_forgotten = (
        state == "stopped" and stop_min is not None and may_stop_min is not None and stop_min >= may_stop_min + 60
    )
    allows = is_free and (is_lost or is_over or is_forgotten)
    assert (verdict is not None and verdict.is_removable) is allows
