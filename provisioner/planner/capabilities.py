"""Lowest compute capabilities that formats and kernels ask for, each with its reason; memory alone does not make one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from provisioner.planner.request import Request
from provisioner.sizing.demand import DiffusionTrainingDemand, ServingDemand, TrainingDemand
from provisioner.sizing.engines import version_key
from provisioner.vocabulary import Attention, Engine, KvDtype, TrainingPrecision, WeightFormat

Capability = tuple[int, int]

VOLTA: Capability = (7, 0)
TURING: Capability = (7, 5)
AMPERE: Capability = (8, 0)
"""First compute capability with bf16 matrix units."""
ADA: Capability = (8, 9)
"""First compute capability with FP8 matrix units."""
BLACKWELL: Capability = (10, 0)
"""First compute capability with FP4 matrix units."""
NO_BF16 = "no bf16 below that: engines fall back to fp32 or refuse; fp16 weights would run"
NO_BF16_TRAINING = "no bf16 below that: precision fp16-mixed would run"
NO_FLASH = "flash attention has no kernels below that: attention sdpa would run"
WEIGHT_CAPABILITIES: Mapping[str, Capability] = {
    WeightFormat.BF16: AMPERE,
    WeightFormat.FP8: AMPERE,
    WeightFormat.INT8: TURING,
    WeightFormat.INT4_AWQ: TURING,
    WeightFormat.INT4_GPTQ: VOLTA,
    WeightFormat.NF4: VOLTA,
    WeightFormat.MXFP4: AMPERE,
    WeightFormat.NVFP4: AMPERE,
}
"""Lowest compute capability that serves a weight format. FP8, MXFP4 and NVFP4 run weight-only on Ampere: the memory is saved,
the speed is not gained. Source: table of supported hardware by quantisation in the vLLM documentation."""
ENGINE_CAPABILITIES: Mapping[Engine, Capability] = {
    Engine.VLLM: VOLTA,
    Engine.SGLANG: TURING,
    Engine.TENSORRT_LLM: AMPERE,
}
"""Lowest compute capability that an engine is built for. Source: installation page of vLLM, hardware page of SGLang, support matrix
of TensorRT-LLM."""
CUDA_CACHES = (Engine.VLLM, Engine.SGLANG, Engine.TENSORRT_LLM)
"""Engines whose FP8 cache is read by kernels of the GPU's own formats; llama.cpp's cache of 8 bits is integers."""
LAST_TURING_CACHE = version_key("0.23")
"""vLLM reads an FP8 cache on Turing through FlashInfer up to this release. Source: vllm-project/vllm#47549."""


def capabilities_needed(request: Request) -> Iterator[tuple[Capability, str]]:
    """Each lowest compute capability that the request asks for, with its reason."""
    demand = request.demand
    if isinstance(demand, (TrainingDemand, DiffusionTrainingDemand)):
        yield from _training(demand)
        return
    weights = request.weights
    if weights == WeightFormat.FP8 and demand.model.is_moe:
        yield ADA, "fp8 experts run on FP8 units only; the weight-only kernels of Ampere are for dense layers"
    elif needed := WEIGHT_CAPABILITIES.get(weights):
        yield needed, NO_BF16 if weights == WeightFormat.BF16 else f"{weights} weights have no kernels below that"
    if isinstance(demand, ServingDemand):
        if floor := ENGINE_CAPABILITIES.get(demand.engine):
            yield floor, f"{demand.engine} is not built for GPUs below that"
        yield from _cache(demand)


def _training(demand: TrainingDemand | DiffusionTrainingDemand) -> Iterator[tuple[Capability, str]]:
    if demand.precision is TrainingPrecision.FP8:
        yield ADA, "training in fp8 needs FP8 units"
    elif demand.precision in (TrainingPrecision.BF16, TrainingPrecision.BF16_MIXED):
        yield AMPERE, NO_BF16_TRAINING
    if isinstance(demand, TrainingDemand) and demand.attention is Attention.FLASH:
        yield AMPERE, NO_FLASH


def _cache(demand: ServingDemand) -> Iterator[tuple[Capability, str]]:
    """Sources: vllm-project/vllm#47549 (Turing), #52202 (latent attention below FP8 units)."""
    if demand.kv_dtype is not KvDtype.FP8 or demand.engine not in CUDA_CACHES:
        return
    if any(kind.mixer.kind == "latent" for kind in demand.model.kinds):
        yield ADA, "an fp8 cache of latent attention needs FP8 units"
        return
    version = demand.engine_version
    is_older = demand.engine is Engine.VLLM and version is not None and version_key(version) <= LAST_TURING_CACHE
    yield TURING if is_older else AMPERE, "an fp8 cache has no kernels below that"


def stored_only(request: Request, capability: Capability | None) -> tuple[str, ...]:
    """Formats of the request that a GPU of this capability stores and does not compute in, in words."""
    demand = request.demand
    if capability is None or not isinstance(demand, ServingDemand):
        return ()
    found = []
    for formats, floor, units in (
        ((WeightFormat.FP8,), ADA, "FP8"),
        ((WeightFormat.NVFP4, WeightFormat.MXFP4), BLACKWELL, "FP4"),
    ):
        if request.weights in formats and capability < floor:
            found.append(f"has no {units} units: {request.weights} weights save memory there, not compute time")
    if demand.kv_dtype is KvDtype.FP8 and demand.engine in CUDA_CACHES and capability < ADA:
        found.append("has no FP8 units: an fp8 cache saves memory there, and some attention kernels do not read it")
    return tuple(found)
