"""YAML 1.2 core: what plain scalars are, where nodes stand, and that both of PyYAML's parsers give the same."""

from __future__ import annotations

import json
import math
from collections.abc import Callable

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from provisioner.workload.tree import Branch, Node, Scalar, mark_of
from provisioner.workload.yaml_tree import YamlFault, read_yaml, resolve

Plain = Callable[[Node], object]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None), ("~", None), ("null", None), ("NULL", None), ("nULL", "nULL"),
        ("true", True), ("False", False), ("TRUE", True), ("tRue", "tRue"),
        ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"), ("N", "N"),
        ("0", 0), ("-7", -7), ("+7", 7), ("0777", 777), ("0o17", 15), ("0x1F", 31), ("0b11", "0b11"), ("1_000", "1_000"),
        ("1.5", 1.5), (".5", 0.5), ("1.", 1.0), ("1e3", 1000.0), ("1e", "1e"), ("1:30", "1:30"), ("1:30:00.5", "1:30:00.5"),
        (".inf", math.inf), ("-.INF", -math.inf), ("inf", "inf"), ("nan", "nan"),
        ("2026-11-30", "2026-11-30"), ("=", "="), ("<<", "<<"), ("-", "-"), ("1" * 31, "1" * 31),
    ],
)  # fmt: skip
def test_plain_scalars_of_the_core_schema(text: str, value: object) -> None:
    found = resolve(text)
    assert found == value
    assert type(found) is type(value)


def test_not_a_number_is_one() -> None:
    found = resolve(".NaN")
    assert isinstance(found, float)
    assert math.isnan(found)


def test_quoted_scalars_are_texts(plain: Plain) -> None:
    node = read_yaml("a: \"1\"\nb: 'true'\nc: |\n  5\nd: >-\n  null\n")
    assert plain(node) == {"a": "1", "b": "true", "c": "5\n", "d": "null"}


def test_lines_and_columns_count_from_one() -> None:
    node = read_yaml("a:\n  b: [x, y]\n  c: z\n")
    assert mark_of(node, ("a",)) == (1, 1)
    assert mark_of(node, ("a", "b")) == (2, 3)
    assert mark_of(node, ("a", "b", 1)) == (2, 10)
    assert mark_of(node, ("a", "c")) == (3, 6)


def test_what_is_absent_is_shown_at_the_nearest_parent() -> None:
    node = read_yaml("# first\na:\n  b: 1\n")
    assert mark_of(node, ("a", "z")) == (2, 1)
    assert mark_of(node, ("a", "b", "c")) == (3, 3)
    assert mark_of(node, ("q", 3)) == (2, 1)


def test_an_alias_stands_where_it_is_used(plain: Plain) -> None:
    node = read_yaml("a: &x 5\nb: *x\nc: [&y {d: 1}, *y]\n")
    assert plain(node) == {"a": 5, "b": 5, "c": [{"d": 1}, {"d": 1}]}
    assert mark_of(node, ("b",)) == (2, 4)


def test_an_anchor_may_be_defined_again(plain: Plain) -> None:
    assert plain(read_yaml("[&x 1, *x, &x 2, *x]")) == [1, 1, 2, 2]


def test_columns_count_characters_not_bytes() -> None:
    node = read_yaml('{"é€𝄞": 1, b: 2}')
    assert mark_of(node, ("b",)) == (1, 15)


TEXTS = [
    "a: 1\nb: [x, {c: no}]\n",
    "a: &x {b: 1}\nc: *x\n",
    "- a\n- 'b'\n- |\n  c\n",
    "{a: 1, a: 2}",
    "a: [",
    "a: !!str 1",
    "%YAML 1.2\n---\na: 1",
]


@pytest.mark.parametrize("text", TEXTS)
def test_the_pure_python_parser_gives_the_same(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def outcome() -> object:
        try:
            return read_yaml(text)
        except YamlFault as fault:
            return fault.mark

    with_libyaml = outcome()
    monkeypatch.delattr(yaml, "CBaseLoader", raising=False)
    assert outcome() == with_libyaml


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text("abcdefgh :#-\"'{}[]é\\\n", max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1, max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(JSON)
def test_json_is_yaml(plain: Plain, value: object) -> None:
    text = json.dumps(value, ensure_ascii=False)
    if value is None:
        with pytest.raises(YamlFault, match="empty"):
            read_yaml(text)
    else:
        assert plain(read_yaml(text)) == value


def test_a_scalar_remembers_its_text() -> None:
    node = read_yaml("a: 0x10")
    assert isinstance(node, Branch)
    assert node.values["a"] == Scalar("0x10", 16, plain=True, mark=(1, 4))
