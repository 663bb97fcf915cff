"""Which formats of weights and caches go with which engine and which training method, as far as a spec alone can tell.

Sources: documentation of transformers ("GGUF": a file is expanded on loading, except on Apple GPUs; cache classes: int4 and int8
only), of llama.cpp (``convert_hf_to_gguf.py``, ``--cache-type-k``), of vLLM and SGLang (supported quantisation), of TensorRT-LLM
("Numerical Precision": FP8, NVFP4, AWQ, GPTQ; no bitsandbytes, no GGUF), and of bitsandbytes and PEFT (4-bit bases are NF4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from provisioner.vocabulary import Engine, KvDtype, TrainingMethod, WeightFormat
from provisioner.workload.faults import Fault
from provisioner.workload.spec import Workload
from provisioner.workload.tree import Node, Scalar, node_at

GGUF = "gguf-"
FLOAT_FORMATS = frozenset(
    {WeightFormat.AUTO, WeightFormat.FP32, WeightFormat.BF16, WeightFormat.FP16, WeightFormat.FP8}
)
"""Formats in which weights are published before anybody quantises them, and ``auto``."""

GGUF_READERS = frozenset({Engine.LLAMA_CPP, Engine.VLLM, Engine.SGLANG, Engine.DIFFUSERS})
"""Engines that keep GGUF weights packed in GPU memory."""

REFUSED_WEIGHTS: Mapping[Engine, Mapping[str, str]] = MappingProxyType(
    {
        Engine.LLAMA_CPP: {
            WeightFormat.FP8: "gguf-Q8_0",
            WeightFormat.INT8: "gguf-Q8_0",
            WeightFormat.INT4_AWQ: "gguf-Q4_K_M",
            WeightFormat.INT4_GPTQ: "gguf-Q4_K_M",
            WeightFormat.NF4: "gguf-Q4_K_M",
        },
        Engine.TENSORRT_LLM: {WeightFormat.NF4: "int4-awq"},
    }
)
"""Formats that an engine cannot load, each with the nearest that it can."""

FP8_CACHES = frozenset({Engine.VLLM, Engine.SGLANG, Engine.TENSORRT_LLM, Engine.LLAMA_CPP})
"""Engines with a cache of 8 bits (llama.cpp's is q8_0)."""


def format_faults(workload: Workload) -> Iterator[Fault]:
    """Formats that cannot work together."""
    if workload.training is not None:
        yield from _training_faults(str(workload.model.weights), workload.training.method)
    elif workload.inference is not None and workload.inference.engine is not None:
        engine = workload.inference.engine.name
        yield from _weights_faults(str(workload.model.weights), engine)
        if workload.inference.kv_cache is KvDtype.FP8 and engine not in FP8_CACHES:
            yield Fault(
                ("inference", "kv_cache"),
                f"inference.kv_cache fp8 does not go with engine {engine}, which has no such cache",
                f"write auto, or an engine that has one: {', '.join(sorted(FP8_CACHES))}",
            )


def _weights_faults(weights: str, engine: Engine) -> Iterator[Fault]:
    near = REFUSED_WEIGHTS.get(engine, {}).get(weights)
    if near is not None:
        yield Fault(
            ("model", "weights"),
            f"model.weights {weights} does not go with engine {engine}, which cannot load it",
            f"write {near}, or another engine",
        )
    if weights.startswith(GGUF) and engine not in GGUF_READERS:
        yield Fault(
            ("model", "weights"),
            f"model.weights {weights} does not go with engine {engine}, which does not keep GGUF weights packed",
            f"write another format, or an engine that does: {', '.join(sorted(GGUF_READERS))}",
        )


def _training_faults(weights: str, method: TrainingMethod) -> Iterator[Fault]:
    if weights.startswith(GGUF):
        remedy = "write auto, and train from the original weights"
        yield Fault(("model", "weights"), f"model.weights {weights} cannot be trained", remedy)
    elif method is TrainingMethod.FULL and weights not in FLOAT_FORMATS:
        yield Fault(
            ("model", "weights"),
            f"model.weights {weights} does not go with method full: quantised weights take no update",
            "write auto, or method: lora or qlora",
        )
    elif method is TrainingMethod.QLORA and weights not in FLOAT_FORMATS | {WeightFormat.NF4}:
        yield Fault(
            ("model", "weights"),
            f"model.weights {weights} does not go with method qlora, which keeps the base in nf4",
            "write auto, or method: lora",
        )


def format_warnings(root: Node, workload: Workload) -> tuple[str, ...]:
    """What a format was taken for where that is not what it says."""
    written = node_at(root, ("model", "weights"))
    is_qlora = workload.training is not None and workload.training.method is TrainingMethod.QLORA
    if not is_qlora or not isinstance(written, Scalar) or written.value in (WeightFormat.AUTO, WeightFormat.NF4):
        return ()
    return (f"model.weights {written.text} is taken for what was published: method qlora keeps the base in nf4",)
