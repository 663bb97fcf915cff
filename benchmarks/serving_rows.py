"""Predictions for measured rows of serving: engine start-up logs, generate loops, and runs that fitted or did not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from benchmarks.rows import Models, Row, accelerator_of, weight_word
from provisioner.errors import UsageError
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.constants import Constants
from provisioner.sizing.demand import ServingDemand
from provisioner.sizing.engines import find_profile
from provisioner.sizing.estimate import estimate_footprint
from provisioner.sizing.kv_cache import stack_cache_bytes
from provisioner.sizing.layout import Layout
from provisioner.sizing.quantisation import bits_of
from provisioner.sizing.serving import cache_pool, setting_of, stage_terms
from provisioner.sizing.serving_activations import forward_bytes
from provisioner.sizing.shapes import ModelShape
from provisioner.sizing.training import frozen_bytes
from provisioner.sizing.weights import shape_bytes, stage_counts, stage_weight_bytes
from provisioner.units import GIB, MIB
from provisioner.vocabulary import Engine, Fit, KvDtype

DEFAULT_CONTEXT = 2048
LITGPT_PROMPT_TOKENS = 64


@dataclass(frozen=True, slots=True)
class Prediction:
    """Answer to one row, in the row's meter and scope; sizes are GiB."""

    status: str
    gib: float | None = None
    low_gib: float | None = None
    high_gib: float | None = None
    fits: bool | None = None
    reason: str = ""
    components: Mapping[str, float] | None = None


def predict_serving(row: Row, models: Models) -> Prediction:
    """Prediction for a serving row.

    Raises:
        UsageError: the model or its format is not known.
    """
    engine = row.text("engine", "framework").lower()
    if engine.startswith("ollama"):
        engine = "llama.cpp"
    if UNKNOWN_ENGINES.search(engine):
        raise UsageError(f"engine {engine!r} is not modelled")
    model = models.language(row)
    if engine.startswith(("vllm", "sglang", "tensorrt", "llama.cpp")):
        return _engine_row(row, model, engine)
    return _loop_row(row, model, engine)


UNKNOWN_ENGINES = re.compile(
    r"lmdeploy|\btgi\b|text-generation-inference|\bmii\b|exllama|mlc|mlx|onnx|openvino|ctransformers"
)
"""Engines whose use of memory beside weights and cache is not known here."""


def _engine_of(text: str) -> Engine:
    for engine in Engine:
        if text.startswith(engine.value.split("-")[0]):
            return engine
    raise UsageError(f"engine {text!r} is not modelled")


def _version_of(row: Row) -> str | None:
    text = row.text("engine_version")
    match = re.search(r"v?(\d+\.\d+(?:\.\d+)?)", text)
    if match and "V1" in text and match[1].startswith("0.9"):
        return "0.11"
    if match and "V0" in text and match[1].startswith("0.8"):
        return "0.7"
    if match:
        return match[1]
    if "2026" in text:
        return "0.31"
    if "V0" in text:
        return "0.6"
    if "V1" in text:
        return "0.11"
    return "0.31" if "main" in text else None


def _engine_row(row: Row, model: ModelShape, engine_text: str) -> Prediction:
    known = accelerator_of(row.gpu, row.memory_gb, row.number("gpu_total_gib"))
    # Weights and bytes per token need no GPU; the pool does.
    accelerator = known or Accelerator("unknown", "unknown", "unknown", 80 * GIB, "assumed", None, "unknown", None)
    demand = _engine_demand(row, model, _engine_of(engine_text), accelerator)
    layout = Layout(row.count("tp"), row.count("pp"))
    if demand.engine is Engine.LLAMA_CPP and layout.gpus == 1:
        cards = re.match(r"(\d+)x ", row.text("gpu"))
        layout = Layout(1, max(1, int(cards[1]))) if cards else layout
    footprint = estimate_footprint(demand, layout, accelerator)
    terms = footprint.per_gpu
    fits = {Fit.FITS: True, Fit.BORDERLINE: None, Fit.DOES_NOT_FIT: False}[footprint.fit]
    return Prediction(
        "predicted",
        terms.total_bytes / GIB,
        terms.low_bytes / GIB,
        terms.high_bytes / GIB,
        fits if known is not None else None,
        components=_components(demand, layout, accelerator),
    )


def _components(demand: ServingDemand, layout: Layout, accelerator: Accelerator) -> dict[str, float]:
    """The parts of an engine's start-up on its first rank, in GiB, and what the pool holds."""
    pool = cache_pool(demand, layout, accelerator)
    first = stage_terms(setting_of(demand, layout, accelerator))[0]
    profile, _ = find_profile(demand.engine.value, demand.engine_version, accelerator.compute_capability)
    return {
        "weights": first.weights / GIB,
        "activation_peak": first.activation / GIB,
        "non_torch": first.non_torch / GIB,
        "cuda_graph": (profile.graph_bytes if demand.uses_graphs else 0) / GIB,
        "kv_available": pool.first_rank_bytes / GIB,
        "kv_tokens": float(pool.tokens),
        "max_concurrency": pool.requests,
    }


