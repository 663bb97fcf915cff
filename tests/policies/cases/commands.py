"""Cases of the command rules."""

from __future__ import annotations

from typing import Any

from policies.engine_flags import EngineSetting
from policies.facts import UNKNOWN, Subject
from provisioner.sizing.layout import Layout
from provisioner.units import GIB
from tests.policies.builders import candidate, fit, placement
from tests.policies.cases.common import NOT_KNOWN, Cases

PLANNED = {
    EngineSetting.TENSOR_PARALLEL: "2",
    EngineSetting.PIPELINE_PARALLEL: "1",
    EngineSetting.CONTEXT: "8192",
    EngineSetting.MEMORY_SHARE: "0.90",
    EngineSetting.QUANTISATION: "fp8",
    EngineSetting.CACHE_SHARE: "0.90",
    EngineSetting.KV_CACHE: "fp8",
    EngineSetting.KV_VALUES: "fp8",
    EngineSetting.GPU_LAYERS: "32",
    EngineSetting.CONCURRENCY: "4",
    EngineSetting.ADAPTERS: "2",
    EngineSetting.ADAPTER_RANK: "16",
}
TWO = fit(18 * GIB, layout=Layout(tensor_parallel=2))


def runs(*command: str, planned: Any = None, engine: str = "vllm", **facts: Any) -> Subject:
    offer = {"instance_type": "g6.12xlarge", "fit": TWO, "planned": planned or PLANNED, **facts.pop("offer", {})}
    changes = {"inference.engine": engine}
    return placement(candidate(**offer), command=command, changes=changes, **facts)


