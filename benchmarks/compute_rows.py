"""Predictions for measured rows of training, image generation and collectives."""

from __future__ import annotations

import re
from dataclasses import dataclass

from benchmarks.rows import Models, Row, accelerator_of
from benchmarks.speed_rows import MACHINE_GPUS, RACK_GPUS, RACKS, SpeedPrediction
from provisioner.errors import UsageError
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import DiffusionDemand
from provisioner.sizing.diffusion import usual_size
from provisioner.sizing.diffusion_speed import diffusion_throughput, step_seconds
from provisioner.sizing.models import find_model
from provisioner.sizing.pipelines import PipelineShape
from provisioner.sizing.speed_profile import SpeedProfile, speed_profile
from provisioner.sizing.step_time import COMPUTE, LINK, Machine, all_reduce_s
from provisioner.sizing.training_speed import LONG_SEQUENCE, Work, recomputed, token_seconds
from provisioner.vocabulary import Interconnect, TrainingMethod

PRECISIONS = ((r"nvfp4|fp4", "fp4"), (r"rowwise", "bf16"), (r"fp8|float8", "fp8"))
COMPILED = re.compile(r"nightly|, compile|torch\.compile|stable-fast", re.IGNORECASE)
BAND = 1.5
USUAL_SEQUENCE = 8192
"""Tokens of a sequence where none is stated and the model takes as many."""
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


def training_work(row: Row, models: Models) -> tuple[Work, Accelerator]:
    """A training row's setting.

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
    sequence = int(row.number("sequence_length") or min(USUAL_SEQUENCE, model.max_context_tokens or USUAL_SEQUENCE))
    tensor, stages = int(row.number("tp") or 1), int(row.number("pp") or 1)
    gpus = int(row.number("gpu_count") or 1)
    copies = max(1, gpus // (tensor * stages * int(row.number("cp") or 1)))
    pieces = int(row.number("micro_batch") or 1)
    if row.number("global_batch"):
        pieces = int((row.number("global_batch") or 1) / copies / pieces)
    work = Work(
        model,
        METHODS.get(row.text("task").lower(), TrainingMethod.FULL),
        sequence,
        _recomputed(row),
        precision,
        tuned=is_tuned,
        tensor=tensor,
        stages=stages,
        expert_ranks=int(row.number("ep") or 1),
        linked=RACK_GPUS if accelerator.gpu in RACKS else MACHINE_GPUS,
        micro_batches=pieces,
    )
    return work, accelerator


def band_of_work(work: Work) -> str:
    """Kind of prediction, which bands are kept by: experts and long sequences are less certain."""
    return "training-experts" if work.model.is_moe or work.sequence_tokens > LONG_SEQUENCE else "training"


def _recomputed(row: Row) -> float:
    stated, technique = row.text("activation_checkpointing").lower(), row.text("technique").lower()
    if stated in ("true", "full") or "full ac" in technique:
        return recomputed(checkpointing=True)
    return recomputed("selective") if "selective" in stated + technique else 0.0


def predict_training_speed(row: Row, models: Models) -> SpeedPrediction:
    """Training tokens per second and GPU.

    Raises:
        UsageError: the row's model or GPU is not modelled.
    """
    work, accelerator = training_work(row, models)
    seconds = token_seconds(work, accelerator)
    if seconds is None:
        raise UsageError(f"a rate of {accelerator.gpu} is not known")
    band = speed_profile().bands[band_of_work(work)]
    return SpeedPrediction("predicted", 1 / seconds, 1 / seconds / band, band / seconds, COMPUTE)


@dataclass(frozen=True, slots=True)
class ImageCase:
    """A row of image or video generation."""

    metric: str
    demand: DiffusionDemand
    accelerator: Accelerator
    is_compiled: bool
    controls: int

    def value(self, profile: SpeedProfile) -> float:
        """Denoising steps per second, seconds of one, or seconds of a whole image or clip.

        Raises:
            UsageError: the GPU's rate is unknown.
        """
        if self.metric == "e2e_s":
            images = diffusion_throughput(self.demand, self.accelerator, profile).images_per_s
            value = None if images is None else self.demand.batch / images
        else:
            step = step_seconds(
                self.demand,
                self.accelerator,
                is_compiled=self.is_compiled,
                controls=self.controls,
                profile=profile,
            )
            value = step if step is None or self.metric == "s_per_it" else 1 / step
        if value is None:
            raise UsageError(f"a rate of {self.accelerator.gpu} is not known")
        return value


def image_case(row: Row, metric: str) -> ImageCase:
    """The setting of a row of image or video generation.

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
    software = f"{row.text('engine')} {row.text('engine_version')}"
    is_compiled = COMPILED.search(software) is not None and "no compile" not in software
    return ImageCase(metric, demand, known_accelerator(row), is_compiled, len(extras))


def predict_image_speed(row: Row, metric: str) -> SpeedPrediction:
    """Denoising steps per second, or seconds of a whole image or clip.

    Raises:
        UsageError: the row's model or GPU is not modelled.
    """
    profile = speed_profile()
    value, band = image_case(row, metric).value(profile), profile.bands["diffusion"]
    return SpeedPrediction("predicted", value, value / band, value * band, COMPUTE)


def predict_collective(row: Row, metric: str) -> SpeedPrediction:
    """Time or bus bandwidth of an all-reduce within a machine.

    Raises:
        UsageError: the size is not stated, or the ranks sit on several machines.
    """
    size, ranks = row.number("message_bytes"), row.number("gpu_count")
    if not size or not ranks or ranks <= 1 or (row.number("nodes") or 1) > 1:
        raise UsageError("all-reduce without a size and ranks of one machine")
    link = Interconnect.NVLINK if "nv" in row.text("interconnect").lower() else Interconnect.PCIE
    machine = Machine(known_accelerator(row), speed_profile(), "vllm", link)
    seconds = all_reduce_s(size, int(ranks), machine)
    value = seconds * 1e3
    if metric == "allreduce_busbw_gb_s":
        value = 2 * (ranks - 1) / ranks * size / seconds / 1e9
    return SpeedPrediction("predicted", value, value / BAND, value * BAND, LINK)
