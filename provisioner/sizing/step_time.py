"""Time of one decoding step and of a prompt: the slower of memory and matrix units, with overheads and collectives."""

from __future__ import annotations

from functools import cached_property, lru_cache

from provisioner.records import record
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.kv_cache import stack_cache_bytes
from provisioner.sizing.shapes import ModelShape, TokenCache
from provisioner.sizing.speed_profile import EngineSpeed, SpeedProfile
from provisioner.sizing.weights import resolve_formats, shape_bytes
from provisioner.vocabulary import Interconnect

COLLECTIVES_PER_LAYER = 2
MEMORY, COMPUTE, LINK = "memory-bandwidth", "compute", "interconnect"
NVLINK_DIRECTIONS = 2
"""NVLink bandwidth is stated as the sum of both directions."""
PCIE_BYTES_PER_S = 25e9
"""One direction of PCIe 4.0 x16 as measured, where the catalog does not say."""
CHUNK_TOKENS = 512
"""Tokens of a prompt that pass a pipeline of layers at once (llama.cpp micro-batch)."""
NARROW_BITS = 5.0


@record(frozen=True, slots=True)
class StepTime:
    """Seconds of one step by cause; ``memory_s`` and ``compute_s`` overlap, the rest adds."""

    memory_s: float
    compute_s: float
    link_s: float
    overhead_s: float

    @property
    def total_s(self) -> float:
        """Time of the step."""
        return max(self.memory_s, self.compute_s) + self.link_s + self.overhead_s

    @property
    def bound_by(self) -> str:
        """The largest cause among memory, compute and links."""
        causes = ((self.memory_s, MEMORY), (self.compute_s, COMPUTE), (self.link_s, LINK))
        return max(causes)[1]


@record(frozen=True)
class Machine:
    """The GPUs of one copy as an engine uses them.

    ``expert_ranks`` is above 1 where ranks with whole attention share the experts (attention data parallelism).
    """

    accelerator: Accelerator
    profile: SpeedProfile
    engine: str
    tensor: int
    stages: int
    interconnect: Interconnect
    expert_ranks: int = 1

    @cached_property
    def speed(self) -> EngineSpeed | None:
        """The engine's overheads, ``None`` where it has none on file."""
        return self.profile.engines.get(self.engine)

    @cached_property
    def rates(self) -> tuple[tuple[str, float], ...]:
        """Matrix rates as a hashable key."""
        return tuple(sorted(self.accelerator.flop_per_s.items()))


@lru_cache(maxsize=1024)
def matrix_rate(rates: tuple[tuple[str, float], ...], word: str, weight_bits: float) -> float | None:
    """Dense operations per second for weights of a format.

    Eight and four bits only where the format computes in them and the hardware has such units; weight-only formats (AWQ, GPTQ,
    nf4, GGUF) are widened before the product and run at the 16-bit rate.
    """
    known = dict(rates)
    wide = known.get("bf16") or known.get("fp16")
    if wide is not None:
        # Pascal cards multiply faster in fp32 than in their fp16.
        wide = max(wide, known.get("fp32", 0.0))
    if wide is None or word.startswith(("gguf", "int4", "nf4", "awq", "gptq", "bitsandbytes", "fp6")):
        return wide
    if weight_bits <= NARROW_BITS:
        return known.get("fp4") or known.get("fp8") or wide
    if weight_bits <= 8.6:
        return known.get("int8" if word.startswith("int8") else "fp8") or wide
    return known.get("fp32") or wide if weight_bits > 16 else wide


@lru_cache(maxsize=1024)
def main_format(model: ModelShape, word: str) -> tuple[str, float]:
    """Name and bits of the matrices that most operations go through."""
    formats = resolve_formats(model, word)
    return formats.word, formats.of("expert") if model.is_moe else formats.of("mlp")


def experts_touched(experts: int, per_token: int, tokens: int) -> float:
    """Experts that a batch of tokens reads, routed independently: E x (1 - (1 - k / E)^tokens)."""
    if not experts:
        return 0.0
    return experts * (1 - (1 - per_token / experts) ** tokens)


def touched_weight_bytes(model: ModelShape, word: str, tensor: int, tokens: int, expert_ranks: int = 1) -> float:
    """Bytes of weights on one rank that a step over so many tokens reads: the head once, the embedding not at all."""
    rank = shape_bytes(model, word, tensor)
    total = rank.head if model.head_params else rank.embedding
    for count, kind, size in zip(model.counts, model.kinds, rank.kinds, strict=True):
        share = 1.0
        if kind.mlp.experts:
            touched = experts_touched(kind.mlp.experts, kind.mlp.experts_per_token, tokens * expert_ranks)
            share = touched / kind.mlp.experts / expert_ranks
        total += count * (size.dense + share * size.experts)
    return total


