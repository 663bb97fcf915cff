"""Predictions for measured rows of fine-tuning and pre-training."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from benchmarks.rows import Models, Row, accelerator_of, weight_word
from benchmarks.serving_rows import Prediction
from benchmarks.tuner_rows import lora_targets, tuner_of
from provisioner.errors import UsageError
from provisioner.sizing.constants import Constants
from provisioner.sizing.shapes import ModelShape
from provisioner.sizing.training import meters, stage_bytes, training_bytes
from provisioner.sizing.training_recipe import FOLLOWS_PARAMETERS, STATE_BYTES, Recipe
from provisioner.units import GIB, MIB
from provisioner.vocabulary import Attention, Optimizer, Sharding, TrainingMethod


def predict_training(row: Row, models: Models) -> Prediction:
    """Prediction for a fine-tuning or pre-training row.

    Raises:
        UsageError: the model, its size of a step or its method is not stated or not modelled.
    """
    model = models.language(row)
    if "litgpt" in row.text("framework").lower() and model.tied_embeddings:
        # Its models have no tied weights: the head stands beside the embedding.
        model = replace(model, tied_embeddings=False, head_params=model.embedding_params)
    recipe = recipe_of(row, model)
    meter = meters(recipe, training_bytes(recipe))
    # Who reads a pipeline reads its first rank; the fullest one decides whether it fits.
    read = stage_bytes(recipe)[0]
    shown = meters(recipe, read)
    kind = str(row.norm.get("meter"))
    reading = _reading(row, kind)
    gib = {"allocated": read.peak, "reserved": shown.reserved, "device": shown.device}[reading] / GIB
    gpus = recipe.data_parallel * recipe.tensor_parallel * recipe.pipeline_parallel
    scale = gpus if row.norm.get("scope") == "sum_over_gpus" else 1
    accelerator = accelerator_of(str(row.norm.get("gpu") or ""), row.memory_gb)
    fits = None
    if accelerator is not None:
        usable = accelerator.memory_usable_bytes
        fits = True if meter.high <= usable else (None if meter.needed <= usable else False)
    # A row that names no meter may show anything from tensors to the whole device.
    known = kind != "unstated" or reading == "allocated"
    bottom, top = (gib * GIB, gib * GIB) if known else (read.peak, shown.device)
    low, high = (bottom / GIB * shown.low / shown.needed, top / GIB * shown.high / shown.needed)
    return Prediction("predicted", gib * scale, low * scale, high * scale, fits)


def _reading(row: Row, kind: str) -> str:
    """Which meter a row shows; frameworks that do not say are known to print one."""
    if kind in ("allocated", "reserved", "device"):
        return kind
    framework = row.text("framework").lower()
    if "litgpt" in framework or "torchtune" in framework:
        return "allocated"
    return "reserved"


def recipe_of(row: Row, model: ModelShape) -> Recipe:
    """The recipe that a row describes.

    Raises:
        UsageError: the method is not modelled, or the row states no length or batch.
    """
    method_text = (row.text("method") + " " + str(row.norm.get("method") or "")).lower()
    tuner = tuner_of(row, model, method_text)
    quant = weight_word(row.text("quantize", "quantization", "quant"), str(row.norm.get("quant") or ""))
    if "qlora" in method_text and quant is None:
        quant = weight_word(method_text) or "nf4"
    method = TrainingMethod.FULL
    if tuner.is_adapter:
        is_wide = quant is None or quant in ("bf16", "fp16", "fp32")
        method = TrainingMethod.LORA if is_wide else TrainingMethod.QLORA
    framework = row.text("framework").lower()
    spread = _spread(row, framework, method)
    batch = _batch(row)
    steps = _micro_batches(row, batch, spread.data)
    widths = {**_widths(row, method, framework, spread.sharding), **tuner.widths}
    recipe = Recipe(
        model=model,
        method=method,
        base_weights=(quant or "bf16") if tuner.is_adapter else "bf16",
        **widths,  # type: ignore[arg-type]
        autocast=_autocasts(row, method),
        checkpointing=_checkpointing(row, framework, spread.sharding),
        attention=_attention(row),
        loss_bytes=_loss_bytes(row, framework, model),
        sequence_tokens=_sequence(row),
        micro_batch=batch,
        sharding=spread.sharding,
        data_parallel=spread.data,
        tensor_parallel=spread.tensor,
        pipeline_parallel=spread.stages,
        micro_batches=steps,
        is_staged=spread.is_staged,
        lora_rank=(row.whole("lora_rank") or 16) if tuner.is_adapter else 0,
        lora_targets="all-linear" if tuner.adapter_kind == "scale" else lora_targets(row, model),
        trained_params=tuner.trained_params,
        adapter_kind=tuner.adapter_kind,
        persistent_gradients=(steps or 1) > 1,
        layer_gradients="per-layer" in row.text("optimizer").lower(),
        host_states="offload" in method_text or bool(row.inputs.get("cpu_offload")),
        host_weights=bool(row.inputs.get("cpu_offload")),
    )
    if "embedding and lm_head" in method_text:
        recipe = replace(recipe, extra_trained_params=model.embedding_params + model.head_params)
    return _as_framework(recipe, row, framework)


def _as_framework(recipe: Recipe, row: Row, framework: str) -> Recipe:
    """A recipe with what its framework does by its own code."""
    is_full = recipe.method is TrainingMethod.FULL
    is_litgpt = "litgpt" in framework
    is_fsdp = recipe.sharding is Sharding.FSDP
    recipe = replace(
        recipe,
        wide_bytes=4.0 if _upcasts(row, framework) else 2.0,
        # Low-precision norms of llm-foundry, and fused ones of Megatron and torchtitan, store no fp32 copy.
        fp32_norms="decoupled" not in row.text("optimizer") and not re.search(r"megatron|nemo|titan", framework),
        fused_softmax=framework.startswith("megatron"),
        sequence_parallel="titan" in framework or bool(row.inputs.get("sequence_parallel")),
        context_bytes=_context_bytes(row, framework),
        fused_qkv=is_litgpt,
        unsynced_gradients=is_litgpt and is_full,
        gathers_all=is_litgpt and is_fsdp,
        # The stable embedding that replaces the frozen one is left trainable, and no optimizer clears its gradient.
        embedding_gradient=is_litgpt and recipe.method is TrainingMethod.QLORA,
    )
    if is_fsdp and not is_full and recipe.data_parallel > 1:
        recipe = replace(recipe, checkpoint_bytes=4.0, loss_bytes=max(0.0, recipe.loss_bytes - 2.0))
    return recipe


@dataclass(frozen=True, slots=True)
class Spread:
    """How a row's training lies over its GPUs."""

    sharding: Sharding
    data: int
    tensor: int
    stages: int
    is_staged: bool


