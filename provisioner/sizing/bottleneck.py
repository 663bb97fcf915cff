"""What bounds a predicted or running speed, and what would lift it: each remedy with its gain, predicted again with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from provisioner.records import record
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import (
    MODEL_OFFLOAD,
    AudioDemand,
    Demand,
    DiffusionDemand,
    DiffusionTrainingDemand,
    ServingDemand,
    TrainingDemand,
)
from provisioner.sizing.estimate import estimate_footprint, estimate_throughput
from provisioner.sizing.layout import Layout
from provisioner.sizing.speed import ServingSpeed
from provisioner.sizing.step_time import MEMORY, STORAGE
from provisioner.sizing.step_work import NARROW_BITS, kernel_of, main_format
from provisioner.sizing.throughput import Throughput, main_rate
from provisioner.vocabulary import Fit, Interconnect, KvDtype, TrainingMethod, TrainingPrecision

LEAST_GAIN = 1.05
"""Remedies that gain less are not worth naming: predictions are no better."""
FASTER = 2.0
NVLINK_BYTES_PER_S = 600e9
"""NVLink of an A100, both directions, for GPUs that have none."""
WAITS_ON_DATA = 0.3
"""Share of waiting for data above which storage is what bounds a running job."""


@record(frozen=True, slots=True)
class Remedy:
    """One change and what the main rate becomes by it, as a factor."""

    name: str
    words: str
    gain: float
    costs: str | None = None
    """What the change takes away, in words."""


@record(frozen=True, slots=True)
class Measured:
    """What a running machine shows."""

    rate: float
    """The task's main rate: generated tokens/s of a copy, trained tokens/s, images/s."""
    data_wait_share: float | None = None
    """Share of the time that GPUs wait for data or checkpoints; ``None`` where it is not measured."""


@record(frozen=True, slots=True)
class Diagnosis:
    """What bounds a speed, the causes' shares of the time, and remedies by gain."""

    bound_by: str
    """``memory-bandwidth``, ``compute``, ``interconnect`` or ``storage``."""
    shares: tuple[tuple[str, float], ...]
    """Cause -> time that it takes as a share of a step; memory and compute overlap, so they may sum to more than 1."""
    remedies: tuple[Remedy, ...]
    of_predicted: float | None = None
    """Measured over predicted rate; ``None`` where nothing was measured."""
    reading: str | None = None
    """What a measured rate outside the predicted band says."""


@record(frozen=True, slots=True)
class _Setting:
    demand: Demand
    layout: Layout
    accelerator: Accelerator
    interconnect: Interconnect

    def predict(self) -> Throughput:
        return estimate_throughput(self.demand, self.layout, self.accelerator, self.interconnect)


Change = tuple[str, str, "_Setting", str | None]


def diagnose(
    demand: Demand,
    layout: Layout,
    accelerator: Accelerator,
    interconnect: Interconnect,
    *,
    measured: Measured | None = None,
) -> Diagnosis | None:
    """What bounds the speed of a layout and what would lift it; ``None`` where no speed is predicted.

    With ``measured`` values of a running machine the gains are of the measured time: a remedy saves the seconds that it saves in
    prediction, and what prediction does not account for stays.
    """
    setting = _Setting(demand, layout, accelerator, interconnect)
    throughput = setting.predict()
    rate = main_rate(throughput)
    if rate is None or throughput.bound_by is None:
        return None
    actual = measured.rate if measured is not None and measured.rate > 0 else rate
    remedies = []
    for name, words, changed, costs in _changes(setting):
        lifted = main_rate(changed.predict())
        if lifted is None:
            continue
        gain = lifted / rate if measured is None else _measured_gain(rate, lifted, actual)
        if gain >= LEAST_GAIN:
            remedies.append(Remedy(name, words, gain, costs))
    remedies.sort(key=lambda remedy: (-remedy.gain, remedy.name))
    return Diagnosis(
        bound_by=_bound_by(throughput.bound_by, measured),
        shares=_shares(setting, throughput),
        remedies=tuple(remedies),
        of_predicted=None if measured is None else actual / rate,
        reading=None if measured is None else _reading(throughput, actual, measured),
    )


def _measured_gain(predicted: float, lifted: float, actual: float) -> float:
    """Gain on a measured rate when prediction says from ``predicted`` to ``lifted``.

    A running job faster than predicted gains by the same factor; a slower one keeps the time that nothing explains.
    """
    if actual >= predicted:
        return lifted / predicted
    return (1 / actual) / (1 / actual - 1 / predicted + 1 / lifted)


def _bound_by(predicted: str, measured: Measured | None) -> str:
    waits = measured.data_wait_share if measured is not None else None
    return STORAGE if waits is not None and waits >= WAITS_ON_DATA else predicted


