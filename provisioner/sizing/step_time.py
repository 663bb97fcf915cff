"""Time of one pass of an engine: the slower of memory and matrix units, with overheads and collectives."""

from __future__ import annotations

from functools import cached_property, lru_cache

from provisioner.records import record
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.shapes import ModelShape
from provisioner.sizing.speed_profile import EngineSpeed, SpeedProfile, family_of
from provisioner.sizing.step_work import Split, StepWork, round_work
from provisioner.vocabulary import Interconnect

MEMORY, COMPUTE, LINK, STORAGE = "memory-bandwidth", "compute", "interconnect", "storage"
NVLINK_DIRECTIONS = 2
"""NVLink bandwidth is stated as the sum of both directions."""
PCIE_BYTES_PER_S = 25e9
"""One direction of PCIe 4.0 x16 as measured, where the catalog does not say."""
RIDGE_POWER = 3.0
"""Where reading and multiplying take alike, neither hides the other wholly: (memory^3 + compute^3)^(1/3)."""


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
        larger, smaller = max(self.memory_s, self.compute_s), min(self.memory_s, self.compute_s)
        body = larger * (1 + (smaller / larger) ** RIDGE_POWER) ** (1 / RIDGE_POWER) if larger else 0.0
        return float(body + self.link_s + self.overhead_s)

    @property
    def bound_by(self) -> str:
        """The largest cause among memory, compute and links."""
        causes = ((self.memory_s, MEMORY), (self.compute_s, COMPUTE), (self.link_s, LINK))
        return max(causes)[1]


def mean_step(without: StepTime, with_prompts: StepTime, share: float) -> StepTime:
    """Mean of rounds of which a share reads prompts; causes and total are means, each round keeping its own overlap."""
    total = without.total_s + share * (with_prompts.total_s - without.total_s)
    memory = without.memory_s + share * (with_prompts.memory_s - without.memory_s)
    compute = without.compute_s + share * (with_prompts.compute_s - without.compute_s)
    link = without.link_s + share * (with_prompts.link_s - without.link_s)
    mixed = StepTime(memory, compute, link, 0.0)
    return StepTime(memory, compute, link, max(0.0, total - mixed.total_s))


@record(frozen=True)
class Machine:
    """The GPUs of one copy as an engine uses them."""

    accelerator: Accelerator
    profile: SpeedProfile
    engine: str
    interconnect: Interconnect

    @cached_property
    def speed(self) -> EngineSpeed | None:
        """The engine's constants, ``None`` where it has none on file."""
        return self.profile.engines.get(self.engine)

    @cached_property
    def rates(self) -> tuple[tuple[str, float], ...]:
        """Matrix rates as a hashable key."""
        return tuple(sorted(self.accelerator.flop_per_s.items()))

    @cached_property
    def family(self) -> str:
        """GPU family, which efficiencies are kept by."""
        return family_of(self.accelerator.compute_capability)

    @cached_property
    def unknown(self) -> str | None:
        """Why no speed can be predicted here, ``None`` where it can."""
        if self.speed is None:
            return f"no measured speeds of the engine {self.engine} are on file"
        if self.accelerator.memory_bandwidth_bytes_per_s is None:
            return f"the memory bandwidth of {self.accelerator.gpu} is not known"
        if matrix_rate(self.rates, "wide") is None:
            return f"the 16-bit matrix rate of {self.accelerator.gpu} is not known"
        return None


@lru_cache(maxsize=1024)
def matrix_rate(rates: tuple[tuple[str, float], ...], unit: str, *, fast: bool = False) -> float | None:
    """Dense operations per second of matrix units: 8 and 4 bits only where the hardware has such units, else the 16-bit rate.

    ``fast`` accumulates in 16 bit: half the 8-bit integer rate, on GeForce cards twice the stated 16-bit one.
    """
    known = dict(rates)
    wide = known.get("bf16") or known.get("fp16")
    if wide is None:
        return None
    # Pascal cards multiply faster in fp32 than in their fp16.
    wide = max(wide, known.get("fp32", 0.0))
    if unit == "wide":
        return max(wide, known.get("int8", 0.0) / 2) if fast else wide
    if unit == "fp4":
        return known.get("fp4") or known.get("fp8") or wide
    return known.get(unit) or wide