def all_reduce_s(size_bytes: float, machine: Machine) -> float:
    """Seconds of one all-reduce over the tensor-parallel ranks."""
    ranks = max(machine.tensor, machine.expert_ranks)
    if ranks == 1:
        return 0.0
    is_nvlink = machine.interconnect is Interconnect.NVLINK and machine.accelerator.nvlink_bytes_per_s > 0
    link = machine.profile.links["nvlink" if is_nvlink else "pcie"]
    one_way = machine.accelerator.pcie_bytes_per_s or PCIE_BYTES_PER_S
    if is_nvlink:
        one_way = machine.accelerator.nvlink_bytes_per_s / NVLINK_DIRECTIONS
    latency = link.latency_s + (ranks - 2) * link.latency_per_gpu_s
    share = link.share / (ranks / 2) ** link.contention
    wire_bytes = 2 * (ranks - 1) / ranks * size_bytes
    return float(latency + wire_bytes / (one_way * share))


def decode_step(
    model: ModelShape, word: str, machine: Machine, *, batch: int, context: int, kv_width: float
) -> StepTime | None:
    """Time of one step of so many sequences at an average context; ``None`` where a rate of the GPU is unknown."""
    peak, speed = machine.accelerator.memory_bandwidth_bytes_per_s, machine.speed
    name, bits = main_format(model, word)
    rate = matrix_rate(machine.rates, name, bits)
    if peak is None or rate is None or speed is None:
        return None
    weights = touched_weight_bytes(model, word, machine.tensor, batch, machine.expert_ranks)
    cache = batch * stack_cache_bytes(model, model.counts, context, kv_width, machine.tensor)
    share = speed.memory_share(machine.accelerator.memory_class) * (speed.narrow if bits <= NARROW_BITS else 1.0)
    # A pipeline's stages work on different sequences at once; each still reads its own weights once a round.
    overlap = min(machine.stages, batch)
    memory = weights / (peak * share) + cache / (overlap * peak * speed.kv)
    compute = 2 * model.params_active * batch / (overlap * machine.tensor * rate * speed.batch_share)
    link = COLLECTIVES_PER_LAYER * model.num_layers * all_reduce_s(batch * model.hidden_size * 2.0, machine)
    return StepTime(memory, compute, link, overhead_s(model, speed) + batch * speed.sequence_s)


@lru_cache(maxsize=1024)
def _expert_layers(model: ModelShape) -> int:
    return sum(count for count, kind in zip(model.counts, model.kinds, strict=True) if kind.mlp.experts)


def overhead_s(model: ModelShape, speed: EngineSpeed) -> float:
    """Time of a step that neither memory nor matrix units account for."""
    return speed.step_s + model.num_layers * speed.layer_s + _expert_layers(model) * speed.expert_layer_s


def prefill_time(model: ModelShape, word: str, machine: Machine, *, tokens: int, prompt: int) -> StepTime | None:
    """Time of processing ``tokens`` of prompts, each ``prompt`` long; ``None`` where a rate of the GPU is unknown."""
    peak, speed = machine.accelerator.memory_bandwidth_bytes_per_s, machine.speed
    name, bits = main_format(model, word)
    rate, wide = matrix_rate(machine.rates, name, bits), matrix_rate(machine.rates, "bf16", 16.0)
    if peak is None or rate is None or wide is None or speed is None:
        return None
    products = 2 * (model.params_active - model.embedding_params - model.tower_params) * tokens / rate
    compute = (products + attention_operations(model, prompt) * tokens / wide) / (machine.tensor * speed.prefill_share)
    chunks = max(1.0, tokens / CHUNK_TOKENS)
    compute *= (chunks + machine.stages - 1) / chunks / machine.stages
    weights = touched_weight_bytes(model, word, machine.tensor, tokens, machine.expert_ranks)
    memory = weights / (peak * speed.memory_share(machine.accelerator.memory_class))
    link = COLLECTIVES_PER_LAYER * model.num_layers * all_reduce_s(tokens * model.hidden_size * 2.0, machine)
    return StepTime(memory, compute, link, overhead_s(model, speed))


@lru_cache(maxsize=4096)
def attention_operations(model: ModelShape, prompt: int) -> float:
    """Operations of attention scores and sums per prompt token, causal, windows respected."""
    total = 0.0
    for count, kind in zip(model.counts, model.kinds, strict=True):
        mixer = kind.mixer
        if mixer.kind not in ("full", "window", "latent", "compressed"):
            continue
        windows = [cache.window for cache in mixer.caches if isinstance(cache, TokenCache) and cache.window]
        seen = min(prompt / 2, windows[0]) if windows and mixer.kind == "window" else prompt / 2
        total += count * 2.0 * mixer.heads * (mixer.head_dim + mixer.value_dim) * seen
    return total
