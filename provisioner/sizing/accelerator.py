"""What sizing knows of one GPU: usable memory, bandwidth, compute rates and links."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from provisioner.records import record


@record(frozen=True, slots=True)
class Accelerator:
    """One GPU, or the fraction of one that an instance sells, as an engine sees it.

    ``memory_usable_bytes`` is what a CUDA process sees before any allocation, never the label.
    ``flop_per_s`` maps a precision word (``bf16``, ``fp16``, ``fp8``, ``fp4``, ``int8``, ``fp32``) to the dense rate; a missing
    key means the hardware has no such matrix unit or the rate is unknown. Links are bytes/s: NVLink per GPU with both
    directions summed (0 = none), PCIe in one direction.
    """

    gpu: str
    """Class name in plans: ``L4``, ``H100``."""
    model: str
    """Exact catalog row: ``H100-SXM``."""
    vendor: str
    memory_usable_bytes: int
    memory_usable_basis: str
    memory_bandwidth_bytes_per_s: float | None
    memory_class: str
    """``hbm``, ``gddr``, ``lpddr`` or ``ddr``."""
    compute_capability: tuple[int, int] | None
    flop_per_s: Mapping[str, float] = field(default_factory=dict)
    bf16_supported: bool = True
    fp8_supported: bool = False
    fp4_supported: bool = False
    nvlink_bytes_per_s: float = 0.0
    pcie_bytes_per_s: float | None = None
