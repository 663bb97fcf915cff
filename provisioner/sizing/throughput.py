"""Predicted speed of a layout on a GPU kind."""

from __future__ import annotations

from provisioner.records import record


@record(frozen=True, slots=True)
class Throughput:
    """Predicted rates; ``None`` is unknown or does not apply, never zero.

    ``low`` and ``high`` are the band of the task's main rate (decode tokens/s per replica, training tokens/s, images/s).
    ``bound_by`` is ``memory-bandwidth``, ``compute`` or ``interconnect``.
    """

    decode_tokens_per_s_per_replica: float | None = None
    tokens_per_s_per_request: float | None = None
    time_to_first_token_s: float | None = None
    train_tokens_per_s: float | None = None
    images_per_s: float | None = None
    low: float | None = None
    high: float | None = None
    bound_by: str | None = None