def link_rate(accelerator: Accelerator, interconnect: Interconnect) -> tuple[str, float]:
    """Name of the link's constants and its bytes per second in one direction."""
    if interconnect is Interconnect.NVLINK and accelerator.nvlink_bytes_per_s > 0:
        return "nvlink", accelerator.nvlink_bytes_per_s / NVLINK_DIRECTIONS
    return "pcie", accelerator.pcie_bytes_per_s or PCIE_BYTES_PER_S


def all_reduce_s(size_bytes: float, ranks: int, machine: Machine) -> float:
    """Seconds of one all-reduce over so many ranks."""
    if ranks <= 1:
        return 0.0
    name, one_way = link_rate(machine.accelerator, machine.interconnect)
    link = machine.profile.links[name]
    latency = link.latency_s + (ranks - 2) * link.latency_per_gpu_s
    share = link.share / (ranks / 2) ** link.contention
    wire_bytes = 2 * (ranks - 1) / ranks * size_bytes
    return float(latency + wire_bytes / (one_way * share))


def step_time(work: StepWork, machine: Machine) -> StepTime | None:
    """Time of a round of work on a machine; ``None`` where ``machine.unknown`` says why."""
    speed, peak = machine.speed, machine.accelerator.memory_bandwidth_bytes_per_s
    fast = speed is not None and speed.fast_accumulate
    wide = matrix_rate(machine.rates, "wide", fast=fast)
    if speed is None or peak is None or wide is None:
        return None
    rate = matrix_rate(machine.rates, work.unit, fast=fast) or wide
    passes = max(1.0, work.tokens / work.overlap / speed.chunk_tokens)
    share = speed.memory_share(machine.accelerator.memory_class) * speed.kernels.get(work.kernel, 1.0)
    memory = passes * work.weight_bytes / (peak * share) + work.cache_bytes / (peak * speed.kv)
    memory += work.scores * speed.score_bytes / peak
    reached = speed.compute_share(machine.family)
    # A unit that the hardware lacks is emulated at 16 bit: its kernel's factor is that of weight-only formats.
    is_native = work.unit == "wide" or rate > wide
    factor = speed.compute_kernels.get(work.kernel if work.unit == "wide" else work.unit if is_native else "int4", 1.0)
    products = work.dense_flop + work.expert_flop / speed.expert_compute
    compute = (products / (rate * factor) + work.attention_flop / wide) / reached
    vector = machine.accelerator.flop_per_s.get("fp32")
    if vector and work.packed and not (is_native and work.unit == "fp4"):
        compute += passes * work.packed * speed.unpack_flop / vector
    link = passes * work.collectives * all_reduce_s(work.message_bytes / passes, work.ranks, machine)
    layers = work.layers * speed.layer_s + work.expert_layers * speed.expert_layer_s
    layers *= speed.launch.get(machine.family, 1.0)
    overhead = passes * (speed.step_s + layers) + work.sequences * speed.sequence_s
    return StepTime(memory, compute, link, overhead)


def prompt_time(model: ModelShape, word: str, split: Split, machine: Machine, prompt: int) -> StepTime | None:
    """Time of one prompt alone; its chunks follow each other through the stages of a pipeline."""
    speed = machine.speed
    work = round_work(
        model, word, split, sequences=0, context=0, kv_width=2.0, prompt_tokens=float(prompt), prompt=prompt
    )
    time = step_time(work, machine)
    if time is None or speed is None or split.stages == 1:
        return time
    chunks = max(1.0, prompt / speed.chunk_tokens)
    share = (chunks + split.stages - 1) / chunks / split.stages
    return StepTime(time.memory_s * share, time.compute_s * share, time.link_s * share, time.overhead_s * share)
