"""GPU facts: three memory figures kept apart, bandwidth, rates, links; classes and names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from provisioner.catalog.cells import bytes_of_mib, scaled, split_codes
from provisioner.catalog.files import CLASSES, CatalogFiles
from provisioner.records import record


@record(frozen=True, slots=True)
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
    memory_nvidia_smi_bytes: int | None = None
    """Total that nvidia-smi prints: above the usable figure, below or at the label."""
    form_factor: str = "unknown"
    architecture: str = "unknown"
    suspect: tuple[str, ...] = ()


_RATES = {
    "fp32": "fp32_tflop_per_s",
    "tf32": "tf32_dense_tflop_per_s",
    "bf16": "bf16_dense_tflop_per_s",
    "fp16": "fp16_dense_tflop_per_s",
    "fp8": "fp8_dense_tflop_per_s",
    "fp4": "fp4_dense_tflop_per_s",
    "int8": "int8_dense_top_per_s",
}
_CAPABILITY = re.compile(r"(\d+)\.(\d+)")


def read_classes(files: CatalogFiles) -> dict[str, str]:
    """Class of each GPU model that gpu_classes.csv knows."""
    return {row[0]: row[1] for row in files.rows(CLASSES, "gpu_model", "gpu_class")}


def read_gpus(files: CatalogFiles) -> dict[str, Gpu]:
    """All GPU models in file order. A model without a class in gpu_classes.csv is a class of its own."""
    classes = read_classes(files)
    return {
        row["gpu_model"]: _gpu(row, classes.get(row["gpu_model"], row["gpu_model"]))
        for row in files.records("gpus.csv")
    }


def _gpu(row: Mapping[str, str], gpu_class: str) -> Gpu:
    capability = _CAPABILITY.fullmatch(row["compute_capability"])
    nominal = bytes_of_mib(row["memory_nominal_mib"])
    if nominal is None:
        raise ValueError(f"{row['gpu_model']} has no nominal memory")
    return Gpu(
        model=row["gpu_model"],
        gpu_class=gpu_class,
        vendor=row["vendor"],
        kind=row["kind"],
        memory_nominal_bytes=nominal,
        memory_api_bytes=bytes_of_mib(row["memory_ec2_api_mib"]),
        memory_usable_bytes=bytes_of_mib(row["memory_usable_mib"]),
        memory_usable_basis=row["memory_usable_basis"],
        memory_class=row["memory_class"],
        memory_bandwidth_bytes_per_s=scaled(row["memory_bandwidth_gb_per_s"], 1e9),
        flop_per_s={word: float(row[column]) * 1e12 for word, column in _RATES.items() if row[column]},
        bf16_supported=row["bf16_supported"] == "yes",
        fp8_supported=row["fp8_supported"] == "yes",
        fp4_supported=row["fp4_supported"] == "yes",
        nvlink_bytes_per_s=scaled(row["nvlink_gb_per_s"], 1e9),
        pcie_bytes_per_s=scaled(row["pcie_gb_per_s_one_direction"], 1e9),
        compute_capability=(int(capability[1]), int(capability[2])) if capability else None,
        cuda_supported=row["cuda_supported"] == "yes",
        source=row["source"],
        as_of=row["as_of"],
        memory_nvidia_smi_bytes=bytes_of_mib(row["memory_nvidia_smi_mib"]),
        form_factor=row["form_factor"],
        architecture=row["architecture"],
        suspect=split_codes(row["suspect_reason"]),
    )
