"""Time of one pass of an engine: the slower of memory and matrix units, with overheads and collectives."""

from __future__ import annotations

from functools import cached_property, lru_cache

from provisioner.records import record
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.shapes import ModelShape
from provisioner.sizing.speed_profile import EngineSpeed, LinkSpeed, SpeedProfile, family_of
from provisioner.sizing.step_work import Split, StepWork, round_work
from provisioner.vocabulary import Interconnect

MEMORY, COMPUTE, LINK, STORAGE = "memory-bandwidth", "compute", "interconnect", "storage"
NVLINK_DIRECTIONS = 2
"""NVLink bandwidth is stated as the sum of both directions."""
PCIE_BYTES_PER_S = 25e9
"""One direction of PCIe 4.0 x16 as measured, where the catalog does not say."""
CUBE_ROOT = 1 / 3


@record(frozen=True, slots=True)
class StepTime:
    """Seconds of one step by cause; ``memory_s`` and ``compute_s`` overlap, the rest adds."""

    memory_s: float
    compute_s: float
    link_s: float
    overhead_s: float

    @property
    def total_s(self) -> float:
        """Time of the step. Where reading and multiplying take alike, neither hides the other wholly: (m^3 + c^3)^(1/3)."""
        memory, compute = self.memory_s, self.compute_s
        body = (memory * memory * memory + compute * compute * compute) ** CUBE_ROOT
        return float(body + self.link_s + self.overhead_s)

    @property
    def bound_by(self) -> str:
        """The largest cause among memory, compute and links."""
        causes = ((self.memory_s, MEMORY), (self.compute_s, COMPUTE), (self.link_s, LINK))
        return max(causes)[1]


def mean_step(without: StepTime, with_prompts: StepTime, share: float) -> StepTime:
    """Mean of rounds of which a share reads prompts; causes and total are means, each round keeping its own overlap."""
    if share == 1.0:
        return with_prompts
    rest = 1.0 - share
    memory = rest * without.memory_s + share * with_prompts.memory_s
    compute = rest * without.compute_s + share * with_prompts.compute_s
    link = rest * without.link_s + share * with_prompts.link_s
    total = rest * without.total_s + share * with_prompts.total_s
    body = (memory * memory * memory + compute * compute * compute) ** CUBE_ROOT
    return StepTime(memory, compute, link, max(0.0, total - body - link))


@record(frozen=True, slots=True)
class Price:
    """What one unit of each kind of work takes on a machine, for one precision kernel."""

    weight_byte_s: float
    cache_byte_s: float
    score_s: float
    flop_s: float
    expert_flop_s: float
    attention_flop_s: float
    unpack_s: float
    """Per packed weight, 0 where matrix units take it so."""
    pass_s: float
    layer_s: float
    expert_layer_s: float
    sequence_s: float
    chunk_tokens: int


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
    def _prices(self) -> dict[tuple[str, str], Price | None]:
        return {}

    def price(self, kernel: str, unit: str) -> Price | None:
        """Prices of work in a kernel; ``None`` where ``unknown`` says why."""
        key = (kernel, unit)
        if key not in self._prices:
            self._prices[key] = _price(self, kernel, unit)
        return self._prices[key]

    @cached_property
    def collective(self) -> tuple[LinkSpeed, float]:
        """Constants of the link between ranks and its bytes per second in one direction."""
        name, one_way = link_rate(self.accelerator, self.interconnect)
        return self.profile.links[name], one_way

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
    link, one_way = machine.collective
    latency = link.latency_s + (ranks - 2) * link.latency_per_gpu_s
    share = link.share / (ranks / 2) ** link.contention
    wire_bytes = 2 * (ranks - 1) / ranks * size_bytes
    return float(latency + wire_bytes / (one_way * share))


def _price(machine: Machine, kernel: str, unit: str) -> Price | None:
    speed, card = machine.speed, machine.accelerator
    peak = card.memory_bandwidth_bytes_per_s
    fast = speed is not None and speed.fast_accumulate
    wide = matrix_rate(machine.rates, "wide", fast=fast)
    if speed is None or peak is None or wide is None:
        return None
    rate = matrix_rate(machine.rates, unit, fast=fast) or wide
    reached = speed.compute_share(machine.family)
    # A unit that the hardware lacks is emulated at 16 bit: its kernel's factor is that of weight-only formats.
    is_native = unit == "wide" or rate > wide
    factor = speed.compute_kernels.get(kernel if unit == "wide" else unit if is_native else "int4", 1.0)
    flop_s = 1 / (rate * factor * reached)
    vector = card.flop_per_s.get("fp32")
    unpacks = vector and not (is_native and unit == "fp4")
    launch = speed.launch.get(machine.family, 1.0)
    return Price(
        weight_byte_s=1 / (peak * speed.memory_share(card.memory_class) * speed.kernels.get(kernel, 1.0)),
        cache_byte_s=1 / (peak * speed.kv),
        score_s=speed.score_bytes / peak,
        flop_s=flop_s,
        expert_flop_s=flop_s / speed.expert_compute,
        attention_flop_s=1 / (wide * reached),
        unpack_s=speed.unpack_flop / vector if vector and unpacks else 0.0,
        pass_s=speed.step_s,
        layer_s=speed.layer_s * launch,
        expert_layer_s=speed.expert_layer_s * launch,
        sequence_s=speed.sequence_s,
        chunk_tokens=speed.chunk_tokens,
    )


def step_time(work: StepWork, machine: Machine) -> StepTime | None:
    """Time of a round of work on a machine; ``None`` where ``machine.unknown`` says why."""
    price = machine.price(work.kernel, work.unit)
    if price is None:
        return None
    passes = max(1.0, work.tokens / work.overlap / price.chunk_tokens)
    memory = passes * work.weight_bytes * price.weight_byte_s + work.cache_bytes * price.cache_byte_s
    compute = work.dense_flop * price.flop_s + work.expert_flop * price.expert_flop_s
    if work.scores:
        memory += work.scores * price.score_s
        compute += work.attention_flop * price.attention_flop_s
    compute += passes * work.packed * price.unpack_s
    link = 0.0
    if work.ranks > 1:
        link = passes * work.collectives * all_reduce_s(work.message_bytes / passes, work.ranks, machine)
    layers = work.layers * price.layer_s + work.expert_layers * price.expert_layer_s
    return StepTime(memory, compute, link, passes * (price.pass_s + layers) + work.sequences * price.sequence_s)


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
