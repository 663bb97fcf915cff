"""Training samples per second of a pipeline's denoiser, from the operations of one pass and the share that kernels reach."""

from __future__ import annotations

from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import DiffusionTrainingDemand
from provisioner.sizing.diffusion_speed import DECODE_OPERATIONS_PER_PIXEL, forward_operations
from provisioner.sizing.layout import Layout
from provisioner.sizing.pipelines import ENCODERS
from provisioner.sizing.speed_profile import OTHER, family_of, speed_profile
from provisioner.sizing.step_time import COMPUTE, LINK, link_rate
from provisioner.sizing.throughput import Throughput
from provisioner.sizing.training_speed import BACKWARD, recomputed
from provisioner.vocabulary import Interconnect, TrainingMethod, TrainingPrecision

ENCODE_SHARE = 0.5
"""Operations of encoding an image into latents against decoding one: the encoder is the narrower half of an AutoencoderKL."""


def diffusion_training_throughput(
    demand: DiffusionTrainingDemand, layout: Layout, accelerator: Accelerator, interconnect: Interconnect
) -> Throughput:
    """Samples per second of the whole layout: one denoising pass forward and back, and the encoders where they run beside."""
    rates = accelerator.flop_per_s
    rate = rates.get("bf16") or rates.get("fp16")
    if rate is None:
        return Throughput(unknown=f"the 16-bit matrix rate of {accelerator.gpu} is not known")
    profile = speed_profile()
    model = demand.model
    shares = profile.diffusion["unet" if model.core_width is None else "transformer"]
    share = shares.get(family_of(accelerator.compute_capability), shares[OTHER])
    table = profile.training
    factor = table["fp8"]["general"] if demand.precision is TrainingPrecision.FP8 and "fp8" in rates else 1.0
    factor *= table["quantised_base"] if demand.method is TrainingMethod.QLORA else 1.0
    passes = BACKWARD[demand.method] + recomputed(demand.gradient_checkpointing) * table["recompute"]
    work = passes * forward_operations(model, demand.width, demand.height, demand.frames) / (rate * share * factor)
    if demand.keeps_frozen_parts:
        pixels = demand.width * demand.height * demand.frames
        encode = pixels * DECODE_OPERATIONS_PER_PIXEL * ENCODE_SHARE
        text = 2.0 * model.role_params(ENCODERS) * model.geometry.text_tokens
        work += (encode + text) / (rate * share)
    host = profile.diffusion["host_ms"] * 1e-3 * passes
    compute = demand.micro_batch * work + host
    link = _gradient_s(demand, layout, accelerator, interconnect)
    samples = demand.micro_batch * layout.data_parallel / max(compute, link)
    band = profile.bands["diffusion"]
    return Throughput(
        train_samples_per_s=samples,
        low=samples / band,
        high=samples * band,
        bound_by=COMPUTE if compute >= link else LINK,
    )


def _gradient_s(
    demand: DiffusionTrainingDemand, layout: Layout, accelerator: Accelerator, interconnect: Interconnect
) -> float:
    """Seconds in which ranks add up the gradients of a step."""
    ranks = layout.data_parallel
    if ranks == 1 or demand.method is not TrainingMethod.FULL:
        return 0.0
    name, one_way = link_rate(accelerator, interconnect)
    speed = speed_profile().links[name]
    share = speed.share / (min(ranks, 8) / 2) ** speed.contention
    return float(2 * (ranks - 1) / ranks * 2.0 * demand.model.params_active / (one_way * share))
