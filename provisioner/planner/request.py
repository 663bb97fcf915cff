"""From a workload, a model shape and a GPU row to the frozen inputs of sizing; defaults that need the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.catalog.gpus import Gpu
from provisioner.catalog.instances import InstanceType
from provisioner.catalog.snapshot import Catalog
from provisioner.errors import UsageError
from provisioner.planner.adapters import common_targets, started_rank
from provisioner.planner.requirements import KeyedSpecError, Requirements, resolve_requirements
from provisioner.planner.suitability import PACKED, check_suitability, published_format
from provisioner.records import record
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import Demand, ServingDemand, TrainingDemand
from provisioner.sizing.layout import Layout
from provisioner.sizing.models import find_model, shape_from_config, shape_from_dimensions
from provisioner.sizing.pipelines import IMAGE, SPEECH_TO_TEXT, VIDEO, PipelineShape
from provisioner.sizing.shapes import ModelShape
from provisioner.vocabulary import (
    Engine,
    Interconnect,
    KvDtype,
    Task,
    TrainingMethod,
    TrainingPrecision,
    WeightFormat,
)
from provisioner.workload.spec import Inference, Lora, Training, Workload

CONTEXT_TOKENS_MAX = 8192
"""Context of a request where the spec names none and the model allows it (CONTRACTS 4)."""
INPUT_TOKENS_MAX = 1024
OUTPUT_TOKENS_MAX = 256


@record(frozen=True, slots=True)
class Request:
    """A workload made ready for the catalog: its shape, what sizing is asked, and the hard requirements."""

    workload: Workload
    shape: ModelShape
    demand: Demand
    requirements: Requirements

    @property
    def engine(self) -> Engine | None:
        """The engine that serves; ``None`` for a training."""
        inference = self.workload.inference
        return None if self.workload.task.is_training else engine_of(inference or Inference(), self.shape)[0]

    @property
    def weights(self) -> str:
        """Format of the weights that run: as asked, ``auto`` resolved to what the checkpoint holds (its widest-used format)."""
        if self.demand.weights != WeightFormat.AUTO:
            return self.demand.weights
        return published_format(self.shape)


def request_for(workload: Workload, catalog: Catalog, provider: str | None = None) -> Request:
    """The whole request of a workload.

    Raises:
        KeyedSpecError: a model, region, instance type or GPU that is not known.
    """
    requirements = resolve_requirements(workload, catalog, provider)
    shape = shape_for(workload)
    return Request(workload, shape, demand_for(workload, shape), requirements)


def shape_for(workload: Workload) -> ModelShape:
    """The model's shape: from the bundled index, the inline config or the explicit shape.

    Raises:
        KeyedSpecError: an unknown id, or an architecture that sizing does not model.
    """
    model = workload.model
    key = "model.id" if model.id is not None else "model.config" if model.config is not None else "model.shape"
    try:
        if model.config is not None:
            return shape_from_config(_mapping(model.config), model.id or workload.name)
        if model.shape is not None:
            return shape_from_dimensions(_mapping(model.shape), model.id or workload.name)
        return find_model(model.id or "")
    except UsageError as error:
        raise KeyedSpecError(error.message, key=key, remedy=error.remedy) from None


def _mapping(section: Any) -> Mapping[str, Any]:
    """A section of the spec as a plain mapping, absent keys left out."""
    if isinstance(section, Mapping):
        return section
    dumped: Mapping[str, Any] = section.model_dump(exclude_none=True)
    return dumped


def demand_for(workload: Workload, shape: ModelShape) -> Demand:
    """What sizing is asked: one serving copy, or the training.

    Raises:
        KeyedSpecError: the section of the task is missing, or asks what the kind of model rules out.
    """
    check_suitability(workload, shape)
    if isinstance(shape, PipelineShape):
        from provisioner.planner.media import media_demand  # only for image, video and audio models

        return media_demand(workload, shape)
    if workload.task.is_training:
        if workload.training is None:
            raise KeyedSpecError(f"task {workload.task} needs the section training", key="training")
        return _training_demand(workload, workload.training, shape)
    return _serving_demand(workload, workload.inference or Inference(), shape)


def _serving_demand(workload: Workload, inference: Inference, shape: ModelShape) -> ServingDemand:
    engine, version = engine_of(inference, shape)
    context = context_tokens(inference, shape)
    adapters = workload.model.adapters
    images, pixels, media = image_inputs(inference, shape, context)
    return ServingDemand(
        model=shape,
        weights=str(workload.model.weights),
        engine=engine,
        engine_version=version,
        context_tokens=context,
        concurrency=inference.concurrency,
        kv_dtype=KvDtype(inference.kv_cache),
        gpu_memory_fraction=_number(inference.gpu_memory_fraction),
        input_tokens=inference.input_tokens or max(1, min(INPUT_TOKENS_MAX + media, context * 3 // 4)),
        output_tokens=inference.output_tokens or max(1, min(OUTPUT_TOKENS_MAX, context // 4)),
        adapters=len(adapters),
        adapter_rank=max(ranks) if (ranks := [each.rank for each in adapters if each.rank]) else None,
        adapter_targets=common_targets(adapters),
        tensor_parallel=_degree(inference.tensor_parallel),
        pipeline_parallel=_degree(inference.pipeline_parallel),
        quantises_on_load=_is_narrowed(workload, shape),
        images=images,
        image_pixels=pixels,
    )


def _is_narrowed(workload: Workload, shape: ModelShape) -> bool:
    """Whether an engine makes the asked format out of a wide checkpoint: no other source is named, and it is one engines make."""
    model = workload.model
    return model.weights in (WeightFormat.FP8, WeightFormat.NF4) and shape.quantisation is None and model.source is None


def image_inputs(inference: Inference, shape: ModelShape, context: int) -> tuple[int | None, int, int]:
    """Images of a request, the pixels of each, and the tokens that all take; ``None`` where the spec says nothing of images.

    Raises:
        KeyedSpecError: they take more tokens than a request may have.
    """
    inputs = inference.inputs
    if inputs is None or (inputs.images is None and inputs.image_pixels is None):
        return None, 0, 0
    from provisioner.sizing.multimodal import USUAL_PIXELS
    from provisioner.sizing.serving_extras import image_tokens

    images, pixels = inputs.images if inputs.images is not None else 1, inputs.image_pixels or USUAL_PIXELS
    tokens = image_tokens(shape, images, pixels)
    if tokens >= context:
        raise KeyedSpecError(
            f"{images} images of {pixels} pixels take {tokens} tokens, and a request has {context} (inference.context_tokens)",
            key="inference.inputs",
            remedy=f"raise inference.context_tokens above {tokens}, or send fewer or smaller images",
        )
    return images, pixels, tokens


def context_tokens(inference: Inference, shape: ModelShape) -> int:
    """Input + output tokens of a request: as asked, else the model's limit or 8192, whichever is less."""
    if inference.context_tokens is not None:
        return inference.context_tokens
    return min(shape.max_context_tokens or CONTEXT_TOKENS_MAX, CONTEXT_TOKENS_MAX)