UNKNOWNS = (
    placement(command=UNKNOWN),
    placement(NOT_KNOWN, command=("vllm", "serve", "m", "-tp", "2")),
    runs("vllm", "--max-model-len", "8192", workload=UNKNOWN),
    runs("vllm", "--max-model-len", "8192", offer={"planned": UNKNOWN}),
    runs("vllm", "--max-model-len", "8192", offer={"fit": UNKNOWN}),
    runs("vllm", "--max-model-len", "8192", offer={"instance": UNKNOWN}),
    runs("vllm", "--max-model-len", "8192", planned=PLANNED | {EngineSetting.CONTEXT: UNKNOWN}),
    runs("vllm", "--max-model-len", "$CONTEXT"),
    runs("vllm", "--max-model-len"),
    runs("vllm", "-tp", "auto"),
    runs("vllm", "--max-num-seqs", "many"),
    runs("vllm", "-tp", "0"),
    runs("vllm", "--gpu-memory-utilization", "1.5"),
    runs("vllm", "--gpu-memory-utilization", "0"),
    runs("vllm", "--gpu-memory-utilization", "most"),
    runs("vllm", "--max-model-len", "8192", candidates=UNKNOWN),
    runs("vllm", "--max-model-len", "auto"),
    runs("vllm", "--kv-cache-dtype", "of-my-own"),
    runs("llama-server", "-c", "0", engine="llama.cpp"),
    runs("llama-server", "-ngl", "most", engine="llama.cpp"),
    runs("trtllm-serve", "m", "--free_gpu_memory_fraction", "most", engine="tensorrt-llm"),
    placement(command=("-tp", "2"), shape=UNKNOWN, changes={"inference.engine": ...}),
)
SAME = (
    runs("vllm", "serve", "m", "--tensor-parallel-size", "2", "--max-model-len=8192"),
    runs(
        "vllm", "-tp", "2", "-pp", "1", "--gpu-memory-utilization", "0.9", "-q", "fp8", "--kv-cache-dtype", "fp8_e4m3"
    ),
    runs("sh", "-c", "exec vllm serve m --max_model_len 8K --tensor-parallel-size=2"),
    runs("vllm", "--max-model-len", "99999", "--max-model-len", "8192"),
    runs("vllm", "--gpu-memory-utilization", "0.904", "--quantization", "of-my-own"),
    runs("python", "-m", "sglang.launch_server", "--tp", "2", "--context-length", "8192", engine="sglang"),
    runs("trtllm-serve", "m", "--tp_size", "2", "--max_seq_len", "8192", engine="tensorrt-llm"),
    runs("llama-server", "-c", "8192", "-np", "4", "-ctk", "q8_0", engine="llama.cpp"),
    runs("vllm", "--max-num-seqs", "4", "--max_loras=2", "--max-lora-rank", "16"),
    runs("trtllm-serve", "m", "--tensor_parallel_size", "2", "--max_batch_size=4", engine="tensorrt-llm"),
    runs("vllm", "--max-loras", "9", "--max-num-seqs", "9", planned={EngineSetting.KV_CACHE: "auto"}),
    runs("vllm", "-q", "awq", planned=PLANNED | {EngineSetting.QUANTISATION: "int4-awq"}),
    runs("vllm", "-q", "awq", planned=PLANNED | {EngineSetting.QUANTISATION: "auto"}),
    runs("vllm", "-q", "fp8", "-tp", "1", planned={EngineSetting.KV_CACHE: "auto"}),
    runs("llama-server", "-ngl", "99", "-ctk", "q8_0", "-ctv", "q8_0", engine="llama.cpp"),
    runs("llama-server", "--gpu-layers", "all", engine="llama.cpp", env={"LLAMA_ARG_CTX_SIZE": "8192"}),
    runs("trtllm-serve", "m", "--kv_cache_free_gpu_memory_fraction", "0.9", engine="tensorrt-llm"),
    runs("vllm", "--kv-cache-dtype", "bfloat16", planned=PLANNED | {EngineSetting.KV_CACHE: "auto"}),
)
MORE = (
    runs("vllm", "--max-model-len", "8193"),
    runs("vllm", "--max-model-len", "9k"),
    runs("sh", "-c", "vllm serve m --max-model-len 32768"),
    runs("sh", "-c", "vllm serve 'm --max-model-len 32768"),
    runs("vllm", "-tp", "1"),
    runs("vllm", "-tp", "8"),
    runs("vllm", "-pp", "5"),
    runs("vllm", "--gpu_memory_utilization", "0.8"),
    runs("vllm", "-q", "fp8", planned=PLANNED | {EngineSetting.QUANTISATION: "int4-awq"}),
    runs("vllm", "--kv-cache-dtype", "auto"),
    runs("sglang", "--mem-fraction-static", "0.5", engine="sglang"),
    runs("llama-server", "--ctx-size", "16384", engine="llama.cpp"),
    runs("vllm", "--max-loras", "3"),
    runs("sglang", "--max_lora_rank=64", engine="sglang"),
    runs("sglang", "--context-len", "9000", engine="sglang"),
    runs("llama-server", engine="llama.cpp", env={"LLAMA_ARG_CTX_SIZE": "16384"}),
    runs("llama-server", "--cache-type-v", "f16", engine="llama.cpp"),
)
LESS = (
    runs("vllm", "--max-model-len", "8191"),
    runs("vllm", "-tp", "4"),
    runs("vllm", "-pp", "2"),
    runs("vllm", "--gpu-memory-utilization", "0.95"),
    runs("vllm", "--gpu-memory-utilization", "0.85", offer={"fit": fit(10 * GIB, layout=Layout(tensor_parallel=2))}),
    runs("vllm", "-q", "awq"),
    runs("vllm", "--max-num-seqs", "256"),
    runs("sglang", "--max-running-requests", "2", engine="sglang"),
    runs("vllm", "--max-lora-rank", "8"),
    runs("vllm", "-q", "fp8", planned=PLANNED | {EngineSetting.QUANTISATION: "bf16"}),
    runs("vllm", "--kv-cache-dtype", "fp8", planned=PLANNED | {EngineSetting.KV_CACHE: "auto"}),
    runs("llama-server", "-ctk", "q4_0", engine="llama.cpp"),
    runs("llama-server", "--n-gpu-layers", "20", engine="llama.cpp"),
    runs("trtllm-serve", "m", "--free_gpu_memory_fraction", "0.5", engine="tensorrt-llm"),
)
COMMANDS = {
    "command-over-plan": Cases(
        passes=(*SAME, *LESS),
        fails=MORE,
        boundary=(runs("vllm", "--max-model-len", "8192"), runs("vllm", "--max-model-len", "8193")),
        unknowns=UNKNOWNS,
    ),
    "command-differs": Cases(
        passes=(*SAME, *MORE),
        fails=LESS,
        boundary=(runs("vllm", "--max-model-len", "8192"), runs("vllm", "--max-model-len", "8191")),
        unknowns=UNKNOWNS,
    ),
}
"""The share of 20 GiB usable at 0.90 that holds 18 GiB is 0.81."""
