"""Demands of image, video and audio models: what the spec says, else the model's own usual size."""

from __future__ import annotations

from typing import NamedTuple

from provisioner.errors import UsageError
from provisioner.planner.adapters import started_rank
from provisioner.planner.requirements import KeyedSpecError
from provisioner.sizing.demand import AudioDemand, DiffusionDemand, DiffusionTrainingDemand
from provisioner.sizing.diffusion import usual_size
from provisioner.sizing.pipelines import IMAGE, VIDEO, PipelineShape
from provisioner.sizing.serving_extras import RANK_ASSUMED
from provisioner.vocabulary import TrainingMethod, TrainingPrecision
from provisioner.workload.spec import Inference, Training, Workload

PIECE_SECONDS = 30.0
"""Length of a piece of audio where neither the spec nor the model names one: Whisper's own window."""

MediaDemand = DiffusionDemand | AudioDemand | DiffusionTrainingDemand


def media_demand(workload: Workload, shape: PipelineShape) -> MediaDemand:
    """What sizing is asked about a pipeline: one serving copy, or a training of its core.

    Raises:
        KeyedSpecError: a size of another kind than the model makes.
    """
    makes_pictures = shape.modality in (IMAGE, VIDEO)
    if workload.training is not None:
        return _training(workload, workload.training, shape)
    inference = workload.inference or Inference()
    return _diffusion(workload, inference, shape) if makes_pictures else _audio(workload, inference, shape)


def _diffusion(workload: Workload, inference: Inference, shape: PipelineShape) -> DiffusionDemand:
    wanted = inference.video if shape.modality == VIDEO else inference.image
    _refuse_other(shape, image=inference.image, video=inference.video, audio=inference.audio, section="inference")
    width, height, frames = _usual(shape)
    asked_frames = inference.video.frames if inference.video is not None else None
    return DiffusionDemand(
        model=shape,
        weights=str(workload.model.weights),
        width=(wanted.width if wanted else None) or width,
        height=(wanted.height if wanted else None) or height,
        frames=asked_frames or frames,
        batch=(wanted.batch if wanted else None) or inference.concurrency,
        steps=(wanted.steps if wanted else None) or shape.geometry.steps,
        offload=inference.offload,
        gpu_memory_fraction=_fraction(inference),
        adapters=len(workload.model.adapters),
        adapter_rank=max((each.rank or RANK_ASSUMED for each in workload.model.adapters), default=RANK_ASSUMED),
    )


def _audio(workload: Workload, inference: Inference, shape: PipelineShape) -> AudioDemand:
    _refuse_other(shape, image=inference.image, video=inference.video, audio=inference.audio, section="inference")
    asked = inference.audio
    return AudioDemand(
        model=shape,
        weights=str(workload.model.weights),
        seconds=(asked.seconds if asked else None) or shape.geometry.seconds or PIECE_SECONDS,
        batch=(asked.batch if asked else None) or inference.concurrency,
        gpu_memory_fraction=_fraction(inference),
    )


def _training(workload: Workload, training: Training, shape: PipelineShape) -> DiffusionTrainingDemand:
    _refuse_other(shape, image=training.image, video=training.video, audio=training.audio, section="training")
    full = training.method is TrainingMethod.FULL
    size = _audio_size(training, shape) if shape.modality not in (IMAGE, VIDEO) else _picture_size(training, shape)
    return DiffusionTrainingDemand(
        model=shape,
        weights=str(workload.model.weights),
        method=training.method,
        precision=training.precision or (TrainingPrecision.BF16_MIXED if full else TrainingPrecision.BF16),
        optimizer=training.optimizer,
        width=size.width,
        height=size.height,
        frames=size.frames,
        seconds=size.seconds,
        micro_batch=size.batch or training.micro_batch,
        gradient_checkpointing=training.gradient_checkpointing,
        lora_rank=started_rank(workload, training),
        sharding=training.sharding,
    )


class _Size(NamedTuple):
    """What one sample of a training is, and how many are asked for beside ``micro_batch``."""

    width: int = 0
    height: int = 0
    frames: int = 1
    seconds: float = 0.0
    batch: int | None = None


def _picture_size(training: Training, shape: PipelineShape) -> _Size:
    wanted = training.video if shape.modality == VIDEO else training.image
    width, height, frames = _usual(shape)
    return _Size(
        width=(wanted.width if wanted else None) or width,
        height=(wanted.height if wanted else None) or height,
        frames=(training.video.frames if training.video else None) or frames,
        batch=wanted.batch if wanted else None,
    )


def _audio_size(training: Training, shape: PipelineShape) -> _Size:
    wanted = training.audio
    return _Size(
        seconds=(wanted.seconds if wanted else None) or shape.geometry.seconds or PIECE_SECONDS,
        batch=wanted.batch if wanted else None,
    )


def _usual(shape: PipelineShape) -> tuple[int, int, int]:
    try:
        return usual_size(shape)
    except UsageError as error:
        raise KeyedSpecError(error.message, key="model.id", remedy=error.remedy) from None


def _refuse_other(shape: PipelineShape, *, image: object, video: object, audio: object, section: str) -> None:
    """A size of something that the model does not make would change nothing: say so."""
    fitting = {IMAGE: "image", VIDEO: "video"}.get(shape.modality, "audio")
    for name, value in (("image", image), ("video", video), ("audio", audio)):
        if value is not None and name != fitting:
            raise KeyedSpecError(
                f"{shape.id} makes no {name} ({shape.modality.replace('_', '-')})",
                key=f"{section}.{name}",
                remedy=f"write {section}.{fitting}, or take another model",
            )


def _fraction(inference: Inference) -> float | None:
    value = inference.gpu_memory_fraction
    return value if isinstance(value, (int, float)) else None
