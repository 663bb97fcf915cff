"""Policy files: found, read, built on one another, and turned into a ``Policy``; waiver and baseline files likewise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policies.day import today_utc
from policies.files import PolicyFileError, read_text, shown
from policies.registry import RULES
from policies.rule import Level, Rule
from policies.selection import Override, Policy, Scope
from policies.waivers import DAYS_MAX, Waiver
from provisioner.errors import Position, UsageError

if TYPE_CHECKING:
    from provisioner.workload.tree import Node

EXTENDS_MAX = 8
"""Policy files that may build on one another: an organisation, a division, a team, a repository, and some to spare."""


def load_policy(path: Path | None, *, today: date | None = None) -> Policy:
    """The policy of a file; the built-in levels where there is none.

    Raises:
        PolicyFileError: the file cannot be read or is wrong.
    """
    if path is None:
        return Policy()
    return _load(path, (), today or today_utc())


def _load(path: Path, above: tuple[Path, ...], today: date) -> Policy:
    from policies.policy_keys import OWN_RULES, TEXT, policy_file_keys, read_kind, read_nodes

    file = shown(path)
    root = read_nodes(read_text(path), file)
    base = Policy()
    extends = read_kind(TEXT, root, file, ("extends",))
    if extends is not None:
        parent = (path.parent / extends).resolve()
        if parent in (*above, path.resolve()) or len(above) >= EXTENDS_MAX:
            where = _place(root, file, "extends")
            raise PolicyFileError(
                f"extends: {extends} builds on this file again", where=where, remedy="break the circle"
            )
        base = _load(parent, (*above, path.resolve()), today)
    if own := read_kind(OWN_RULES, root, file, ("policy", "own_rules")):
        from policies.own_rules import load_own_rules

        try:
            base = replace(base, rules=(*base.rules, *load_own_rules(own)))
        except UsageError as error:
            where = _place(root, file, "policy.own_rules")
            raise PolicyFileError(error.message, where=where, remedy=error.remedy) from error
    content = read_kind(policy_file_keys({rule.id: rule for rule in base.rules}), root, file)
    return _build(content["policy"] or {}, base, root, file, today)


def _build(part: Mapping[str, Any], base: Policy, root: Node, file: str, today: date) -> Policy:
    overrides = {**base.overrides, **_preset(part.get("preset"), base.rules)}
    for name, override in part.get("rules", {}).items():
        overrides[name] = merged(overrides.get(name, Override()), override)
    scopes = tuple(
        Scope(scope["rules"], match["paths"], match["workloads"], match["environments"], match["tags"])
        for scope in part.get("scopes", ())
        for match in (scope["match"],)
    )
    waivers = tuple(
        _waiver(waiver, root, file, f"policy.waivers[{index}]", today=today, rules=base.rules)
        for index, waiver in enumerate(part.get("waivers", ()))
    )
    unknown = part.get("unknown")
    return replace(
        base,
        overrides=overrides,
        scopes=(*base.scopes, *scopes),
        waivers=(*base.waivers, *waivers),
        unknown_passes=base.unknown_passes if unknown is None else unknown == "advisory",
        file=Position(file),
    )


def merged(base: Override, change: Override) -> Override:
    """Both overrides as one; the change wins."""
    return Override(
        change.level if change.level is not None else base.level,
        {**base.parameters, **change.parameters},
        change.unknown_passes if change.unknown_passes is not None else base.unknown_passes,
    )


def _preset(name: str | None, rules: tuple[Rule, ...]) -> Mapping[str, Override]:
    """Levels of a preset: ``strict`` raises advisory rules, ``advisory`` lowers mandatory ones, ``default`` changes nothing."""
    change = {"strict": (Level.ADVISORY, Level.MANDATORY), "advisory": (Level.MANDATORY, Level.ADVISORY)}.get(
        name or "default"
    )
    if change is None:
        return {}
    return {rule.id: Override(level=change[1]) for rule in rules if rule.level is change[0]}


def load_waivers(path: Path, *, today: date, rules: tuple[Rule, ...] = RULES) -> tuple[Waiver, ...]:
    """The waivers of a file.

    Raises:
        PolicyFileError: the file is wrong, a waiver lasts too long, or its rule cannot be waived.
    """
    from policies.policy_keys import read_kind, read_nodes, waiver_file_keys

    file = shown(path)
    root = read_nodes(read_text(path), file)
    content = read_kind(waiver_file_keys({rule.id: rule for rule in rules}), root, file)
    return tuple(
        _waiver(waiver, root, file, f"waivers[{index}]", today=today, rules=rules)
        for index, waiver in enumerate(content["waivers"])
    )


def _waiver(
    part: Mapping[str, Any], root: Node, file: str, key: str, *, today: date, rules: tuple[Rule, ...]
) -> Waiver:
    rule, expires = part["rule"], part["expires"]
    if not next(each for each in rules if each.id == rule).waivable:
        remedy = "mend what it finds; if the rule itself is wrong for you, set its level in gpuprov-policy.yaml"
        where = _place(root, file, f"{key}.rule")
        raise PolicyFileError(f"the rule {rule} cannot be waived", where=where, remedy=remedy)
    days = (expires - today).days
    if days > DAYS_MAX:
        message = f"the waiver of {rule} ends in {days} days, more than {DAYS_MAX}"
        remedy = f"choose a day within {DAYS_MAX} days and renew it then"
        raise PolicyFileError(message, where=_place(root, file, f"{key}.expires"), remedy=remedy)
    where = _place(root, file, f"{key}.rule")
    return Waiver(rule, part["scope"], part["reason"], part["owner"], expires, part["ticket"], where)


def _place(root: Node, file: str, key: str) -> Position:
    from policies.facts import steps
    from provisioner.workload.tree import mark_of

    return Position(file, *(mark_of(root, steps(key)) or (1, 1)))
