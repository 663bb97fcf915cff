"""Filters: each has a name, and every no has a reason with what was needed and what there is.

Instance-type filters come first (they need no sizing), then arrangement filters (layout, memory and speed are known); those of
offers and bills are in ``offer_filters``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from provisioner.catalog.gpus import Gpu
from provisioner.catalog.instances import InstanceType
from provisioner.planner.candidates import Arrangement, loaded_weights_bytes
from provisioner.planner.capabilities import capabilities_needed
from provisioner.planner.request import Request
from provisioner.planner.requirements import name_some
from provisioner.units import GB, GIB, format_gib
from provisioner.vocabulary import Engine

HOPPER = (9, 0)
"""First compute capability of the GPUs that CUDA builds for ARM hosts are published for. Source: vllm-project/vllm#10459, #2021
and hao-ai-lab/FastVideo#1514: wheels and images for aarch64 are built for Grace Hopper and later."""

ROCM_ENGINES = frozenset({Engine.VLLM, Engine.SGLANG, Engine.TRANSFORMERS, Engine.LLAMA_CPP, Engine.DIFFUSERS})
"""Engines that publish ROCm builds. Source: installation pages of vLLM, SGLang, PyTorch and llama.cpp."""
ROCM_ARCHITECTURE = "CDNA"
"""AMD architectures that those builds support (MI200, MI300); the Radeon Pro cards of clouds are RDNA."""

LOADING_BASE_BYTES = 2 * GIB
"""Host memory of the system and its agents. An assumption: an idle GPU image shows 1 to 2 GiB in use."""
LOADING_RANK_BYTES = 3 * GIB // 2
"""Host memory of one engine process with its CUDA libraries mapped. An assumption; measured idle ranks hold 1 to 2 GiB."""
SHARD_BYTES = 5 * GB
"""Largest checkpoint shard that must be read at once: the default ``max_shard_size`` of transformers' ``save_pretrained``
until version 5. Smaller models are one shard of their own size."""


class Refusal(NamedTuple):
    """A filter's no: its name, the reason in words, what was needed, what there is."""

    filter: str
    reason: str
    needed: str | None = None
    available: str | None = None


InstanceFilter = Callable[[Request, InstanceType, Gpu], Refusal | None]
ArrangementFilter = Callable[[Request, Arrangement], Refusal | None]


def cloud(request: Request, instance: InstanceType, gpu: Gpu) -> Refusal | None:
    """The spec's clouds, narrowed by ``--cloud``."""
    del gpu
    clouds = request.requirements.clouds
    if instance.cloud in clouds:
        return None
    return Refusal("cloud", "not one of the clouds asked for", ", ".join(clouds), instance.cloud)


def instance_type(request: Request, instance: InstanceType, gpu: Gpu) -> Refusal | None:
    """A pin: these instance types and no others."""
    del gpu
    wanted = request.requirements.instance_types
    if wanted is None or instance.name in wanted:
        return None
    return Refusal("instance-type", "not one of placement.instance_types", name_some(wanted), instance.name)


def gpu_asked(request: Request, instance: InstanceType, gpu: Gpu) -> Refusal | None:
    """``placement.gpus`` and ``placement.exclude_gpus``."""
    del instance
    requirements = request.requirements
    if requirements.gpu_models is not None and gpu.model not in requirements.gpu_models:
        return Refusal("gpu", "not one of placement.gpus", name_some(requirements.gpu_models), gpu.model)
    if gpu.model in requirements.excluded_gpu_models:
        return Refusal("excluded-gpu", "named in placement.exclude_gpus", None, gpu.model)
    return None


def runtime(request: Request, instance: InstanceType, gpu: Gpu) -> Refusal | None:
    """CUDA, or ROCm where the engine has it; Neuron, TPU and Gaudi have a runtime of their own."""
    del instance
    if gpu.kind != "gpu":
        return Refusal("runtime", f"{gpu.kind} devices need a runtime of their own", "CUDA or ROCm", gpu.kind)
    if gpu.cuda_supported:
        return None
    engine = request.engine
    if (
        gpu.vendor == "AMD"
        and gpu.architecture.startswith(ROCM_ARCHITECTURE)
        and (engine is None or engine in ROCM_ENGINES)
    ):
        return None
    what = f"{engine} has no build for it" if engine else "the training frameworks have no build for it"
    return Refusal("runtime", what, "CUDA or a supported ROCm GPU", f"{gpu.vendor} {gpu.gpu_class}")


def architecture(request: Request, instance: InstanceType, gpu: Gpu) -> Refusal | None:
    """ARM hosts with GPUs older than Hopper: no published builds, unless a pin says that its author has some."""
    is_old = gpu.compute_capability is not None and gpu.compute_capability < HOPPER
    if instance.cpu_architecture != "arm64" or not is_old or request.requirements.instance_types is not None:
        return None
    return Refusal(
        "architecture",
        "no published build of the engines for ARM hosts with this GPU",
        "x86_64",
        instance.cpu_architecture,
    )


def status(request: Request, instance: InstanceType, gpu: Gpu) -> Refusal | None:
    """Only types in the cloud's current listing that anyone may buy."""
    del request, gpu
    if instance.status == "current":
        return None
    words = {
        "not_listed": "no longer in the cloud's listing of instance types",
        "restricted": "sold to selected customers only",
        "reservation_only": "sold by reservation only",
    }
    return Refusal("status", words.get(instance.status, f"its status is {instance.status}"), "current", instance.status)


def memory_known(request: Request, instance: InstanceType, gpu: Gpu) -> Refusal | None:
    """A GPU whose usable memory nobody has read cannot be judged."""
    del request
    if (instance.gpu_memory_usable_bytes if instance.gpu_fraction < 1 else gpu.memory_usable_bytes) is not None:
        return None
    return Refusal("memory-unknown", "the usable memory of this GPU is not known", None, None)


