"""The one file that goes to the machine: the node's modules joined, without docstrings, comments and imports of each other."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

from provisioner.errors import InternalBug

MODULES = ("idleness", "sensors", "deadman", "drain", "watcher")
"""In the order in which they need each other."""
_PACKAGE = "provisioner.node"


@cache
def watcher_source() -> str:
    """Source of the watcher as one file of Python 3.9 with nothing but the standard library; the same bytes each time."""
    imports: dict[str, None] = {}
    body: list[str] = []
    for name in MODULES:
        tree = ast.parse(Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8"))
        for statement in _bare(tree).body:
            if isinstance(statement, (ast.Import, ast.ImportFrom)):
                for line in _import_lines(statement):
                    imports[line] = None
            else:
                body.append(ast.unparse(statement))
    future = "from __future__ import annotations"
    heads = [future, *(line for line in imports if line != future)]
    _refuse_twins(body)
    return "\n".join([*heads, *body]) + "\n"


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
            node.annotation = ast.Name("object")
    return tree
