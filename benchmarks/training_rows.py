"""Predictions for measured rows of fine-tuning and pre-training."""

from __future__ import annotations

import re
from dataclasses import replace

from benchmarks.rows import Models, Row, accelerator_of, weight_word
from benchmarks.serving_rows import Prediction
from provisioner.errors import UsageError
from provisioner.sizing.lora import ATTENTION_INPUTS
from provisioner.sizing.shapes import ModelShape
from provisioner.sizing.training import meters, training_bytes
from provisioner.sizing.training_recipe import RESERVED_SHARE_TRAINER, STATE_BYTES, Recipe
from provisioner.units import GIB
from provisioner.vocabulary import Attention, Optimizer, Sharding, TrainingMethod

UNKNOWN_METHODS = ("prefix", "p_tuning", "prompt", "galore", "lomo", "lisa", "llamapro")


def predict_training(row: Row, models: Models) -> Prediction:
    """Prediction for a fine-tuning or pre-training row.

    Raises:
        UsageError: the model, its size of a step or its method is not stated or not modelled.
    """
    model = models.find(row)
    recipe = recipe_of(row, model)
    tensors = training_bytes(recipe)
    meter = meters(recipe, tensors.peak)
    kind = str(row.norm.get("meter"))
    reading = _reading(row, kind)
    gib = {"allocated": tensors.peak, "reserved": meter.reserved, "device": meter.device}[reading] / GIB
    gpus = recipe.data_parallel * recipe.tensor_parallel * recipe.pipeline_parallel
    scale = gpus if row.norm.get("scope") == "sum_over_gpus" else 1
    accelerator = accelerator_of(str(row.norm.get("gpu") or ""), row.norm.get("gpu_mem_gb"))
    fits = None
    if accelerator is not None:
        usable = accelerator.memory_usable_bytes
        fits = True if meter.high <= usable else (None if meter.needed <= usable else False)
    return Prediction("predicted", gib * scale, gib * scale * 0.9, gib * scale * 1.1, fits)


def _reading(row: Row, kind: str) -> str:
    """Which meter a row shows; frameworks that do not say are known to print one."""
    if kind in ("allocated", "reserved", "device"):
        return kind
    framework = row.text("framework").lower()
    if "litgpt" in framework or "torchtune" in framework:
        return "allocated"
    return "reserved"


