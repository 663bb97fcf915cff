"""Mutants of the rules: small faults put into their code, each of which the rules' own cases must notice.

A mutant is one change of the syntax tree of one module: a comparison turned or shifted, ``and`` for ``or``, a condition negated, a
number one off, an arithmetic sign, a returned value dropped, an outcome not given. The module is compiled with it in this
process, its functions take the place of the sound ones, and the rules that may run them judge their own cases.
"""

from __future__ import annotations

import ast
import importlib
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from policies.registry import RULES
from policies.rule import Rule, Setting
from tests.policies.rule_cases import ALL_CASES
from tests.policies.verdicts import mistakes

TODAY = date(2026, 11, 30)
MODULES = (
    "policies.rules.access",
    "policies.rules.availability",
    "policies.rules.candidates",
    "policies.rules.capacity",
    "policies.rules.commands",
    "policies.rules.cost",
    "policies.rules.hardware",
    "policies.rules.hygiene",
    "policies.rules.lifecycle",
    "policies.rules.secrecy",
    "policies.rules.sizing",
    "policies.rules.supply",
    "policies.engine_flags",
)
COMPARISONS: Mapping[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}


@dataclass(frozen=True)
class Mutant:
    """One fault: where it is, what it is, and the changed tree of its module."""

    module: str
    line: int
    what: str
    tree: ast.Module

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.module.rpartition('.')[2]}.py:{self.line}: {self.what}"


def mutants_of(module: str) -> Iterator[Mutant]:
    """All mutants of a module's functions."""
    loaded = importlib.import_module(module)
    text = Path(str(loaded.__file__)).read_text(encoding="utf-8")
    for index, place in enumerate(_places(ast.parse(text))):
        for way in range(_ways(place)):
            changed = ast.parse(text)
            node = list(_places(changed))[index]
            what = _apply(changed, node, way)
            yield Mutant(module, getattr(node, "lineno", 0), what, ast.fix_missing_locations(changed))


def _places(tree: ast.Module) -> Iterator[ast.AST]:
    """What can be changed, in functions and in the values of constants, but not in texts, annotations and rules' own words."""
    for statement in tree.body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield from (node for node in _code(statement) if _ways(node))


def _code(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield from _code(child)


def _ways(node: ast.AST) -> int:
    """In how many ways a node can be changed."""
    if isinstance(node, ast.Compare):
        return len(COMPARISONS.get(type(node.ops[0]), ()))
    if isinstance(node, ast.Constant):
        return 1 if isinstance(node.value, (bool, int, float)) else 0
    if isinstance(node, ast.BinOp):
        return 1 if type(node.op) in ARITHMETIC and not _is_text(node) else 0
    if isinstance(node, ast.Return):
        return 0 if node.value is not None and _is_nothing(node.value) else 1
    if isinstance(node, ast.Expr):
        return 1 if isinstance(node.value, (ast.Yield, ast.YieldFrom)) else 0
    return 1 if isinstance(node, (ast.BoolOp, ast.If, ast.IfExp)) or _is_not(node) else 0


def _is_nothing(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _is_not(node: ast.AST) -> bool:
    return isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(side, (ast.JoinedStr, ast.Constant)) and not _is_number(side) for side in (node.left, node.right)
    )


def _is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float))


def _apply(tree: ast.Module, node: ast.AST, way: int) -> str:
    """Change a node in place, and say how."""
    before = ast.unparse(node).partition("\n")[0]
    if isinstance(node, ast.Compare):
        node.ops[0] = COMPARISONS[type(node.ops[0])][way]()
    elif isinstance(node, ast.Constant):
        node.value = not node.value if isinstance(node.value, bool) else node.value + 1  # type: ignore[operator]
    elif isinstance(node, ast.BinOp):
        node.op = ARITHMETIC[type(node.op)]()
    elif isinstance(node, ast.BoolOp):
        node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    elif isinstance(node, (ast.If, ast.IfExp)):
        node.test = ast.UnaryOp(ast.Not(), node.test)
    elif isinstance(node, ast.Return) and node.value is not None:
        node.value = ast.Constant(None)
    else:
        _replace(tree, node)
        return f"{before} -> (nothing)"
    return f"{before} -> {ast.unparse(node).partition(chr(10))[0]}"


def _replace(tree: ast.Module, node: ast.AST) -> None:
    """Put ``pass`` for a statement, the operand for a ``not``."""
    instead: ast.AST = node.operand if isinstance(node, ast.UnaryOp) else ast.Pass()
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, name, instead)
            elif isinstance(value, list) and any(each is node for each in value):
                value[:] = [instead if each is node else each for each in value]


def is_killed(mutant: Mutant) -> bool:
    """Whether the cases of some rule notice the fault."""
    try:
        with _in_place(mutant) as rules:
            return any(_notices(rule) for rule in rules)
    except Exception:  # noqa: BLE001 - a module that cannot even be loaded is noticed by everything
        return True


def _notices(rule: Rule) -> bool:
    try:
        return any(
            True
            for rule_id, cases in ALL_CASES
            if rule_id == rule.id
            for _ in mistakes(rule, cases, Setting({**rule.defaults(), **cases.parameters}, TODAY))
        )
    except Exception:  # noqa: BLE001 - a crash is noticed too
        return True


@contextmanager
def _in_place(mutant: Mutant) -> Iterator[tuple[Rule, ...]]:
    """The rules that may run a mutant, while its functions stand in for the sound ones."""
    sound = sys.modules[mutant.module]
    changed = types.ModuleType(mutant.module)
    changed.__dict__["__file__"] = sound.__file__
    exec(compile(mutant.tree, str(sound.__file__), "exec"), changed.__dict__)  # noqa: S102 - our own code with one change
    own = tuple(rule for rule in getattr(changed, "RULES", ()) if rule.applies_to)
    patched: list[tuple[types.ModuleType, str, Callable[..., Any]]] = []
    try:
        for name, function in list(sound.__dict__.items()):
            if isinstance(function, types.FunctionType) and function.__module__ == mutant.module:
                for other in [
                    each for key, each in sys.modules.items() if key.startswith("policies.") and each is not sound
                ]:
                    if other.__dict__.get(name) is function:
                        patched.append((other, name, function))
                        setattr(other, name, changed.__dict__[name])
        users = {other.__name__ for other, _, _ in patched}
        yield (*own, *(rule for rule in RULES if rule.applies_to and rule.judge.__module__ in users))
    finally:
        for other, name, function in patched:
            setattr(other, name, function)