def _engine_demand(row: Row, model: ModelShape, engine: Engine, accelerator: Accelerator) -> ServingDemand:
    stated = row.number("max_model_len", "n_ctx_per_seq", "context_len", "n_ctx", "seq_len")
    context = max(1, int(stated or model.max_context_tokens or 8192))
    fraction = row.number("gpu_memory_utilization", "mem_fraction_static", "free_gpu_memory_fraction")
    if fraction is not None and not 0 < fraction <= 1:
        raise UsageError(f"a memory fraction of {fraction:g} is none between 0 and 1")
    return ServingDemand(
        model=model,
        weights=_engine_weights(row, model),
        engine=engine,
        engine_version=_version_of(row),
        context_tokens=context,
        concurrency=row.count("n_seq", "batch_size"),
        kv_dtype=_kv_dtype(row),
        gpu_memory_fraction=fraction,
        max_sequences=_whole(row.number("max_num_seqs")),
        max_batched_tokens=_batched_tokens(row, engine, accelerator, context),
        uses_graphs=not row.inputs.get("enforce_eager"),
        uses_draft="mtp" in row.text("speculative").lower(),
    )


def _engine_weights(row: Row, model: ModelShape) -> str:
    """Format word of a start-up row: as published where the row names the checkpoint's own format."""
    word = weight_word(row.text("dtype"), row.text("quant"), row.text("quantization")) or "auto"
    if model.quantisation is None:
        return word
    if word in ("bf16", "fp16") and "dtype" not in row.inputs:
        word = "auto"
    if "native" in row.text("quant").lower() or _same_family(model, word):
        word = "auto"
    return "bf16" if "bf16" in row.text("dtype") and "quant" not in row.inputs else word


LONG_CONTEXT = 32_768
CHUNK_TOKENS = 2_048


def _batched_tokens(row: Row, engine: Engine, accelerator: Accelerator, context: int) -> int | None:
    """Tokens of one pass as stated; vLLM's old core cuts prompts into chunks above 32,768 tokens (vllm/engine/arg_utils.py)."""
    stated = _whole(row.number("max_num_batched_tokens"))
    if stated is not None or engine is not Engine.VLLM or context <= LONG_CONTEXT:
        return stated
    profile, _ = find_profile(engine.value, _version_of(row), accelerator.compute_capability)
    return CHUNK_TOKENS if profile.runner == "V0" else None


def _same_family(model: ModelShape, word: str) -> bool:
    """Whether most weights of the checkpoint are in the format that a row names."""
    if model.quantisation is None:
        return False
    formats = dict(model.quantisation.formats)
    main = formats.get("expert" if model.is_moe else "mlp", next(iter(formats.values()), ""))
    return word.split("-", maxsplit=1)[0] == main.split("-", maxsplit=1)[0]


def _kv_dtype(row: Row) -> KvDtype:
    text = row.text("kv_cache_dtype", "kv_type").lower()
    if "fp8" in text or "int8" in text:
        return KvDtype.FP8
    return KvDtype.BF16 if "bf16" in text or "fp16" in text or "f16" in text else KvDtype.AUTO


def _whole(value: float | None) -> int | None:
    return None if value is None or value < 1 else int(value)


CONTEXT_GIB = 0.55
"""CUDA context of a plain PyTorch process, for rows on the device meter."""


LOOP_ERROR, LOOP_ERROR_GIB = 0.06, 0.1
"""Half width of the band of a generate loop: nine of ten published figures lie within."""