def precision(request: Request, instance: InstanceType, gpu: Gpu) -> Refusal | None:
    """Number formats that the GPU must have kernels for; memory alone does not make a format run."""
    del instance
    have = gpu.compute_capability
    if have is None:
        return None
    for needed, reason in capabilities_needed(request):
        if have < needed:
            wanted = f"compute capability {needed[0]}.{needed[1]}"
            return Refusal("precision", reason, wanted, f"{gpu.gpu_class}: {have[0]}.{have[1]}")
    return None


def gpu_limit(request: Request, instance: InstanceType, gpu: Gpu) -> Refusal | None:
    """One instance alone is over ``max_gpus``."""
    del gpu
    limit = request.requirements.max_gpus
    if limit is None or instance.gpu_count <= limit:
        return None
    return Refusal(
        "max-gpus", "one instance has more GPUs than placement.max_gpus", f"at most {limit}", str(instance.gpu_count)
    )


INSTANCE_FILTERS: Sequence[InstanceFilter] = (
    cloud,
    instance_type,
    gpu_asked,
    runtime,
    architecture,
    status,
    memory_known,
    gpu_limit,
    precision,
)


def refuse_instance(request: Request, instance: InstanceType, gpu: Gpu) -> Refusal | None:
    """The first filter that an instance type fails, before any sizing."""
    for check in INSTANCE_FILTERS:
        if refusal := check(request, instance, gpu):
            return refusal
    return None


def total_gpus(request: Request, arrangement: Arrangement) -> Refusal | None:
    """``max_gpus`` counts the GPUs of all instances, used or not."""
    limit = request.requirements.max_gpus
    if limit is None or arrangement.gpus_billed <= limit:
        return None
    reason = f"{arrangement.layout.replicas} copies take {arrangement.instances} instances"
    return Refusal("max-gpus", reason, f"at most {limit} GPUs", f"{arrangement.gpus_billed} GPUs")


def host_memory(request: Request, arrangement: Arrangement) -> Refusal | None:
    """Host memory that loading surely needs; a tighter one than 1.2 x the weights is a warning, not a no."""
    del request
    needed = loading_bytes(arrangement)
    if arrangement.instance.ram_bytes >= needed:
        return None
    return Refusal(
        "host-ram",
        "host memory is below what loading the weights needs",
        format_gib(needed),
        format_gib(arrangement.instance.ram_bytes),
    )


def loading_bytes(arrangement: Arrangement) -> int:
    """Least host memory to load the weights: the system, one process a GPU in use, and one checkpoint shard."""
    ranks = arrangement.instance.gpu_count // arrangement.layout.gpus_per_replica * arrangement.layout.gpus_per_replica
    ranks = min(max(1, ranks), arrangement.layout.gpus)
    return LOADING_BASE_BYTES + ranks * LOADING_RANK_BYTES + min(SHARD_BYTES, loaded_weights_bytes(arrangement))


def time_to_first_token(request: Request, arrangement: Arrangement) -> Refusal | None:
    """``targets.time_to_first_token``, by the predicted prefill."""
    targets = request.workload.inference.targets if request.workload.inference else None
    if targets is None or targets.time_to_first_token is None:
        return None
    limit, predicted = targets.time_to_first_token.total_seconds(), arrangement.throughput.time_to_first_token_s
    if predicted is None:
        return Refusal("time-to-first-token", "its speed cannot be predicted", f"{limit:g} s", None)
    if predicted <= limit:
        return None
    return Refusal("time-to-first-token", "predicted first token comes too late", f"{limit:g} s", f"{predicted:.2f} s")


def request_speed(request: Request, arrangement: Arrangement) -> Refusal | None:
    """``targets.tokens_per_second_per_request``, by the predicted decode rate."""
    targets = request.workload.inference.targets if request.workload.inference else None
    if targets is None or targets.tokens_per_second_per_request is None:
        return None
    wanted, predicted = targets.tokens_per_second_per_request, arrangement.throughput.tokens_per_s_per_request
    if predicted is None:
        return Refusal("tokens-per-second", "its speed cannot be predicted", f"{wanted:g} tokens/s", None)
    if predicted >= wanted:
        return None
    return Refusal(
        "tokens-per-second",
        "predicted stream of a request is too slow",
        f"{wanted:g} tokens/s",
        f"{predicted:.1f} tokens/s",
    )


def request_rate(request: Request, arrangement: Arrangement) -> Refusal | None:
    """``targets.requests_per_second``, by all copies together."""
    targets = request.workload.inference.targets if request.workload.inference else None
    if targets is None or targets.requests_per_second is None:
        return None
    wanted = targets.requests_per_second
    each = arrangement.requests_per_s
    if each is None:
        return Refusal("requests-per-second", "its speed cannot be predicted", f"{wanted:g} requests/s", None)
    together = each * arrangement.layout.replicas
    if together >= wanted * (1 - 1e-9):
        return None
    copies = arrangement.layout.replicas
    return Refusal(
        "requests-per-second",
        f"{copies} copies are predicted to take too few requests",
        f"{wanted:g} requests/s",
        f"{together:.2f} requests/s",
    )


ARRANGEMENT_FILTERS: Sequence[ArrangementFilter] = (
    total_gpus,
    host_memory,
    time_to_first_token,
    request_speed,
    request_rate,
)


def refuse_arrangement(request: Request, arrangement: Arrangement) -> Refusal | None:
    """The first filter that a sized layout fails."""
    for check in ARRANGEMENT_FILTERS:
        if refusal := check(request, arrangement):
            return refusal
    return None