def _reading(throughput: Throughput, actual: float, measured: Measured) -> str | None:
    if measured.data_wait_share is not None and measured.data_wait_share >= WAITS_ON_DATA:
        return f"GPUs wait for data {measured.data_wait_share:.0%} of the time: faster storage or more loader processes first"
    if throughput.low is not None and actual < throughput.low:
        return (
            "below the predicted band: too few requests at once, a slow host, throttled clocks or a cold cache explain more than "
            "the GPU's own limits"
        )
    if throughput.high is not None and actual > throughput.high:
        return "above the predicted band: prefix caching, speculative decoding or shorter requests than assumed"
    return None


def _shares(setting: _Setting, throughput: Throughput) -> tuple[tuple[str, float], ...]:
    """Causes of a serving round by their time; of other work what bounds it alone."""
    demand = setting.demand
    if not isinstance(demand, ServingDemand):
        return ((throughput.bound_by or MEMORY, 1.0),)
    pace = ServingSpeed(demand, setting.layout, setting.accelerator, setting.interconnect).pace(demand.concurrency)
    if pace is None:
        return ()
    step, total = pace.step, pace.step.total_s
    causes = (
        (MEMORY, step.memory_s),
        ("compute", step.compute_s),
        ("interconnect", step.link_s),
        ("host", step.overhead_s),
    )
    return tuple((name, seconds / total) for name, seconds in causes)


def _changes(setting: _Setting) -> Iterator[Change]:
    yield from _hardware(setting)
    demand = setting.demand
    if isinstance(demand, ServingDemand):
        yield from _serving(setting, demand)
        yield from _layouts(setting, demand)
    elif isinstance(demand, TrainingDemand):
        yield from _training(setting, demand)
    elif isinstance(demand, DiffusionDemand):
        yield from _images(setting, demand)
    elif isinstance(demand, AudioDemand):
        larger = replace(demand, batch=2 * demand.batch)
        yield "larger-batch", f"pieces at once: {larger.batch}", replace(setting, demand=larger), "memory"
    else:
        yield from _image_training(setting, demand)


def _hardware(setting: _Setting) -> Iterator[Change]:
    card = setting.accelerator
    if card.memory_bandwidth_bytes_per_s is not None:
        faster = replace(card, memory_bandwidth_bytes_per_s=FASTER * card.memory_bandwidth_bytes_per_s)
        yield "faster-memory", "a GPU with twice the memory bandwidth", replace(setting, accelerator=faster), None
    quick = replace(card, flop_per_s={word: FASTER * rate for word, rate in card.flop_per_s.items()})
    yield "more-compute", "a GPU with twice the matrix rate", replace(setting, accelerator=quick), None
    if setting.layout.gpus_per_replica > 1 and setting.interconnect is not Interconnect.NVLINK:
        linked = replace(card, nvlink_bytes_per_s=card.nvlink_bytes_per_s or NVLINK_BYTES_PER_S)
        yield (
            "nvlink",
            "GPUs joined by NVLink",
            replace(setting, accelerator=linked, interconnect=Interconnect.NVLINK),
            None,
        )


def _serving(setting: _Setting, demand: ServingDemand) -> Iterator[Change]:
    word, bits = main_format(demand.model, demand.weights)
    kernel = kernel_of(word, bits)
    if kernel == "wide":
        yield from _quantised(setting, demand, "fp8")
    if bits >= NARROW_BITS:
        yield from _quantised(setting, demand, "int4-awq")
    if demand.kv_dtype is not KvDtype.FP8:
        narrow = replace(demand, kv_dtype=KvDtype.FP8)
        yield "fp8-kv-cache", "a cache in 8 bits", replace(setting, demand=narrow), "some accuracy on long contexts"
    larger = replace(demand, concurrency=2 * demand.concurrency)
    changed = replace(setting, demand=larger)
    if _fits(changed):
        slower = ServingSpeed(larger, setting.layout, setting.accelerator, setting.interconnect).pace(
            larger.concurrency
        )
        costs = None if slower is None else f"each request then gets {1 / slower.token_s:.3g} tokens/s"
        yield "larger-batch", f"requests at once: {larger.concurrency}", changed, costs


def _quantised(setting: _Setting, demand: ServingDemand, word: str) -> Iterator[Change]:
    narrow = replace(demand, weights=word)
    costs = "some accuracy"
    if word == "fp8" and "fp8" not in setting.accelerator.flop_per_s:
        costs = (
            f"some accuracy; {setting.accelerator.gpu} has no 8-bit floating-point units: memory is saved, not compute"
        )
    yield f"{word}-weights", f"weights as {word}", replace(setting, demand=narrow), costs


