"""Flags of inference engines and trainers that decide what a copy needs: read from a command line, whatever shell it stands in.

Sources, read 2026-12-01: ``vllm/engine/arg_utils.py`` and ``vllm/utils/argparse_utils.py`` of vLLM (underscores are taken for hyphens,
``8k`` and ``8K`` for lengths, a beginning that only one option has for that option, as ``argparse`` does); ``server_args.py`` of SGLang
(``argparse`` as well); ``tensorrt_llm/commands/serve.py`` of TensorRT-LLM at 00209af (``click``: underscores alone);
``common/arg.cpp`` and ``tools/server/README.md`` of llama.cpp (underscores are taken for hyphens; each option has a variable, which
the option wins over). Trainings: torchrun (variables ``PET_*``), accelerate, DeepSpeed, ms-swift and LLaMA-Factory
(``NPROC_PER_NODE``), TRL and the Hugging Face trainer, axolotl, LitGPT, Megatron-LM, NeMo and torchtune (keys without hyphens).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from provisioner.vocabulary import Engine


class EngineSetting(StrEnum):
    """What a flag sets."""

    TENSOR_PARALLEL = "tensor parallel degree"
    PIPELINE_PARALLEL = "pipeline parallel degree"
    CONTEXT = "context length"
    MEMORY_SHARE = "share of GPU memory"
    QUANTISATION = "quantisation"
    KV_CACHE = "type of the KV cache"
    KV_VALUES = "type of the KV cache's values"
    CACHE_SHARE = "share of the free GPU memory for the KV cache"
    GPU_LAYERS = "number of layers on the GPU"
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
        EngineSetting.TENSOR_PARALLEL: ("--tp_size", "--tensor_parallel_size"),
        EngineSetting.PIPELINE_PARALLEL: ("--pp_size", "--pipeline_parallel_size"),
        EngineSetting.CONTEXT: ("--max_seq_len",),
        EngineSetting.CACHE_SHARE: ("--kv_cache_free_gpu_memory_fraction", "--free_gpu_memory_fraction"),
        EngineSetting.KV_CACHE: ("--kv_cache_dtype",),
        EngineSetting.CONCURRENCY: ("--max_batch_size",),
    },
    Engine.LLAMA_CPP: {
        EngineSetting.CONTEXT: ("--ctx-size", "-c"),
        EngineSetting.KV_CACHE: ("--cache-type-k", "-ctk"),
        EngineSetting.KV_VALUES: ("--cache-type-v", "-ctv"),
        EngineSetting.GPU_LAYERS: ("--n-gpu-layers", "--gpu-layers", "-ngl"),
        EngineSetting.CONCURRENCY: ("--parallel", "-np"),
    },
    None: {
        EngineSetting.PROCESSES: ("--nproc-per-node", "--num-processes", "--num-gpus", "trainer.devices"),
        EngineSetting.MICRO_BATCH: (
            *("--per-device-train-batch-size", "--micro-batch-size", "--train.micro-batch-size"),
            *("per-device-train-batch-size", "model.micro-batch-size", "data.micro-batch-size"),
        ),
        EngineSetting.SEQUENCE: (
            *("--max-length", "--max-seq-length", "--sequence-len", "--cutoff-len", "--seq-length"),
            *(
                "--train.max-seq-length",
                "cutoff-len",
                "model.encoder-seq-length",
                "data.seq-length",
                "tokenizer.max-seq-len",
            ),
        ),
    },
}
"""Spellings of each setting by engine, ``None`` for trainings, the one to suggest first; those without hyphens stand before ``=``.
llama.cpp's context is shared by all slots, planned and asked alike."""
VARIABLES: Mapping[Engine | None, Mapping[str, EngineSetting]] = {
    Engine.LLAMA_CPP: {
        "LLAMA_ARG_CTX_SIZE": EngineSetting.CONTEXT,
        "LLAMA_ARG_CACHE_TYPE_K": EngineSetting.KV_CACHE,
        "LLAMA_ARG_CACHE_TYPE_V": EngineSetting.KV_VALUES,
        "LLAMA_ARG_N_GPU_LAYERS": EngineSetting.GPU_LAYERS,
        "LLAMA_ARG_N_PARALLEL": EngineSetting.CONCURRENCY,
    },
    None: {"PET_NPROC_PER_NODE": EngineSetting.PROCESSES, "NPROC_PER_NODE": EngineSetting.PROCESSES},
}
"""Variables of the environment that stand for a flag; the flag wins. vLLM, SGLang and TensorRT-LLM have none for these settings."""
_PROGRAMS: Mapping[Engine | None, tuple[str, ...]] = {
    Engine.VLLM: ("vllm", "vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"),
    Engine.SGLANG: ("sglang", "sglang.launch_server"),
    Engine.TENSORRT_LLM: ("trtllm-serve",),
    Engine.LLAMA_CPP: ("llama-server",),
}
"""Words that an engine is started by: of a shell's commands, only that one has its flags."""
_ABBREVIATED = (Engine.VLLM, Engine.SGLANG)
_SHELLS = ("sh", "bash", "dash", "zsh", "ash")
_ENDS = frozenset(";&|()")
"""Signs between the commands of a shell."""
_REDIRECTION = re.compile(r"\d?>&\d?")
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)([kKmM]?)", re.ASCII)
_FACTORS = {"": 1, "k": 1000, "m": 1_000_000, "K": 1024, "M": 1024**2}


