"""The one file that goes to the machine: the node's modules joined, without docstrings, comments and imports of each other."""

from __future__ import annotations

import ast
import base64
import lzma
from collections import Counter
from collections.abc import Mapping
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path

from provisioner.errors import InternalBug
from provisioner.node.shorten import shortened

MODULES = ("idleness", "reach", "gpu_readings", "sockets", "sensors", "deadman", "drain", "renew", "watcher")
"""In the order in which they need each other."""
LZMA = {
    "id": lzma.FILTER_LZMA1,
    "preset": 9 | lzma.PRESET_EXTREME,
    "dict_size": 1 << 16,
    "lc": 3,
    "pb": 0,
    "nice_len": 273,
}
KEPT_ON_DISK = ("Switch",)
"""Classes whose fields a later watcher reads back; also any that ``asdict`` or ``fields`` is asked about must be here."""
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
    _refuse_twins(body)
    # Without annotations there is nothing that they would be put off for.
    heads = [line for line in imports if not line.startswith("from __future__")]
    return shortened("\n".join([*heads, *body]) + "\n", KEPT_ON_DISK)


def packed_watcher(files: Mapping[str, str] | None = None) -> str:
    """The same program, packed into a few lines that unpack it, with the files that it brings along; the same bytes each time.

    What is packed together is smallest, and the one quoted text of it is what user data is mostly made of. LZMA beats gzip by a
    twelfth on it, and is in the standard library of every Python. ``provisioner.node.renew`` reads the files back.

    Args:
        files: path without its first slash -> text.
    """
    words = [*chain.from_iterable((files or {}).items()), watcher_source()]
    # A word of the user's may hold any character: the first one tells which of them stands between the words.
    between = next(sign for sign in map(chr, range(1, 0xD800)) if not any(sign in word for word in words))
    text = _compressed(between + between.join(words))
    unpack = "t=lzma.decompress(base64.b64decode(open(__file__).read().split('#')[-1])).decode()"
    return f"import base64,lzma\n{unpack}\nexec(t.split(t[0])[-1])\n#{text}"


@lru_cache(maxsize=16)
def _compressed(text: str) -> str:
    """As base64. An update asks for the same start several times, and packing takes 10 ms."""
    return base64.b64encode(lzma.compress(text.encode(), lzma.FORMAT_ALONE, filters=[LZMA])).decode()


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
            given = (*node.args.args, *node.args.kwonlyargs, *node.args.posonlyargs, node.args.vararg, node.args.kwarg)
            for argument in given:
                if argument is not None:
                    argument.annotation = None
    _Plain().visit(tree)
    return ast.fix_missing_locations(tree)


class _Plain(ast.NodeTransformer):
    """Annotations out, but for those of a dataclass's fields: a field needs one, and which one does not matter."""

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        for member in node.body:
            if isinstance(member, ast.AnnAssign):
                member.annotation = ast.Constant(0)
            else:
                self.visit(member)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.Assign | None:
        return None if node.value is None else ast.Assign([node.target], node.value)
