"""Images per second of a diffusion pipeline: operations of its denoiser over the share of the matrix rate that kernels reach."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import MODEL_OFFLOAD, DiffusionDemand
from provisioner.sizing.diffusion import SEQUENTIAL_OFFLOAD, component_bytes, latent_tokens
from provisioner.sizing.pipelines import ENCODERS, PipelineShape
from provisioner.sizing.speed_profile import OTHER, SpeedProfile, family_of, speed_profile
from provisioner.sizing.step_time import COMPUTE, LINK, PCIE_BYTES_PER_S
from provisioner.sizing.throughput import Throughput

DEFAULT_STEPS = 50
UNET_OPERATIONS = 195e6
UNET_PARAMS = 0.86e9
UNET_POWER = 0.576
"""Operations of a U-Net per latent pixel and pass: 0.8 T for SD-1.5 at 512 px (0.86 B weights), 6 T for SDXL at 1,024 px
(2.57 B); they grow slower than the weights because the large layers work on few pixels."""
DECODE_OPERATIONS_PER_PIXEL = 1e7
"""AutoencoderKL's decoder: about 10 T for a 1,024 px image."""


def forward_operations(model: PipelineShape, width: int, height: int, frames: int) -> float:
    """Operations of one pass of the denoiser over one sample, guidance left out."""
    tokens = latent_tokens(model, width, height, frames)
    if model.core_width is None or model.core_depth is None:
        return float(tokens * UNET_OPERATIONS * (model.params_active / UNET_PARAMS) ** UNET_POWER)
    sequence = tokens + model.geometry.text_tokens
    return 2.0 * model.params_active * sequence + 4.0 * model.core_depth * model.core_width * sequence**2


def step_seconds(
    demand: DiffusionDemand,
    accelerator: Accelerator,
    *,
    is_compiled: bool = False,
    controls: int = 0,
    profile: SpeedProfile | None = None,
) -> float | None:
    """Seconds of one denoising step of the whole batch; ``None`` where the GPU's rate is unknown.

    Args:
        demand: The pipeline and its size.
        accelerator: The GPU.
        is_compiled: The denoiser is compiled (``torch.compile``), which fuses kernels.
        controls: ControlNets beside the denoiser; each repeats its encoder half.
        profile: Constants; ``None`` = the bundled ones.
    """
    rate = _rate(accelerator)
    if rate is None:
        return None
    table = (profile or speed_profile()).diffusion
    model = demand.model
    passes = demand.batch * (1 if model.guidance == "none" else 2)
    work = passes * forward_operations(model, demand.width, demand.height, demand.frames)
    work *= 1 + table["control"] * controls
    share = _share(accelerator, table["unet" if model.core_width is None else "transformer"])
    host = table["host_ms"] * 1e-3 * (1 + table["control"] * controls)
    if is_compiled:
        share, host = share * table["compiled"], host * table["compiled_host"]
    return float(work / (rate * share) + host)


def diffusion_throughput(
    demand: DiffusionDemand, accelerator: Accelerator, profile: SpeedProfile | None = None
) -> Throughput:
    """Finished images (or clips) per second of one copy: all steps, text encoding, decoding and offload traffic."""
    constants = profile or speed_profile()
    step = step_seconds(demand, accelerator, profile=constants)
    rate = _rate(accelerator)
    if step is None or rate is None:
        return Throughput(unknown=f"the 16-bit matrix rate of {accelerator.gpu} is not known")
    model = demand.model
    steps = demand.steps or model.geometry.steps or DEFAULT_STEPS
    pixels = demand.width * demand.height * demand.frames * demand.batch
    shares = constants.diffusion["unet"]
    decode = pixels * DECODE_OPERATIONS_PER_PIXEL / (rate * _share(accelerator, shares)) if demand.decodes else 0.0
    text = demand.batch * 2.0 * model.role_params(ENCODERS) * model.geometry.text_tokens / rate
    traffic = _offload_bytes(demand, steps) / (accelerator.pcie_bytes_per_s or PCIE_BYTES_PER_S)
    images = demand.batch / (steps * step + decode + text + traffic)
    band = constants.bands.get("diffusion", 1.0)
    return Throughput(
        images_per_s=images,
        low=images / band,
        high=images * band,
        bound_by=LINK if traffic > steps * step else COMPUTE,
    )


def _rate(accelerator: Accelerator) -> float | None:
    return accelerator.flop_per_s.get("bf16") or accelerator.flop_per_s.get("fp16")


def _share(accelerator: Accelerator, table: Mapping[str, float]) -> float:
    return table.get(family_of(accelerator.compute_capability), table[OTHER])


def _offload_bytes(demand: DiffusionDemand, steps: int) -> float:
    """Bytes that cross to the GPU per batch: each component once, or the denoiser at every step."""
    total = sum(component_bytes(demand, part) for part in demand.model.components)
    if demand.offload == MODEL_OFFLOAD:
        return total
    return total * steps if demand.offload == SEQUENTIAL_OFFLOAD else 0.0
