"""How far a layout goes: the largest context, concurrency, micro batch or batch whose whole band fits, all else as asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from provisioner.records import record
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import (
    AudioDemand,
    Demand,
    DiffusionTrainingDemand,
    ServingDemand,
    TrainingDemand,
)
from provisioner.sizing.estimate import estimate_footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.pipelines import SPEECH_TO_TEXT

TOKENS_MAX = 10**9
"""Most tokens of one request or sequence that a spec may ask for."""
REQUESTS_MAX = 10**6
PIECES_MAX = 10_000
FRAMES_MAX = 10**6
SECONDS_MAX = 10**6


@record(frozen=True, slots=True)
class Limit:
    """A number of a demand that can grow: its name there and in documents, the spec's key, and the most that is looked for."""

    name: str
    key: str
    most: int


def limits_of(demand: Demand) -> tuple[Limit, ...]:
    """The numbers of a demand that the answer names, the one to lower first at the front."""
    if isinstance(demand, ServingDemand):
        context = max(demand.model.max_context_tokens or TOKENS_MAX, demand.context_tokens)
        return (
            Limit("concurrency", "inference.concurrency", REQUESTS_MAX),
            Limit("context_tokens", "inference.context_tokens", context),
        )
    if isinstance(demand, TrainingDemand):
        sequence = max(demand.model.max_context_tokens or TOKENS_MAX, demand.sequence_tokens)
        return (
            Limit("micro_batch", "training.micro_batch", REQUESTS_MAX),
            Limit("sequence_tokens", "training.sequence_tokens", sequence),
        )
    if isinstance(demand, DiffusionTrainingDemand):
        return (Limit("micro_batch", "training.micro_batch", REQUESTS_MAX),)
    if isinstance(demand, AudioDemand):
        batch = Limit("batch", "inference.audio.batch", PIECES_MAX)
        # A recogniser hears one window after the other, whatever the length.
        hears = demand.model.modality == SPEECH_TO_TEXT
        return (batch,) if hears else (batch, Limit("seconds", "inference.audio.seconds", SECONDS_MAX))
    if demand.frames > 1:
        return (
            Limit("batch", "inference.video.batch", PIECES_MAX),
            Limit("frames", "inference.video.frames", FRAMES_MAX),
        )
    return (Limit("batch", "inference.image.batch", PIECES_MAX),)


def largest_that_fits(demand: Demand, layout: Layout, accelerator: Accelerator) -> dict[str, int]:
    """Each number of the demand at its largest that fits, the others as asked; 0 where not even 1 does."""
    found = {}
    for limit in limits_of(demand):
        found[limit.name] = largest(_room(demand, limit.name, layout, accelerator), limit.most)
    return found


def _room(demand: Demand, name: str, layout: Layout, accelerator: Accelerator) -> Callable[[int], int]:
    """Bytes left over the high end of the band for a value, negative where it does not fit."""

    def room(value: int) -> int:
        changed = replace(demand, **{name: value})  # type: ignore[arg-type]
        if isinstance(changed, ServingDemand):
            tokens = min(changed.output_tokens, changed.context_tokens)
            changed = replace(changed, output_tokens=tokens)
        footprint = estimate_footprint(changed, layout, accelerator)
        return footprint.usable_bytes - footprint.per_gpu.high_bytes

    return room


def largest(room: Callable[[int], int], most: int) -> int:
    """The largest whole number from 1 to ``most`` with room of 0 or more, 0 where there is none.

    Room never grows with the number. It falls in straight pieces, so that the next guess lies on the line between the two ends;
    halving sees to it that bent curves end too.
    """
    low, high = 1, most
    room_low, room_high = room(low), 0
    if room_low < 0:
        return 0
    room_high = room(high)
    if room_high >= 0:
        return high
    halve = False
    while high - low > 1:
        span = high - low
        guess = low + (span // 2 if halve else span * room_low // (room_low - room_high))
        guess = min(max(guess, low + 1), high - 1)
        value = room(guess)
        if value >= 0:
            low, room_low = guess, value
        else:
            high, room_high = guess, value
        halve = not halve and (high - low) * 2 > span
    return low
