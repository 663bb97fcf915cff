"""What-if changes of a spec from the command line: ``inference.context_tokens=65536`` as nodes over those of the file.

A changed value goes through the same checks as a written one. Its mark has a negative line, so that an error about it can name
the flag instead of a line that says something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from provisioner.errors import Position, SpecError
from provisioner.workload.steps import steps_of
from provisioner.workload.tree import Branch, Items, Mark, Node, Path, Scalar, dotted, show
from provisioner.workload.yaml_tree import YamlFault, read_yaml

FLAG = "--set"


def apply_overrides(root: Node, overrides: Sequence[str]) -> Node:
    """The nodes with each ``KEY=VALUE`` in place, the last one of a key winning; values are YAML.

    Raises:
        SpecError: no ``=``, no key, a value that is no YAML, or a key below something that is no section.
    """
    for index, text in enumerate(overrides):
        key, equals, value = text.partition("=")
        path = steps_of(key)
        if not equals or not path or dotted(path) != key:
            raise _fault(text, "this sets no key", "write KEY=VALUE, such as inference.context_tokens=65536")
        try:
            node = read_yaml(value)
        except YamlFault as fault:
            raise _fault(text, fault.message, fault.remedy) from None
        mark = (-1 - index, 1)
        root = _placed(root, path, _marked(node, mark), text, mark)
    return root


def flag_of(mark: Mark, overrides: Sequence[str]) -> str | None:
    """The flag that wrote a node, or ``None`` for one that the file wrote."""
    return f"{FLAG} {overrides[-1 - mark[0]]}" if mark[0] < 0 else None


def name_flag(error: SpecError, overrides: Sequence[str]) -> None:
    """Let an error about a changed value name its flag."""
    if isinstance(error.where, Position):
        error.where = flag_of((error.where.line, error.where.column), overrides) or error.where


def _fault(text: str, message: str, remedy: str) -> SpecError:
    return SpecError(message, where=f"{FLAG} {show(text)}", remedy=remedy)


def _marked(node: Node, mark: Mark) -> Node:
    """The node with one mark throughout: columns inside a flag would help nobody."""
    if isinstance(node, Branch):
        keys = {name: replace(key, mark=mark) for name, key in node.keys.items()}
        return Branch(keys, {name: _marked(value, mark) for name, value in node.values.items()}, mark)
    if isinstance(node, Items):
        return Items(tuple(_marked(item, mark) for item in node.items), mark)
    return replace(node, mark=mark)


def _placed(node: Node | None, path: Path, value: Node, text: str, mark: Mark) -> Node:
    """``node`` with ``value`` at ``path``; sections that are missing are made."""
    if not path:
        return value
    step, rest = path[0], path[1:]
    if isinstance(step, int):
        if not isinstance(node, Items) or step >= len(node.items):
            raise _fault(text, f"there is no item {step}", "set the whole list, such as placement.gpus=[L4, L40S]")
        items = list(node.items)
        items[step] = _placed(items[step], rest, value, text, mark)
        return replace(node, items=tuple(items))
    branch = Branch(mark=mark) if node is None else node
    if not isinstance(branch, Branch):
        raise _fault(text, f"{step!r} would stand below a value", "set the key above it as a whole")
    key = branch.keys.get(step, Scalar(step, step, mark=mark))
    inner = _placed(branch.values.get(step), rest, value, text, mark)
    return replace(branch, keys={**branch.keys, step: key}, values={**branch.values, step: inner})
