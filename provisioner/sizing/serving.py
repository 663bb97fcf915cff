"""Footprint of one serving copy of a language model on its fullest GPU, and the cache pool that an engine would take."""

from __future__ import annotations

from provisioner.errors import UsageError
from provisioner.records import record
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import ServingDemand
from provisioner.sizing.engines import EngineProfile, find_profile, version_key
from provisioner.sizing.footprint import Assumption, Footprint, MemoryTerms
from provisioner.sizing.kv_cache import stack_cache_bytes, window_chunk_bytes
from provisioner.sizing.layout import Layout
from provisioner.sizing.serving_activations import Batch, activation_bytes
from provisioner.sizing.shapes import ModelShape
from provisioner.sizing.weights import (
    ShapeBytes,
    draft_bytes,
    resolve_formats,
    shape_bytes,
    stage_counts,
    stage_weight_bytes,
    weights_basis,
)
from provisioner.vocabulary import Engine, KvDtype, WeightFormat

WEIGHT_ERROR = 0.01
CACHE_ERROR = 0.02
"""Relative error of weights and cache: loaded sizes and pools of public logs against the arithmetic."""
UNKNOWN_ERROR = 0.04
"""Further relative error where the engine version has no profile of its own."""
CONTEXT_BYTES = 500 * 2**20
"""CUDA context and kernels outside an engine's own count (0.5 to 0.9 GiB on A100 and H100 in public logs)."""


@record(frozen=True, slots=True)
class Setting:
    """A demand with its engine profile, layout and GPU: everything that a rank's bytes depend on."""

    demand: ServingDemand
    layout: Layout
    accelerator: Accelerator
    profile: EngineProfile
    is_exact: bool
    """The profile is of the version that was asked for."""
    fraction: float

    @property
    def batch(self) -> Batch:
        """The largest batch of the engine's start-up run, or of the request itself."""
        demand, memory = self.demand, self.accelerator.memory_usable_bytes
        prompt = max(1, demand.context_tokens - demand.output_tokens)
        return Batch(
            tokens=demand.max_batched_tokens or self.profile.default_tokens(memory, demand.context_tokens),
            sequences=demand.max_sequences or self.profile.default_seqs(memory),
            prompt_tokens=demand.concurrency * prompt,
            cached_tokens=demand.concurrency * demand.context_tokens,
        )


@record(frozen=True, slots=True)
class StageTerms:
    """Bytes of one pipeline stage on one rank; ``reserve`` is what an engine keeps of the free memory for nothing."""

    weights: float
    cache: float
    activation: float
    non_torch: float
    graphs: float
    reserve: float = 0.0

    @property
    def overhead(self) -> float:
        """Everything that is neither model nor working memory."""
        return self.non_torch + self.graphs + self.reserve

    @property
    def total(self) -> float:
        """Sum of the terms."""
        return self.weights + self.cache + self.activation + self.overhead


def setting_of(demand: ServingDemand, layout: Layout, accelerator: Accelerator) -> Setting:
    """The setting of a demand.

    Raises:
        UsageError: impossible lengths, or an engine that serves no language models.
    """
    if demand.context_tokens < 1 or demand.concurrency < 1:
        raise UsageError("context_tokens and concurrency must be 1 or more")
    profile, is_exact = find_profile(demand.engine.value, demand.engine_version, accelerator.compute_capability)
    fraction = demand.gpu_memory_fraction or profile.fraction_default
    return Setting(demand, layout, accelerator, profile, is_exact, fraction)


def serving_footprint(demand: ServingDemand, layout: Layout, accelerator: Accelerator) -> Footprint:
    """Bytes of the fullest rank of one serving copy.

    Raises:
        UsageError: the engine serves no language models, or the weight format is not known.
    """
    setting = setting_of(demand, layout, accelerator)
    fullest = max(stage_terms(setting), key=lambda stage: stage.total)
    total = max(_counted_total(fullest, setting), loading_bytes(setting))
    error = WEIGHT_ERROR * fullest.weights + CACHE_ERROR * fullest.cache + setting.profile.error_bytes
    error += 0.0 if setting.is_exact else UNKNOWN_ERROR * total
    fraction = 1.0 if setting.profile.fraction_of == "free" else setting.fraction
    allocated = round(fullest.weights + fullest.cache + fullest.activation)
    activation, overhead = _shown(fullest, total)
    return Footprint(
        per_gpu=MemoryTerms(
            weights_bytes=round(fullest.weights),
            kv_cache_bytes=round(fullest.cache),
            activation_bytes=round(activation),
            gradient_bytes=None,
            optimizer_bytes=None,
            overhead_bytes=round(overhead),
            total_bytes=round(total),
            low_bytes=min(round(total), max(round(total - error), round(fullest.weights + fullest.cache))),
            high_bytes=round(total + error),
        ),
        usable_bytes=round(accelerator.memory_usable_bytes * fraction),
        allocated_bytes=allocated,
        reserved_bytes=allocated,
        device_bytes=round(max(total, fullest.total)),
        assumptions=_assumptions(setting),
    )


