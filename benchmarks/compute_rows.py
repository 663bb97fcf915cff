"""Predictions for measured rows of training, image generation and collectives."""

from __future__ import annotations

import re

from benchmarks.rows import Models, Row, accelerator_of
from benchmarks.speed_rows import SpeedPrediction
from provisioner.errors import UsageError
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import DiffusionDemand
from provisioner.sizing.diffusion import usual_size
from provisioner.sizing.diffusion_speed import BAND as DIFFUSION_BAND
from provisioner.sizing.diffusion_speed import diffusion_throughput, step_seconds
from provisioner.sizing.models import find_model
from provisioner.sizing.pipelines import PipelineShape
from provisioner.sizing.speed import BAND
from provisioner.sizing.speed_profile import speed_profile
from provisioner.sizing.step_time import LINK, Machine, all_reduce_s
from provisioner.sizing.training_speed import BAND as TRAINING_BAND
from provisioner.sizing.training_speed import Work, token_seconds
from provisioner.vocabulary import Interconnect, TrainingMethod

PRECISIONS = ((r"nvfp4|fp4", "fp4"), (r"fp8|float8", "fp8"))
COMPILED = re.compile(r"nightly|, compile|torch\.compile|stable-fast", re.IGNORECASE)
METHODS = {"lora": TrainingMethod.LORA, "qlora": TrainingMethod.QLORA}


def known_accelerator(row: Row) -> Accelerator:
    """The row's GPU.

    Raises:
        UsageError: the catalog does not know it.
    """
    accelerator = accelerator_of(row.text("gpu"), None)
    if accelerator is None or not accelerator.flop_per_s:
        raise UsageError(f"GPU {row.text('gpu')!r} is not known")
    return accelerator


def predict_training_speed(row: Row, models: Models) -> SpeedPrediction:
    """Training tokens per second and GPU.

    Raises:
        UsageError: the row's model or GPU is not modelled.
    """
    model = models.find(row)
    accelerator = known_accelerator(row)
    text = row.text("precision").lower()
    is_tuned = row.text("engine").lower().startswith("megatron")
    # Tuned runs that state no precision are of the FP8 recipes of the same tables.
    precision = "fp8" if is_tuned and not text else "bf16"
    precision = next((word for pattern, word in PRECISIONS if re.search(pattern, text)), precision)
    work = Work(
        model,
        METHODS.get(row.text("task").lower(), TrainingMethod.FULL),
        int(row.number("sequence_length") or 2048),
        row.text("activation_checkpointing").lower() in ("true", "full"),
        precision,
        tuned=is_tuned,
    )
    seconds = token_seconds(work, accelerator)
    if seconds is None:
        raise UsageError(f"a rate of {accelerator.gpu} is not known")
    return SpeedPrediction("predicted", 1 / seconds, 1 / seconds / TRAINING_BAND, TRAINING_BAND / seconds, "compute")


def predict_image_speed(row: Row, metric: str) -> SpeedPrediction:
    """Denoising steps per second, or seconds of a whole image or clip.

    Raises:
        UsageError: the row's model or GPU is not modelled.
    """
    name, *extras = (part.strip() for part in row.text("model").split("+"))
    model = find_model(name)
    if not isinstance(model, PipelineShape):
        raise UsageError(f"{name} is no image or video model")
    width, height, frames = usual_size(model)
    stated = re.search(r"(\d+)x(\d+)(?:x(\d+)f)?", row.text("resolution"))
    if stated:
        width, height, frames = int(stated[1]), int(stated[2]), int(stated[3] or 1)
    demand = DiffusionDemand(
        model=model,
        weights=row.text("precision") or "auto",
        width=width,
        height=height,
        frames=frames,
        batch=int(row.number("batch") or 1),
        steps=int(row.number("steps") or 0) or None,
    )
    accelerator = known_accelerator(row)
    if metric == "e2e_s":
        images = diffusion_throughput(demand, accelerator).images_per_s
        value = None if images is None else demand.batch / images
    else:
        software = f"{row.text('engine')} {row.text('engine_version')}"
        is_compiled = COMPILED.search(software) is not None and "no compile" not in software
        step = step_seconds(demand, accelerator, is_compiled=is_compiled, controls=len(extras))
        value = step if step is None or metric == "s_per_it" else 1 / step
    if value is None:
        raise UsageError(f"a rate of {accelerator.gpu} is not known")
    return SpeedPrediction("predicted", value, value / DIFFUSION_BAND, value * DIFFUSION_BAND, "compute")


def predict_collective(row: Row, metric: str) -> SpeedPrediction:
    """Time or bus bandwidth of an all-reduce within a machine.

    Raises:
        UsageError: the size is not stated, or the ranks sit on several machines.
    """
    size, ranks = row.number("message_bytes"), row.number("gpu_count")
    if not size or not ranks or ranks <= 1 or (row.number("nodes") or 1) > 1:
        raise UsageError("all-reduce without a size and ranks of one machine")
    link = Interconnect.NVLINK if "nv" in row.text("interconnect").lower() else Interconnect.PCIE
    machine = Machine(known_accelerator(row), speed_profile(), "vllm", int(ranks), 1, link)
    seconds = all_reduce_s(size, machine)
    value = seconds * 1e3
    if metric == "allreduce_busbw_gb_s":
        value = 2 * (ranks - 1) / ranks * size / seconds / 1e9
    return SpeedPrediction("predicted", value, value / BAND, value * BAND, LINK)
