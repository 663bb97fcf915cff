"""Short names: the program stays the same, and what others call stays what it is."""

from __future__ import annotations

import ast

from provisioner.node.bundle import watcher_source
from provisioner.node.shorten import shortened

SOURCE = '''
import json
from dataclasses import dataclass, replace

LIMIT = 3

@dataclass(frozen=True)
class Memory:
    seen: int = 0
    def grown(self, amount, *, twice=False):
        return replace(self, seen=self.seen + amount * (2 if twice else 1))

def total(values, start=0):
    """The field `seen` and the keyword `twice` are called from elsewhere."""
    result = Memory(start)
    for value in values:
        try:
            result = result.grown(int(value), twice=value == LIMIT)
        except ValueError as problem:
            result = replace(result, seen=result.seen + len(str(problem)) * 0)
    return json.dumps({"total": result.seen, "values": [value for value in values]})
'''


def test_a_shortened_program_gives_what_the_long_one_gives():
    long_one, short_one = {}, {}
    exec(compile(SOURCE, "long", "exec"), long_one)  # noqa: S102 - our own text
    text = shortened(SOURCE)
    exec(compile(text, "short", "exec"), short_one)  # noqa: S102
    name = next(node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    assert short_one[name]([1, 3, "x"]) == long_one["total"]([1, 3, "x"])
    assert len(text) < 0.8 * len(SOURCE)


def test_a_function_that_gives_nothing_says_so_in_fewer_words():
    source = "def first(a):\n if a:\n  return None\n print(a)\n return None\ndef other(a):\n return None\nfirst(0), other(0)\n"
    short = shortened(source)
    assert "None" not in short
    found: dict[str, object] = {}
    exec(compile(short + "\nresult = [f(0) for f in list(globals().values()) if callable(f)]", "short", "exec"), found)  # noqa: S102
    assert found["result"] == [None, None]


def test_names_with_a_meaning_outside_stay():
    text = shortened(SOURCE, ["Memory"])
    for word in ("seen", "grown", "twice", "json.dumps", "int(", "ValueError", "'total'", "'values'"):
        assert word in text
    for word in ("LIMIT", "result", "problem", "Memory"):
        assert word not in text
    assert ".seen" not in shortened(SOURCE)


def test_the_watcher_is_a_program_of_python_3_9():
    source = watcher_source()
    ast.parse(source, feature_version=(3, 9))
    compile(source, "watcher.py", "exec")
