"""Whatever the bytes: a workload, or one error with a place and a remedy; never anything else."""

from __future__ import annotations

from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from provisioner.errors import Position, SpecError
from provisioner.workload.load import parse
from provisioner.workload.spec import Workload

SPECS = {path.stem: path.read_bytes() for path in (Path(__file__).parent / "specs").glob("*.yaml")}
FILE = Path("workload.yaml")


def check_words(error: SpecError) -> None:
    """One printable line in our words, with a remedy."""
    assert error.remedy
    assert error.message
    assert str(error).isprintable()
    assert "pydantic" not in str(error)


def check_refusal(error: SpecError, content: bytes) -> None:
    """Every refusal has a place in the file, a remedy, and one printable line."""
    assert isinstance(error.where, Position)
    lines = content.count(b"\n") + content.count(b"\r") + 2
    assert 1 <= error.where.line <= lines
    assert error.where.column >= 1
    check_words(error)


def judge(content: bytes) -> Workload | None:
    """The workload, or ``None`` for a proper refusal."""
    try:
        workload = parse(content, FILE).workload
    except SpecError as error:
        check_refusal(error, content)
        return None
    assert Workload.from_document(workload.to_document()) == workload
    return workload


@given(st.binary(max_size=400))
@example(b"\xef\xbb\xbf")
@example(b"a: &a [*a, *a]")
@example(b"? ? ?\n")
@example(b"!<tag:yaml.org,2002:str> a")
@example(b'"\\ud800"')
@example(b"\xc2\x85a: b")
@example(b"a: \xe2\x80\xa8b")
def test_any_bytes(content: bytes) -> None:
    judge(content)


@given(st.text(alphabet="abx:-[]{}&*!|>'\"%@`#,?\n\t ~1.", max_size=80))
def test_any_yaml_like_text(text: str) -> None:
    judge(text.encode())


@settings(max_examples=300)
@given(st.sampled_from(sorted(SPECS)), st.data())
def test_a_spec_with_bytes_changed(name: str, data: st.DataObject) -> None:
    content = bytearray(SPECS[name])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=4))
        else:
            content[at] = data.draw(st.sampled_from(b" :-[]{}&*!#,'\"\n\t0aZ"))
    judge(bytes(content))


VALUES = st.sampled_from(
    [None, True, False, 0, -1, 1, 10**40, 0.5, float("1e300"), "", "auto", "off", "no", "1:30", "5GiB", "5 USD/h", "x" * 5000, [], {}, [[]], {"a": {}}, [1], ["a"], {"secret": 1}, "\x00", "é", "1..4"]
)  # fmt: skip


@settings(max_examples=300)
@given(st.sampled_from(sorted(SPECS)), st.data())
def test_a_document_with_values_changed(name: str, data: st.DataObject) -> None:
    document = parse(SPECS[name], FILE).workload.to_document()
    for _ in range(data.draw(st.integers(1, 2))):
        place = document
        while True:
            key = data.draw(st.sampled_from([*sorted(place), "extra"]))
            below = place.get(key)
            if isinstance(below, dict) and below and data.draw(st.booleans()):
                place = below
                continue
            place[key] = data.draw(VALUES)
            break
    try:
        workload = Workload.from_document(document)
    except SpecError as error:
        check_words(error)
    else:
        assert Workload.from_document(workload.to_document()) == workload
