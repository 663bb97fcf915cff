"""Defaults that depend on other keys (CONTRACTS section 4); those that need a model or a catalog are the planner's."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar

from pydantic import BaseModel

from provisioner.units import HOURS_PER_MONTH
from provisioner.vocabulary import Pattern, Task, TrainingMethod, TrainingPrecision, WeightFormat
from provisioner.workload.spec import Inference, Lifecycle, Lora, Model, Storage, Training, Workload

PATTERN_HOURS_PER_MONTH = {Pattern.STEADY: float(HOURS_PER_MONTH), Pattern.BURSTY: 120.0}
MAX_LIFETIME_BURSTY_HOURS = 24


def with_defaults(workload: Workload) -> Workload:
    """The workload with the keys that its task and other keys decide filled in; what is written stays."""
    return workload.model_copy(
        update={
            "model": _model(workload),
            "inference": _inference(workload),
            "training": _training(workload),
            "storage": _storage(workload),
            "lifecycle": _lifecycle(workload),
        }
    )


Part = TypeVar("Part", bound=BaseModel)


def _fill(part: Part, **values: object) -> Part:
    """The part with values for the keys that were not written."""
    absent = {key: value for key, value in values.items() if key not in part.model_fields_set}
    return part.model_copy(update=absent) if absent else part


def _model(workload: Workload) -> Model:
    """QLoRA keeps the base in nf4, whatever it was published in; the rules between keys let no other format through."""
    if workload.training is None or workload.training.method is not TrainingMethod.QLORA:
        return workload.model
    return workload.model.model_copy(update={"weights": str(WeightFormat.NF4)})


def _inference(workload: Workload) -> Inference | None:
    if workload.task.is_training:
        return None
    inference = workload.inference or Inference.model_construct()
    wants_rate = inference.targets is not None and inference.targets.requests_per_second is not None
    return _fill(inference, replicas="auto") if wants_rate else inference


def _training(workload: Workload) -> Training | None:
    training = workload.training
    if training is None:
        return None
    if training.method is not TrainingMethod.FULL and training.lora is None:
        started = workload.model.adapters[0].rank if workload.model.adapters else None
        lora = Lora.model_construct(rank=started) if started else Lora.model_construct()
        training = _fill(training, lora=lora)
    if training.method is TrainingMethod.FULL or workload.task is Task.PRETRAIN:
        training = _fill(training, precision=TrainingPrecision.BF16_MIXED)
    return training


def _storage(workload: Workload) -> Storage:
    asks = workload.training is not None and workload.training.checkpoint is not None
    return _fill(workload.storage, checkpoints="auto") if asks else workload.storage


def has_length(workload: Workload) -> bool:
    """Whether the spec says how much work there is, so that the planner can predict its hours."""
    if workload.training is not None:
        return workload.training.tokens is not None or workload.training.duration is not None
    return workload.inference is not None and (
        workload.inference.total is not None or workload.inference.duration is not None
    )


def _lifecycle(workload: Workload) -> Lifecycle:
    lifecycle = _fill(workload.lifecycle, pattern=Pattern.STEADY if workload.task is Task.SERVE else Pattern.BURSTY)
    is_bursty = lifecycle.pattern is Pattern.BURSTY
    lifecycle = lifecycle.model_copy(update={"idle": _fill(lifecycle.idle, after="auto" if is_bursty else "off")})
    if has_length(workload):
        return lifecycle
    lifetime = timedelta(hours=MAX_LIFETIME_BURSTY_HOURS) if is_bursty else "off"
    return _fill(lifecycle, hours_per_month=PATTERN_HOURS_PER_MONTH[lifecycle.pattern], max_lifetime=lifetime)
