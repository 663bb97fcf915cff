"""What the tables of cases share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from policies.facts import UNKNOWN, Subject
from policies.facts import Disk as DiskFact
from provisioner.planner.plan import Plan, Rejection
from provisioner.sizing.layout import Layout
from provisioner.units import GIB
from tests.policies.builders import candidate, fit


@dataclass(frozen=True)
class Cases:
    """Subjects of one rule. ``boundary`` is the last that passes and the first that fails."""

    passes: tuple[Subject, ...]
    fails: tuple[Subject, ...]
    boundary: tuple[Subject, Subject]
    unknowns: tuple[Subject, ...]
    parameters: dict[str, Any] = field(default_factory=dict)
    silent: tuple[Subject, ...] = ()
    """Subjects that the rule does not concern."""
    says: tuple[tuple[Subject, tuple[str, ...]], ...] = ()
    """Subjects with words of ``result|key|message|remedy|identity`` of their outcomes."""

    @property
    def is_silent(self) -> bool:
        """Whether the rule says nothing at all under these parameters, so that there is no boundary."""
        return not self.passes and not self.fails


def plan(verdict: str = "nothing-fits", *rejections: tuple[str, str | None, str | None]) -> Plan:
    """A plan without a choice, refused by these filters."""
    found = tuple(
        Rejection("aws/*/*/g6.xlarge/*", name, f"refused by {name}", need, have) for name, need, have in rejections
    )
    return Plan(
        "chat", "serve", "d", {}, "c", "2026", verdict, None, None, None, None, rejections=found, closest=("take two",)
    )


NO_FIT = fit(30 * GIB)
NOT_KNOWN = candidate(
    instance_type=UNKNOWN, instance=UNKNOWN, gpu=UNKNOWN, fit=UNKNOWN, refusals=UNKNOWN, price_usd_per_hour=UNKNOWN
)
SPLIT = Layout(tensor_parallel=4)


def root(size: int | None = 100 * GIB, **facts: Any) -> DiskFact:
    return DiskFact(
        **{"key": "root", "role": "root", "encrypted": True, "customer_key": True, "size_bytes": size, **facts}
    )


def data(**facts: Any) -> DiskFact:
    return DiskFact(**{"key": "ebs[0]", "role": "data", "encrypted": True, "customer_key": True, **facts})


def env(**variables: Any) -> dict[str, Any]:
    return {"run": {"image": "x@sha256:" + "a" * 64, "env": variables}}


UNCHECKED = {"training.checkpoint": ...}
