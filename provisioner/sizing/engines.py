"""Engine profiles: how each version of an inference engine uses memory, from one dated data file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from provisioner.errors import UsageError
from provisioner.records import record
from provisioner.units import GIB

DATA = Path(__file__).parent / "data"
BIG_GPU_BYTES = 70 * GIB
"""vLLM raises its default batch sizes from this memory on (vllm/engine/arg_utils.py)."""


@record(frozen=True, slots=True)
class EngineProfile:
    """Memory behaviour of one engine version; every size is bytes per GPU.

    ``fraction_of`` says what the engine's memory fraction is a share of: ``total`` (all of this instance), ``static`` (weights
    and cache only), ``free`` (cache only, of what the model leaves) or ``all`` (no such option).
    """

    engine: str
    version: str
    runner: str
    """Execution core of vLLM: ``V0``, ``V1`` or ``V2``; empty for other engines."""
    fraction_default: float
    fraction_of: str
    logit_copies: float
    forward: str
    """How the forward working set joins the logits: ``max`` or ``add``; without a start-up run, ``prompt`` (working set of
    the whole prompt), ``token`` (none worth counting) or ``context`` (a buffer that grows with the context)."""
    activation_base_bytes: int
    moe_bytes: int
    big_gpu_seqs: int
    seqs: int
    big_gpu_tokens: int
    tokens: int
    tokens_follow_context: bool
    non_torch_bytes: Mapping[int, int]
    non_torch_pp_bytes: int | None
    graph_bytes: int
    graphs_inside_fraction: bool
    error_bytes: int
    source: str
    confidence: str

    def non_torch(self, tensor_parallel: int, pipeline_parallel: int) -> int:
        """Context, communication buffers and libraries inside the engine's budget."""
        if tensor_parallel == 1 and pipeline_parallel > 1 and self.non_torch_pp_bytes is not None:
            return self.non_torch_pp_bytes
        known = [degree for degree in self.non_torch_bytes if degree <= tensor_parallel]
        return self.non_torch_bytes[max(known)]

    def default_seqs(self, memory_bytes: int) -> int:
        """Sequences of the start-up run on a GPU of this size."""
        return self.big_gpu_seqs if memory_bytes >= BIG_GPU_BYTES else self.seqs

    def default_tokens(self, memory_bytes: int, context_tokens: int) -> int:
        """Tokens of one forward pass of the start-up run."""
        tokens = self.big_gpu_tokens if memory_bytes >= BIG_GPU_BYTES else self.tokens
        return max(tokens, context_tokens) if self.tokens_follow_context else tokens


def _profile(row: Mapping[str, Any]) -> EngineProfile:
    def size(name: str) -> int:
        return int(row[name] * GIB)

    parallel = row["non_torch_pp_gib"]
    return EngineProfile(
        engine=row["engine"],
        version=row["version"],
        runner=row["runner"],
        fraction_default=row["fraction_default"],
        fraction_of=row["fraction_of"],
        logit_copies=row["logit_copies"],
        forward=row["forward"],
        activation_base_bytes=size("activation_base_gib"),
        moe_bytes=size("moe_gib"),
        big_gpu_seqs=row["big_gpu_seqs"],
        seqs=row["seqs"],
        big_gpu_tokens=row["big_gpu_tokens"],
        tokens=row["tokens"],
        tokens_follow_context=row["tokens_follow_context"],
        non_torch_bytes={int(degree): int(gib * GIB) for degree, gib in row["non_torch_gib"].items()},
        non_torch_pp_bytes=None if parallel is None else int(parallel * GIB),
        graph_bytes=size("graph_gib"),
        graphs_inside_fraction=row["graphs_inside_fraction"],
        error_bytes=size("error_gib"),
        source=row["source"],
        confidence=row["confidence"],
    )


@cache
def profiles() -> tuple[EngineProfile, ...]:
    """All profiles, oldest first per engine."""
    document = json.loads((DATA / "engines.json").read_bytes())
    found = [_profile(row) for row in document["profiles"] if not _is_taught_by(row, _left_out)]
    return tuple(sorted(found, key=lambda p: (p.engine, version_key(p.version))))


_left_out: list[str] = []


def _is_taught_by(row: Mapping[str, Any], sources: Iterable[str]) -> bool:
    """Whether a profile was read from one of some published sources."""
    return any(source.startswith(start) for source in sources for start in row.get("fitted_on", ()))


@contextmanager
def profiles_without(source: str) -> Iterator[None]:
    """Inside the block, profiles that one published source taught do not exist (for scores on that source)."""
    _left_out.append(source)
    profiles.cache_clear()
    find_profile.cache_clear()
    try:
        yield
    finally:
        _left_out.remove(source)
        profiles.cache_clear()
        find_profile.cache_clear()


def version_key(version: str) -> float:
    """A version as a number: ``0.19.2`` -> 0.01902 and so on, digits after the minor version count little.

    Raises:
        UsageError: the text has no leading number.
    """
    parts = []
    for part in version.removeprefix("v").split(".")[:3]:
        digits = part[: next((i for i, letter in enumerate(part) if not letter.isdigit()), len(part))]
        if not digits:
            break
        parts.append(min(int(digits), 9999))
    if not parts:
        raise UsageError(f"engine version {version!r} is no version", remedy="write it as vllm@0.19")
    parts += [0] * (3 - len(parts))
    return parts[0] * 1e4 + parts[1] + parts[2] / 1e4


V1_CAPABILITY = (8, 0)
V0_REMOVED = "0.11"
"""vLLM before this release falls back to its old core (V0) on GPUs below ``V1_CAPABILITY``."""


@cache
def find_profile(
    engine: str, version: str | None, capability: tuple[int, int] | None = None
) -> tuple[EngineProfile, bool]:
    """The profile of an engine version, and whether it is of that version: the newest without one, else the nearest.

    ``capability`` is the GPU's compute capability: releases with two cores run the old one on old GPUs.

    Raises:
        UsageError: the engine has no profile (it does not serve language models).
    """
    known = [profile for profile in profiles() if profile.engine == engine]
    if not known:
        names = sorted({profile.engine for profile in profiles()})
        raise UsageError(f"engine {engine!r} serves no language models", remedy=f"use one of {', '.join(names)}")
    if version is None:
        return known[-1], True
    wanted = version_key(version)
    if engine == "vllm" and capability is not None and capability < V1_CAPABILITY and wanted < version_key(V0_REMOVED):
        known = [profile for profile in known if profile.runner == "V0"]
    nearest = min(known, key=lambda profile: abs(version_key(profile.version) - wanted))
    return nearest, int(version_key(nearest.version)) == int(wanted)