def stage_terms(setting: Setting) -> tuple[StageTerms, ...]:
    """Bytes of every pipeline stage on one rank."""
    demand, layout = setting.demand, setting.layout
    rank = shape_bytes(
        demand.model, demand.weights, layout.tensor_parallel, keeps_fp32=demand.engine is Engine.TRANSFORMERS
    )
    counts = stage_counts(demand.model, layout.pipeline_parallel)
    return tuple(_stage(setting, rank, stage, stage_count) for stage, stage_count in enumerate(counts))


def _stage(setting: Setting, rank: ShapeBytes, stage: int, counts: tuple[int, ...]) -> StageTerms:
    demand, layout, profile = setting.demand, setting.layout, setting.profile
    tensor, stages, model = layout.tensor_parallel, layout.pipeline_parallel, demand.model
    is_last = stage == stages - 1
    weights = stage_weight_bytes(rank, counts, stage, stages, layout.data_parallel) + _extra_weights(
        setting, is_last=is_last
    )
    if demand.adapters:
        from provisioner.sizing.serving_extras import adapter_bytes

        weights += adapter_bytes(demand, counts, tensor, has_embedding=stage == 0, has_head=is_last)
    if demand.engine is Engine.LLAMA_CPP and stage == 0 and not model.tied_embeddings:
        # The token embedding stays in host memory.
        weights -= rank.embedding
    width = kv_bytes_per_element(demand)
    cache = demand.concurrency * stack_cache_bytes(
        model, counts, demand.context_tokens, width, tensor, _cross_tokens(demand)
    )
    batch = setting.batch
    beyond = window_chunk_bytes(
        model, counts, tokens=demand.context_tokens, chunk=batch.tokens, bytes_per_element=width, tensor=tensor
    )
    if demand.engine is Engine.LLAMA_CPP:
        # Every sequence's windowed layers hold a micro-batch beyond the window (512 + 512 cells for Gemma-4 E4B).
        cache += demand.concurrency * beyond
    activation: float = activation_bytes(model, profile, batch, tensor=tensor, has_head=is_last)
    if stage == 0 and demand.images:
        from provisioner.sizing.serving_extras import with_images

        activation = with_images(demand, activation, batch.tokens)
    if profile.fraction_of == "total":
        activation += beyond
    return StageTerms(
        weights=weights,
        cache=cache,
        activation=activation,
        non_torch=profile.non_torch(tensor, stages) + _request_table(demand),
        graphs=_graph_bytes(setting),
        reserve=cache * (1 / setting.fraction - 1) if profile.fraction_of == "free" else 0.0,
    )


def _cross_tokens(demand: ServingDemand) -> int | None:
    """Positions that cross-attention keeps of the images of a request; ``None`` where the spec says nothing of images."""
    if demand.images is None:
        return None
    from provisioner.sizing.serving_extras import cross_tokens

    return cross_tokens(demand)


def _extra_weights(setting: Setting, *, is_last: bool) -> float:
    """Draft layers, and padding of repacked formats, on one rank."""
    demand, tensor = setting.demand, setting.layout.tensor_parallel
    model = demand.model
    formats = resolve_formats(model, demand.weights)
    extra = 0.0
    if demand.uses_draft and is_last:
        extra += draft_bytes(model, demand.weights, tensor)
    if model.is_moe and formats.of("expert") == PADDED_BITS:
        extra += _padding_bytes(model, tensor) / setting.layout.pipeline_parallel
    return extra


SGLANG_REQUESTS = 2048
"""Least rows of SGLang's table of token positions, each as long as the context (4 B an entry)."""


def _request_table(demand: ServingDemand) -> int:
    """SGLang's table of request positions: 80 GiB at the 10M-token limit of Llama-4-Scout (sgl-project/sglang#5755)."""
    return SGLANG_REQUESTS * demand.context_tokens * 4 if demand.engine is Engine.SGLANG else 0


PADDED_BITS = 4.25
"""Bits of MXFP4, the format whose kernels pad expert widths."""
PADDED_WIDTH = 256
"""gpt-oss-120b (width 2880) loads 64.4 GiB where 60.8 are stored: padded to 3072, a multiple of this."""


