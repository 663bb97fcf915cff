"""Published reports that gpuprov must not repeat, each with a test that bears its id: ``test_l13_...`` answers report L13.

A report is a row here, in our own words: what is expected. Its test stands where the code is that answers it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent

EXPECTED = {
    # Lost, orphaned or unmanaged machines
    "L1": "a machine that can neither start nor be ended stops the failover, is named with region and price, and stays in the state",
    "L2": "a machine that lists do not show for two seconds is not taken for gone",
    "L3": "an end without an answer is no end: the machine stays until the cloud confirms",
    "L5": "of two commands on one stack one waits or is refused; no machine without owner and state",
    "L6": "an interrupt between the call and the state: the next run finds the machine, by tag or by the same token",
    "L7": "a bursty workload without any end gets one, shown in the plan",
    "L9": "a hundred launches at once, three in ten refused: as many machines as stacks",
    "L10": "a failure after some of several creates loses none of them",
    "L11": "a killed pipeline leaves only what says whose it is, and when it ends",
    "L13": "a create that the state has as pending is resolved by tag and token, never made again",
    "L14": "nothing of ours is left after `down`: no group, disk, address, bucket or template",
    "L15": "expired credentials on `down` are exit 3, and nothing leaves the state",
    # Idle machines, and work that was killed
    "I1": "a login that opens after the watcher began counts",
    "I2": "a notebook server without people is idle, a running cell is not",
    "I3": "a hung training ends as stuck, not as finished",
    "I5": "one working GPU of eight keeps the machine",
    "I6": "a spinning wait is a suspected stall, not work",
    "I7": "a reboot keeps the deadline",
    "I9": "an idle limit stated anywhere is in the plan, or refused",
    "I10": "work that starts a second before the end is not killed",
    "I11": "the machine ends by itself with nothing outside alive",
    "I13": "a limit that an edit takes away is refused by the same check",
    "I14": "stopped, then terminated: two timers, and the price of the stopped month",
    "I15": "CPU work beside an unused GPU is told, and ends the machine where the spec says so",
    # Capacity, quota, region, zone
    "C1": "a quota that is too small costs no create call, and is told with need, have, used and the request",
    "C2": "a quota above zero and below the need is too small; a region that has enough is taken",
    "C3": "spot and on-demand have a quota each, and the message says which",
    "C5": "an unknown code stops with its raw text, and is no want of capacity",
    "C6": "an invalid request is exit 4, a missing right exit 3, and no other zone is tried",
    "C7": "zones without room are passed over and told",
    "C9": "a zone that does not offer the type is never tried",
    "C10": "zones are known by their ids, since letters differ between accounts",
    "C11": "a region without the type is an error that names those that have it",
    "C13": "a stopped machine that cannot start stays; the steps to move it are named",
    "C14": "a start without capacity leaves the stopped machine as it is",
    "C15": "after a spot loss the next regions come first, and the lost one last",
    "C17": "two blocks of one type and zone are filled one after the other",
    "C18": "a GPU machine of Google Cloud that asks to be moved, or an E2 one that asks to be ended, is caught before its apply",
    # Price, storage, image, credentials, spec
    "P1": "a price of nothing, or five times off its like, is kept out",
    "P2": "disks that come with a machine are in its price",
    "P3": "golden prices within half a percent",
    "P5": "spot that is no cheaper is not taken; the spec's price limit goes to the API",
    "P6": "a failed refresh makes nothing look fresh; old prices are warned of, and a policy may refuse them",
    "P7": "the bill is compute, disks, address, and disks or snapshots while stopped",
    "P9": "disks hold weights and checkpoints",
    "P10": "a root disk is never smaller than its image",
    "P11": "a container that gets no GPU, or needs a newer driver than the host's, is not started, and the console says why",
    "P13": "expired logins are exit 3 with the line that mends them, and a new login works without a restart",
    "P14": "an unknown key at any depth has its line, its column and the nearest key",
    "P15": "broken YAML is an error at line and column, exit 2",
    "P17": "a second `up` without a change changes nothing",
    "P18": "a machine that was taken back is shown so, its hook has run, and it is replaced",
    "P19": "a machine that the cloud calls running and that says nothing is unreachable, not gone",
    # Crashes, tokens, teardown, the gate
    "E1": "a kill after the create call: the next run adopts the machine",
    "E2": "twenty kills make one machine",
    "E3": "a crash inside a launch makes no second machine",
    "E4": "the token of an ended machine is refused: a new token, and no loop",
    "E6": "two stacks of one program have different tokens",
    "E7": "a lost answer and a repeat make one machine",
    "E8": "a want of capacity costs one call and no wait, though it comes as HTTP 500",
    "E10": "a failed attempt that cannot be ended stops the failover",
    "E11": "an empty list right after a create is waited out",
    "E12": "tags are in the create call",
    "E15": "a quota of the whole project refuses all of its regions, and is named",
    "E16": "a persistent spot request is cancelled before its machine ends: nothing comes back in a day",
    "E18": "a state that could not be written after the create is resolved by adoption",
    "E19": "a lock that a killed pipeline left is told with owner and age, and broken only on proof",
    "E20": "hours of graph capture without GPU use are work",
    "E22": "an idle notebook kernel ends the machine, with the reason",
    "E23": "a silent cell with the browser closed is work while it computes",
    "E24": "a reading that is not available is unknown, not 0",
    "E26": "work that arrives in the last moment cancels the end",
    "E27": "a machine without valid credentials ends all the same",
    "E28": "a limit that nothing could keep is refused, or found from outside",
    "E30": "what cannot be judged never passes: exit 2, 2, 2 and 5",
    # Further
    "X1": "a finding without a line still has a place in SARIF",
    "X2": "two findings of one rule in one file have fingerprints of their own",
    "X3": "a rebalance recommendation alone drains nothing",
    "X4": "a machine whose GPU never shows is ended at the limit of its start",
    "X5": "a container on a bridge is warned of where metadata goes one hop",
    "X6": "a secret in user data or environment is a violation, and shown nowhere",
}

LATER = {
    "C19": "a plan asks for quotas of accounts as `prices refresh` reads them; those of a Google Cloud project (SSD_TOTAL_GB of"
    " compute.regions.get) are read by nothing yet, and disks are not measured against any: both come with the adapter of that cloud",
    "E14": "`up --cloud gcp` is refused: there is no Compute Engine adapter, so no insert is made whose operation could fail",
}
"""Reports on what does not exist yet, and with what their tests come."""


@cache
def names() -> tuple[str, ...]:
    """Names of all test functions."""
    return tuple(_names())


def _names() -> Iterator[str]:
    for path in sorted(TESTS.rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                yield node.name


def ids_of(name: str) -> set[str]:
    """Reports that a test is named by: the ids at the beginning of its name."""
    found: set[str] = set()
    for word in name.removeprefix("test_").split("_"):
        if not re.fullmatch(r"[licpex]\d{1,2}", word):
            break
        found.add(word.upper())
    return found


@pytest.mark.parametrize("report", EXPECTED)
def test_each_report_has_a_test_of_its_name(report: str) -> None:
    assert any(report in ids_of(name) for name in names()), f"{report}: {EXPECTED[report]}"


def test_no_test_claims_a_report_that_nobody_made() -> None:
    claimed = {report for name in names() for report in ids_of(name)}
    assert claimed - EXPECTED.keys() - LATER.keys() - _NOT_REPORTS == set()
    assert not EXPECTED.keys() & LATER.keys()


_NOT_REPORTS = {"L4"}
"""Words of test names that look like ids: the GPU."""
