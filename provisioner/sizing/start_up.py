"""Time from asking for a machine to its first useful answer, as a band: boot, image, weights, loading, engine.

It is what an idle machine saves whoever comes back: a machine is kept as long as starting another would take (ski rental).
"""

from __future__ import annotations

from provisioner.records import record
from provisioner.vocabulary import Engine

SECOND, MINUTE = 1.0, 60.0
GB = 1e9


@record(frozen=True, slots=True)
class Phase:
    """One part of a start with its shortest and longest usual time."""

    name: str
    low_s: float
    high_s: float
    source: str


@record(frozen=True, slots=True)
class StartUp:
    """All phases, one after the other."""

    phases: tuple[Phase, ...]

    @property
    def low_s(self) -> float:
        """Seconds to ready when everything goes fast."""
        return sum(phase.low_s for phase in self.phases)

    @property
    def high_s(self) -> float:
        """Seconds to ready when everything goes slowly."""
        return sum(phase.high_s for phase in self.phases)

    @property
    def usual_s(self) -> float:
        """Geometric middle of the band, phase by phase."""
        return sum(float((phase.low_s * phase.high_s) ** 0.5) for phase in self.phases)


@record(frozen=True, slots=True)
class Bounds:
    """Lowest and highest usual rate in bytes per second."""

    low: float
    high: float


BOOT = Phase(
    "boot",
    25 * SECOND,
    120 * SECOND,
    "brevdev/ec2-coldboot-research @0f8ef4f: 21 to 26 s to ssh without a GPU; a GPU driver and large root disks add up to 90 s",
)
IMAGE_BYTES = 9e9
"""Compressed layers of an engine's image with CUDA libraries (vllm/vllm-openai is 8 to 10 GB)."""
IMAGE_RATE = Bounds(0.05 * GB, 0.3 * GB)
"""Pull and unpack of layers on a cloud machine; unpacking on one core per layer bounds it. An assumption."""
DOWNLOAD_RATE = Bounds(0.1 * GB, 2.5 * GB)
"""Weights from an object store to a local disk: 2.7 GB/s on NVMe (marin-community/marin#7136: 125 GiB in 47 s), a tenth where the
disk writes at the 125 MiB/s that gp3 includes."""
LOAD_RATE = Bounds(0.3 * GB, 1.5 * GB)
"""Disk to GPU with safetensors: 0.30 to 0.34 GB/s from network disks, 1.0 to 1.5 GB/s from NVMe. Source: run-ai/runai-model-streamer
docs/src/benchmarks.md (Llama-3-8B on A10G), anyscale/ai-infra-cookbook#57."""
ENGINE_START_S: dict[Engine, tuple[float, float]] = {
    Engine.VLLM: (18, 70),
    Engine.SGLANG: (18, 70),
    Engine.TENSORRT_LLM: (20, 120),
    Engine.TRANSFORMERS: (5, 15),
    Engine.LLAMA_CPP: (1, 5),
    Engine.DIFFUSERS: (5, 20),
    Engine.WHISPER: (3, 12),
}
"""Profile run, compilation and graph capture beside loading: vLLM 18 to 22 s on an A10G (runai-model-streamer), 54 s with a warm
compile cache on 8 GPUs (marin-community/marin#7136); libraries only import. TensorRT-LLM without engine building. Others are
assumptions from those."""
UNKNOWN_ENGINE_S = (5.0, 60.0)
SHORTEST_IDLE_S, LONGEST_IDLE_S = 5 * MINUTE, 60 * MINUTE


def start_up(
    weights_bytes: int,
    engine: Engine | None,
    *,
    pulls_image: bool = True,
    downloads: bool = True,
    link_bytes_per_s: float | None = None,
    disk_bytes_per_s: float | None = None,
) -> StartUp:
    """Time to ready of a new machine that serves or trains a model.

    Args:
        weights_bytes: The model's files.
        engine: What loads them; ``None`` = a program of the user's own.
        pulls_image: A container image is fetched.
        downloads: Weights are fetched from elsewhere before they are loaded.
        link_bytes_per_s: The machine's network where it is known; it bounds what is fetched.
        disk_bytes_per_s: The machine's disk where it is known; it bounds what is written and read.
    """
    phases = [BOOT]
    if pulls_image:
        phases.append(_moved("image pull", IMAGE_BYTES, IMAGE_RATE, (link_bytes_per_s, disk_bytes_per_s)))
    if downloads:
        phases.append(_moved("weights download", weights_bytes, DOWNLOAD_RATE, (link_bytes_per_s, disk_bytes_per_s)))
    phases.append(_moved("load to GPU", weights_bytes, LOAD_RATE, (disk_bytes_per_s,)))
    low, high = ENGINE_START_S.get(engine, UNKNOWN_ENGINE_S) if engine is not None else UNKNOWN_ENGINE_S
    phases.append(Phase("engine start", low, high, "engine logs in public benchmarks; see ENGINE_START_S"))
    return StartUp(tuple(phases))


def _moved(name: str, size_bytes: float, rate: Bounds, limits: tuple[float | None, ...]) -> Phase:
    known = [limit for limit in limits if limit]
    fastest = min([rate.high, *known])
    slowest = min([rate.low, *known])
    stated = ", the machine's own rate" if known else ""
    return Phase(name, size_bytes / fastest, size_bytes / slowest, f"{size_bytes / GB:.3g} GB{stated}")


def idle_after_s(start: StartUp) -> float:
    """Seconds after which an idle machine is let go: what starting another takes, between 5 and 60 minutes.

    Renting on for as long as buying again costs is at most twice as dear as knowing the future (ski rental).
    """
    return min(LONGEST_IDLE_S, max(SHORTEST_IDLE_S, start.usual_s))