def _padding_bytes(model: ModelShape, tensor: int) -> float:
    """Bytes that padding of expert widths adds on one rank."""
    extra = 0.0
    for count, kind in zip(model.counts, model.kinds, strict=True):
        width = max((m.inputs for m in kind.mlp.expert_matrices if m.name == "down_proj"), default=0)
        if width:
            padded = -(-width // PADDED_WIDTH) * PADDED_WIDTH
            extra += count * kind.mlp.experts * kind.mlp.expert_params * (padded / width - 1)
    return extra * PADDED_BITS / 8 / tensor


LAST_WHOLE_LOADING = version_key("0.13")
"""vLLM held a whole 16-bit model on the GPU before it narrowed it, up to this release (vllm-project/vllm#31914); later ones
narrow layer by layer, and the peak is that of running."""


def loads_wide(demand: ServingDemand) -> bool:
    """Whether the 16-bit weights stand on the GPU as a whole before they are narrowed."""
    version = demand.engine_version
    is_old = version is not None and version_key(version) <= LAST_WHOLE_LOADING
    return demand.quantises_on_load and demand.engine is Engine.VLLM and is_old


def loading_bytes(setting: Setting) -> float:
    """Bytes of the fullest rank while a checkpoint is narrowed on the GPU, 0 where that is no peak of its own."""
    demand, layout = setting.demand, setting.layout
    if not loads_wide(demand):
        return 0.0
    stages = layout.pipeline_parallel
    rank = shape_bytes(demand.model, "auto", layout.tensor_parallel)
    weights = (
        stage_weight_bytes(rank, counts, stage, stages, layout.data_parallel)
        for stage, counts in enumerate(stage_counts(demand.model, stages))
    )
    return max(weights) + setting.profile.non_torch(layout.tensor_parallel, stages)


def _graph_bytes(setting: Setting) -> float:
    """Graph memory that counts: inside the budget, or what does not fit beside it."""
    profile = setting.profile
    if not setting.demand.uses_graphs:
        return 0.0
    if profile.graphs_inside_fraction:
        return float(profile.graph_bytes)
    if profile.fraction_of == "total":
        outside = (1 - setting.fraction) * setting.accelerator.memory_usable_bytes
        return max(0.0, profile.graph_bytes + CONTEXT_BYTES - outside)
    return 0.0


def _counted_total(stage: StageTerms, setting: Setting) -> float:
    """The need that the engine's fraction is compared with."""
    if setting.profile.fraction_of != "static":
        return stage.total
    outside = (1 - setting.fraction) * setting.accelerator.memory_usable_bytes
    beside = stage.activation + stage.overhead + setting.profile.graph_bytes
    return stage.weights + stage.cache + max(0.0, beside - outside)


SHOWN_SHARE = 1.3
"""Most that named parts may add up to against the need."""


def _shown(stage: StageTerms, total: float) -> tuple[float, float]:
    """Activation and overhead as they are named: an engine that keeps memory aside for them counts little or none of it."""
    room = max(0.0, SHOWN_SHARE * total - stage.weights - stage.cache)
    activation = min(stage.activation, room)
    return activation, min(stage.overhead, room - activation)


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


@record(frozen=True, slots=True)
class CachePool:
    """What an engine would set aside for its cache, and how many requests of the demand's length it holds.

    The stage with least room rules; engines print the first rank's pool (``first_rank_bytes``). Bytes are negative where
    weights and working memory already exceed the budget.
    """

    first_rank_bytes: float
    smallest_bytes: float
    tokens: int
    requests: float


def cache_pool(demand: ServingDemand, layout: Layout, accelerator: Accelerator) -> CachePool:
    """The pool an engine would take: its share of memory minus weights, working memory and overhead.

    Raises:
        UsageError: the engine serves no language models, or the weight format is not known.
    """
    setting = setting_of(demand, layout, accelerator)
    stages = stage_terms(setting)
    pools = [_pool_bytes(setting, stage) for stage in stages]
    requests = min(
        max(0.0, free / stage.cache * demand.concurrency) if stage.cache else float("inf")
        for free, stage in zip(pools, stages, strict=True)
    )
    tokens = int(min(requests, MAX_REQUESTS) * demand.context_tokens)
    return CachePool(pools[0], min(pools), tokens, requests)


MAX_REQUESTS = 1e9
"""Bound of the request count of a model without a cache."""


def _pool_bytes(setting: Setting, stage: StageTerms) -> float:
    """Pool on one rank of a stage."""
    memory, kind = setting.accelerator.memory_usable_bytes, setting.profile.fraction_of
    if kind == "static":
        return memory * setting.fraction - stage.weights
    free = memory - stage.weights - stage.activation - stage.non_torch - stage.graphs
    return free * setting.fraction if kind == "free" else free - (1 - setting.fraction) * memory


def _extra_assumptions(demand: ServingDemand) -> tuple[Assumption, ...]:
    if not demand.adapters and not demand.images:
        return ()
    from provisioner.sizing.serving_extras import extra_assumptions

    return extra_assumptions(demand)


WIDE_LOADING = Assumption(
    "loading", "the whole 16-bit model is on the GPU before it is narrowed", "vllm-project/vllm#31914, fixed after 0.13"
)


def _assumptions(setting: Setting) -> tuple[Assumption, ...]:
    demand, profile, accelerator = setting.demand, setting.profile, setting.accelerator
    formats = resolve_formats(demand.model, demand.weights)
    version = demand.engine_version or profile.version
    stated = "" if setting.is_exact else f" (nearest profile to {version})"
    return (
        Assumption("engine profile", f"{profile.engine}@{profile.version}{stated}", profile.source),
        Assumption("memory fraction", f"{setting.fraction:g} of {profile.fraction_of}", profile.source),
        Assumption("usable memory", f"{accelerator.memory_usable_bytes} B", accelerator.memory_usable_basis),
        Assumption("weights", formats.word, weights_basis(demand.model, demand.weights)),
        Assumption("kv cache", f"{kv_bytes_per_element(demand):g} B per element", "engine default or the spec"),
        *_extra_assumptions(demand),
        *((WIDE_LOADING,) if loads_wide(demand) else ()),
    )
