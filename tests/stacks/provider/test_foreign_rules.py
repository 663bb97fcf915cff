"""Rules that somebody has changed on the machine's security group: seen by a refresh, put right by the next update."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.mini_engine import engine, program

OPENED = ("tcp 22 from 0.0.0.0/0 is open",)


def test_a_port_that_was_opened_by_hand_is_drift_and_the_next_up_closes_it(home: Path) -> None:
    mini = engine(home)
    mini.up(program())
    assert mini.outputs("gpu")["foreignRules"] == []
    opened = list(OPENED)
    mini.cloud.foreign_rules = lambda *_: tuple(opened)
    mini.refresh()
    assert mini.outputs("gpu")["foreignRules"] == list(OPENED)
    assert any("tcp 22 from 0.0.0.0/0 is open" in text for text in mini.told)
    steps = mini.up(program(), refresh=False)
    assert ("gpu", "update") in steps
    opened.clear()
    mini.refresh()
    assert mini.outputs("gpu")["foreignRules"] == []
    assert ("gpu", "update") not in mini.up(program(), refresh=False)
