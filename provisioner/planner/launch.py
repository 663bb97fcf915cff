"""The command that starts the planned engine on the planned layout, as an argument list."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from provisioner.planner.request import Request
from provisioner.sizing.demand import ServingDemand
from provisioner.sizing.layout import Layout
from provisioner.vocabulary import Engine, KvDtype, Task, WeightFormat
from provisioner.workload.adapters import Adapter
from provisioner.workload.spec import Run, Workload

LOADED_AS = {WeightFormat.FP8: "fp8", WeightFormat.NF4: "bitsandbytes"}
"""Formats that vLLM and SGLang make while loading, by their name; AWQ, GPTQ and the like are read from the checkpoint."""
LISTEN = ("--host", "0.0.0.0", "--port", "8000")  # noqa: S104 - behind a security group that is closed
"""Where every served engine answers: by themselves SGLang, llama.cpp and TensorRT-LLM listen on the loopback address alone, the
first two on ports of their own (30000, 8080). Source: their server arguments, as below."""
DTYPES = {WeightFormat.BF16: "bfloat16", WeightFormat.FP16: "float16", WeightFormat.FP32: "float32"}


def launch_argv(request: Request, layout: Layout, usable_fraction: float | None, machines: int = 1) -> tuple[str, ...]:
    """Arguments that start one copy, or the user's own command; empty where the workload has no command of a known form.

    ``usable_fraction`` is the share of GPU memory that the footprint gave the engine; ``machines`` is what one copy spans. The
    command of a copy on several machines runs on each of them and names the first as ``$HEAD_ADDRESS``.
    """
    run = request.workload.run
    command = tuple(run.command) if isinstance(run, Run) else ()
    if request.workload.task.is_training:
        return _torchrun(layout, command, machines)
    if command:
        return command
    demand = request.demand
    build = _SERVERS.get(demand.engine) if isinstance(demand, ServingDemand) else None
    model = model_reference(request)
    if build is None or model is None or not isinstance(demand, ServingDemand):
        return ()
    argv = build(model, demand, layout, usable_fraction)
    argv += adapter_options(demand, request.workload.model.adapters)
    spanning = _SPANNING.get(demand.engine) if machines > 1 else None
    return argv if spanning is None else (*argv, *spanning(machines))


def launch_env(request: Request, layout: Layout) -> dict[str, str]:
    """Environment of the command beside the user's own: a training of several processes leaves the CPU threads to PyTorch's loaders."""
    if request.workload.task.is_training and layout.gpus_per_replica > 1:
        return {"OMP_NUM_THREADS": "1"}
    return {}


def why_not_auto(workload: Workload) -> tuple[str, str]:
    """Why ``run: auto`` starts nothing for a workload that has no planned command, and what to write instead."""
    pinned = "state run: {image: NAME@sha256:…, command: [...]"
    if workload.task is not Task.SERVE:
        return f"`run: auto` starts serving engines, and a {workload.task} runs a program of its own", f"{pinned}}}"
    if workload.model.id is None and workload.model.source is None:
        return (
            "`run: auto` starts a model by its id or source, and the spec has neither",
            "write model.id or model.source",
        )
    name = workload.model.id or workload.model.source
    example = "for images and video ComfyUI, say, whose queue the watcher reads (port 8188); for speech vLLM with its audio packages"
    return (
        f"`run: auto` starts serving engines, and {name} runs in a library, without a server of its own",
        f"{pinned}, ports: [...]}} with an image that has a server for it: {example}",
    )


def model_reference(request: Request) -> str | None:
    """What an engine loads: the published id, or the place the weights are fetched from; ``None`` for a bare shape."""
    model = request.workload.model
    if model.source is not None:
        return model.source.removeprefix("hf://").partition("@")[0]
    return model.id if model.id is None or "/" in model.id else request.shape.id


def _torchrun(layout: Layout, command: tuple[str, ...], machines: int) -> tuple[str, ...]:
    """``torchrun`` around the user's script where several processes train together; without a script, its head.

    Source: the page of torchrun in the PyTorch documentation (``c10d`` rendezvous over several nodes).
    """
    if layout.gpus_per_replica == 1 or (command and command[0] not in ("python", "python3")):
        return command
    meeting: tuple[str, ...] = ("--standalone",)
    if machines > 1:
        meeting = (f"--nnodes={machines}", "--rdzv-backend=c10d", "--rdzv-endpoint=$HEAD_ADDRESS:29500")
    head = ("torchrun", *meeting, f"--nproc-per-node={layout.gpus_per_replica // machines}")
    return (*head, *command[1:])


def _vllm(model: str, demand: ServingDemand, layout: Layout, fraction: float | None) -> tuple[str, ...]:
    """Source: ``vllm serve --help`` (engine arguments of the vLLM documentation)."""
    argv = ["vllm", "serve", model, "--tensor-parallel-size", str(layout.tensor_parallel)]
    if layout.pipeline_parallel > 1:
        argv += ["--pipeline-parallel-size", str(layout.pipeline_parallel)]
    argv += ["--max-model-len", str(demand.context_tokens), "--max-num-seqs", str(demand.concurrency)]
    if fraction is not None:
        argv += ["--gpu-memory-utilization", _share(fraction)]
    argv += _option("--dtype", DTYPES, demand.weights)
    argv += _option("--quantization", LOADED_AS, demand.weights)
    if demand.kv_dtype is KvDtype.FP8:
        argv += ["--kv-cache-dtype", "fp8"]
    return (*argv, *_vllm_images(demand))


def _vllm_images(demand: ServingDemand) -> tuple[str, ...]:
    """How many images a request has, and where the processor takes it how large they get: the start-up run goes by both."""
    if demand.images is None:
        return ()
    from provisioner.sizing.serving_extras import LIMITED_FAMILIES

    argv = ["--limit-mm-per-prompt", json.dumps({"image": demand.images})]
    if demand.images and demand.model.family in LIMITED_FAMILIES:
        argv += ["--mm-processor-kwargs", json.dumps({"max_pixels": demand.image_pixels})]
    return tuple(argv)


def adapter_options(demand: ServingDemand, adapters: Sequence[Adapter]) -> tuple[str, ...]:
    """Options that keep room for adapters and load them; empty for engines whose command takes none.

    Sources: LoRA pages of the vLLM and SGLang documentation; ``tools/server/README.md`` of llama.cpp.
    """
    if not adapters:
        return ()
    from provisioner.sizing.serving_extras import prepared_rank

    places = [each.source.removeprefix("hf://").partition("@")[0] for each in adapters]
    named = [f"{each.name}={place}" for each, place in zip(adapters, places, strict=True)]
    count, rank = str(len(adapters)), str(prepared_rank(demand))
    if demand.engine is Engine.VLLM:
        return ("--enable-lora", "--max-loras", count, "--max-lora-rank", rank, "--lora-modules", *named)
    if demand.engine is Engine.SGLANG:
        return ("--enable-lora", "--max-loras-per-batch", count, "--max-lora-rank", rank, "--lora-paths", *named)
    if demand.engine is Engine.LLAMA_CPP:
        return tuple(word for place in places for word in ("--lora", place))
    return ()


def _sglang(model: str, demand: ServingDemand, layout: Layout, fraction: float | None) -> tuple[str, ...]:
    """Source: server arguments of the SGLang documentation; its page for Docker starts it by ``python3``."""
    argv = ["python3", "-m", "sglang.launch_server", "--model-path", model, "--tp-size", str(layout.tensor_parallel)]
    if layout.pipeline_parallel > 1:
        argv += ["--pp-size", str(layout.pipeline_parallel)]
    argv += ["--context-length", str(demand.context_tokens), "--max-running-requests", str(demand.concurrency)]
    if fraction is not None:
        argv += ["--mem-fraction-static", _share(fraction)]
    argv += _option("--dtype", DTYPES, demand.weights)
    argv += _option("--quantization", LOADED_AS, demand.weights)
    if demand.kv_dtype is KvDtype.FP8:
        argv += ["--kv-cache-dtype", "fp8_e5m2"]
    return (*argv, "--enable-metrics", *LISTEN)


def _tensorrt_llm(model: str, demand: ServingDemand, layout: Layout, fraction: float | None) -> tuple[str, ...]:
    """Source: ``trtllm-serve`` page of the TensorRT-LLM documentation; its fraction is of what is free after the model is up."""
    argv = ["trtllm-serve", model, "--tp_size", str(layout.tensor_parallel)]
    if layout.pipeline_parallel > 1:
        argv += ["--pp_size", str(layout.pipeline_parallel)]
    argv += ["--max_seq_len", str(demand.context_tokens), "--max_batch_size", str(demand.concurrency)]
    if fraction is not None:
        argv += ["--kv_cache_free_gpu_memory_fraction", _share(fraction)]
    if demand.kv_dtype is KvDtype.FP8:
        argv += ["--kv_cache_dtype", "fp8"]  # NVIDIA/TensorRT-LLM#11487
    return (*argv, *LISTEN)


def _llama_cpp(model: str, demand: ServingDemand, layout: Layout, fraction: float | None) -> tuple[str, ...]:
    """Source: ``tools/server/README.md`` of llama.cpp; its context is shared by all slots."""
    del layout, fraction
    quant = demand.weights.removeprefix("gguf-").upper() if demand.weights.startswith("gguf-") else None
    argv = ["llama-server", "--hf-repo", f"{model}:{quant}" if quant else model]
    argv += ["--ctx-size", str(demand.context_tokens * demand.concurrency), "--parallel", str(demand.concurrency)]
    if demand.kv_dtype is KvDtype.FP8:  # its cache of 8 bits; values need flash attention for it
        argv += ["--cache-type-k", "q8_0", "--cache-type-v", "q8_0", "--flash-attn", "on"]
    return (*argv, "--n-gpu-layers", "999", "--metrics", *LISTEN)


_SERVERS: Mapping[Engine, Callable[[str, ServingDemand, Layout, float | None], tuple[str, ...]]] = {
    Engine.VLLM: _vllm,
    Engine.SGLANG: _sglang,
    Engine.TENSORRT_LLM: _tensorrt_llm,
    Engine.LLAMA_CPP: _llama_cpp,
}
"""Engines that are servers of their own; transformers, diffusers and whisper are libraries inside the user's program."""


_SPANNING: Mapping[Engine, Callable[[int], tuple[str, ...]]] = {
    Engine.VLLM: lambda _: ("--distributed-executor-backend", "ray"),
    Engine.SGLANG: lambda machines: ("--nnodes", str(machines), "--dist-init-addr", "$HEAD_ADDRESS:29500"),
}
"""What a server needs to know to span machines; the first over a running Ray cluster. Source: pages on several nodes of the
vLLM and SGLang documentation."""


def _option(name: str, words: Mapping[WeightFormat, str], weights: str) -> list[str]:
    word = {str(key): value for key, value in words.items()}.get(weights)
    return [name, word] if word else []


def _share(fraction: float) -> str:
    return f"{fraction:.3f}".rstrip("0").rstrip(".")
