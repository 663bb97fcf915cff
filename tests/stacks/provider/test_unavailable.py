"""Refusals that processes of one host share: how far and how long they hold, and what a walk over offers makes of them."""

from __future__ import annotations

import errno
import json
import multiprocessing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from provisioner.clouds.cloud import Placement
from provisioner.errors import CapacityError, GpuprovError
from provisioner.vocabulary import CapacityType
from stacks.provider.session import ProviderFailure
from stacks.provider.unavailable import Unavailable
from tests.fakes.mini_engine import MiniEngine, engine, offer, program
from tests.faults.codes import error_of

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
POOL = Placement("aws", "us-east-1", "use1-az1", "g6.xlarge", CapacityType.ON_DEMAND)
OFFERS = [offer("use1-az1"), offer("use1-az2"), offer("use1-az4")]


def refuse(mini: MiniEngine, *codes: str) -> None:
    mini.cloud.errors["create_instance"].extend((False, error_of(code)) for code in codes)


def outcomes(mini: MiniEngine) -> list[tuple[str, str]]:
    return [(a["offer"].split("/")[2], a["outcome"]) for a in mini.outputs("gpu")["attempts"]]


@pytest.mark.parametrize(
    ("code", "holds_for"),
    [
        ("InsufficientInstanceCapacity", timedelta(minutes=10)),
        ("Unsupported", timedelta(days=1)),
        ("InsufficientFreeAddressesInSubnet", None),
        ("VcpuLimitExceeded", None),
    ],
)
def test_a_refusal_holds_as_long_as_the_table_says(home: Path, code: str, holds_for: timedelta | None) -> None:
    cache = Unavailable(home)
    cache.note(POOL, error_of(code), NOW)
    block = cache.block(POOL, NOW + timedelta(minutes=9))
    if holds_for is None:
        assert block is None
        return
    assert block is not None
    assert code in block.reason
    assert cache.block(POOL, NOW + holds_for - timedelta(seconds=1)) is not None
    assert cache.block(POOL, NOW + holds_for) is None


def test_a_refusal_holds_as_far_as_the_table_says(home: Path) -> None:
    cache = Unavailable(home)
    spot, away = replace(POOL, capacity_type=CapacityType.SPOT), replace(POOL, zone="use1-az2")
    cache.note(POOL, error_of("InsufficientInstanceCapacity"), NOW)
    assert [cache.block(one, NOW) is None for one in (POOL, spot, away)] == [False, True, True]
    cache.note(POOL, error_of("Unsupported"), NOW)
    assert [cache.block(one, NOW) is None for one in (POOL, spot, away)] == [False, False, True]
    cache.forget(POOL, NOW)
    assert cache.block(POOL, NOW) is None


def test_a_damaged_file_is_no_cache_and_what_is_over_is_dropped(home: Path) -> None:
    cache = Unavailable(home)
    (home / "unavailable.json").write_text("{")
    assert cache.block(POOL, NOW) is None
    cache.note(POOL, error_of("InsufficientInstanceCapacity"), NOW)
    later = NOW + timedelta(hours=1)
    cache.note(replace(POOL, zone="use1-az2"), error_of("InsufficientInstanceCapacity"), later)
    assert list(json.loads((home / "unavailable.json").read_text())) == ["aws/us-east-1/use1-az2/g6.xlarge/on-demand"]


def _note_many(home: Path, number: int) -> None:
    for index in range(10):
        place = replace(POOL, zone=f"z{number}-{index}")
        Unavailable(home).note(place, error_of("InsufficientInstanceCapacity"), NOW)


def test_processes_at_once_lose_nothing(home: Path) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.starmap(_note_many, [(home, number) for number in range(4)])
    assert len(json.loads((home / "unavailable.json").read_text())) == 40


def test_another_run_does_not_ask_a_pool_again_within_its_time(home: Path) -> None:
    first = engine(home, name="aws")
    refuse(first, "InsufficientInstanceCapacity")
    first.up(program(offers=OFFERS))
    assert outcomes(first) == [("use1-az1", "capacity"), ("use1-az2", "created")]
    second = engine(home, name="aws")
    second.up(program(offers=OFFERS))
    assert outcomes(second) == [("use1-az1", "skipped"), ("use1-az2", "created")]
    assert "not asked again before 12:1" in second.outputs("gpu")["attempts"][0]["message"]
    assert second.cloud.count("create_instance") == 1
    third = engine(home, name="aws")
    third.cloud.clock.advance(timedelta(minutes=11))
    third.up(program(offers=OFFERS))
    assert outcomes(third) == [("use1-az1", "created")]


def test_where_everything_was_refused_a_person_who_asks_again_is_answered(home: Path) -> None:
    first = engine(home, name="aws")
    refuse(first, *["InsufficientInstanceCapacity"] * 3)
    with pytest.raises(ProviderFailure) as failure:
        first.up(program(offers=OFFERS))
    assert isinstance(failure.value.cause, CapacityError)
    second = engine(home, name="aws")
    second.up(program(offers=OFFERS))
    assert outcomes(second) == [("use1-az1", "created")]
    third = engine(home, name="aws")
    third.up(program(offers=OFFERS))
    assert ("use1-az1", "created") in outcomes(third)  # it had room after all


def test_what_the_sandbox_says_is_not_kept(home: Path) -> None:
    mini = engine(home)
    refuse(mini, "InsufficientInstanceCapacity")
    mini.up(program(offers=OFFERS))
    assert not (home / "unavailable.json").exists()


def test_an_error_without_a_scope_is_not_kept(home: Path) -> None:
    error: GpuprovError = CapacityError("no subnet there")
    Unavailable(home).note(POOL, error, NOW)
    assert not (home / "unavailable.json").exists()


def test_a_home_without_room_keeps_nothing_and_stops_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    cache = Unavailable(home)
    monkeypatch.setattr(Path, "write_text", full)
    cache.note(POOL, error_of("InsufficientInstanceCapacity"), NOW)
    assert cache.block(POOL, NOW) is None