def recipe_of(row: Row, model: ModelShape) -> Recipe:
    """The recipe that a row describes."""
    method_text = (row.text("method") + " " + str(row.norm.get("method") or "")).lower()
    if any(word in method_text for word in UNKNOWN_METHODS):
        raise UsageError(f"method {method_text.strip()!r} is not modelled")
    is_adapter = bool(re.search(r"lora|dora|ia3|oft|adapter|vera|loha|ln_", method_text))
    quant = weight_word(row.text("quantize", "quantization", "quant"), str(row.norm.get("quant") or ""))
    if "qlora" in method_text and quant is None:
        quant = weight_word(method_text) or "nf4"
    is_quantised = quant is not None and quant not in ("bf16", "fp16", "fp32")
    method = TrainingMethod.FULL
    if is_adapter:
        method = TrainingMethod.QLORA if is_quantised else TrainingMethod.LORA
    framework = row.text("framework").lower()
    sharding = _sharding(row)
    gpus = int(row.norm.get("num_gpus") or row.number("n_gpus", "num_gpus") or 1)
    tensor = int(row.number("tp") or 1)
    stages = int(row.number("pp") or 1)
    data = max(1, gpus // (tensor * stages))
    if row.number("dp_shard"):
        data = int(row.number("dp_shard") or 1)
    if sharding is Sharding.NONE and "deepspeed" in framework and method is TrainingMethod.FULL:
        sharding = Sharding.ZERO2
    if sharding is Sharding.PP and row.number("pp") is None:
        # A device map puts whole layers on each GPU.
        stages, data = gpus, 1
    if sharding is Sharding.NONE and data > 1 and stages == 1:
        sharding = Sharding.FSDP if "litgpt" in framework and method is TrainingMethod.FULL else Sharding.DDP
    recipe = Recipe(
        model=model,
        method=method,
        base_weights=(quant or "bf16") if is_adapter else "bf16",
        **_widths(row, method, framework, sharding),  # type: ignore[arg-type]
        autocast=_autocasts(row, method),
        checkpointing=_checkpointing(row, framework, sharding),
        attention=_attention(row),
        loss_bytes=_loss_bytes(row, framework, model),
        sequence_tokens=_sequence(row),
        micro_batch=_batch(row),
        sharding=sharding,
        data_parallel=data,
        tensor_parallel=tensor,
        pipeline_parallel=stages,
        lora_rank=int(row.norm.get("lora_rank") or 16) if is_adapter else 0,
        lora_targets=_targets(row, model),
        wide_bytes=4.0 if _upcasts(row, framework) else 2.0,
        persistent_gradients=(row.number("gradient_accumulation") or 1) > 1,
        fp32_norms="decoupled" not in row.text("optimizer"),
        sequence_parallel="titan" in framework,
        gathers_all="litgpt" in framework and sharding is Sharding.FSDP,
        reserved_share=RESERVED_SHARE_TRAINER if sharding is Sharding.FSDP and "fms" in framework else 0.08,
        host_states="offload" in method_text or bool(row.inputs.get("cpu_offload")),
        host_weights=bool(row.inputs.get("cpu_offload")),
    )
    if sharding is Sharding.FSDP and is_adapter and gpus > 1:
        recipe = replace(recipe, checkpoint_bytes=4.0, loss_bytes=max(0.0, recipe.loss_bytes - 2.0))
    if "embedding and lm_head" in method_text:
        recipe = replace(recipe, extra_trained_params=model.embedding_params + model.head_params)
    return recipe


def _widths(row: Row, method: TrainingMethod, framework: str, sharding: Sharding) -> dict[str, float]:
    precision = " ".join(
        (
            row.text("precision", "dtype"),
            str(row.norm.get("precision") or ""),
            row.text("param_dtype", "master_weights"),
        )
    ).lower()
    optimizer_text = (row.text("optimizer", "optimizer_type") + str(row.norm.get("optimizer") or "")).lower()
    optimizer = Optimizer.ADAMW
    if "8-bit" in optimizer_text or "8bit" in optimizer_text:
        optimizer = Optimizer.ADAMW_8BIT
    state = STATE_BYTES[optimizer]
    if "4-bit" in optimizer_text:
        state = 1.06
    fp32 = re.search(r"fp32 master|fp32 sharded|amp|mixed|fp32 param|float32|32-true|\bfp32\b", precision) is not None
    if "bf16_flag" in row.inputs:
        fp32 = bool(row.inputs["bf16_flag"]) and sharding is Sharding.FSDP
    if framework.startswith("megatron"):
        return _megatron()
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
    if optimizer is Optimizer.ADAMW and state == STATE_BYTES[Optimizer.ADAMW]:
        state = 4.0
    step = 0.0 if "fused" in optimizer_text or optimizer is not Optimizer.ADAMW or state < 2 else 2.0
    return _named(weight=2.0, gradient=2.0, master=0.0, state=state, step=step, compute=compute)


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


def _megatron() -> dict[str, float]:
    """Megatron-DeepSpeed fp16 with ZeRO-1: 2 + 2 with the fp32 master and moments sharded."""
    return _named(weight=2.0, gradient=4.0, master=4.0, state=8.0, step=0.0, compute=2.0)


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
    if stage == 1:
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
    if row.text("framework").startswith("Megatron"):
        return Attention.EAGER
    # ms-swift hands its flash switch to Qwen's own code alone.
    ignored = "swift" in row.text("framework") and not (row.model_config or "").startswith("Qwen")
    if flash in (False, "eager") or ignored:
        return Attention.EAGER
    return Attention.FLASH


NARROW_LOSS = ("gpt_bigcode", "gpt2", "opt", "bloom")
"""Families whose class in transformers does not convert logits to fp32 for the loss."""


def _loss_bytes(row: Row, framework: str, model: ModelShape) -> float:
    """Bytes per position and word of the vocabulary that the loss holds."""
    config = row.text("framework_config")
    if "liger" in config:
        return 0.0
    if "fast-kernels" in config:
        return 8.1
    if framework.startswith("megatron"):
        return 10.0
    if "decoupled" in row.text("optimizer"):
        # llm-foundry's fused cross entropy works in place on 16-bit logits.
        return 2.0
    if "litgpt" in framework:
        return 8.0
    if "swift" in framework:
        # Its trainer also converts logits to fp32 and takes their argmax for a metric.
        return 24.0
    if row.inputs.get("bf16_flag") or row.inputs.get("fp16_flag"):
        return 16.0
    return 8.0 if model.family in NARROW_LOSS else 14.0


def _sequence(row: Row) -> int:
    value = row.inputs.get("seq_len", row.norm.get("seq_len"))
    if isinstance(value, (int, float)):
        return int(value)
    stated = row.norm.get("seq_len")
    if isinstance(stated, (int, float)):
        return int(stated)
    longest = re.search(r"longest sample (\d+)", str(value))
    if longest:
        return int(longest[1])
    limit = row.number("max_seq_length")
    if limit:
        return int(limit)
    if "alpaca" in (row.text("seq_len") + row.text("dataset")).lower():
        return 512
    raise UsageError("the row states no sequence length")


def _batch(row: Row) -> int:
    value = row.norm.get("micro_batch")
    if isinstance(value, (int, float)):
        return int(value)
    number = row.number("micro_batch_size", "micro_batch", "local_batch_size", "batch_size", "per_device_batch")
    if number:
        return int(number)
    if isinstance(value, str) or row.family == "finetune":
        return 2 if "default" in str(value) else 1
    raise UsageError("the row states no micro-batch")


def _targets(row: Row, model: ModelShape) -> str | tuple[str, ...]:
    """Adapter targets as the row spells them; the attention inputs where it says ``DEFAULT``."""
    stated: object = row.inputs.get("lora_targets")
    names = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "projection": "o_proj", "mlp": "mlp", "head": ""}
    if isinstance(stated, dict):
        chosen = [names.get(str(key), str(key)) for key, value in stated.items() if value]
    elif isinstance(stated, list):
        chosen = [str(item) for item in stated]
    elif stated is None:
        chosen = ["q_proj", "v_proj"]
    else:
        text = str(stated)
        if re.search(r"all", text, re.IGNORECASE):
            return "all-linear"
        if "DEFAULT" in text:
            return ATTENTION_INPUTS
        words: list[str] = [word for word in re.split(r"[ ,]+", text) if word]
        chosen = [{"q": "q_proj", "v": "v_proj"}.get(word, word) for word in words]
    known = {m.name for kind in model.kinds for m in kind.mixer.matrices + kind.mlp.matrices}
    kept = tuple(word for word in chosen if word in known or word.lower() in SPELLED)
    return kept or ("q_proj", "v_proj")


SPELLED = ("c_attn", "c_proj", "w1", "w2", "qkv", "mlp", "w_pack", "query_key_value", "dense")
