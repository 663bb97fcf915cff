"""Predictions for measured rows of image and video models."""

from __future__ import annotations

import re

from benchmarks.rows import Row, accelerator_of, weight_word
from benchmarks.serving_rows import Prediction
from provisioner.errors import UsageError
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import MODEL_OFFLOAD, DiffusionDemand, DiffusionTrainingDemand
from provisioner.sizing.diffusion import SEQUENTIAL_OFFLOAD, SPREAD, diffusion_footprint, usual_size
from provisioner.sizing.diffusion_training import diffusion_training_footprint
from provisioner.sizing.footprint import Footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.models import find_model
from provisioner.sizing.pipelines import PipelineShape
from provisioner.units import GIB
from provisioner.vocabulary import Fit, Optimizer, Sharding, TrainingMethod, TrainingPrecision

UNKNOWN_CARD = Accelerator("unknown", "unknown", "unknown", 80 * GIB, "assumed", None, "unknown", None)


def predict_diffusion(row: Row) -> Prediction:
    """Prediction for a row of a pipeline.

    Raises:
        UsageError: the model is not known, or its method is not modelled.
    """
    model = find_model(re.sub(r"\s*[(+].*$", "", row.model).strip())
    if not isinstance(model, PipelineShape):
        raise UsageError(f"{row.model} is no image or video model")
    accelerator = accelerator_of(row.gpu, row.memory_gb)
    is_training = row.text("task") == "training" or bool(row.text("method"))
    footprint = (_training if is_training else _inference)(row, model, accelerator or UNKNOWN_CARD)
    size = _reading(row, footprint)
    # A row that names no meter may show anything from tensors to the whole device.
    is_unstated = row.norm.get("meter") not in ("allocated", "reserved", "device")
    bottom = min(size, footprint.allocated_bytes) if is_unstated else size
    top = max(size, footprint.device_bytes) if is_unstated else size
    fits = {Fit.FITS: True, Fit.BORDERLINE: None, Fit.DOES_NOT_FIT: False}[footprint.fit]
    terms = footprint.per_gpu
    return Prediction(
        "predicted",
        size / GIB,
        bottom / GIB * terms.low_bytes / terms.total_bytes,
        top / GIB * terms.high_bytes / terms.total_bytes,
        fits if accelerator is not None else None,
    )


def _reading(row: Row, footprint: Footprint) -> int:
    """Bytes on the row's meter; the tables of a quantisation library are of the pipeline at rest, not of a run."""
    if "quanto" in row.text("library"):
        return footprint.per_gpu.weights_bytes
    meter = row.norm.get("meter")
    if meter == "allocated":
        return footprint.allocated_bytes
    return footprint.device_bytes if meter == "device" else footprint.reserved_bytes


def _size(row: Row, model: PipelineShape) -> tuple[int, int, int]:
    width, height, frames = usual_size(model)
    stated = re.search(r"(\d{3,4}) ?x ?(\d{3,4})", row.text("resolution"))
    if stated:
        width, height = int(stated[1]), int(stated[2])
    elif row.number("resolution"):
        width = height = row.count("resolution")
    return width, height, max(1, int(row.number("frames") or frames))


def _inference(row: Row, model: PipelineShape, accelerator: Accelerator) -> Footprint:
    width, height, frames = _size(row, model)
    word = weight_word(row.text("quant", "transformer_quant")) or weight_word(row.text("dtype")) or "auto"
    encoders = None
    if "text_encoder_quant" in row.inputs:
        encoders = word if row.inputs["text_encoder_quant"] else "fp16"
    demand = DiffusionDemand(
        model=model,
        weights=word,
        width=width,
        height=height,
        frames=frames,
        batch=row.count("batch", "batch_size"),
        offload=_offload(row),
        encoder_weights=encoders,
        # A tiny VAE decodes in next to nothing.
        decodes="tiny" not in row.text("vae").lower(),
        vae_slicing=bool(row.inputs.get("vae_slicing")) or "slicing" in row.text("offload").lower(),
        vae_tiling=bool(row.inputs.get("vae_tiling")) or "tiling" in row.text("offload").lower(),
    )
    return diffusion_footprint(demand, Layout(), accelerator)


def _side_network() -> int:
    """Parameters of the network that ControlNet trains beside a U-Net."""
    side = find_model("lllyasviel/sd-controlnet")
    return side.params_active if isinstance(side, PipelineShape) else 0


def _offload(row: Row) -> str:
    text = row.text("offload").lower()
    if "seq" in text:
        return SEQUENTIAL_OFFLOAD
    if "model" in text:
        return MODEL_OFFLOAD
    return SPREAD if row.inputs.get("multi_gpu") else "none"


def _training(row: Row, model: PipelineShape, accelerator: Accelerator) -> Footprint:
    width, height, frames = _size(row, model)
    method = row.text("method").lower()
    optimizer = Optimizer.ADAMW_8BIT if "8" in row.text("optimizer") else Optimizer.ADAMW
    gpus = row.count("num_gpus", "n_gpus")
    sharding = Sharding.ZERO2 if "zero-2" in row.text("sharding").lower() else Sharding.DDP
    quantised = weight_word(row.text("quant"))
    if quantised is None and "mixed" in row.text("dtype"):
        quantised = "fp32"  # autocast over fp32 weights
    is_adapter = "lora" in method
    is_pure = "bfloat16" in row.text("dtype")
    demand = DiffusionTrainingDemand(
        model=model,
        weights=quantised or "auto",
        method=TrainingMethod.FULL
        if not is_adapter
        else TrainingMethod.QLORA
        if quantised and quantised not in ("bf16", "fp16", "fp32")
        else TrainingMethod.LORA,
        precision=TrainingPrecision.BF16 if is_pure else TrainingPrecision.BF16_MIXED,
        optimizer=optimizer,
        width=width,
        height=height,
        frames=frames,
        micro_batch=row.count("batch", "batch_size"),
        # Nobody trains on clips without checkpointing, so published recipes do not mention it.
        gradient_checkpointing=bool(row.inputs.get("gradient_checkpointing") or row.inputs.get("use_gc"))
        or "checkpointing" in method
        or frames > 1,
        lora_rank=max(1, int(row.number("lora_rank") or (re.search(r"rank (\d+)", method) or [0, 16])[1])),
        keeps_frozen_parts="PEFT method comparison" not in row.text("framework"),
        accumulates_gradients=(row.number("grad_accum", "gradient_accumulation") or 1) > 1,
        host_states="offload" in row.text("sharding").lower(),
        trained_params=_side_network() if "controlnet" in method else None,
    )
    layout = Layout(data_parallel=gpus, sharding=sharding if gpus > 1 else Sharding.NONE)
    return diffusion_training_footprint(demand, layout, accelerator)