def _loop_row(row: Row, model: ModelShape, engine: str) -> Prediction:
    """A PyTorch generate loop: weights in their format, cache of the batch, working set of the prompt."""
    gpus = row.count("n_gpus", "num_gpus") if row.number("n_gpus", "num_gpus") else row.whole("num_gpus") or 1
    tensor = row.count("tp")
    stages = max(1, gpus // tensor) if "sequential" in engine else 1
    word_text = row.text("quantization", "quantize", "quant")
    word = weight_word(re.sub(r"(int|fp)8 kv.*", "", word_text, flags=re.IGNORECASE), row.text("dtype", "precision"))
    word = word or "bf16"
    if model.quantisation is not None and _same_family(model, word):
        word = "auto"
    weights = _loop_weights(model, word, engine, tensor, stages)
    batch = row.count("batch_size")
    prompt, total = _lengths(row)
    narrow = "int8" in row.text("kv_cache_dtype") or re.search(r"(int|fp)8 kv", word_text, re.IGNORECASE)
    cache_width = 1.0 if narrow else 2.0
    counts = stage_counts(model, stages)[0]
    cache = batch * stack_cache_bytes(model, counts, total, cache_width, tensor)
    work = _loop_work(row, model, engine, batch=batch, prompt=prompt, tensor=tensor)
    if "remote code" in engine:
        # Tuples of keys and values grow by concatenation: old and new ones are alive together.
        cache *= 2
    running = weights + cache + work
    if "fused" in engine and "awq" in word_text.lower() and model.family not in FUSED_QKV:
        # Loading makes one product of queries, keys and values while the three are still there.
        running = max(running, weights + _separate_projections(model) * bits_of("int4-awq") / 8)
    allocated = running / GIB
    meter = str(row.norm.get("meter"))
    # A loop over blocks of one size leaves no gaps: what is reserved is what is allocated.
    gib = allocated + (CONTEXT_GIB if meter == "device" or "remote code" in engine else 0.0)
    if gpus > 1 and tensor * stages == 1 and row.norm.get("scope") == "sum_over_gpus":
        # Layers are spread over the GPUs, and each meets the working set of its own layers.
        gib += (gpus - 1) * work / GIB
    scale = gpus if row.norm.get("scope") == "sum_over_gpus" and tensor * stages > 1 else 1
    accelerator = accelerator_of(str(row.norm.get("gpu") or ""), row.memory_gb)
    fits = None
    if accelerator is not None:
        need = allocated + CONTEXT_GIB
        usable = accelerator.memory_usable_bytes / GIB
        fits = True if need * (1 + LOOP_ERROR) <= usable else (None if need <= usable else False)
    return Prediction(
        "predicted",
        gib * scale,
        max(0.0, gib * scale * (1 - LOOP_ERROR) - LOOP_ERROR_GIB),
        gib * scale * (1 + LOOP_ERROR) + LOOP_ERROR_GIB,
        fits,
    )


def _loop_weights(model: ModelShape, word: str, engine: str, tensor: int, stages: int) -> float:
    """Weights on one GPU, with what stays beside them from loading."""
    if word == "auto":
        return stage_weight_bytes(shape_bytes(model, word, 1), model.counts, 0, 1)
    whole = frozen_bytes(model, word, 2.0)
    ends = (model.embedding_params + model.head_params) * 2.0
    largest = max(m.params for kind in model.kinds for m in kind.mixer.matrices + kind.mlp.matrices)
    is_wide = word in ("bf16", "fp16", "fp32")
    if tensor * stages > 1 and "litgpt" in engine:
        # LitGPT keeps embedding and head whole on each rank, or all on the first device, and converts one matrix at a time.
        return (whole - ends) / (tensor * stages) + ends + (0.0 if is_wide else 2.0 * largest)
    if tensor * stages > 1 or is_wide:
        rank = shape_bytes(model, word, tensor)
        counts = stage_counts(model, stages)
        return max(stage_weight_bytes(rank, part, stage, stages) for stage, part in enumerate(counts))
    if "ao" in engine or "gpt-fast" in engine or "litgpt" in engine:
        # These quantise the output head as well.
        whole -= model.head_params * (2.0 - bits_of(word) / 8)
    if "ao" in engine:
        # Converted matrix by matrix on the GPU: the largest one is there in 16 bit, and once more while it is converted.
        whole += 4.0 * max(largest, model.vocab_size * model.hidden_size) + Constants.conversion_gib * GIB
    return whole


FUSED_QKV = (
    "mpt",
    "falcon",
    "gpt_neox",
    "gpt2",
    "gpt_bigcode",
    "bloom",
    "chatglm",
    "phi3",
    "qwen",
    "baichuan",
    "internlm2",
)
"""Families whose checkpoints hold queries, keys and values as one matrix."""


def _separate_projections(model: ModelShape) -> int:
    """Parameters of queries, keys and values that are matrices of their own."""
    return sum(
        count * matrix.params
        for count, kind in zip(model.counts, model.kinds, strict=True)
        for matrix in kind.mixer.matrices
        if matrix.name in ("q_proj", "k_proj", "v_proj")
    )


def _lengths(row: Row) -> tuple[int, int]:
    """Prompt and total tokens of one sequence."""
    prompt = row.number("input_len")
    output = row.number("output_len")
    if prompt is None:
        longest = re.search(r"longest sample (\d+)", row.text("seq_len"))
        if longest:
            return int(longest[1]), int(longest[1])
        if row.number("context_len"):
            return LITGPT_PROMPT_TOKENS, row.count("context_len")
        stated = row.whole("seq_len")
        if stated is not None and output is None:
            return stated, stated
        return LITGPT_PROMPT_TOKENS, max(1, int(output or 200)) + LITGPT_PROMPT_TOKENS
    prompt_tokens = max(1, int(prompt))
    return prompt_tokens, prompt_tokens + max(0, int(output or 0))


def _loop_work(row: Row, model: ModelShape, engine: str, *, batch: int, prompt: int, tensor: int) -> float:
    """Working set of the prompt; a full forward pass keeps the logits of every position."""
    if row.text("mode") == "inference":
        tokens = batch * prompt
        scores = 0.0
        if "eager" in row.text("attn", "attention", "attn_implementation"):
            heads = max(kind.mixer.heads for kind in model.kinds)
            scores = batch * heads * prompt * prompt * 6.0
        return tokens * model.vocab_size * 2.0 + max(scores, 0.5 * forward_bytes(model, tokens, tensor))
    version = re.search(r"transformers (\d+)\.(\d+)", engine)
    if version and (int(version[1]), int(version[2])) >= (4, 50):
        return 20.0 * MIB
    return forward_bytes(model, batch * prompt, tensor) + 20.0 * MIB
