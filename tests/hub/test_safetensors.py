"""Headers that cannot be: each is refused with the file and the reason, whatever bytes come."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.errors import GpuprovError, UsageError
from provisioner.hub.safetensors import checkpoint_tensors, read_header
from provisioner.hub.source import FolderSource, Piece
from tests.fakes.hub import safetensors


class Memory(FolderSource):
    """A folder with one file that is not on any disk."""

    def __init__(self, content: bytes) -> None:
        super().__init__(Path("memory"))
        self._content = content

    def piece(self, path: str, start: int, length: int) -> Piece | None:
        return Piece(self._content[start : start + length], len(self._content))


def file(header: object, data: int = 0, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + b"\0" * data


def entry(**changes: object) -> dict[str, object]:
    return {"a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12], **changes}}


def test_tensors_of_a_header():
    (tensor,) = read_header(Memory(file(entry(), 12)), "x") or ()
    assert (tensor.name, tensor.dtype, tensor.elements, tensor.size_bytes) == ("a", "BF16", 6, 12)


def test_a_header_longer_than_the_first_piece_is_read_on():
    tensors = {f"model.layers.{i}.mlp.up_proj.weight": ("BF16", (2, 2)) for i in range(3000)}
    content = safetensors(tensors)
    assert len(content) > 200_000
    assert len(read_header(Memory(content), "x") or ()) == 3000


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "truncated"),
        (b"\x01\x02", "truncated"),
        (file({}, length=2**63), "claims"),
        (file({}, length=0), "claims"),
        (file({}, length=500), "truncated"),
        (file(b"not json at all"), "not JSON"),
        (file(b"[1, 2]"), "no JSON object"),
        (file({"a": 3}), "malformed"),
        (file({"a": {"dtype": "BF16"}}), "malformed"),
        (file(entry(data_offsets=[0]), 12), "malformed"),
        (file(entry(dtype="Q3"), 12), "unknown number format 'Q3'"),
        (file(entry(shape=[2, -3]), 12), "no whole number"),
        (file(entry(shape=[2, 1.5]), 12), "no whole number"),
        (file(entry(shape=[True, 3]), 12), "no whole number"),
        (file(entry(shape=[10**12, 10**12]), 12), "absurd"),
        (file(entry(shape=[2, 4]), 12), "takes 12 bytes where its shape gives 16"),
        (file(entry(data_offsets=[4, 16]), 16), "hole"),
        (file({**entry(), "b": {"dtype": "U8", "shape": [4], "data_offsets": [8, 12]}}, 12), "overlap"),
        (file(entry(), 5), "truncated"),
    ],
)
def test_what_cannot_be_is_refused(content, why):
    with pytest.raises(UsageError, match=why) as caught:
        read_header(Memory(content), "weights.safetensors")
    assert "weights.safetensors" in str(caught.value)
    assert caught.value.remedy


@given(st.binary(max_size=400))
def test_no_bytes_crash_the_reader(content):
    try:
        read_header(Memory(content), "x")
    except GpuprovError as error:
        assert error.remedy  # noqa: PT017 - either it reads or it says why not


@given(
    st.dictionaries(
        st.text(max_size=5), st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists, max_leaves=5)
    )
)
def test_no_json_crashes_the_reader(header):
    try:
        read_header(Memory(file(header)), "x")
    except GpuprovError as error:
        assert error.remedy  # noqa: PT017


@pytest.mark.parametrize(
    "index",
    [
        b"{",
        b"[]",
        b'{"weight_map": []}',
        b'{"weight_map": {}}',
        b'{"weight_map": {"a": 3}}',
        b'{"weight_map": {"a": "../../etc/passwd.safetensors"}}',
        b'{"weight_map": {"a": "/etc/x.safetensors"}}',
        b'{"weight_map": {"a": "https://elsewhere/x.bin"}}',
        b'{"weight_map": {"a": "missing.safetensors"}}',
    ],
)
def test_an_index_that_cannot_be_is_refused(tmp_path, index):
    (tmp_path / "model.safetensors.index.json").write_bytes(index)
    with pytest.raises(UsageError, match=r"model\.safetensors\.index\.json|missing\.safetensors"):
        checkpoint_tensors(FolderSource(tmp_path))


def test_a_tensor_in_two_shards_is_refused(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.safetensors").write_bytes(safetensors({"a": ("U8", (1,))}))
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(UsageError, match="two shards"):
        checkpoint_tensors(FolderSource(tmp_path))
