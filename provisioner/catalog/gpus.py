"""GPU facts: three memory figures kept apart, bandwidth, rates, links; classes and names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gpu:
    """One row of gpus.csv. Memory is bytes per GPU: the label, what the EC2 API says, what a CUDA process sees."""

    model: str
    gpu_class: str
    vendor: str
    kind: str
    """``gpu`` needs CUDA or ROCm; ``neuron``, ``tpu``, ``gaudi`` have their own runtime."""
    memory_nominal_bytes: int
    memory_api_bytes: int | None
    memory_usable_bytes: int | None
    memory_usable_basis: str
    memory_class: str
    memory_bandwidth_bytes_per_s: float | None
    flop_per_s: Mapping[str, float]
    bf16_supported: bool
    fp8_supported: bool
    fp4_supported: bool
    nvlink_bytes_per_s: float | None
    pcie_bytes_per_s: float | None
    compute_capability: tuple[int, int] | None
    cuda_supported: bool
    source: str
    as_of: str
