"""The one file that goes to the machine: the node's modules joined, without docstrings, comments and imports of each other."""

from __future__ import annotations

import ast
import base64
import bz2
import re
from collections import Counter
from functools import cache
from pathlib import Path
from string import ascii_letters

from provisioner.errors import InternalBug

MODULES = ("idleness", "sensors", "deadman", "drain", "renew", "watcher")
"""In the order in which they need each other."""
_PACKAGE = "provisioner.node"
_DEPTH = re.compile("^ +", re.MULTILINE)


@cache
def watcher_source() -> str:
    """Source of the watcher as one file of Python 3.9 with nothing but the standard library; the same bytes each time."""
    imports: dict[str, None] = {}
    body: list[str] = []
    for name in MODULES:
        tree = ast.parse(Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8"))
        for statement in _bare(tree).body:
            for function in _functions(statement):
                _shorten_locals(function)
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                for line in _import_lines(statement):
                    imports[line] = None
            else:
                body.append(ast.unparse(statement))
    future = "from __future__ import annotations"
    heads = [future, *(line for line in imports if line != future)]
    _refuse_twins(body)
    # Unparsed texts hold no line breaks of their own, so what a line begins with is its depth: one space is enough for each.
    return _DEPTH.sub(lambda match: " " * (len(match[0]) // 4), "\n".join([*heads, *body])) + "\n"


@cache
def packed_watcher() -> str:
    """The same program, packed into a few lines that unpack it: what is packed once more with the user data stays small.

    bzip2 beats gzip by 6 % on it, and is in the standard library of every Python.
    """
    packed = base64.b64encode(bz2.compress(watcher_source().encode(), 9)).decode()
    return f"import base64,bz2\nexec(compile(bz2.decompress(base64.b64decode('{packed}')),__file__,'exec'))\n"


def _refuse_twins(body: list[str]) -> None:
    """Joined modules share their names: two of one name would be one.

    Raises:
        InternalBug: there are two.
    """
    names = Counter(
        name for statement in ast.parse("\n".join(body)).body for name in _names_of(statement) if name != "__name__"
    )
    twins = sorted(name for name, count in names.items() if count > 1)
    if twins:
        raise InternalBug(f"the node's modules define {', '.join(twins)} more than once")


def _functions(statement: ast.stmt) -> list[ast.FunctionDef]:
    """Functions and methods of a statement, not those inside them."""
    inner = statement.body if isinstance(statement, ast.ClassDef) else [statement]
    return [entry for entry in inner if isinstance(entry, ast.FunctionDef)]


def _names_of(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    if isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return [node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)]


def _import_lines(statement: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith(_PACKAGE):
        return []
    return [ast.unparse(statement)]


def _shorten_locals(function: ast.FunctionDef) -> None:
    """Give the function's own variables names of one letter; parameters keep theirs, since callers may name them."""
    inside = list(ast.walk(function))
    if any(isinstance(node, (ast.ClassDef, ast.Global, ast.Nonlocal)) for node in inside):
        return
    kept = {node.arg for node in inside if isinstance(node, ast.arg)}
    kept |= {node.name for node in inside if isinstance(node, ast.ExceptHandler) and node.name}
    names = [node for node in inside if isinstance(node, ast.Name)]
    own = dict.fromkeys(n.id for n in names if isinstance(n.ctx, ast.Store) and n.id not in kept and len(n.id) > 1)
    taken = kept | {node.id for node in names}
    shorter = dict(zip(own, (letter for letter in ascii_letters if letter not in taken), strict=False))
    for node in names:
        node.id = shorter.get(node.id, node.id)


def _bare(tree: ast.Module) -> ast.Module:
    """The module without docstrings and texts that stand alone: they are for people, and user data is 16 KB."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            kept = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
            node.body = kept or [ast.Pass()]
        if isinstance(node, ast.FunctionDef):
            node.returns = None
            for argument in (*node.args.args, *node.args.kwonlyargs, *node.args.posonlyargs):
                argument.annotation = None
        if isinstance(node, ast.AnnAssign):  # a dataclass needs one; which one does not matter
            node.annotation = ast.Name("object", ast.Load())
    return tree
