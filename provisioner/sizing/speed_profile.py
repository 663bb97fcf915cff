"""Measured efficiencies of memory, matrix units, engines and links, from one dated data file.

One set of constants stands for each engine class; within it, one for each memory class, GPU family and precision kernel.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from provisioner.records import record

DATA = Path(__file__).parent / "data"
MICROSECOND = 1e-6
FAMILIES: Mapping[tuple[int, int], str] = {
    (7, 0): "volta",
    (7, 5): "turing",
    (8, 0): "ampere",
    (8, 6): "ampere-gddr",
    (8, 9): "ada",
    (9, 0): "hopper",
    (10, 0): "blackwell",
    (10, 3): "blackwell-ultra",
    (12, 0): "blackwell-gddr",
    (12, 1): "blackwell-gddr",
}
"""Compute capability -> GPU family; parts of one family share matrix units and memory kind."""
OTHER = "other"
"""Family of GPUs without a row of their own, AMD's among them."""


@record(frozen=True, slots=True)
class EngineSpeed:
    """Shares and overheads of one engine class."""

    memory: Mapping[str, float]
    """Share of peak bandwidth that streaming 16-bit weights reaches, by memory class."""
    kernels: Mapping[str, float]
    """Factor on it for narrower weights, by precision kernel: ``fp8``, ``int8``, ``int4``, ``fp4``; their kernels unpack."""
    kv: float
    """Share of peak bandwidth that reading the cache reaches."""
    layer_s: float
    """Time per layer and pass beside reading weights: kernel launches, norms, small attention."""
    expert_layer_s: float
    """More time per layer with routed experts: routing, gathering, grouped products."""
    launch: Mapping[str, float]
    """Factor on both by GPU family: small kernels take longer on slower clocks."""
    step_s: float
    """Time per pass outside the layers: scheduling, sampling."""
    sequence_s: float
    """Time per sequence and step on the host."""
    compute: Mapping[str, float]
    """Share of the dense matrix rate that large products reach, by GPU family."""
    compute_kernels: Mapping[str, float]
    """Factor on it by precision kernel: narrow units are harder to feed, weight-only formats unpack first."""
    expert_compute: float
    """Factor on it for routed experts, whose products are many and small."""
    unpack_flop: float
    """Operations of the vector units per weight that is packed several to the byte, where matrix units don't take it so."""
    interleave: float
    """Share of other requests' prompts that falls between two tokens of a running request."""
    chunk_tokens: int
    """Tokens of one pass: what an engine packs of prompts and running requests together."""
    score_bytes: float
    """Memory traffic per attention score of a prompt; 0 where attention is fused."""
    fast_accumulate: bool
    """Products accumulate in 16 bit, at which GeForce cards run twice as fast as their data sheet's 32-bit rate."""

    def memory_share(self, memory_class: str) -> float:
        """Share of peak bandwidth for a memory class; the lowest known for others."""
        return self.memory.get(memory_class, min(self.memory.values()))

    def compute_share(self, family: str) -> float:
        """Share of the matrix rate for a GPU family; that of other GPUs where it has none."""
        return self.compute.get(family, self.compute[OTHER])


@record(frozen=True, slots=True)
class LinkSpeed:
    """An all-reduce over one kind of link."""

    latency_s: float
    latency_per_gpu_s: float
    share: float
    """Share of the link's one-way bandwidth that a large all-reduce reaches per GPU."""
    contention: float
    """1 where ranks share the path (PCIe switches and sockets), so that the share falls with their number; 0 where not."""


@record(frozen=True, slots=True)
class SpeedProfile:
    """Everything measured that predictions of speed rest on."""

    engines: Mapping[str, EngineSpeed]
    links: Mapping[str, LinkSpeed]
    training: Mapping[str, Any]
    diffusion: Mapping[str, Any]
    audio: Mapping[str, Any]
    bands: Mapping[str, float]
    """Factor of the band around a rate, up and down, by kind of prediction."""


@cache
def speed_document() -> Mapping[str, Any]:
    """Content of the bundled data file."""
    document: Mapping[str, Any] = json.loads((DATA / "speeds.json").read_bytes())
    return document


@cache
def speed_profile() -> SpeedProfile:
    """The bundled profile."""
    return read_profile(speed_document())


def read_profile(document: Mapping[str, Any]) -> SpeedProfile:
    """A profile from the content of a data file."""
    return SpeedProfile(
        engines={name: read_engine(row) for name, row in document["engines"].items()},
        links={name: read_link(row) for name, row in document["collectives"].items()},
        training=document["training"],
        diffusion=document["diffusion"],
        audio=document["audio"],
        bands=document["bands"],
    )


def read_link(row: Mapping[str, Any]) -> LinkSpeed:
    """Constants of a link."""
    return LinkSpeed(
        row["latency_us"] * MICROSECOND,
        row["latency_per_gpu_us"] * MICROSECOND,
        row["share"],
        row["contention"],
    )


def read_engine(row: Mapping[str, Any]) -> EngineSpeed:
    """Constants of an engine class."""
    return EngineSpeed(
        memory=row["memory"],
        kernels=row["kernels"],
        kv=row["kv"],
        layer_s=row["layer_us"] * MICROSECOND,
        expert_layer_s=row["expert_layer_us"] * MICROSECOND,
        launch=row["launch"],
        step_s=row["step_us"] * MICROSECOND,
        sequence_s=row["sequence_us"] * MICROSECOND,
        compute=row["compute"],
        compute_kernels=row["compute_kernels"],
        expert_compute=row["expert_compute"],
        unpack_flop=row["unpack_flop"],
        interleave=row["interleave"],
        chunk_tokens=row["chunk_tokens"],
        score_bytes=row["score_bytes"],
        fast_accumulate=row["fast_accumulate"],
    )


def family_of(capability: tuple[int, int] | None) -> str:
    """GPU family of a compute capability."""
    return FAMILIES.get(capability, OTHER) if capability is not None else OTHER
