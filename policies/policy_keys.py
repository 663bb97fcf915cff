"""Keys and values of policy and waiver files, read with the strictness of a spec: kinds of values, and mappings of keys."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from typing import Any

from policies.files import PolicyFileError
from policies.rule import Level, Rule
from policies.selection import Override
from policies.waivers import REASON_CHARACTERS_MIN
from provisioner.errors import Position
from provisioner.records import record
from provisioner.workload.kinds import Kind, Listing, Misfit, Table, Text, Whole, Words, as_scalar, suggest
from provisioner.workload.tree import Branch, Items, Node, Path, key_mark, mark_of, node_at, show, shown_path
from provisioner.workload.yaml_tree import YamlFault, read_yaml

UNKNOWN_WORDS = ("fail", "advisory")
PRESETS = ("default", "strict", "advisory")
REASON_CHARACTERS_MAX = 1000
LIST_RULES = "`gpuprov check --list-rules` lists all rules"

_GLOB = Text("a path or name, which may hold * and ?", "prod/**", r"[^\x00-\x1f\x7f]+", 512)
TEXT = Text("a path", "../org-policy.yaml", r"[^\x00-\x1f\x7f]+", 512)
_WORD = Text("a word", "production", r"[^\x00-\x1f\x7f]+", 128)


class RuleId(Kind):
    """The id of a rule."""

    __slots__ = ("rules",)

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self.rules = rules

    def read(self, node: Node) -> str:
        """The id."""
        scalar = as_scalar(node, "the id of a rule", LIST_RULES)
        if scalar.value in self.rules:
            return str(scalar.value)
        raise Misfit(f"{show(scalar)} is no rule", suggest(scalar.text, tuple(self.rules), LIST_RULES))


class Day(Kind):
    """A date."""

    __slots__ = ()

    def read(self, node: Node) -> date:
        """The date."""
        remedy = "write a date such as 2027-01-31"
        scalar = as_scalar(node, "a date", remedy)
        if not isinstance(scalar.value, str) or not re.fullmatch(r"\d{4}-\d{2}-\d{2}", scalar.value, re.ASCII):
            raise Misfit(f"{show(scalar)} is no date", remedy)
        try:
            return date.fromisoformat(scalar.value)
        except ValueError:
            raise Misfit(f"{show(scalar)} is no day of the calendar", remedy) from None


class Reason(Kind):
    """A reason that says something."""

    __slots__ = ()

    def read(self, node: Node) -> str:
        """The reason, with single spaces."""
        remedy = f"say in at least {REASON_CHARACTERS_MIN} characters why it may pass, and until what"
        scalar = as_scalar(node, "a reason", remedy)
        text = " ".join(scalar.text.split())
        if not isinstance(scalar.value, str) or len(text) < REASON_CHARACTERS_MIN:
            raise Misfit(f"{show(scalar)} is no reason: it has {len(text)} characters", remedy)
        if len(text) > REASON_CHARACTERS_MAX:
            raise Misfit(
                f"the reason has {len(text)} characters",
                f"use at most {REASON_CHARACTERS_MAX}; a ticket can hold the rest",
            )
        return text


class RuleTable(Kind):
    """Rule ids, each with a level or with a mapping of level, unknown and parameters."""

    __slots__ = ("rules",)

    def __init__(self, rules: Mapping[str, Rule]) -> None:
        self.rules = rules

    def read(self, node: Node) -> dict[str, Override]:
        """Changes by rule id."""
        if not isinstance(node, Branch):
            wanted = f"a mapping of rule ids is wanted here, not {show(node) or 'nothing'}"
            raise Misfit(wanted, "write {open-cidr: advisory}")
        found: dict[str, Override] = {}
        for name, item in node.values.items():
            if name not in self.rules:
                remedy = suggest(name, tuple(self.rules), LIST_RULES)
                raise Misfit(f"{show(name)} is no rule", remedy, (name,), at_key=True)
            try:
                found[name] = read_override(self.rules[name], item)
            except Misfit as misfit:
                raise misfit.below(name) from None
        return found


def read_override(rule: Rule, node: Node) -> Override:
    """What a policy file says of one rule: a level alone, or a mapping.

    Raises:
        Misfit: an unknown key, level or parameter, or a value of the wrong kind.
    """
    levels = Words.of(Level)
    if not isinstance(node, Branch):
        return Override(level=levels.read(node))
    parameters = {parameter.name: Key(parameter.kind) for parameter in rule.parameters}
    keys = {"level": Key(levels), "unknown": Key(Words(UNKNOWN_WORDS)), **parameters}
    found = Keys(keys, f"of {rule.id}").read(node)
    passes = None if found["unknown"] is None else found["unknown"] == "advisory"
    return Override(found["level"], {name: found[name] for name in parameters if found[name] is not None}, passes)


@record(frozen=True, slots=True)
class Key:
    """One key of a mapping: the kind of its value, and whether it must be there. Absent ones read as ``default``."""

    kind: Kind
    required: bool = False
    default: Any = None


class Keys(Kind):
    """A mapping with fixed keys."""

    __slots__ = ("keys", "where")

    def __init__(self, keys: Mapping[str, Key], where: str = "here") -> None:
        self.keys = keys
        self.where = where

    def read(self, node: Node) -> dict[str, Any]:
        """Values by key, defaults for absent ones."""
        known = ", ".join(self.keys)
        if not isinstance(node, Branch):
            raise Misfit(
                f"a mapping of keys is wanted here, not {show(node) or 'nothing'}", f"write keys below it: {known}"
            )
        found = {name: key.default for name, key in self.keys.items()}
        for name, item in node.values.items():
            if name not in self.keys:
                remedy = suggest(name, tuple(self.keys), f"the keys {self.where} are {known}")
                raise Misfit(f"unknown key {show(name)}", remedy, (name,), at_key=True)
            try:
                found[name] = self.keys[name].kind.read(item)
            except Misfit as misfit:
                raise misfit.below(name) from None
        for name, key in self.keys.items():
            if key.required and name not in node.values:
                raise Misfit(f"the required key {name} is missing", f"add {name}:")
        return found


class Sequence(Kind):
    """A list of mappings, empty ones allowed."""

    __slots__ = ("item",)

    def __init__(self, item: Kind) -> None:
        self.item = item

    def read(self, node: Node) -> tuple[Any, ...]:
        """The items in the order written."""
        if not isinstance(node, Items):
            raise Misfit(f"a list is wanted here, not {show(node) or 'nothing'}", "begin each entry with a hyphen")
        found = []
        for index, item in enumerate(node.items):
            try:
                found.append(self.item.read(item))
            except Misfit as misfit:
                raise misfit.below(index) from None
        return tuple(found)


class Match(Kind):
    """The conditions of a scope: one at least, since a scope without any would be for everything."""

    __slots__ = ()

    def read(self, node: Node) -> dict[str, Any]:
        """The conditions."""
        found: dict[str, Any] = _MATCH.read(node)
        if not any(found.values()):
            raise Misfit(
                "a scope without a condition is for everything", "write paths, workloads, environments or tags below it"
            )
        return found


_MATCH = Keys(
    {
        "paths": Key(Listing(_GLOB), default=()),
        "workloads": Key(Listing(_GLOB), default=()),
        "environments": Key(Listing(_WORD), default=()),
        "tags": Key(Table(_WORD, _GLOB), default={}),
    },
    "of match",
)
OWN_RULES = Listing(_WORD)


def _waiver_keys(rules: Mapping[str, Rule]) -> Keys:
    return Keys(
        {
            "rule": Key(RuleId(rules), required=True),
            "scope": Key(_GLOB, required=True),
            "reason": Key(Reason(), required=True),
            "owner": Key(_WORD, required=True),
            "expires": Key(Day(), required=True),
            "ticket": Key(_WORD),
        },
        "of a waiver",
    )


def waiver_file_keys(rules: Mapping[str, Rule]) -> Keys:
    """Keys of a file of waivers for these rules."""
    waivers = Sequence(_waiver_keys(rules))
    return Keys({"version": Key(Whole(1, 1), required=True), "waivers": Key(waivers, required=True)})


def policy_file_keys(rules: Mapping[str, Rule]) -> Keys:
    """Keys of a policy file for these rules."""
    table = RuleTable(rules)
    scope = Keys({"match": Key(Match(), required=True), "rules": Key(table, required=True)}, "of a scope")
    policy = Keys(
        {
            "preset": Key(Words(PRESETS)),
            "unknown": Key(Words(UNKNOWN_WORDS)),
            "own_rules": Key(OWN_RULES, default=()),
            "rules": Key(table, default={}),
            "scopes": Key(Sequence(scope), default=()),
            "waivers": Key(Sequence(_waiver_keys(rules)), default=()),
        },
        "of policy",
    )
    return Keys({"version": Key(Whole(1, 1)), "extends": Key(_GLOB), "policy": Key(policy)})


def read_nodes(text: str, file: str) -> Node:
    """The nodes of a policy or waiver file.

    Raises:
        PolicyFileError: not YAML.
    """
    try:
        return read_yaml(text)
    except YamlFault as fault:
        remedy = fault.remedy if text.strip() else "write version: 1 and what follows it, or remove the file"
        raise PolicyFileError(fault.message, where=Position(file, *(fault.mark or (1, 1))), remedy=remedy) from None


def read_kind(kind: Kind, root: Node, file: str, path: Path = ()) -> Any:
    """What stands at a path of a policy or waiver file.

    Raises:
        PolicyFileError: an unknown key, or a wrong value; with the place and the nearest valid word.
    """
    node = node_at(root, path)
    if node is None:
        return None
    try:
        return kind.read(node)
    except Misfit as misfit:
        where = (*path, *misfit.path)
        mark = key_mark(root, where) if misfit.at_key else mark_of(root, where)
        ahead = f"{shown_path(where)}: " if where and not misfit.at_key else ""
        place = Position(file, *(mark or (1, 1)))
        raise PolicyFileError(f"{ahead}{misfit.message}", where=place, remedy=misfit.remedy) from None
