"""Predicted speed of a layout on a GPU kind."""

from __future__ import annotations

from provisioner.records import record


@record(frozen=True, slots=True)
class Throughput:
    """Predicted rates; ``None`` is unknown or does not apply, never zero.

    ``low`` and ``high`` are the band of the task's main rate (decode tokens/s per replica, training tokens/s or samples/s, images/s, real-time
    factor).
    ``bound_by`` is ``memory-bandwidth``, ``compute`` or ``interconnect``.
    """

    decode_tokens_per_s_per_replica: float | None = None
    tokens_per_s_per_request: float | None = None
    time_to_first_token_s: float | None = None
    train_tokens_per_s: float | None = None
    images_per_s: float | None = None
    train_samples_per_s: float | None = None
    """Images or clips that a training of a denoiser learns from."""
    realtime_factor: float | None = None
    """Seconds of sound that are made or read per second of computing."""
    requests_per_s: float | None = None
    """Finished requests of one serving copy at its concurrency, prompts included."""
    low: float | None = None
    high: float | None = None
    bound_by: str | None = None
    unknown: str | None = None
    """Why a rate is not known, ``None`` where it is."""
