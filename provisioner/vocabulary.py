"""Words of the field that several packages share: tasks, precisions, engines, optimizers, capacity types."""

from __future__ import annotations

from enum import StrEnum


class Task(StrEnum):
    """What a workload does."""

    SERVE = "serve"
    BATCH = "batch"
    FINETUNE = "finetune"
    PRETRAIN = "pretrain"

    @property
    def is_training(self) -> bool:
        """Whether the task updates weights."""
        return self in (Task.FINETUNE, Task.PRETRAIN)


class Engine(StrEnum):
    """Software that runs a model for inference."""

    VLLM = "vllm"
    SGLANG = "sglang"
    TENSORRT_LLM = "tensorrt-llm"
    TRANSFORMERS = "transformers"
    LLAMA_CPP = "llama.cpp"
    DIFFUSERS = "diffusers"
    WHISPER = "whisper"


class WeightFormat(StrEnum):
    """Storage of model weights; GGUF types are ``gguf-<type>`` and not listed here."""

    AUTO = "auto"
    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    INT8 = "int8"
    INT4_AWQ = "int4-awq"
    INT4_GPTQ = "int4-gptq"
    NF4 = "nf4"
    MXFP4 = "mxfp4"
    NVFP4 = "nvfp4"


class KvDtype(StrEnum):
    """Storage of cached keys and values."""

    AUTO = "auto"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"


class TrainingMethod(StrEnum):
    """Which parameters a training updates."""

    FULL = "full"
    LORA = "lora"
    QLORA = "qlora"


class TrainingPrecision(StrEnum):
    """Number formats of a training run: pure, or mixed with fp32 master weights."""

    BF16 = "bf16"
    BF16_MIXED = "bf16-mixed"
    FP16_MIXED = "fp16-mixed"
    FP32 = "fp32"
    FP8 = "fp8"


class Optimizer(StrEnum):
    """Optimizers whose state we size."""

    ADAMW = "adamw"
    ADAMW_8BIT = "adamw-8bit"
    PAGED_ADAMW_8BIT = "paged-adamw-8bit"
    ADAFACTOR = "adafactor"
    SGD = "sgd"
    LION = "lion"
    MUON = "muon"


class Attention(StrEnum):
    """Attention kernels, by what they keep in memory."""

    FLASH = "flash"
    SDPA = "sdpa"
    EAGER = "eager"


class Sharding(StrEnum):
    """How a training's states are spread over GPUs."""

    AUTO = "auto"
    NONE = "none"
    DDP = "ddp"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"
    FSDP = "fsdp"
    TP = "tp"
    PP = "pp"


class CapacityType(StrEnum):
    """How capacity is bought."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    RESERVED = "reserved"
    CAPACITY_BLOCK = "capacity-block"
    FLEX_START = "flex-start"


class Interconnect(StrEnum):
    """Link between the GPUs that one replica or training spans."""

    NONE = "none"
    PCIE = "pcie"
    NVLINK = "nvlink"


class Fit(StrEnum):
    """Verdict of a footprint against usable memory."""

    FITS = "fits"
    BORDERLINE = "borderline"
    DOES_NOT_FIT = "does-not-fit"


class Objective(StrEnum):
    """What ranks the offers that hold a workload."""

    COST = "cost"
    THROUGHPUT = "throughput"
    LATENCY = "latency"


class Pattern(StrEnum):
    """How a workload uses its machine over a month."""

    STEADY = "steady"
    BURSTY = "bursty"
