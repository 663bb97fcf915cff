"""Short names for the one file that goes to the machine: user data is 16 KB, and what a name means is for people who read the modules.

Only names that the file itself binds are changed: its functions, classes, constants, parameters and variables, and the members of
its classes. What has a meaning outside stays: imports, built-in names, names that the standard library's objects have too, words
that stand as texts (keys of documents), and the fields that are kept on disk.
"""

from __future__ import annotations

import ast
import builtins
import ctypes
import datetime as dt
import http.client
import keyword
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count, product
from pathlib import Path
from string import ascii_letters

from provisioner.node.tighten import tight_program

USES_MAX = 2
_OUTSIDE: tuple[object, ...] = (
    *(str, bytes, int, float, dict, list, set, tuple, type, Path, OSError, dt.datetime, dt.timedelta),
    *(
        subprocess,
        subprocess.Popen,
        re,
        re.Pattern,
        re.Match,
        ctypes,
        ctypes.Structure,
        ctypes.CDLL,
        http.client.HTTPResponse,
    ),
)
"""Whose attributes the program uses beside its own."""


class Names:
    """What may be renamed in a program."""

    def __init__(self, tree: ast.Module, kept_fields: Iterable[str]) -> None:
        """Read them from the program; ``kept_fields`` are names of classes whose members stay."""
        nodes = list(ast.walk(tree))
        classes = [node for node in nodes if isinstance(node, ast.ClassDef)]
        functions = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        self.makers = {"replace", *(node.name for node in classes)}
        """Callees whose keywords are fields."""
        self.members = {id(member) for each in classes for member in _members(each)}
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        by_keyword = {word.arg for call in calls if _callee(call) in functions for word in call.keywords if word.arg}
        imported = {
            (alias.asname or alias.name).partition(".")[0]
            for node in nodes
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        self.plain = {name for node in nodes for name in _bound(node) if id(node) not in self.members}
        self.plain -= imported | by_keyword | set(dir(builtins))
        texts = {text for node in nodes for text in _texts_for_names(node)}
        attributes = {name for each in classes for member in _members(each) for name in _bound(member)}
        stay = {
            name for each in classes if each.name in kept_fields for member in _members(each) for name in _bound(member)
        }
        outside = {name for each in _OUTSIDE for name in dir(each)}
        self.attributes = {
            name for name in attributes - texts - stay - outside - by_keyword if name[0] != "_" or name[-1] != "_"
        }
        self.taken = {node.id for node in nodes if isinstance(node, ast.Name)} - self.plain
        self.taken |= imported | by_keyword | set(dir(builtins)) | set(keyword.kwlist) | outside
        self.taken |= {node.attr for node in nodes if isinstance(node, ast.Attribute)} - self.attributes


def shortened(source: str, kept_fields: Iterable[str] = ()) -> str:
    """The same program with one space a level and a short word for each name of its own; the same bytes each time."""
    tree = ast.parse(source)
    _inline(tree)
    _bare_returns(tree)
    for _ in range(3):  # what only the dropped ones read goes with them
        _without_unused(tree)
    names = Names(tree, kept_fields)
    shared = names.plain - _name_locals(tree, names)
    plain = _short(
        Counter(name for node in ast.walk(tree) for name in _used(node)), shared, names.taken | {*ascii_letters}
    )
    uses = Counter(node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    attributes = _short(uses, names.attributes, names.taken)
    for node in ast.walk(tree):
        _rename(node, attributes if id(node) in names.members else plain)
        if isinstance(node, ast.Attribute):
            node.attr = attributes.get(node.attr, node.attr)
    for node in ast.walk(tree):
        makers = {plain.get(name, name) for name in names.makers}
        if isinstance(node, ast.Call) and _callee(node) in makers:
            for word in node.keywords:
                word.arg = attributes.get(word.arg, word.arg) if word.arg else None
    return tight_program("".join(f"{line}\n" for line in ast.unparse(tree).splitlines() if line))


def _name_locals(tree: ast.Module, names: Names) -> set[str]:
    """Name parameters and variables in the order in which each function has them, so that functions look alike; what they were called.

    A name that the module binds too stays what it is there.
    """
    inner = [entry for owner in tree.body if isinstance(owner, ast.ClassDef) for entry in owner.body]
    functions = [entry for entry in [*tree.body, *inner] if isinstance(entry, ast.FunctionDef)]
    inside = {id(node) for function in functions for node in ast.walk(function) if node is not function}
    outside = [node for node in ast.walk(tree) if id(node) not in inside and id(node) not in names.members]
    outer = {name for node in outside for name in _bound(node)}
    done: set[str] = set()
    for function in functions:
        nodes = [node for node in _in_order(function) if node is not function]
        own = dict.fromkeys(name for node in nodes for name in _bound(node) if name in names.plain - outer)
        free = {name for node in nodes for name in _used(node)} - own.keys()
        short = dict(zip(own, (letter for letter in ascii_letters if letter not in free), strict=False))
        for node in nodes:
            _rename(node, short)
        done |= own.keys()
        # Those for which no letter is left are shared ones.
        done -= own.keys() - short.keys()
    return done


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _in_order(child)


def _inline(tree: ast.Module) -> None:
    """Write numbers that are read once or twice where they are read; their definitions are then unused."""
    _one_each(tree)
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    uses = Counter(node.id for node in names if isinstance(node.ctx, ast.Load))
    stores = Counter(node.id for node in names if not isinstance(node.ctx, ast.Load))
    values: dict[str, ast.Constant] = {}
    for statement in tree.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        number = _number(statement.value) if isinstance(statement, ast.Assign) else None
        if (
            isinstance(target, ast.Name)
            and number is not None
            and stores[target.id] == 1
            and uses[target.id] <= USES_MAX
        ):
            values[target.id] = ast.Constant(number)

    class Written(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return values.get(node.id, node) if isinstance(node.ctx, ast.Load) else node

    Written().visit(tree)


def _bare_returns(tree: ast.Module) -> None:
    """``return None`` as ``return``, and none at the end of a function, which ends with it all the same."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Return) and isinstance(node.value, ast.Constant) and node.value.value is None:
            node.value = None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and len(node.body) > 1:
            last = node.body[-1]
            if isinstance(last, ast.Return) and last.value is None:
                node.body.pop()


def _one_each(tree: ast.Module) -> None:
    """``A, B = 1, 2`` of the module as two statements."""
    body: list[ast.stmt] = []
    for statement in tree.body:
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        value = statement.value if isinstance(statement, ast.Assign) else None
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            body += [ast.Assign([n], v) for n, v in zip(target.elts, value.elts, strict=True)]
        else:
            body.append(statement)
    tree.body = body
    ast.fix_missing_locations(tree)


def _number(value: ast.expr) -> int | float | None:
    """The value of an expression of plain numbers."""
    if isinstance(value, ast.Constant) and isinstance(value.value, (int, float)) and not isinstance(value.value, bool):
        return value.value
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        left, right = _number(value.left), _number(value.right)
        return None if left is None or right is None else left * right
    return None


def _without_unused(tree: ast.Module) -> None:
    """Drop imports and constants that nothing reads."""
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    kept: list[ast.stmt] = []
    whole: list[ast.alias] = []
    modules: dict[str, set[str]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Import):
            whole += [alias for alias in statement.names if alias.name.partition(".")[0] in used]
        elif isinstance(statement, ast.ImportFrom):
            modules.setdefault(statement.module or "", set()).update(alias.name for alias in statement.names)
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            kept += [statement] if statement.targets[0].id in used else []
        else:
            kept.append(statement)
    wanted = {module: sorted(names & used) for module, names in sorted(modules.items())}
    found = [ast.ImportFrom(m, [ast.alias(n) for n in names], 0) for m, names in wanted.items() if names]
    tree.body = [*([ast.Import(whole)] if whole else []), *found, *kept]


def _short(uses: Counter[str], names: set[str], taken: set[str]) -> dict[str, str]:
    """A word for each name: the most used get the shortest, equal ones in the order of the alphabet."""
    order = sorted(names, key=lambda name: (-uses[name], name))
    words = (word for word in _words() if word not in taken)
    return {name: word for name, word in zip(order, words, strict=False) if len(word) < len(name)}


def _members(owner: ast.ClassDef) -> Iterator[ast.AST]:
    """Nodes that bind what a class has: its methods and fields."""
    for statement in owner.body:
        if isinstance(statement, ast.FunctionDef):
            yield statement
        elif isinstance(statement, ast.AnnAssign):
            yield statement.target
        elif isinstance(statement, ast.Assign):
            yield from statement.targets


def _texts_for_names(node: ast.AST) -> Iterator[str]:
    """Texts by which a program reaches a member: of ``getattr`` and its kin, and of a structure's fields."""
    by_text = isinstance(node, ast.Call) and _callee(node) in ("getattr", "setattr", "hasattr")
    by_text |= isinstance(node, ast.Assign) and any("_fields_" in _bound(target) for target in node.targets)
    for inner in ast.walk(node) if by_text else ():
        if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
            yield inner.value


def _callee(call: ast.Call) -> str | None:
    function = call.func
    return (
        function.id
        if isinstance(function, ast.Name)
        else function.attr
        if isinstance(function, ast.Attribute)
        else None
    )


def _used(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        yield node.id
    yield from _bound(node)


def _bound(node: ast.AST) -> Iterator[str]:
    """Names that a node itself binds."""
    if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
        yield node.id
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name


def _rename(node: ast.AST, short: dict[str, str]) -> None:
    if isinstance(node, ast.Name):
        node.id = short.get(node.id, node.id)
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        node.name = short.get(node.name, node.name)
    elif isinstance(node, ast.arg):
        node.arg = short.get(node.arg, node.arg)
    elif isinstance(node, ast.ExceptHandler) and node.name:
        node.name = short.get(node.name, node.name)


def _words() -> Iterator[str]:
    for length in count(1):
        yield from map("".join, product(ascii_letters, repeat=length))
