"""What a spec asks of its model that no model of that kind can do; each no names a key, so that it gets its place in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from provisioner.errors import UsageError
from provisioner.planner.requirements import KeyedSpecError
from provisioner.sizing.lora import target_names
from provisioner.sizing.pipelines import IMAGE, SPEECH_TO_TEXT, VIDEO, PipelineShape
from provisioner.sizing.shapes import ModelShape
from provisioner.vocabulary import Engine, KvDtype, TrainingMethod, WeightFormat
from provisioner.workload.spec import Inference, Training, Workload

LANGUAGE_ENGINES = (Engine.VLLM, Engine.SGLANG, Engine.TENSORRT_LLM, Engine.TRANSFORMERS, Engine.LLAMA_CPP)
PIPELINE_ENGINES: Mapping[str, tuple[Engine, ...]] = MappingProxyType(
    {
        IMAGE: (Engine.DIFFUSERS,),
        VIDEO: (Engine.DIFFUSERS,),
        SPEECH_TO_TEXT: (Engine.WHISPER, Engine.TRANSFORMERS),
    }
)
AUDIO_ENGINES = (Engine.TRANSFORMERS, Engine.DIFFUSERS)
"""Engines of models that make speech, music or sounds."""

PACKED = (WeightFormat.INT4_AWQ, WeightFormat.INT4_GPTQ, WeightFormat.INT8, "int8-gptq", WeightFormat.NF4, "nf4-double")
"""Formats of published checkpoints that cannot be widened again without loss; FP8 and MXFP4 are, on loading."""
MEDIA_SECTIONS = ("image", "video", "audio")
AUDIO_UNITS = ("audio hours", "clips")
PIPELINE_UNITS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {IMAGE: ("images",), VIDEO: ("clips",), SPEECH_TO_TEXT: ("audio hours",)}
)
"""What a batch of each kind of model is counted in; language models count tokens."""


def check_suitability(workload: Workload, shape: ModelShape) -> None:
    """Refuse what the kind of model rules out, whatever the offers.

    Raises:
        KeyedSpecError: the first of: an engine that does not run it, sizes of something it does not make, a unit of work or a
            target of another kind, a split that it does not have, adapters on layers that it lacks.
    """
    for fault in _faults(workload, shape):
        raise fault


def unused_keys(workload: Workload, shape: ModelShape) -> tuple[str, ...]:
    """Keys that are written and mean nothing to an image, video or audio model."""
    if not isinstance(shape, PipelineShape):
        return ()
    found: list[str] = []
    inference, training = workload.inference, workload.training
    if inference is not None:
        names = ("context_tokens", "input_tokens", "output_tokens")
        found += [f"inference.{name}" for name in names if getattr(inference, name) is not None]
        found += ["inference.kv_cache"] if inference.kv_cache is not KvDtype.AUTO else []
    if training is not None and training.sequence_tokens is not None:
        found.append("training.sequence_tokens")
    return tuple(found)


def _faults(workload: Workload, shape: ModelShape) -> Iterator[KeyedSpecError]:
    inference, training = workload.inference, workload.training
    name = workload.model.id or shape.id
    if inference is not None:
        yield from _engine(inference, shape, name)
        if isinstance(shape, PipelineShape):
            yield from _of_pipeline(inference, shape, name)
        else:
            yield from _of_language_model(inference, shape, name)
            yield from _served_adapters(workload, inference, shape)
        yield from _total(inference, shape)
    if training is not None and not isinstance(shape, PipelineShape):
        yield from _media(training, "training", name)
        yield from _adapters(training, shape)
        yield from _published(workload, training, shape)


def kind_of(shape: ModelShape) -> str:
    """The kind of a model in words, such as ``language`` or ``speech-to-text``."""
    return shape.modality.replace("_", "-") if isinstance(shape, PipelineShape) else "language"


def _engine(inference: Inference, shape: ModelShape, name: str) -> Iterator[KeyedSpecError]:
    if inference.engine is None:
        return
    fitting: tuple[Engine, ...] = LANGUAGE_ENGINES
    if isinstance(shape, PipelineShape):
        fitting = PIPELINE_ENGINES.get(shape.modality, AUDIO_ENGINES)
    if inference.engine.name not in fitting:
        yield KeyedSpecError(
            f"engine {inference.engine.name} is not one that {name} ({kind_of(shape)}) is sized for",
            key="inference.engine",
            remedy=f"write {' or '.join(fitting)}, or leave inference.engine out",
        )


def _of_language_model(inference: Inference, shape: ModelShape, name: str) -> Iterator[KeyedSpecError]:
    yield from _media(inference, "inference", name)
    yield from _offload(inference, shape, name)
    if inference.inputs is None:
        return
    towers = {tower.kind for tower in shape.towers}
    for key, kind in (("images", "image"), ("image_pixels", "image"), ("audio_seconds", "audio")):
        if getattr(inference.inputs, key) and kind not in towers:
            yield KeyedSpecError(
                f"{name} takes no {kind} in a request",
                key=f"inference.inputs.{key}",
                remedy="remove it, or take a model that does",
            )


def _media(part: Inference | Training, section: str, name: str) -> Iterator[KeyedSpecError]:
    for kind in MEDIA_SECTIONS:
        if getattr(part, kind) is not None:
            yield KeyedSpecError(
                f"{name} is a language model: it makes no {kind}",
                key=f"{section}.{kind}",
                remedy="remove it; what a request to a multimodal model carries is inference.inputs",
            )


def _offload(inference: Inference, shape: ModelShape, name: str) -> Iterator[KeyedSpecError]:
    if inference.offload != "none":
        yield KeyedSpecError(
            f"inference.offload is for image and video models, not for {name} ({kind_of(shape)})",
            key="inference.offload",
            remedy="remove it, or quantise the weights",
        )


def _of_pipeline(inference: Inference, shape: PipelineShape, name: str) -> Iterator[KeyedSpecError]:
    if shape.modality not in (IMAGE, VIDEO):
        yield from _offload(inference, shape, name)
    if inference.inputs is not None:
        yield KeyedSpecError(
            f"inference.inputs is for multimodal language models, not for {name} ({kind_of(shape)})",
            key="inference.inputs",
            remedy="remove it",
        )
    for key in ("tensor_parallel", "pipeline_parallel"):
        if getattr(inference, key) not in ("auto", 1):
            yield KeyedSpecError(
                f"{name} runs on one GPU a copy: its parts are not split",
                key=f"inference.{key}",
                remedy="remove it; several copies are inference.replicas",
            )
    for key in ("time_to_first_token", "tokens_per_second_per_request"):
        if inference.targets is not None and getattr(inference.targets, key) is not None:
            yield KeyedSpecError(
                f"{name} ({kind_of(shape)}) gives no stream of tokens",
                key=f"inference.targets.{key}",
                remedy="remove it",
            )


def _total(inference: Inference, shape: ModelShape) -> Iterator[KeyedSpecError]:
    if inference.total is None:
        return
    units: tuple[str, ...] = ("tokens",)
    if isinstance(shape, PipelineShape):
        units = PIPELINE_UNITS.get(shape.modality, AUDIO_UNITS)
    if inference.total.unit not in units:
        yield KeyedSpecError(
            f"inference.total counts {inference.total.unit}; {kind_of(shape)} models count {units[0]}",
            key="inference.total",
            remedy=f"write it in {' or '.join(units)}, or write inference.duration",
        )


def _served_adapters(workload: Workload, inference: Inference, shape: ModelShape) -> Iterator[KeyedSpecError]:
    """Adapters on layers that the model lacks, or of a rank that the engine does not take."""
    if not workload.model.adapters:
        return
    from provisioner.sizing.serving_extras import VLLM_RANKS

    is_vllm = inference.engine is None or inference.engine.name is Engine.VLLM
    for index, adapter in enumerate(workload.model.adapters):
        if is_vllm and (adapter.rank or 0) > VLLM_RANKS[-1]:
            yield KeyedSpecError(
                f"an adapter of rank {adapter.rank}: vLLM takes ranks up to {VLLM_RANKS[-1]}",
                key=f"model.adapters[{index}]",
                remedy="merge it into the base",
            )
        if adapter.targets is None or "all-linear" in adapter.targets:
            continue
        try:
            target_names(adapter.targets, shape)
        except UsageError as error:
            message = error.message.replace("lora.targets", f"the target of adapter {adapter.name}", 1)
            yield KeyedSpecError(message, key=f"model.adapters[{index}]", remedy=error.remedy)


def _published(workload: Workload, training: Training, shape: ModelShape) -> Iterator[KeyedSpecError]:
    """A checkpoint of packed integers can be trained with adapters beside it, and in no other way."""
    packed = published_format(shape)
    is_asked = workload.model.weights not in (WeightFormat.AUTO, WeightFormat.NF4)
    if packed not in PACKED or is_asked or training.method is TrainingMethod.LORA:
        return
    if training.method is TrainingMethod.QLORA and packed == WeightFormat.NF4:
        return
    what = (
        "quantised weights take no update"
        if training.method is TrainingMethod.FULL
        else "nf4 is made from 16-bit weights"
    )
    yield KeyedSpecError(
        f"{workload.model.id or shape.id} is published in {packed}, which does not go with method {training.method}: {what}",
        key="model.id" if workload.model.id is not None else "model",
        remedy="name the original checkpoint, or write method: lora",
    )


def published_format(shape: ModelShape) -> str:
    """The format in which most of a language model is published: the one of its linear layers, or its width."""
    published = shape.quantisation
    return published.formats[0][1].split("-block")[0] if published and published.formats else shape.weights_dtype


def _adapters(training: Training, shape: ModelShape) -> Iterator[KeyedSpecError]:
    if training.lora is None:
        return
    try:
        target_names(training.lora.targets, shape)
    except UsageError as error:
        yield KeyedSpecError(error.message, key="training.lora.targets", remedy=error.remedy)
