"""Measured efficiencies of memory, matrix units, engines and links, from one dated data file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from provisioner.records import record

DATA = Path(__file__).parent / "data"
MICROSECOND = 1e-6


@record(frozen=True, slots=True)
class EngineSpeed:
    """Shares and overheads of one engine."""

    memory: Mapping[str, float]
    """Share of peak bandwidth that streaming weights reaches, by memory class."""
    narrow: float
    """Factor on it for weights of four bits, whose kernels unpack."""
    kv: float
    """Share of peak bandwidth that reading the cache reaches."""
    layer_s: float
    """Time per layer and step beside reading weights: kernel launches, norms, small attention."""
    expert_layer_s: float
    """More time per layer with routed experts: routing, gathering, grouped products."""
    step_s: float
    """Time per step outside the layers: scheduling, sampling."""
    sequence_s: float
    """Time per sequence and step on the host."""
    prefill_share: float
    """Share of the matrix rate that prompt processing reaches."""
    batch_share: float
    """Share of the matrix rate that batched decoding reaches."""

    def memory_share(self, memory_class: str) -> float:
        """Share of peak bandwidth for a memory class; the lowest known for others."""
        return self.memory.get(memory_class, min(self.memory.values()))


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


@cache
def speed_profile() -> SpeedProfile:
    """The bundled profile."""
    return read_profile(json.loads((DATA / "speeds.json").read_bytes()))


def read_profile(document: Mapping[str, Any]) -> SpeedProfile:
    """A profile from the content of a data file."""
    return SpeedProfile(
        engines={name: _engine(row) for name, row in document["engines"].items()},
        links={
            name: LinkSpeed(
                row["latency_us"] * MICROSECOND,
                row["latency_per_gpu_us"] * MICROSECOND,
                row["share"],
                row["contention"],
            )
            for name, row in document["collectives"].items()
        },
        training=document["training"],
        diffusion=document["diffusion"],
    )


def _engine(row: Mapping[str, Any]) -> EngineSpeed:
    return EngineSpeed(
        memory=row["memory"],
        narrow=row["narrow"],
        kv=row["kv"],
        layer_s=row["layer_us"] * MICROSECOND,
        expert_layer_s=row["expert_layer_us"] * MICROSECOND,
        step_s=row["step_us"] * MICROSECOND,
        sequence_s=row["sequence_us"] * MICROSECOND,
        prefill_share=row["prefill"],
        batch_share=row["batch"],
    )
