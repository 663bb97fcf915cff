"""Hardware rules: the GPU can run what is asked of it, whatever its memory."""

from __future__ import annotations

import re
from collections.abc import Iterator

from policies.facts import UNKNOWN, Candidate, Known, MachineFacts, PlacementFacts, Unknown
from policies.rule import Outcome, Rule, Setting, Severity, failed, passed, unknown
from policies.rules.candidates import engine_of, machines_of
from provisioner.vocabulary import Attention, CapacityType, Engine

FLASH_CAPABILITY = (8, 0)
"""First compute capability with FlashAttention-2. Source: README of Dao-AILab/flash-attention, "Ampere, Ada, or Hopper"."""
ENGINE_CAPABILITY = {Engine.VLLM: (7, 0), Engine.SGLANG: (7, 5), Engine.TENSORRT_LLM: (8, 0)}
"""Least compute capability per engine. Sources: vLLM installation page; SGLang installation page ("sm75 and above");
TensorRT-LLM support matrix (Ampere and newer since 0.17). Read 2026-11."""


def gpu_runtime(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """The device has a runtime that the workload's software is built for."""
    del setting
    yield from _refused(facts, "runtime", "take an NVIDIA GPU, or an engine with a build for this device")


def gpu_formats(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """The GPU has units for the number formats that the workload computes in."""
    del setting
    yield from _refused(
        facts, "precision", "take a newer GPU, or a number format that this one has (fp16, int8, int4-awq)"
    )


def _refused(facts: PlacementFacts, name: str, remedy: str) -> Iterator[Outcome]:
    candidates, outcome = machines_of(facts)
    if outcome is not None:
        yield outcome
    for candidate in candidates:
        if isinstance(candidate.refusals, Unknown):
            message = f"whether {candidate.label} can run {facts.name} is not known yet"
            yield unknown(candidate.key, message, "write its type as a constant", identity=candidate.label)
        elif reason := candidate.refusals.get(name):
            message = f"{candidate.label} cannot run {facts.name}: {reason}"
            yield failed(candidate.key, message, facts.suggest() or remedy, identity=candidate.label)
        else:
            yield passed(candidate.key)


def _capability(candidate: Candidate) -> tuple[int, int] | Unknown | None:
    if isinstance(candidate.gpu, Unknown):
        return UNKNOWN
    return candidate.gpu.compute_capability if candidate.gpu is not None else None


def flash_attention(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """A training that asks for FlashAttention runs on a GPU that has it."""
    del setting
    if isinstance(facts.workload, Unknown):
        yield unknown("training.attention", f"the attention of {facts.name} is not known yet", "write it as a constant")
        return
    if facts.workload.training is None or facts.workload.training.attention is not Attention.FLASH:
        return
    yield from _capable(facts, FLASH_CAPABILITY, "FlashAttention", "write attention: sdpa")


def engine_capability(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """The engine still supports the GPU's generation."""
    del setting
    engine = engine_of(facts)
    if isinstance(engine, Unknown):
        yield unknown("inference.engine", f"the engine of {facts.name} is not known yet", "write it as a constant")
        return
    least = ENGINE_CAPABILITY.get(engine) if engine is not None else None
    if least is not None:
        yield from _capable(facts, least, str(engine), "take a newer GPU, or llama.cpp, which supports old ones")


def _capable(facts: PlacementFacts, least: tuple[int, int], what: str, remedy: str) -> Iterator[Outcome]:
    candidates, outcome = machines_of(facts)
    if outcome is not None:
        yield outcome
    for candidate in candidates:
        have = _capability(candidate)
        if isinstance(have, Unknown):
            yield unknown(
                candidate.key,
                f"whether {candidate.label} has {what} is not known yet",
                remedy,
                identity=candidate.label,
            )
        elif have is None:
            continue
        elif have >= least:
            yield passed(candidate.key)
        else:
            message = (
                f"{what} needs compute capability {least[0]}.{least[1]}; {candidate.label} has {have[0]}.{have[1]}"
            )
            yield failed(candidate.key, message, remedy, identity=candidate.label)


def host_maintenance(facts: MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """A Google Cloud machine with a GPU ends for host maintenance: it cannot be moved. One of series E2 is moved, or preemptible.

    Source: the API's own refusal, "e2 instances do not support onHostMaintenance=TERMINATE unless they are preemptible"
    (chainguard-dev/terraform-infra-common#935); cluster-toolkit#460 for GPUs.
    """
    del setting
    key = "on_host_maintenance"
    remedy = 'set scheduling { on_host_maintenance = "TERMINATE" }'
    if facts.cloud != "gcp":
        return
    refusal = _e2_refusal(facts, key)
    if refusal is not None:
        yield refusal
    if refusal is not None or facts.has_gpu is False or _is_e2(facts) is True:
        return
    if facts.on_host_maintenance == "TERMINATE":
        yield passed(key)
    elif isinstance(facts.on_host_maintenance, Unknown) or isinstance(facts.has_gpu, Unknown):
        yield unknown(key, f"what {facts.name} does for host maintenance is not known yet", remedy)
    else:
        stated = facts.on_host_maintenance or "the default, MIGRATE"
        yield failed(
            key, f"{facts.name} has a GPU and cannot be moved, but asks for {stated}: its creation fails", remedy
        )


def _is_e2(facts: MachineFacts) -> Known[bool]:
    kind = facts.instance_type
    return UNKNOWN if isinstance(kind, Unknown) else kind is not None and kind.startswith("e2-")


def _e2_refusal(facts: MachineFacts, key: str) -> Outcome | None:
    """What is wrong with a machine of series E2, which has no GPU, that asks to end for host maintenance."""
    states = (_is_e2(facts), facts.on_host_maintenance, facts.capacity_type)
    is_e2, asked, capacity = states
    if is_e2 is False or facts.has_gpu is True or capacity == CapacityType.SPOT:
        return None
    if not isinstance(asked, Unknown) and asked != "TERMINATE":
        return None
    remedy = 'leave on_host_maintenance out, or set scheduling { provisioning_model = "SPOT" }'
    if UNKNOWN in states:
        message = (
            f"whether {facts.name} is a machine of series E2 that asks to end for host maintenance is not known yet"
        )
        return unknown(key, message, remedy)
    return failed(key, f"{facts.name} is of series E2 and asks to end for host maintenance: its creation fails", remedy)


_CUDA_TAG = r"(?:^|[^a-z0-9])cu(?:da)?[-_]?(\d{2})(\d)(?![\d.])|cuda[-_:]?(\d{2})\.(\d{1,2})"
_CUDA_IMAGE = r"(?:^|/)cuda:(\d{2})\.(\d{1,2})"
_DRIVER = r"nvidia[-_](?:driver[-_])?(\d{3})(?!\d)"
"""Patterns of names in any case, compiled where a name is looked at."""


def cuda_of(image: str) -> tuple[int, int] | None:
    """The CUDA version that a container image's name tells (``cu118``, ``cuda12.8``, ``nvidia/cuda:11.4.3``), or ``None``."""
    name = image.partition("@")[0]
    match = re.search(_CUDA_IMAGE, name, re.IGNORECASE) or re.search(_CUDA_TAG, name, re.IGNORECASE)
    if match is None:
        return None
    major, minor = (group for group in match.groups() if group is not None)
    return int(major), int(minor)


def container_cuda(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """A container built for a CUDA version runs on GPUs that this version knows."""
    del setting
    key = "run.image"
    if isinstance(facts.container, Unknown):
        yield unknown(key, f"the image of {facts.name} is not known yet", "write it in run.image")
        return
    cuda = cuda_of(facts.container) if facts.container is not None else None
    if cuda is None:
        return
    candidates, outcome = machines_of(facts)
    if outcome is not None:
        yield outcome
    for candidate in candidates:
        least = candidate.cuda_least
        if isinstance(least, Unknown):
            message = f"which CUDA versions {candidate.label} takes is not known yet"
            yield unknown(key, message, "write its type as a constant", identity=candidate.label)
        elif least is None or cuda >= least:
            yield passed(key)
        else:
            message = f"the image is built for CUDA {cuda[0]}.{cuda[1]}; {candidate.label} needs {least[0]}.{least[1]} or newer"
            yield failed(
                key, message, f"take an image of CUDA {least[0]}.{least[1]} or newer", identity=candidate.label
            )


def image_driver(facts: MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """A machine image that names its driver has one that drives the GPU."""
    del setting
    if isinstance(facts.image, Unknown):
        if facts.driver_branches is not None:
            yield unknown("image", f"the driver of {facts.name} is not known yet", "write the image as a constant")
        return
    match = re.search(_DRIVER, facts.image or "", re.IGNORECASE)
    if match is None or facts.driver_branches is None:
        return
    if isinstance(facts.driver_branches, Unknown):
        yield unknown("image", f"which driver {facts.name} needs is not known yet", "write its type as a constant")
        return
    branch, (first, last) = int(match[1]), facts.driver_branches
    if first is not None and branch < first:
        message = f"{facts.name} has a GPU that driver branch {first} is the first to know; its image has {branch}"
        yield failed("image", message, f"take an image with driver branch {first} or newer")
    elif last is not None and branch > last:
        message = f"{facts.name} has a GPU that driver branch {last} is the last to know; its image has {branch}"
        yield failed("image", message, f"take an image with driver branch {last} or older")
    else:
        yield passed("image")


RULES = (
    Rule(
        "gpu-runtime",
        "hardware",
        "The device has the runtime that the workload needs",
        "Neuron, TPU and Gaudi devices, and GPUs without CUDA or ROCm support, run other software than what was asked for.",
        Severity.HIGH,
        (PlacementFacts,),
        gpu_runtime,
        waivable=False,
    ),
    Rule(
        "gpu-formats",
        "hardware",
        "The GPU has the number formats that are asked for",
        "bf16 below compute capability 8.0 and FP8 experts below 8.9 fall back to more memory, or do not start.",
        Severity.HIGH,
        (PlacementFacts,),
        gpu_formats,
    ),
    Rule(
        "flash-attention",
        "hardware",
        "FlashAttention runs on the GPU",
        "FlashAttention needs Ampere or newer; elsewhere the training stops at its first step.",
        Severity.MEDIUM,
        (PlacementFacts,),
        flash_attention,
    ),
    Rule(
        "engine-capability",
        "hardware",
        "The engine supports the GPU's generation",
        "Engines drop old GPU generations; they then refuse to start on a machine that bills.",
        Severity.HIGH,
        (PlacementFacts,),
        engine_capability,
    ),
    Rule(
        "container-cuda",
        "hardware",
        "The container's CUDA version knows the GPU",
        "Kernels are built per GPU generation: an older CUDA has none for a newer GPU, and the first call fails.",
        Severity.HIGH,
        (PlacementFacts,),
        container_cuda,
    ),
    Rule(
        "image-driver",
        "hardware",
        "The machine image's driver knows the GPU",
        "With a driver of the wrong branch the machine boots, bills and shows no GPU.",
        Severity.HIGH,
        (MachineFacts,),
        image_driver,
    ),
    Rule(
        "host-maintenance",
        "hardware",
        "GPU machines end for host maintenance",
        "Google Cloud cannot live-migrate a GPU and refuses the machine only when it is made.",
        Severity.MEDIUM,
        (MachineFacts,),
        host_maintenance,
    ),
)
