"""Headers of safetensors files: which tensors a checkpoint holds, of which number format, in how many bytes.

Source: https://huggingface.co/docs/safetensors (8 bytes of header length, a JSON header, then the tensors).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

from provisioner.errors import CloudError, UsageError
from provisioner.hub.source import Source
from provisioner.sizing.checkpoint import Tensor

DTYPE_BITS: Mapping[str, int] = {
    "F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16, "U16": 16,
    "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I8": 8, "U8": 8, "BOOL": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}  # fmt: skip
"""Number formats of the safetensors library, by bits of one element."""
FIRST_BYTES = 100_000
"""Read at once: most headers are shorter (huggingface_hub ``constants.SAFETENSORS_FIRST_BYTES_...``)."""
HEADER_BYTES_MAX = 100_000_000
"""The library's own limit."""
INDEX_BYTES_MAX = 64 * 2**20
SHARDS_MAX = 4096
TENSOR_BYTES_MAX = 2**50
CONNECTIONS = 8


def checkpoint_tensors(
    source: Source, stems: tuple[str, ...] = ("model",), folder: str = ""
) -> tuple[tuple[str, ...], tuple[Tensor, ...]]:
    """The shards of a checkpoint and all their tensors; both empty where there are no safetensors files.

    ``stems`` are the names that the checkpoint may have: the index or the one file of the first that has either counts.

    Raises:
        GpuprovError: a shard is missing, truncated or malformed, or cannot be read.
    """
    for stem in stems:
        path = f"{folder}{stem}.safetensors"
        content = source.file(f"{path}.index.json", INDEX_BYTES_MAX)
        if content is not None:
            files = tuple(f"{folder}{name}" for name in _indexed(source, f"{path}.index.json", content))
            return files, _all_tensors(source, files)
        alone = read_header(source, path)
        if alone is not None:
            return (path,), alone
    return (), ()


def _all_tensors(source: Source, files: tuple[str, ...]) -> tuple[Tensor, ...]:
    with ThreadPoolExecutor(max_workers=min(CONNECTIONS, len(files))) as pool:
        headers = list(pool.map(lambda path: read_header(source, path), files))
    found: dict[str, Tensor] = {}
    for path, tensors in zip(files, headers, strict=True):
        if tensors is None:
            _refuse(source, path, "the index names it, and it is not there")
        for tensor in tensors:
            if tensor.name in found:
                _refuse(source, path, f"tensor {tensor.name!r} stands in two shards")
            found[tensor.name] = tensor
    return tuple(found.values())


def _indexed(source: Source, path: str, content: bytes) -> tuple[str, ...]:
    try:
        document = json.loads(content)
        weight_map = document["weight_map"]
        names = sorted(set(weight_map.values()))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        _refuse(source, path, "it is no index of shards")
    if not names or len(names) > SHARDS_MAX:
        _refuse(source, path, f"it names {len(names)} shards")
    for name in names:
        is_plain = (
            isinstance(name, str) and name.endswith(".safetensors") and "\\" not in name and not name.startswith("/")
        )
        if not is_plain or any(step in ("", ".", "..") for step in name.split("/")):
            _refuse(source, path, f"it names the file {str(name)[:80]!r}")
    return tuple(names)


def read_header(source: Source, path: str) -> tuple[Tensor, ...] | None:
    """The tensors of one file; ``None`` where there is no such file.

    Raises:
        GpuprovError: the header is malformed, or the file ends before its tensors do.
    """
    first = source.piece(path, 0, FIRST_BYTES)
    if first is None:
        return None
    if len(first.content) < 8:
        _refuse(source, path, f"it is truncated: {len(first.content)} bytes")
    (length,) = struct.unpack("<Q", first.content[:8])
    if not 2 <= length <= HEADER_BYTES_MAX:
        _refuse(source, path, f"its header claims {length:,} bytes")
    header = first.content[8 : 8 + length]
    if len(header) < length:
        rest = source.piece(path, 8 + len(header), length - len(header))
        header += rest.content if rest is not None else b""
    if len(header) < length:
        _refuse(source, path, f"it is truncated: {len(header):,} of {length:,} bytes of its header are there")
    tensors, end = _parsed(source, path, header)
    if first.file_bytes is not None and first.file_bytes < 8 + length + end:
        _refuse(source, path, f"it is truncated: {first.file_bytes:,} of {8 + length + end:,} bytes are there")
    return tensors


def _parsed(source: Source, path: str, header: bytes) -> tuple[tuple[Tensor, ...], int]:
    """The tensors of a header, and where the last one ends."""
    try:
        document = json.loads(header)
    except (ValueError, RecursionError):
        _refuse(source, path, "its header is not JSON")
    if not isinstance(document, dict):
        _refuse(source, path, "its header is no JSON object")
    spans: list[tuple[int, int]] = []
    tensors: list[Tensor] = []
    for name, entry in document.items():
        if name == "__metadata__":
            continue
        tensor, span = _tensor(source, path, name, entry)
        tensors.append(tensor)
        spans.append(span)
    end = 0
    for start, stop in sorted(spans):
        if start != end:
            _refuse(source, path, f"its tensors overlap or leave a hole at byte {min(start, end):,}")
        end = stop
    return tuple(tensors), end


def _tensor(source: Source, path: str, name: str, entry: Any) -> tuple[Tensor, tuple[int, int]]:
    try:
        dtype, shape = str(entry["dtype"]), entry["shape"]
        start, stop = entry["data_offsets"]
        numbers = [*shape, start, stop]
    except (KeyError, TypeError, ValueError):
        _refuse(source, path, f"the entry of {name[:80]!r} is malformed")
    if any(isinstance(each, bool) or not isinstance(each, int) or each < 0 for each in numbers):
        _refuse(source, path, f"{name[:80]!r} has a size that is no whole number of 0 or more")
    bits = DTYPE_BITS.get(dtype)
    if bits is None:
        _refuse(source, path, f"{name[:80]!r} has the unknown number format {dtype[:20]!r}")
    elements = 1
    for side in shape:
        elements *= side
        if elements > TENSOR_BYTES_MAX:
            _refuse(source, path, f"{name[:80]!r} has an absurd size")
    if stop - start != -(-elements * bits // 8):
        _refuse(
            source,
            path,
            f"{name[:80]!r} takes {stop - start:,} bytes where its shape gives {-(-elements * bits // 8):,}",
        )
    return Tensor(name, dtype, elements, stop - start), (start, stop)


def _refuse(source: Source, path: str, why: str) -> NoReturn:
    message = f"{path} cannot be used: {why}"
    if source.is_local:
        raise UsageError(
            message, where=source.name, remedy="fetch the file again, or remove the shards to size by the config alone"
        )
    raise CloudError(
        message, where=source.name, remedy="run the command again; if it stays so, tell the model's authors"
    )
