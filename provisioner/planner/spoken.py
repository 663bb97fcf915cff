"""Bills, links and ratios in the words that reasons use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from provisioner.planner.ranking import Candidate
from provisioner.planner.request import Request
from provisioner.units import format_usd
from provisioner.vocabulary import Interconnect, Task

LINKS: Mapping[Interconnect, str] = {Interconnect.NVLINK: "NVLink", Interconnect.PCIE: "PCIe"}
SAME = 0.005
"""Ratios that are nearer to 1 read as equal."""


class Comparison(NamedTuple):
    """Words for a ratio above 1, below 1, and for several times as much."""

    more: str
    less: str
    many: str


DEARER = Comparison("dearer", "cheaper", "as dear")
FASTER = Comparison("faster", "slower", "as fast")


def times(ratio: float, words: Comparison) -> str:
    """A ratio in words (``9 % dearer``, ``2.3 times as dear``, ``40 % cheaper``); empty where it is next to 1."""
    if abs(ratio - 1) <= SAME:
        return ""
    if ratio >= 2:
        return f"{ratio:,.1f} times {words.many}"
    return (
        f"{ratio - 1:.0%} {words.more}".replace("%", " %")
        if ratio > 1
        else f"{1 - ratio:.0%} {words.less}".replace("%", " %")
    )


def spoken_cost(request: Request, candidate: Candidate) -> str:
    """The bill that ranks, in words."""
    cost = candidate.bill.cost
    if cost.run_usd is not None:
        return f"{format_usd(cost.run_usd)} a run"
    if request.workload.task is not Task.SERVE and cost.usd_per_million_tokens is not None:
        return f"{format_usd(cost.usd_per_million_tokens)} per million tokens"
    if cost.total_usd_per_month is not None:
        return f"{format_usd(cost.total_usd_per_month)} a month"
    if cost.compute_usd_per_hour is None:
        return "a price that is unknown"
    return (
        f"{format_usd(cost.compute_usd_per_hour)} an hour and {' and '.join(candidate.terms.unknown)} of unknown price"
    )