def _spread(row: Row, framework: str, method: TrainingMethod) -> Spread:
    sharding = _sharding(row)
    gpus = row.whole("num_gpus") or row.count("n_gpus", "num_gpus")
    tensor, stages = row.count("tp"), row.count("pp")
    data = row.count("dp_shard") if row.number("dp_shard") else max(1, gpus // (tensor * stages))
    if sharding is Sharding.NONE and "deepspeed" in framework and method is TrainingMethod.FULL:
        sharding = Sharding.ZERO2
    is_staged = sharding is Sharding.PP and row.number("pp") is None
    if is_staged:
        # A device map puts whole layers on each GPU.
        stages, data = gpus, 1
    if sharding is Sharding.NONE and data > 1 and stages == 1:
        sharding = Sharding.FSDP if "litgpt" in framework and method is TrainingMethod.FULL else Sharding.DDP
    return Spread(sharding, data, tensor, stages, is_staged)


def _context_bytes(row: Row, framework: str) -> int | None:
    """CUDA context before kernels were loaded on demand: 1,113 MiB on V100 (bigscience), 1.78 GiB on A100 (ml-engineering)."""
    if not framework.startswith("megatron-deepspeed"):
        return None
    return 1113 * MIB if "V100" in str(row.norm.get("gpu")) else 1823 * MIB


def _micro_batches(row: Row, batch: int, data_parallel: int) -> int | None:
    """Micro-batches of one optimizer step, ``None`` where the row does not say."""
    accumulated = row.number("gradient_accumulation", "gradient_accumulation_steps", "grad_accum")
    if accumulated:
        return max(1, int(accumulated))
    whole = row.number("global_batch_size")
    return max(1, int(whole) // (batch * data_parallel)) if whole else None


def _widths(row: Row, method: TrainingMethod, framework: str, sharding: Sharding) -> dict[str, float]:
    precision = " ".join(
        (
            row.text("precision", "dtype"),
            str(row.norm.get("precision") or ""),
            row.text("param_dtype", "master_weights"),
        )
    ).lower()
    optimizer_text = (row.text("optimizer", "optimizer_type") + str(row.norm.get("optimizer") or "")).lower()
    optimizer = _optimizer(optimizer_text)
    state = STATE_BYTES[optimizer]
    if "4-bit" in optimizer_text or "4bit" in optimizer_text:
        state = 1.06
    fp32 = re.search(r"fp32 master|fp32 sharded|amp|mixed|fp32 param|float32|32-true|\bfp32\b", precision) is not None
    if "bf16_flag" in row.inputs:
        fp32 = bool(row.inputs["bf16_flag"]) and sharding is Sharding.FSDP
    if MEGATRON_CORE.search(framework):
        # 16-bit weights, fp32 gradients, and master and moments that the distributed optimizer shards.
        return _named(weight=2.0, gradient=4.0, master=4.0, state=8.0, step=0.0, compute=2.0)
    if framework.startswith("megatron"):
        # fp16 and bf16 with ZeRO-1: fp32 master, moments and the gradient of the step are sharded.
        return _named(weight=2.0, gradient=2.0, master=4.0, state=8.0, step=4.0, compute=2.0)
    compute = 4.0 if precision.strip() in ("fp32", "32-true", "fp32 fp32") else 2.0
    deepspeed = sharding in (Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3) or "deepspeed" in framework
    if method is not TrainingMethod.FULL:
        # PEFT keeps adapters in fp32, LitGPT in the precision of the run.
        width = 2.0 if "litgpt" in framework else 4.0
        return _named(weight=width, gradient=width, master=0.0, state=state * width / 4, step=0.0, compute=compute)
    if deepspeed:
        return _named(weight=2.0, gradient=2.0, master=4.0, state=state, step=4.0, compute=compute)
    if fp32:
        is_plain = "fused" in optimizer_text or "decoupled" in optimizer_text or optimizer is not Optimizer.ADAMW
        step = 0.0 if is_plain else 4.0
        return _named(weight=4.0, gradient=4.0, master=0.0, state=state, step=step, compute=compute)
    if optimizer in FOLLOWS_PARAMETERS and state == STATE_BYTES[optimizer]:
        state /= 2
    step = 0.0 if "fused" in optimizer_text or optimizer is not Optimizer.ADAMW or state < 2 else 2.0
    return _named(weight=2.0, gradient=2.0, master=0.0, state=state, step=step, compute=compute)


MEGATRON_CORE = re.compile(r"megatron[- ](lm|core|bridge)|\bnemo\b")
OPTIMIZERS = (
    (r"8.?bit", Optimizer.ADAMW_8BIT),
    (r"adafactor", Optimizer.ADAFACTOR),
    (r"\blion", Optimizer.LION),
    (r"muon", Optimizer.MUON),
    (r"\bsgd\b", Optimizer.SGD),
)
UNKNOWN_OPTIMIZERS = re.compile(r"shampoo|\bsoap\b|adahessian|\bcame\b")


def _optimizer(text: str) -> Optimizer:
    """The optimizer of a text, AdamW where it names none.

    Raises:
        UsageError: its state is not modelled.
    """
    if UNKNOWN_OPTIMIZERS.search(text):
        raise UsageError(f"optimizer {text.strip()!r} is not modelled")
    return next((optimizer for pattern, optimizer in OPTIMIZERS if re.search(pattern, text)), Optimizer.ADAMW)


def _upcasts(row: Row, framework: str) -> bool:
    """Whether k-bit preparation keeps what is not quantised in fp32."""
    quantised = row.text("quantization", "quantize")
    return "baseline" in quantised or ("bnb" in quantised and ("swift" in framework or "trl" in framework))


def _named(
    *, weight: float, gradient: float, master: float, state: float, step: float, compute: float
) -> dict[str, float]:
    return {
        "weight_bytes": weight,
        "gradient_bytes": gradient,
        "master_bytes": master,
        "state_bytes": state,
        "step_bytes": step,
        "compute_bytes": compute,
    }


def _autocasts(row: Row, method: TrainingMethod) -> bool:
    precision = (row.text("precision") + str(row.norm.get("precision") or "")).lower()
    return method is TrainingMethod.FULL and "amp" in precision


def _sharding(row: Row) -> Sharding:
    text = (row.text("sharding") + " " + row.text("method")).lower()
    stage = row.number("zero_stage")
    if "zero-3" in text or stage == 3:
        return Sharding.ZERO3
    if "zero-2" in text or stage == 2:
        return Sharding.ZERO2
    if stage == 1 or "zero-1" in text or "distributed optimizer" in text:
        return Sharding.ZERO1
    if "shard_grad_op" in text:
        return Sharding.ZERO2
    if "fsdp" in text or "dp_shard" in row.inputs:
        return Sharding.FSDP
    return Sharding.PP if "device_map" in text else Sharding.NONE


def _checkpointing(row: Row, framework: str, sharding: Sharding) -> str:
    text = str(
        row.inputs.get(
            "gradient_checkpointing", row.inputs.get("activation_checkpointing", row.norm.get("checkpointing"))
        )
    ).lower()
    if "selective" in text:
        return "selective"
    if text.startswith(("true", "full", "default (on)", "on")):
        return "full"
    if text == "not stated" and "titan" in framework:
        return "full"
    if text in ("none", "not stated") and "litgpt" in framework:
        return "full" if sharding is Sharding.FSDP else "none"
    return "none"


def _attention(row: Row) -> Attention:
    flash = row.inputs.get("flash_attention", row.inputs.get("attention"))
    if row.text("framework").startswith("Megatron-DeepSpeed"):
        return Attention.EAGER
    if flash == "sdpa":
        return Attention.SDPA
    # ms-swift hands its flash switch to Qwen's own code alone.
    ignored = "swift" in row.text("framework") and not (row.model_config or "").startswith("Qwen")
    if flash in (False, "eager") or ignored:
        return Attention.EAGER
    return Attention.FLASH


FUSED_LOSS = re.compile(r"liger|fused[_ ]linear|cut.?cross.?entropy|chunked.?(ce|loss|cross)", re.IGNORECASE)
NARROW_LOSS = ("gpt_bigcode", "gpt2", "opt", "bloom")
"""Families whose class in transformers does not convert logits to fp32 for the loss."""
NARROW_LOSS_BYTES = 8.0
"""A loss in 16 bit: logits, their shifted copy, and the gradient of each."""


def _loss_bytes(row: Row, framework: str, model: ModelShape) -> float:
    """Bytes per position and word of the vocabulary that the loss holds."""
    config = row.text("framework_config")
    if FUSED_LOSS.search(" ".join((config, framework, row.text("loss", "kernels", "method")))):
        return 0.0
    if "fast-kernels" in config or "litgpt" in framework:
        return NARROW_LOSS_BYTES
    if framework.startswith("megatron") or "nemo" in framework:
        # 16-bit logits and their gradient, an fp32 copy that turns into the softmax, and its gradient.
        return 12.0
    if "decoupled" in row.text("optimizer"):
        # llm-foundry's fused cross entropy works in place on 16-bit logits.
        return 2.0
    if "swift" in framework:
        # Its trainer also converts logits to fp32 and takes their argmax for a metric.
        return 14.0 + Constants.metric_loss_bytes
    if row.inputs.get("torch_compile"):
        return Constants.compiled_loss_bytes
    if row.inputs.get("bf16_flag") or row.inputs.get("fp16_flag"):
        return 16.0
    return NARROW_LOSS_BYTES if model.family in NARROW_LOSS else 14.0


def _sequence(row: Row) -> int:
    stated = row.number("seq_len") or row.whole("seq_len")
    if stated and stated >= 1:
        return int(stated)
    longest = re.search(r"longest sample (\d+)", str(row.inputs.get("seq_len", row.norm.get("seq_len"))))
    if longest:
        return int(longest[1])
    limit = row.number("max_seq_length", "max_length", "sequence_length", "context_length", "cutoff_len")
    if limit and limit >= 1:
        return int(limit)
    if "alpaca" in (row.text("seq_len") + row.text("dataset")).lower():
        return 512
    raise UsageError("the row states no sequence length")


BATCH_NAMES = (
    "micro_batch_size",
    "micro_batch",
    "local_batch_size",
    "batch_size",
    "per_device_batch",
    "per_device_train_batch_size",
)


def _batch(row: Row) -> int:
    number = row.whole("micro_batch") or row.number(*BATCH_NAMES)
    if number and number >= 1:
        return int(number)
    value = row.norm.get("micro_batch")
    if isinstance(value, str) or row.family == "finetune":
        return 2 if "default" in str(value) else 1
    raise UsageError("the row states no micro-batch")
