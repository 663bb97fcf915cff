"""Footprint of one serving copy of a language model on its fullest GPU."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.errors import UsageError
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import ServingDemand
from provisioner.sizing.engines import EngineProfile, find_profile
from provisioner.sizing.footprint import Assumption, Footprint, MemoryTerms
from provisioner.sizing.kv_cache import stack_cache_bytes, window_chunk_bytes
from provisioner.sizing.layout import Layout
from provisioner.sizing.serving_activations import activation_bytes
from provisioner.sizing.weights import ShapeBytes, resolve_formats, shape_bytes, stage_counts, stage_weight_bytes
from provisioner.vocabulary import Engine, KvDtype, WeightFormat

WEIGHT_ERROR = 0.01
CACHE_ERROR = 0.02
"""Relative error of weights and cache: loaded sizes and pools of public logs against the arithmetic."""
UNKNOWN_ERROR = 0.04
"""Further relative error where the engine version has no profile of its own."""
CONTEXT_BYTES = 500 * 2**20
"""CUDA context and kernels outside an engine's own count (0.5 to 0.9 GiB on A100 and H100 in public logs)."""
LOAD_PADDING = {"mxfp4": 0.06}
"""Kernels that repack weights to a larger size: gpt-oss loads 64.4 to 66.0 where the checkpoint has 60.8."""
LLAMA_CPP_HOST_PARTS_NOTE = "token embedding in host memory"


@dataclass(frozen=True, slots=True)
class StageTerms:
    """Bytes of one pipeline stage on one rank."""

    weights: float
    cache: float
    activation: float
    overhead: float

    @property
    def total(self) -> float:
        """Sum of the terms."""
        return self.weights + self.cache + self.activation + self.overhead


def serving_footprint(demand: ServingDemand, layout: Layout, accelerator: Accelerator) -> Footprint:
    """Bytes of the fullest rank of one serving copy.

    Raises:
        UsageError: the engine serves no language models, or the format is not known or not supported by the GPU.
    """
    _check(demand)
    profile, is_exact = find_profile(demand.engine.value, demand.engine_version)
    fraction = demand.gpu_memory_fraction or profile.fraction_default
    stages = layout.pipeline_parallel
    rank = shape_bytes(
        demand.model, demand.weights, layout.tensor_parallel, keeps_fp32=demand.engine is Engine.TRANSFORMERS
    )
    per_stage = [
        _stage(demand, profile, rank, layout, stage, counts, accelerator, fraction)
        for stage, counts in enumerate(stage_counts(demand.model, stages))
    ]
    fullest = max(per_stage, key=lambda stage: stage.total)
    usable = round(accelerator.memory_usable_bytes * (1.0 if profile.fraction_of == "free" else fraction))
    total = _counted_total(fullest, profile, accelerator, fraction)
    error = WEIGHT_ERROR * fullest.weights + CACHE_ERROR * fullest.cache
    error += profile.error_bytes + (0.0 if is_exact else UNKNOWN_ERROR * total)
    terms = MemoryTerms(
        weights_bytes=round(fullest.weights),
        kv_cache_bytes=round(fullest.cache),
        activation_bytes=round(fullest.activation),
        gradient_bytes=None,
        optimizer_bytes=None,
        overhead_bytes=round(fullest.overhead),
        total_bytes=round(total),
        low_bytes=round(max(fullest.weights + fullest.cache, total - error) if total > error else 0),
        high_bytes=round(total + error),
    )
    allocated = round(fullest.weights + fullest.cache + fullest.activation)
    return Footprint(
        per_gpu=terms,
        usable_bytes=usable,
        allocated_bytes=allocated,
        reserved_bytes=allocated,
        device_bytes=round(max(total, fullest.total)),
        assumptions=_assumptions(demand, profile, is_exact=is_exact, fraction=fraction, accelerator=accelerator),
    )


def _check(demand: ServingDemand) -> None:
    if demand.context_tokens < 1 or demand.concurrency < 1:
        raise UsageError("context_tokens and concurrency must be 1 or more")


