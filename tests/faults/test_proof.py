"""How `make proof-faults` spreads its work: every case once, nothing lost by an interruption, nothing kept of another commit."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults import replay
from tests.faults.world import journal_steps
from tests.proofs import faults, kill
from tests.proofs.spread import Count, Ledger, Part, Progress, play, scratch
from tests.stacks.kill import Blow, Wound


def _counted(cases: Sequence[int]) -> Count:
    """Cases that are numbers: each third fails, each even one kills."""
    failures = [f"case {case}" for case in cases if case % 3 == 0]
    healed = len(cases) - len(failures)
    kills = sum(case % 2 == 0 for case in cases)
    return Count("", len(cases), failures, Counter({1: healed}), kills, 1 + max(cases) // 10, max(cases) / 100)


def _unplayable(cases: Sequence[int]) -> Count:
    raise AssertionError(f"{cases} were played before")


def _part(play_some=_counted, **changes) -> Part:
    return Part(**{
        "name": "numbers", "title": "numbers", "cases": range(1, 48), "play": play_some, "case_s": 0.1, "workers": 2,
        "chunk": 5, **changes,
    })  # fmt: skip


def _run(part: Part, folder: Path | None = None, **about: str) -> Count:
    return play(part, Ledger(folder, part, about), Progress([part]))


def test_every_case_is_played_once_and_counted() -> None:
    total = _run(_part())
    assert (total.played, total.passes, total.kills, total.most_at_once) == (47, Counter({1: 32}), 23, 5)
    assert sorted(total.failures) == sorted(f"case {case}" for case in range(3, 48, 3))
    assert total.worst_leak_usd == 0.47


def test_a_second_run_plays_nothing_again(tmp_path: Path) -> None:
    first = _run(_part(), tmp_path, commit="one")
    again = _run(_part(_unplayable), tmp_path, commit="one")
    assert sorted(again.failures) == sorted(first.failures)
    assert (again.played, again.passes, again.kills) == (first.played, first.passes, first.kills)


def test_an_interrupted_run_is_taken_up_where_it_was(tmp_path: Path) -> None:
    first = _run(_part(), tmp_path, commit="one")
    file = tmp_path / "numbers.jsonl"
    lines = file.read_text().splitlines()
    missing = [json.loads(line)["start"] for line in lines[4:]]
    file.write_text("\n".join(lines[:4]) + "\n")
    again = _run(_part(), tmp_path, commit="one")
    assert (again.played, again.passes) == (first.played, first.passes)
    played_twice = [json.loads(line)["start"] for line in file.read_text().splitlines()[4:]]
    assert sorted(played_twice) == sorted(missing)


@pytest.mark.parametrize("change", [{"commit": "two"}, {"seed": "9"}])
def test_results_of_another_commit_or_seed_do_not_count(tmp_path: Path, change: dict[str, str]) -> None:
    _run(_part(), tmp_path, commit="one", seed="1")
    with pytest.raises(AssertionError, match="were played before"):
        _run(_part(_unplayable), tmp_path, **{"commit": "one", "seed": "1", **change})


def test_a_torn_line_is_said_and_not_skipped(tmp_path: Path) -> None:
    _run(_part(), tmp_path, commit="one")
    file = tmp_path / "numbers.jsonl"
    file.write_text(file.read_text()[:-20])
    with pytest.raises(SystemExit, match="is cut off"):
        _run(_part(), tmp_path, commit="one")


def test_no_more_kills_go_out_than_are_wanted() -> None:
    total = _run(_part(chunk=1, kills_wanted=7))
    assert total.kills == 7
    assert total.played < 47


def test_progress_names_the_case_count_and_an_end(capsys: pytest.CaptureFixture[str]) -> None:
    _run(_part())
    told = capsys.readouterr().out
    assert "numbers: 47 of 47, 15 not healed; all parts end at about" in told


def test_the_page_counts_what_was_played(tmp_path: Path) -> None:
    """A thin run of the whole command, kills apart; it writes no page, since a part is missing."""
    page = tmp_path / "faults.md"
    words = ["--only", "singles", "schedules", "--stride", "2000", "--schedules", "4", "--workers", "2"]
    assert faults.main([*words, "--out", str(page), "--kept", str(tmp_path / "kept")]) == 0
    assert not page.exists()


def test_a_seed_that_breaks_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(seed: int, folder: Path) -> None:
        raise AssertionError(f"{seed} in {folder.name}")

    monkeypatch.setattr("tests.faults.race.play", broken)
    with scratch("gpuprov-test-") as place, journal_steps():
        count = faults.play_seeds(place, [5, 6])
    assert [text.partition(":")[0] for text in count.failures] == ["seed 5", "seed 6"]
    assert (count.played, count.passes) == (2, Counter())


def test_the_documented_ways_to_play_one_again_work(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    commands = [shlex.split(line) for line in text.splitlines() if line.startswith("python -m tests.faults.replay")]
    assert len(commands) == 2
    ends = []
    for command in commands:
        assert replay.main(command[3:]) == 0
        ends.append(capsys.readouterr().out.splitlines())
    assert ends[0][-1].startswith("Outcome(steps=")
    assert ends[1][-1].startswith("Healed(passes=1, ")
    assert any("create_instance aws/us-east-1/" in line for line in ends[1])


def test_a_seed_plays_the_same_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    played = set()
    for name in ("20261134", "seed 20261134"):
        assert replay.main([name]) == 0
        # The stack-id is drawn anew each time, and tokens follow from it.
        played.add(tuple(" ".join(line.split()[:3]) for line in capsys.readouterr().out.splitlines()))
    assert len(played) == 1


def test_a_name_that_no_case_has_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert replay.main(["replace, crash after at 999"]) == 2
    assert "there is no case" in capsys.readouterr().err


def test_the_pages_name_what_did_not_heal_and_how_much_was_played() -> None:
    counts = [
        Count("single faults", 1_234, ["replace, crash after at 3: two"], Counter({1: 1_200, 2: 33}), took_s=90.0)
    ]
    text = faults.page(counts, {"create": 43}, 7, "abc with changes")
    assert "| single faults | 1,234 | 1 | 1: 1200, 2: 33 |  | 1 | 0.0000 | 1.5 min |" in text
    assert "- replace, crash after at 3: two" in text
    assert "commit abc with changes · seed 7" in text


def test_the_page_of_kills_counts_those_after_the_first_change() -> None:
    blow = Blow(0, "caller", True, 0.5, "end")
    made = Wound(blow, 3.0, "creating instance", 0, 0, 1, 1, (), False)
    early = Wound(blow, 0.1, "before the stack", 0, 0, 1, 1, (), False)
    lost = Wound(blow, 3.0, "has launch", 0, 0, 2, 1, ("i-1",), False)
    text = kill.page([made, early, lost], 7.5, 7, "abc")
    assert "2 of 3 fell after that change." in text
    assert "| caller | 3 | 2 | 1 |" in text
    assert "NOT HEALED" in text.partition("## Not healed")[2]
