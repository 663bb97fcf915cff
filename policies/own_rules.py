"""Rules of an organisation: found by entry point, checked like ours, run with the same isolation.

A package registers a list of ``policies.rule.Rule`` under the entry point group ``gpuprov.rules``; a policy file switches it on
by name (``policy.own_rules``). Nothing is loaded unasked: looking through installed packages would cost every run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points

from policies.facts import Subject
from policies.registry import BY_ID
from policies.rule import Rule
from provisioner.errors import UsageError

GROUP = "gpuprov.rules"
_ID = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")


def load_own_rules(names: Iterable[str]) -> tuple[Rule, ...]:
    """The rules behind some entry points.

    Raises:
        UsageError: no such entry point, it cannot be loaded, or what it gives are no usable rules.
    """
    known = {point.name: point for point in entry_points(group=GROUP)}
    found: list[Rule] = []
    for name in names:
        if name not in known:
            shown = ", ".join(sorted(known)) or "none is installed"
            raise UsageError(f"no installed package gives the rules {name!r}", remedy=f"install it; there are: {shown}")
        found.extend(_rules_of(known[name]))
    ids = [*BY_ID, *(rule.id for rule in found)]
    if twice := sorted({rule_id for rule_id in ids if ids.count(rule_id) > 1}):
        raise UsageError(
            f"two rules have the id {twice[0]}", remedy="give your rule an id of its own, such as acme-region"
        )
    return tuple(found)


def _rules_of(point: EntryPoint) -> tuple[Rule, ...]:
    remedy = f"correct the package that gives {point.value}"
    try:
        rules = tuple(point.load())
    except Exception as error:
        raise UsageError(f"the rules {point.name!r} cannot be loaded: {type(error).__name__}", remedy=remedy) from error
    if not rules:
        raise UsageError(f"the rules {point.name!r} are an empty list", remedy=remedy)
    for rule in rules:
        if not isinstance(rule, Rule) or not _ID.fullmatch(rule.id) or not callable(rule.judge):
            raise UsageError(f"the rules {point.name!r} hold something that is no rule", remedy=remedy)
        if not rule.applies_to or not all(issubclass(kind, Subject) for kind in rule.applies_to):
            raise UsageError(f"the rule {rule.id} judges no kind of facts", remedy=remedy)
    return rules
