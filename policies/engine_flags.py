"""Flags of inference engines that decide what a copy needs: read from a command line, whatever shell it stands in.

Sources: engine arguments of the vLLM documentation (underscores are taken for hyphens, ``8k`` and ``8K`` for lengths), server
arguments of the SGLang documentation, ``trtllm-serve`` page of the TensorRT-LLM documentation, ``tools/server/README.md`` of
llama.cpp; read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from provisioner.vocabulary import Engine


class EngineSetting(StrEnum):
    """What a flag sets."""

    TENSOR_PARALLEL = "tensor parallel degree"
    PIPELINE_PARALLEL = "pipeline parallel degree"
    CONTEXT = "context length"
    MEMORY_SHARE = "share of GPU memory"
    QUANTISATION = "quantisation"
    KV_CACHE = "type of the KV cache"
    CONCURRENCY = "number of requests at a time"
    ADAPTERS = "number of adapters"
    ADAPTER_RANK = "largest rank of an adapter"
    PROCESSES = "number of processes of a machine"
    MICRO_BATCH = "micro batch of a GPU"
    SEQUENCE = "sequence length"


FLAGS: Mapping[Engine | None, Mapping[EngineSetting, tuple[str, ...]]] = {
    Engine.VLLM: {
        EngineSetting.TENSOR_PARALLEL: ("--tensor-parallel-size", "-tp"),
        EngineSetting.PIPELINE_PARALLEL: ("--pipeline-parallel-size", "-pp"),
        EngineSetting.CONTEXT: ("--max-model-len",),
        EngineSetting.MEMORY_SHARE: ("--gpu-memory-utilization",),
        EngineSetting.QUANTISATION: ("--quantization", "-q"),
        EngineSetting.KV_CACHE: ("--kv-cache-dtype",),
        EngineSetting.CONCURRENCY: ("--max-num-seqs",),
        EngineSetting.ADAPTERS: ("--max-loras",),
        EngineSetting.ADAPTER_RANK: ("--max-lora-rank",),
    },
    Engine.SGLANG: {
        EngineSetting.TENSOR_PARALLEL: ("--tp-size", "--tensor-parallel-size", "--tp"),
        EngineSetting.PIPELINE_PARALLEL: ("--pp-size", "--pipeline-parallel-size", "--pp"),
        EngineSetting.CONTEXT: ("--context-length",),
        EngineSetting.MEMORY_SHARE: ("--mem-fraction-static",),
        EngineSetting.QUANTISATION: ("--quantization",),
        EngineSetting.KV_CACHE: ("--kv-cache-dtype",),
        EngineSetting.CONCURRENCY: ("--max-running-requests",),
        EngineSetting.ADAPTERS: ("--max-loras-per-batch",),
        EngineSetting.ADAPTER_RANK: ("--max-lora-rank",),
    },
    Engine.TENSORRT_LLM: {
        EngineSetting.TENSOR_PARALLEL: ("--tp-size", "--tensor-parallel-size"),
        EngineSetting.PIPELINE_PARALLEL: ("--pp-size", "--pipeline-parallel-size"),
        EngineSetting.CONTEXT: ("--max-seq-len",),
        EngineSetting.KV_CACHE: ("--kv-cache-dtype",),
        EngineSetting.CONCURRENCY: ("--max-batch-size",),
    },
    Engine.LLAMA_CPP: {
        EngineSetting.CONTEXT: ("--ctx-size", "-c"),
        EngineSetting.KV_CACHE: ("--cache-type-k", "-ctk"),
        EngineSetting.CONCURRENCY: ("--parallel", "-np"),
    },
    None: {
        EngineSetting.PROCESSES: ("--nproc-per-node", "--num-processes", "--num-gpus"),
        EngineSetting.MICRO_BATCH: ("--per-device-train-batch-size", "--micro-batch-size"),
        EngineSetting.SEQUENCE: ("--max-seq-length", "--max-length", "--sequence-len", "--cutoff-len", "--seq-length"),
    },
}
"""Spellings of each setting by engine, ``None`` for trainings, the one to suggest first. Trainings: torchrun and tune, accelerate and
axolotl, DeepSpeed; then TRL and the Hugging Face trainer, axolotl, LLaMA-Factory and Megatron-LM. llama.cpp's context is shared by all slots, planned and asked alike."""
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)([kKmM]?)", re.ASCII)
_FACTORS = {"": 1, "k": 1000, "m": 1_000_000, "K": 1024, "M": 1024**2}


def read_settings(engine: Engine | None, command: Sequence[str]) -> dict[EngineSetting, str]:
    """What the flags of a command set, as written; of a flag that stands twice the last, as the engines take it.

    Keys of Hydra and the like (``key=value`` without hyphens) are no flags.
    """
    spellings = {flag: setting for setting, flags in FLAGS.get(engine, {}).items() for flag in flags}
    found: dict[EngineSetting, str] = {}
    words = list(_words(command))
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.startswith("--"):
            name = name.replace("_", "-")
        if name in spellings:
            found[spellings[name]] = value if equals else next(iter(words[index + 1 : index + 2]), "")
    return found


def _words(command: Sequence[str]) -> Iterator[str]:
    """The words of a command; an argument of several words is one that a shell splits."""
    import shlex  # only where a command is read at all

    for argument in command:
        if not any(character.isspace() for character in argument):
            yield argument
            continue
        try:
            yield from shlex.split(argument, comments=True)
        except ValueError:  # an open quote: take it as it is written
            yield from argument.split()


def as_length(text: str) -> int | None:
    """Tokens of a length such as ``32768``, ``32k`` (32,000) or ``32K`` (32,768); ``None`` for anything else."""
    match = _LENGTH.fullmatch(text)
    return round(float(match[1]) * _FACTORS[match[2]]) if match else None


def as_share(text: str) -> float | None:
    """A share such as ``0.9``; ``None`` for what is none."""
    try:
        share = float(text)
    except ValueError:
        return None
    return share if 0 < share <= 1 else None


def spelling(engine: Engine | None, setting: EngineSetting) -> str:
    """The flag to write."""
    return FLAGS[engine][setting][0]
