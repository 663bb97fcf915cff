"""GPUs that published rows were measured on and that no cloud of the catalog sells, as their data sheets state them.

Rates are dense with 32-bit accumulation: a quarter of the advertised sparse 8-bit rate on Ada, GeForce half of that again.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from provisioner.sizing.accelerator import Accelerator
from provisioner.units import GIB

TERA = 1e12
SUSTAINED_AT_500_W = 0.8
"""Rate of an H100 held to 500 of 700 W: power grows between the first and third power of the clock, and (500 / 700)^(2/3) is 0.8."""


def _card(
    name: str, gib: float, gb_per_s: float, capability: tuple[int, int], rates: Mapping[str, float], **links: float
) -> Accelerator:
    return Accelerator(
        gpu=name,
        model=name,
        vendor="NVIDIA",
        memory_usable_bytes=int(gib * GIB),
        memory_usable_basis="label",
        memory_bandwidth_bytes_per_s=gb_per_s * 1e9,
        memory_class="hbm" if capability == (9, 0) else "gddr",
        compute_capability=capability,
        flop_per_s={word: rate * TERA for word, rate in rates.items()},
        fp8_supported="fp8" in rates,
        nvlink_bytes_per_s=links.get("nvlink", 0.0) * 1e9,
        pcie_bytes_per_s=links.get("pcie", 32.0) * 1e9,
    )


def _rates(fp32: float, bf16: float, int8: float, fp8: float | None = None) -> dict[str, float]:
    return {"fp32": fp32, "bf16": bf16, "fp16": bf16, "int8": int8} | ({"fp8": fp8} if fp8 else {})


OTHER_GPUS: Mapping[str, Accelerator] = MappingProxyType(
    {
        "H20": _card("H20", 95.0, 4000, (9, 0), _rates(44, 148, 296, 296), nvlink=900, pcie=64),
        "H100-SXM-500W": _card(
            "H100-SXM-500W",
            93.0,
            2400,
            (9, 0),
            {name: rate * SUSTAINED_AT_500_W for name, rate in _rates(66.9, 989.4, 1978.9, 1978.9).items()},
            nvlink=900,
            pcie=64,
        ),
        "RTX-4000-Ada": _card("RTX-4000-Ada", 19.6, 360, (8, 9), _rates(26.7, 106.9, 213.8, 213.8)),
        "RTX-5000-Ada": _card("RTX-5000-Ada", 31.5, 576, (8, 9), _rates(65.3, 261.1, 522.2, 522.2)),
        "RTX-4080": _card("RTX-4080", 15.6, 716.8, (8, 9), _rates(48.7, 97.5, 389.9, 194.9)),
        "RTX-3080-10": _card("RTX-3080-10", 9.6, 760.3, (8, 6), _rates(29.8, 59.5, 238.0)),
        "RTX-3080-Ti": _card("RTX-3080-Ti", 11.6, 912.4, (8, 6), _rates(34.1, 68.2, 272.8)),
    }
)
"""Catalog-like name -> GPU. Source: NVIDIA's data sheets and the Ampere GA102 and Ada architecture papers."""