def _stage(
    demand: ServingDemand,
    profile: EngineProfile,
    rank: ShapeBytes,
    layout: Layout,
    stage: int,
    counts: tuple[int, ...],
    accelerator: Accelerator,
    fraction: float,
) -> StageTerms:
    tensor, stages = layout.tensor_parallel, layout.pipeline_parallel
    model = demand.model
    weights = stage_weight_bytes(rank, counts, stage, stages)
    if demand.engine is Engine.LLAMA_CPP and stage == 0:
        weights -= 0.0 if model.tied_embeddings else rank.embedding
    width = kv_bytes_per_element(demand)
    cache = demand.concurrency * stack_cache_bytes(model, counts, demand.context_tokens, width, tensor)
    memory = accelerator.memory_usable_bytes
    activation: float = activation_bytes(
        model,
        profile,
        memory_bytes=memory,
        context_tokens=demand.context_tokens,
        concurrency=demand.concurrency,
        prompt_tokens=demand.concurrency
        * min(demand.context_tokens, max(1, demand.context_tokens - demand.output_tokens)),
        tensor=tensor,
        has_head=stage == stages - 1,
    )
    if profile.fraction_of == "total":
        chunk = profile.default_tokens(memory, 0)
        activation += window_chunk_bytes(model, counts, demand.context_tokens, chunk, width, tensor)
    overhead: float = profile.non_torch(tensor, stages)
    if profile.graphs_inside_fraction:
        overhead += profile.graph_bytes
    elif profile.fraction_of == "total":
        overhead += max(0.0, profile.graph_bytes + CONTEXT_BYTES - (1 - fraction) * memory)
    if profile.fraction_of == "free":
        overhead += cache * (1 / fraction - 1)
    return StageTerms(weights, cache, activation, overhead)


def _counted_total(stage: StageTerms, profile: EngineProfile, accelerator: Accelerator, fraction: float) -> float:
    """The need that the engine's fraction is compared with."""
    if profile.fraction_of != "static":
        return stage.total
    outside = (1 - fraction) * accelerator.memory_usable_bytes
    beside = stage.activation + stage.overhead + profile.graph_bytes
    return stage.weights + stage.cache + max(0.0, beside - outside)


def kv_bytes_per_element(demand: ServingDemand) -> float:
    """Width of cached keys and values; ``auto`` is FP8 only where the checkpoint asks for it."""
    kind = demand.kv_dtype
    if kind is KvDtype.AUTO:
        quantisation = demand.model.quantisation
        asks = quantisation is not None and quantisation.kv_dtype == "fp8" and demand.weights == WeightFormat.AUTO
        kind = KvDtype.FP8 if asks and demand.engine is not Engine.TRANSFORMERS else KvDtype.BF16
    if kind is KvDtype.FP8:
        # llama.cpp's eight-bit cache carries one fp16 scale per 32 values.
        return 8.5 / 8 if demand.engine is Engine.LLAMA_CPP else 1.0
    return 2.0


def _assumptions(
    demand: ServingDemand, profile: EngineProfile, *, is_exact: bool, fraction: float, accelerator: Accelerator
) -> tuple[Assumption, ...]:
    formats = resolve_formats(demand.model, demand.weights)
    version = demand.engine_version or profile.version
    stated = "" if is_exact else f" (nearest profile to {version})"
    return (
        Assumption("engine profile", f"{profile.engine}@{profile.version}{stated}", profile.source),
        Assumption("memory fraction", f"{fraction:g} of {profile.fraction_of}", profile.source),
        Assumption("usable memory", f"{accelerator.memory_usable_bytes} B", accelerator.memory_usable_basis),
        Assumption("weights", formats.word, f"{demand.model.id} config; quantised parts by format, the rest wide"),
        Assumption("kv cache", f"{kv_bytes_per_element(demand):g} B per element", "engine default or the spec"),
    )
