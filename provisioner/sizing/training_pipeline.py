"""Stages of a training's pipeline, and the activations that each holds with its micro-batches under way.

A one-forward-one-backward schedule keeps as many micro-batches on a stage as stages follow it, itself included, never more
than a step has; the first stage holds the embedding, the last the head and the loss.
"""

from __future__ import annotations

from provisioner.records import record
from provisioner.sizing.constants import Constants
from provisioner.sizing.lora import adapter_elements, target_names, target_outputs
from provisioner.sizing.shapes import Layer, ModelShape
from provisioner.sizing.training_activations import (
    EAGER_BYTES_PER_SCORE,
    FUSED_BYTES_PER_SCORE,
    FUSED_WORKING_BYTES,
    eager_bytes_per_token,
    layer_elements,
    norm_elements,
    whole_elements,
)
from provisioner.sizing.training_recipe import Recipe
from provisioner.vocabulary import Attention, TrainingMethod


@record(frozen=True, slots=True)
class Stage:
    """One pipeline stage: its layers, what stands at its ends, and the micro-batches it holds at once."""

    layers: float
    has_embedding: bool
    has_head: bool
    in_flight: int


def stages_of(recipe: Recipe) -> tuple[Stage, ...]:
    """The stages that can be fullest: first, second and last; layers that do not divide make the fuller ones."""
    count = recipe.pipeline_parallel
    layers = recipe.model.num_layers
    if count == 1:
        return (Stage(layers, True, True, 1),)
    most = 1 if recipe.is_staged else min(count, recipe.micro_batches or count)
    each = min(layers, -(-layers // count))
    first = Stage(each, True, False, most)
    last = Stage(each, False, True, 1)
    if count == 2:
        return first, last
    return first, Stage(each, False, False, min(most, count - 1)), last


def stage_params(recipe: Recipe, stage: Stage) -> float:
    """Parameters of a stage on one rank; tied weights stand on both ends of a pipeline."""
    model = recipe.model
    inner = model.params_total - model.embedding_params - model.head_params
    params = inner * stage.layers / model.num_layers
    if stage.has_embedding:
        params += model.embedding_params
    if stage.has_head:
        params += model.head_params
        if model.tied_embeddings and not stage.has_embedding:
            params += model.embedding_params
    return params / recipe.tensor_parallel


def _divided(recipe: Recipe, total: float, whole: float) -> float:
    """Elements on one tensor-parallel rank; ``whole`` of them are divided only along the sequence."""
    tensor = recipe.tensor_parallel
    if tensor == 1 or recipe.sequence_parallel:
        return total / tensor
    return whole + max(0.0, total - whole) / tensor


def _stored(recipe: Recipe, layer: Layer) -> float:
    """Elements per token that one layer stores on one rank, adapters left out."""
    repeats = recipe.attention is not Attention.FLASH
    # Four-bit kernels keep the input of each product, frozen 16-bit layers do not.
    frozen = recipe.method is TrainingMethod.LORA
    hidden = recipe.model.hidden_size
    total = layer_elements(layer, hidden, repeats_kv=repeats, frozen=frozen)
    whole = whole_elements(layer, hidden)
    norms = 0.0 if recipe.fp32_norms else norm_elements(layer, hidden)
    return _divided(recipe, total - norms, whole - norms)


def _adapted(recipe: Recipe, layer: Layer) -> float:
    """Elements per token that adapters add to a layer."""
    if recipe.method is TrainingMethod.FULL or recipe.adapter_kind == "none":
        return 0.0
    names = target_names(recipe.lora_targets, recipe.model)
    if recipe.adapter_kind == "scale":
        return float(target_outputs(layer, names))
    return adapter_elements(layer, names, fused_qkv=recipe.fused_qkv) * Constants.adapter_stored_share


def layer_bytes(recipe: Recipe) -> float:
    """Working set of one layer in the backward pass, with the dequantised copy of its largest matrix."""
    model = recipe.model
    per_token = max(_stored(recipe, kind) for kind in model.kinds) * recipe.compute_bytes * Constants.backward_working
    if recipe.attention is Attention.EAGER:
        each = FUSED_WORKING_BYTES if recipe.fused_softmax else Constants.eager_working_bytes
        scores = eager_bytes_per_token(model, recipe.sequence_tokens, each)
        per_token += scores / recipe.tensor_parallel
    per_token += max(_adapted(recipe, kind) for kind in model.kinds) * recipe.compute_bytes
    copy = 0.0
    if recipe.method is TrainingMethod.QLORA:
        copy = 2.0 * max(m.params for kind in model.kinds for m in kind.mixer.matrices + kind.mlp.matrices)
    return recipe.tokens * per_token + copy


def _everything(recipe: Recipe, model: ModelShape) -> float:
    """Bytes of one micro-batch that all layers store without checkpointing."""
    kinds = tuple(zip(model.counts, model.kinds, strict=True))
    elements = sum(count * (_stored(recipe, kind) + _adapted(recipe, kind)) for count, kind in kinds)
    per_token = elements * recipe.compute_bytes
    if recipe.attention is Attention.EAGER:
        each = FUSED_BYTES_PER_SCORE if recipe.fused_softmax else EAGER_BYTES_PER_SCORE
        scores = eager_bytes_per_token(model, recipe.sequence_tokens, each)
        per_token += model.num_layers * scores / recipe.tensor_parallel
    return recipe.tokens * per_token


def forward_bytes(recipe: Recipe, stage: Stage) -> float:
    """Stored activations at the end of the forward pass, with the loss or one layer's working set, whichever is larger."""
    model = recipe.model
    tokens = recipe.tokens
    share = stage.layers / model.num_layers * stage.in_flight
    width = recipe.checkpoint_bytes or recipe.compute_bytes
    checkpoints = model.num_layers * model.hidden_size * width * tokens
    checkpoints /= recipe.tensor_parallel if recipe.sequence_parallel else 1
    stored = checkpoints
    if recipe.checkpointing != "full":
        everything = _everything(recipe, model)
        kept = Constants.selective_share if recipe.checkpointing == "selective" else 1.0
        stored = max(checkpoints, kept * everything)
    loss = tokens * model.vocab_size * recipe.loss_bytes / recipe.tensor_parallel if stage.has_head else 0.0
    return share * stored + max(loss, layer_bytes(recipe) if recipe.checkpointing != "none" else 0.0)
