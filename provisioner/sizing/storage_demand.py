"""What a training asks of storage: the rate of its checkpoints and of the data that it reads."""

from __future__ import annotations

from provisioner.records import record
from provisioner.sizing.demand import DiffusionTrainingDemand, TrainingDemand
from provisioner.sizing.throughput import Throughput

TOKEN_BYTES = 4
"""Bytes of a stored token: 32-bit ids, as tokenised data sets keep them for vocabularies above 65,536."""
STORED_PIXEL_BYTES = 0.5
"""Bytes a pixel of a photo stored as JPEG at high quality: 3 bytes compressed about sixfold; clips take far less. An assumption."""
PAUSE_SHARE = 0.01
"""Share of the time that writing checkpoints may stop a training for."""
USUAL_INTERVAL_S = 1800.0
"""Seconds between checkpoints where the spec names none."""


@record(frozen=True, slots=True)
class StorageDemand:
    """Rates in bytes per second that storage has to keep up with; ``None`` where they are not known."""

    checkpoint_bytes: int
    checkpoint_bytes_per_s: float
    """Rate at which one checkpoint is written within ``PAUSE_SHARE`` of the time between two."""
    data_bytes_per_s: float | None
    """Rate at which the training reads its data."""


def storage_demand(
    demand: TrainingDemand | DiffusionTrainingDemand,
    throughput: Throughput,
    *,
    checkpoint_bytes: int,
    interval_s: float | None = None,
) -> StorageDemand:
    """Rates of a training at its predicted speed.

    Args:
        demand: The training.
        throughput: Its predicted speed.
        checkpoint_bytes: One checkpoint: trained weights and optimizer state.
        interval_s: Seconds between checkpoints; ``None`` = half an hour.
    """
    pause = PAUSE_SHARE * (interval_s or USUAL_INTERVAL_S)
    return StorageDemand(checkpoint_bytes, checkpoint_bytes / pause, _data_rate(demand, throughput))


def _data_rate(demand: TrainingDemand | DiffusionTrainingDemand, throughput: Throughput) -> float | None:
    if isinstance(demand, TrainingDemand):
        rate = throughput.train_tokens_per_s
        return None if rate is None else rate * TOKEN_BYTES
    samples = throughput.train_samples_per_s
    if samples is None:
        return None
    return samples * demand.width * demand.height * demand.frames * STORED_PIXEL_BYTES