class Asked(NamedTuple):
    """A setting as a command has it."""

    flag: str
    """As it is written there."""
    value: str


def read_settings(
    engine: Engine | None, command: Sequence[str], env: Mapping[str, str] | None = None
) -> dict[EngineSetting, Asked]:
    """What the flags of a command and its environment set; of a flag that stands twice the last, as the engines take it.

    Keys of Hydra and the like (``key=value`` without hyphens) count where their name tells whose they are.

    Args:
        engine: whose flags; ``None`` for a training.
        command: its words.
        env: plain variables beside it.
    """
    variables = VARIABLES.get(engine, {})
    commands = [_unset(words, variables) for words in _commands(command)]
    programs = _PROGRAMS.get(engine, ())
    own = [each for each in commands if any(_name(word) in programs for word in each[1])]
    found = dict(_variables((env or {}).items(), variables))
    for assigned, _ in commands:
        found |= _variables(assigned, variables)
    for _, words in own or commands:
        found |= _flags(engine, words)
    return found


def _flags(engine: Engine | None, words: Sequence[str]) -> Iterator[tuple[EngineSetting, Asked]]:
    spellings = {_plain(flag): setting for setting, flags in FLAGS.get(engine, {}).items() for flag in flags}
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        setting = _setting(engine, _plain(name), spellings, is_key=bool(equals))
        if setting is None and engine in _ABBREVIATED and word[:1] == "-" != word[1:2] and word[:2] in spellings:
            name, equals, value = word[:2], "=", word[2:]  # one letter, and its value behind it
            setting = spellings[name]
        if setting is not None:
            yield setting, Asked(name, value if equals else next(iter(words[index + 1 : index + 2]), ""))


def _setting(
    engine: Engine | None, name: str, spellings: Mapping[str, EngineSetting], *, is_key: bool
) -> EngineSetting | None:
    if name in spellings:
        return spellings[name] if is_key or name.startswith("-") else None
    if engine in _ABBREVIATED and name.startswith("--") and len(name) > len("--"):
        # An engine does not start where options of its own, which are not known here, begin alike.
        beginning = {setting for flag, setting in spellings.items() if flag.startswith(name)}
        return beginning.pop() if len(beginning) == 1 else None
    return None


def _plain(name: str) -> str:
    """A spelling with hyphens, as those who take either have it; a short flag as it is."""
    return name if name.startswith("-") and not name.startswith("--") else name.lstrip("+").replace("_", "-")


def _variables(
    assigned: Iterable[tuple[str, str]], variables: Mapping[str, EngineSetting]
) -> Iterator[tuple[EngineSetting, Asked]]:
    for name, value in assigned:
        if name in variables:
            yield variables[name], Asked(name, value)


def _unset(words: Sequence[str], variables: Mapping[str, EngineSetting]) -> tuple[list[tuple[str, str]], list[str]]:
    """Variables that a command sets, and its other words."""
    parts = [word.partition("=") for word in words]
    assigned = [(name, value) for name, equals, value in parts if equals and name in variables]
    return assigned, [
        word for word, (name, equals, _) in zip(words, parts, strict=True) if not equals or name not in variables
    ]


def _commands(command: Sequence[str]) -> Iterator[list[str]]:
    """The commands of a command line: itself, or those of the text that a shell is given."""
    shell = next((index for index, word in enumerate(command) if _name(word) in _SHELLS), len(command))
    after = next(
        (index for index in range(shell + 1, len(command)) if not command[index].startswith("-")), len(command)
    )
    if after == len(command) or len(command[after].split()) < 2:
        yield [*command[: shell + 1], *command[after:]]  # the shell's own options are left out
        return
    words: list[str] = []
    for word in _words(command[after]):
        if set(word) <= _ENDS:
            yield words
            words = []
        else:
            words.append(word)
    yield words


def _name(word: str) -> str:
    return word.rpartition("/")[2]


def _words(text: str) -> Iterator[str]:
    """The words of a shell's text, operators and ends of lines apart."""
    import shlex  # only where a command is read at all

    lines = _REDIRECTION.sub(" ", text).replace("\\\n", " ").replace("\n", " ;\n")
    reader = shlex.shlex(lines, posix=True, punctuation_chars="".join(sorted(_ENDS)))
    reader.whitespace_split = True
    try:
        yield from list(reader)
    except ValueError:  # an open quote: take it as it is written
        yield from lines.split()


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
