"""Strict JSON with places, and values that are read without surprises."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.facts import UNKNOWN
from policies.json_source import read_json
from policies.json_value import Value
from provisioner.errors import UsageError

TEXT = '{\n "a": [1, {"b": "q\\"[{", "c": [[], [2]]}],\n "d": null\n}'


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ((), (1, 1)),
        (("a",), (2, 2)),
        (("a", 0), (2, 8)),
        (("a", 1, "b"), (2, 12)),
        (("a", 1, "c", 1, 0), (2, 37)),
        (("a", 1, "no"), (2, 11)),
        (("a", 9), (2, 2)),
        (("d",), (3, 2)),
        (("d", "below"), (3, 2)),
        (("no", "such"), (1, 1)),
    ],
)
def test_places(path: tuple[str | int, ...], place: tuple[int, int]) -> None:
    found = read_json("x.json", TEXT).position(path)
    assert (found.line, found.column) == place


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ('{"a": 1} x', "no JSON"),
        ("[NaN]", "NaN"),
        ("[-Infinity]", "Infinity"),
        ('{"a": {"b": 1, "b": 2}}', "twice"),
        ("[" * 100_000, "deeper"),
        ('{"a":' * 300 + "1" + "}" * 300, "deeper"),
        ("1" * 5000, "a number has thousands of digits"),
        ("'a'", "no JSON"),
    ],
)
def test_what_is_no_strict_json_is_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words) as found:
        read_json("x.json", text)
    assert "x.json:" in str(found.value.where)


def test_brackets_inside_strings_are_no_nesting() -> None:
    assert read_json("x", json.dumps({"a": "[" * 1000 + '\\"' + "{" * 1000})).document


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)


def paths(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    found = [path]
    if isinstance(value, dict):
        for key, item in value.items():
            found += paths(item, (*path, key))
    if isinstance(value, list):
        for index, item in enumerate(value):
            found += paths(item, (*path, index))
    return found


@given(JSON, st.sampled_from([None, 1, 4]), st.booleans())
def test_every_value_of_a_document_is_found_where_it_stands(
    value: object, indent: int | None, ascii_only: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    source = read_json("x", text)
    assert source.document == value
    lines = text.split("\n")
    for path in paths(value):
        place = source.position(path)
        rest = lines[place.line - 1][place.column - 1 :]
        last = path[-1] if path else None
        if isinstance(last, str):
            assert rest.startswith(json.dumps(last, ensure_ascii=ascii_only))
        else:
            item = value
            for step in path:
                item = item[step]  # type: ignore[index]
            expected = json.dumps(item, indent=None, ensure_ascii=ascii_only)
            assert rest[:1] == expected[:1]


@given(JSON)
def test_reading_a_value_never_raises(value: object) -> None:
    top = Value(value)
    for one in (top, top.child("a", "b"), top.first(), top.child("x").first()):
        for read in (one.text, one.flag, one.whole, one.texts, one.table, one.items):
            read()


@pytest.mark.parametrize(
    ("value", "flag", "whole", "text"),
    [
        (None, None, None, None),
        (True, True, UNKNOWN, UNKNOWN),
        ("true", True, UNKNOWN, "true"),
        ("false", False, UNKNOWN, "false"),
        ("maybe", UNKNOWN, UNKNOWN, "maybe"),
        (8, UNKNOWN, 8, "8"),
        ("8", UNKNOWN, 8, "8"),
        (8.5, UNKNOWN, UNKNOWN, "8.5"),
        ([], UNKNOWN, UNKNOWN, UNKNOWN),
        (UNKNOWN, UNKNOWN, UNKNOWN, UNKNOWN),
        ("", None, None, ""),
    ],
)
def test_kinds(value: object, flag: object, whole: object, text: object) -> None:
    assert Value(value).flag() is flag
    assert Value(value).whole() == whole or Value(value).whole() is whole
    assert Value(value).text() == text or Value(value).text() is text


def test_members_of_something_unknown_are_unknown() -> None:
    unknown = Value(UNKNOWN, ("a",))
    assert unknown.child("b").is_unknown
    assert unknown.items() is UNKNOWN
    assert unknown.table() is UNKNOWN
    assert Value({"a": {"b": UNKNOWN, "c": "d"}}).child("a").table() == {"b": UNKNOWN, "c": "d"}
    assert Value({"camelCase": 1}).child("camel_case", "camelCase").path == ("camelCase",)