def engine_of(inference: Inference, shape: ModelShape) -> tuple[Engine, str | None]:
    """Engine and version: as asked, else the usual one for the kind of model, in its newest profile."""
    if inference.engine is None:
        return usual_engine(shape), None
    name, _, version = str(inference.engine).partition("@")
    return Engine(name), version or None


def usual_engine(shape: ModelShape) -> Engine:
    """The default engine of the contract: vllm for language models, diffusers for images and video, whisper for Whisper, else transformers."""
    if not isinstance(shape, PipelineShape):
        return Engine.VLLM
    if shape.modality in (IMAGE, VIDEO):
        return Engine.DIFFUSERS
    return Engine.WHISPER if shape.modality == SPEECH_TO_TEXT else Engine.TRANSFORMERS


def _training_demand(workload: Workload, training: Training, shape: ModelShape) -> TrainingDemand:
    if training.sequence_tokens is None:
        raise KeyedSpecError(
            "the required key training.sequence_tokens is missing: a training of a language model needs it",
            key="training",
            remedy="add sequence_tokens: and the tokens of one sequence, such as 4096",
        )
    lora = training.lora or Lora()
    rank = started_rank(workload, training)
    full = training.method is TrainingMethod.FULL or workload.task is Task.PRETRAIN
    return TrainingDemand(
        model=shape,
        weights=trained_base(workload, training, shape),
        method=training.method,
        precision=training.precision or (TrainingPrecision.BF16_MIXED if full else TrainingPrecision.BF16),
        optimizer=training.optimizer,
        sequence_tokens=training.sequence_tokens,
        micro_batch=training.micro_batch,
        gradient_checkpointing=training.gradient_checkpointing,
        attention=training.attention,
        lora_rank=rank,
        lora_targets=lora.targets,
        sharding=training.sharding,
    )


def trained_base(workload: Workload, training: Training, shape: ModelShape) -> str:
    """Format of the base that is trained or adapted: packed checkpoints stay packed below a LoRA."""
    asked, published = str(workload.model.weights), published_format(shape)
    is_packed = training.method is TrainingMethod.LORA and asked == WeightFormat.AUTO and published in PACKED
    return published if is_packed else asked


def _number(value: object) -> float | None:
    """A number, or ``None`` for ``auto``."""
    return float(value) if isinstance(value, (int, float)) else None


def _degree(value: object) -> int | None:
    """A parallel degree, or ``None`` for ``auto``."""
    return value if isinstance(value, int) else None


def accelerator_for(gpu: Gpu, instance: InstanceType) -> Accelerator:
    """The GPU as this instance sells it.

    A fraction of a GPU has that share of its memory, bandwidth and rates, and no link; links are the instance's own, since the
    same GPU is sold with and without them.

    Raises:
        UsageError: usable memory of the GPU is not known.
    """
    share = instance.gpu_fraction
    usable = (
        instance.gpu_memory_usable_bytes if share < 1 else gpu.memory_usable_bytes or instance.gpu_memory_usable_bytes
    )
    if usable is None:
        raise UsageError(f"the usable memory of {gpu.model} is not known")
    bandwidth = gpu.memory_bandwidth_bytes_per_s
    return Accelerator(
        gpu=gpu.gpu_class,
        model=gpu.model,
        vendor=gpu.vendor,
        memory_usable_bytes=usable,
        memory_usable_basis=gpu.memory_usable_basis,
        memory_bandwidth_bytes_per_s=bandwidth * share if bandwidth is not None else None,
        memory_class=gpu.memory_class,
        compute_capability=gpu.compute_capability,
        flop_per_s={precision: rate * share for precision, rate in gpu.flop_per_s.items()},
        bf16_supported=gpu.bf16_supported,
        fp8_supported=gpu.fp8_supported,
        fp4_supported=gpu.fp4_supported,
        nvlink_bytes_per_s=instance.nvlink_bytes_per_s_per_gpu or 0.0,
        pcie_bytes_per_s=gpu.pcie_bytes_per_s,
    )


def interconnect_for(instance: InstanceType, layout: Layout) -> Interconnect:
    """The link that a copy's GPUs talk over inside one instance; an unknown link counts as PCIe."""
    if layout.gpus_per_replica == 1:
        return Interconnect.NONE
    return Interconnect.NVLINK if instance.nvlink_bytes_per_s_per_gpu else Interconnect.PCIE
