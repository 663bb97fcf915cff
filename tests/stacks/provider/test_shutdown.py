"""An edit of ``lifecycle.idle.then`` on a live machine: the machine first, then its tag, or plainly not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from provisioner import tags
from provisioner.errors import Rejected
from stacks.provider.session import PartialFailure
from tests.fakes.cloud import FakeCloud
from tests.fakes.mini_engine import MiniEngine, engine, offer, program

SAME = [("launch", "same"), ("gpu", "same")]


def ending(then: str | None, **changes: Any) -> dict[str, Any]:
    """A program whose idle machine ends so."""
    idle = {} if then is None else {"then": then}
    return program(**{"workload": {**program()["workload"], "lifecycle": {"idle": idle}}, "node": {}, **changes})


def calls(cloud: FakeCloud) -> list[str]:
    return [c.operation for c in cloud.calls if c.operation in ("set_shutdown", "set_tags", "stop_instance")]


def only(mini: MiniEngine) -> Any:
    (machine,) = mini.cloud.living
    return machine


@pytest.mark.parametrize(("before", "after", "stops"), [(None, "terminate", False), ("terminate", "stop", True)])
def test_an_edit_reaches_the_live_machine_before_its_tag_and_only_once(
    home: Path, before: str | None, after: str, *, stops: bool
) -> None:
    mini = engine(home)
    mini.up(ending(before))
    machine = only(mini).id
    mini.cloud.calls.clear()
    mini.told.clear()
    assert mini.up(ending(after)) == [("launch", "same"), ("gpu", "update")]
    assert mini.cloud.shutdowns == {machine: stops}
    assert calls(mini.cloud) == ["set_tags", "set_shutdown", "set_tags"]  # first what needs no other step
    assert only(mini).tags[tags.IDLE_THEN] == after
    word = "stops" if stops else "terminates"
    assert [text for text in mini.told if "idle.then" in text] == [
        f"lifecycle.idle.then: {after}: a shutdown {word} {machine} from now on"
    ]
    assert mini.up(ending(after)) == SAME
    assert mini.cloud.count("set_shutdown") == 1


def test_an_edit_that_leaves_it_out_again_goes_back_to_what_the_market_makes_of_it(home: Path) -> None:
    mini = engine(home)
    mini.up(ending("terminate"))
    mini.up(ending(None))
    assert mini.cloud.shutdowns == {only(mini).id: True}
    assert only(mini).tags[tags.IDLE_THEN] == "stop"
    assert mini.up(ending(None)) == SAME


def test_an_edit_that_says_what_is_so_anyway_tells_nothing(home: Path) -> None:
    mini = engine(home)
    mini.up(ending(None))
    mini.told.clear()
    mini.up(ending("stop"))
    assert mini.told == []
    assert only(mini).tags[tags.IDLE_THEN] == "stop"


def test_a_stopped_machine_is_told_while_it_stays_stopped(home: Path) -> None:
    mini = engine(home)
    mini.up(ending(None))
    mini.up(ending(None, power="stopped"))
    mini.up(ending("terminate", power="stopped"))
    assert mini.cloud.shutdowns == {only(mini).id: False}
    assert mini.outputs("gpu")["power"] == "stopped"


def test_a_refusal_leaves_the_tag_and_the_next_up_asks_again(home: Path) -> None:
    mini = engine(home)
    mini.up(ending(None))
    mini.cloud.errors["set_shutdown"].append((False, Rejected("IncorrectInstanceState: wait")))
    with pytest.raises(PartialFailure, match="IncorrectInstanceState"):
        mini.up(ending("terminate"))
    assert tags.IDLE_THEN not in only(mini).tags
    mini.up(ending("terminate"))
    assert only(mini).tags[tags.IDLE_THEN] == "terminate"
    assert mini.cloud.shutdowns == {only(mini).id: False}


@pytest.mark.parametrize(
    ("market", "before", "after", "words"),
    [
        ("spot", None, "stop", "counts for the next machine"),
        ("spot", "stop", "terminate", "counts for the next machine"),
        ("spot", None, "terminate", None),
        ("on-demand", "terminate", "stop", "changes nothing"),
    ],
)
def test_where_it_cannot_be_changed_that_is_said_with_what_to_do_and_only_once(
    home: Path, market: str, before: str | None, after: str, words: str | None
) -> None:
    mini = engine(home)
    offers = [offer("use1-az1", capacity=market)]
    node = {"offers": {"aws/us-east-1/use1-az1/g6.xlarge/on-demand": {"disk": "local-root"}}}
    mini.up(ending(before, offers=offers, node=node))
    mini.told.clear()
    mini.up(ending(after, offers=offers, node=node))
    said = [text for text in mini.told if "idle.then" in text]
    assert len(said) == (words is not None)
    if words is not None:
        assert words in said[0]
        assert ("`gpuprov down --keep-data`, then `up`" in said[0]) is (words == "counts for the next machine")
    assert mini.cloud.count("set_shutdown") == 0
    mini.told.clear()
    assert mini.up(ending(after, offers=offers, node=node)) == SAME
    assert mini.told == []