def _layouts(setting: _Setting, demand: ServingDemand) -> Iterator[Change]:
    tensor = setting.layout.tensor_parallel
    heads = demand.model.attention_heads
    if tensor > 1 and tensor % 2 == 0:
        fewer = replace(setting, layout=replace(setting.layout, tensor_parallel=tensor // 2))
        if tensor == 2:
            fewer = replace(fewer, interconnect=Interconnect.NONE)
        if _fits(fewer):
            yield (
                "fewer-gpus",
                f"{tensor // 2} GPUs a copy, and twice the copies",
                _Doubled.of(fewer),
                "slower requests",
            )
    if heads and all(count % (2 * tensor) == 0 for count in heads):
        more = replace(setting, layout=replace(setting.layout, tensor_parallel=2 * tensor))
        if tensor == 1:
            link = Interconnect.NVLINK if setting.accelerator.nvlink_bytes_per_s else Interconnect.PCIE
            more = replace(more, interconnect=link)
        yield "more-gpus", f"{2 * tensor} GPUs a copy", more, "twice the GPUs"


@record(frozen=True, slots=True)
class _Doubled(_Setting):
    """Two copies on the GPUs of one: their rates add up, each with half of the requests."""

    @classmethod
    def of(cls, setting: _Setting) -> _Doubled:
        demand = setting.demand
        if isinstance(demand, ServingDemand):
            demand = replace(demand, concurrency=max(1, demand.concurrency // 2))
        return cls(demand, setting.layout, setting.accelerator, setting.interconnect)

    def predict(self) -> Throughput:
        single = estimate_throughput(self.demand, self.layout, self.accelerator, self.interconnect)
        rate = single.decode_tokens_per_s_per_replica
        return replace(single, decode_tokens_per_s_per_replica=None if rate is None else 2 * rate)


def _training(setting: _Setting, demand: TrainingDemand) -> Iterator[Change]:
    if demand.precision is not TrainingPrecision.FP8 and "fp8" in setting.accelerator.flop_per_s:
        narrow = replace(demand, precision=TrainingPrecision.FP8)
        yield "fp8-training", "matrix products in 8 bits", replace(setting, demand=narrow), "care with scaling"
    if demand.gradient_checkpointing:
        kept = replace(demand, gradient_checkpointing=False)
        yield from _if_fits(setting, "no-recomputation", "activations kept instead of recomputed", kept, "memory")
    if demand.method is TrainingMethod.FULL:
        lora = replace(demand, method=TrainingMethod.LORA)
        yield "lora", "adapters instead of all weights", replace(setting, demand=lora), "what can be learned"
    if demand.method is TrainingMethod.QLORA:
        wide = replace(demand, method=TrainingMethod.LORA, weights="auto")
        yield from _if_fits(setting, "lora", "a base in 16 bits instead of packed", wide, "memory")
    larger = replace(demand, micro_batch=2 * demand.micro_batch)
    yield from _if_fits(setting, "larger-batch", f"micro-batch {larger.micro_batch}", larger, "memory")


def _images(setting: _Setting, demand: DiffusionDemand) -> Iterator[Change]:
    if demand.offload != "none":
        kept = replace(demand, offload="none")
        yield from _if_fits(setting, "no-offload", "all parts kept on the GPU", kept, "memory")
        if demand.offload != MODEL_OFFLOAD:
            whole = replace(demand, offload=MODEL_OFFLOAD)
            yield from _if_fits(setting, "model-offload", "whole parts moved instead of layers", whole, "memory")
    steps = demand.steps or demand.model.geometry.steps
    if steps and steps > 1:
        fewer = replace(demand, steps=steps // 2)
        yield "fewer-steps", f"{steps // 2} steps", replace(setting, demand=fewer), "detail"
    larger = replace(demand, batch=2 * demand.batch)
    yield from _if_fits(setting, "larger-batch", f"{larger.batch} at once", larger, "memory")


def _image_training(setting: _Setting, demand: DiffusionTrainingDemand) -> Iterator[Change]:
    if demand.keeps_frozen_parts:
        before = replace(demand, keeps_frozen_parts=False)
        yield "cached-latents", "latents and texts encoded beforehand", replace(setting, demand=before), "disk"
    if demand.gradient_checkpointing:
        kept = replace(demand, gradient_checkpointing=False)
        yield from _if_fits(setting, "no-recomputation", "activations kept instead of recomputed", kept, "memory")
    larger = replace(demand, micro_batch=2 * demand.micro_batch)
    yield from _if_fits(setting, "larger-batch", f"micro-batch {larger.micro_batch}", larger, "memory")


def _if_fits(setting: _Setting, name: str, words: str, demand: Demand, costs: str) -> Iterator[Change]:
    changed = replace(setting, demand=demand)
    if _fits(changed):
        yield name, words, changed, costs


def _fits(setting: _Setting) -> bool:
    footprint = estimate_footprint(setting.demand, setting.layout, setting.accelerator)
    return footprint.fit is Fit.FITS
