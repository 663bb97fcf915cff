"""Footprints of trainings: states per parameter, activations, adapters, sharding, and published peaks."""

from __future__ import annotations

import pytest

from provisioner.errors import UsageError
from provisioner.sizing.estimate import estimate_footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.lora import adapter_params
from provisioner.sizing.models import find_model
from provisioner.sizing.training import training_bytes
from provisioner.sizing.training_activations import stack_elements
from provisioner.sizing.training_recipe import recipe_for
from provisioner.units import GIB
from provisioner.vocabulary import (
    Attention,
    Fit,
    Optimizer,
    Sharding,
    TrainingMethod,
    TrainingPrecision,
)

LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
QWEN = "Qwen/Qwen2.5-7B-Instruct"


def states(footprint):
    terms = footprint.per_gpu
    return terms.weights_bytes + terms.gradient_bytes + terms.optimizer_bytes


@pytest.mark.parametrize(
    ("precision", "optimizer", "bytes_each"),
    [
        (TrainingPrecision.BF16_MIXED, Optimizer.ADAMW, 16.0),
        (TrainingPrecision.FP32, Optimizer.ADAMW, 16.0),
        (TrainingPrecision.BF16, Optimizer.ADAMW, 8.0),
        (TrainingPrecision.BF16, Optimizer.ADAMW_8BIT, 6.06),
        (TrainingPrecision.BF16, Optimizer.SGD, 6.0),
        (TrainingPrecision.BF16, Optimizer.LION, 6.0),
        (TrainingPrecision.BF16_MIXED, Optimizer.ADAFACTOR, 8.02),
        (TrainingPrecision.BF16_MIXED, Optimizer.PAGED_ADAMW_8BIT, 10.06),
    ],
)
def test_states_per_parameter(gpu, training, precision, optimizer, bytes_each):
    demand = training(QWEN, precision=precision, optimizer=optimizer)
    footprint = estimate_footprint(demand, Layout(), gpu("H200"))
    assert states(footprint) == pytest.approx(bytes_each * demand.model.params_total, rel=1e-4)


def test_full_mixed_training_of_a_7b_model_takes_16_to_18_bytes_a_parameter(gpu, training):
    demand = training(QWEN, micro_batch=4)
    size = states(estimate_footprint(demand, Layout(), gpu("H200")))
    assert 120e9 < size < 137e9


def test_logits_of_a_large_vocabulary(gpu, training):
    """Four sequences of 2,048 tokens and 152,064 words at 14 bytes: 17.4 GB, more than all checkpoints."""
    demand = training(QWEN, micro_batch=4)
    recipe = recipe_for(demand, Layout(), gpu("H200"))
    tensors = training_bytes(recipe)
    checkpoints = 28 * 3584 * 2 * 8192
    assert tensors.activations - checkpoints == pytest.approx(17.4e9 + 2 * demand.model.params_total, rel=0.01)


def test_fsdp_spreads_16_bytes_a_parameter(gpu, training):
    demand = training("meta-llama/Meta-Llama-3-70B-Instruct", sharding=Sharding.FSDP)
    layout = Layout(data_parallel=16, sharding=Sharding.FSDP)
    size = states(estimate_footprint(demand, layout, gpu("H100-SXM-80GB")))
    assert size / GIB == pytest.approx(65.7, abs=0.1)


def test_the_optimizer_step_rules_small_batches(gpu, training):
    """Full bf16 with the default step holds 10 bytes a parameter at its peak, at batch 1 as at batch 2."""
    peaks = []
    for batch in (1, 2):
        demand = training(LLAMA, precision=TrainingPrecision.BF16, micro_batch=batch, sequence_tokens=2048)
        peaks.append(estimate_footprint(demand, Layout(), gpu("H200")).allocated_bytes)
    assert peaks[0] == peaks[1]
    assert peaks[0] == pytest.approx(10 * find_model(LLAMA).params_total, rel=0.001)


def test_stored_activations_of_one_layer_are_as_measured():
    """28 hidden-size tensors for Llama-3.1-8B, 24 for SmolLM2-360M (ml-engineering)."""
    for name, tensors, tolerance in (
        (LLAMA, 28, 0.03),
        ("HuggingFaceTB/SmolLM2-360M", 24, 0.03),
    ):
        model = find_model(name)
        found = stack_elements(model, repeats_kv=True) / model.num_layers / model.hidden_size
        assert found == pytest.approx(tensors, rel=tolerance), name


def test_checkpointing_keeps_one_state_a_layer(gpu, training):
    demand = training(LLAMA, sequence_tokens=4096, micro_batch=1, method=TrainingMethod.LORA)
    recipe = recipe_for(demand, Layout(), gpu("H100-SXM-80GB"))
    double = recipe_for(
        training(LLAMA, sequence_tokens=8192, micro_batch=1, method=TrainingMethod.LORA),
        Layout(),
        gpu("H100-SXM-80GB"),
    )
    grown = training_bytes(double).activations - training_bytes(recipe).activations
    # Checkpoints and logits: the loss outweighs a layer's working set with this vocabulary.
    assert grown / 4096 == pytest.approx(32 * 4096 * 2 + 14 * 128_256, rel=0.001)


def test_eager_attention_grows_with_the_square_of_the_sequence(gpu, training):
    def activations(tokens, attention):
        demand = training(LLAMA, sequence_tokens=tokens, attention=attention, gradient_checkpointing=False)
        return training_bytes(recipe_for(demand, Layout(), gpu("H200"))).activations

    short = activations(2048, Attention.EAGER) - activations(2048, Attention.SDPA)
    long = activations(4096, Attention.EAGER) - activations(4096, Attention.SDPA)
    assert long == pytest.approx(4 * short, rel=0.01)


def test_attention_defaults_to_what_the_gpu_has(gpu, training):
    assert recipe_for(training(LLAMA), Layout(), gpu("L4")).attention is Attention.FLASH
    assert recipe_for(training(LLAMA), Layout(), gpu("T4")).attention is Attention.SDPA


def test_adapters_on_all_linear_layers():
    model = find_model(LLAMA)
    assert adapter_params(model, 16, "all-linear") == 41_943_040
    assert adapter_params(model, 8, ("q_proj", "v_proj")) == 3_407_872
    assert adapter_params(model, 32, ("q_proj", "v_proj")) == 4 * 3_407_872


def test_fused_names_stand_for_their_matrices():
    model = find_model(LLAMA)
    assert adapter_params(model, 8, ("qkv_proj",)) == adapter_params(model, 8, ("q_proj", "k_proj", "v_proj"))


def test_unknown_targets_are_refused_with_the_known(gpu, training):
    demand = training(LLAMA, method=TrainingMethod.LORA, lora_targets=("q_proj", "z_proj"))
    with pytest.raises(UsageError) as caught:
        estimate_footprint(demand, Layout(), gpu("L4"))
    assert "'z_proj'" in str(caught.value)
    assert "gate_proj" in str(caught.value.remedy)


def test_qlora_packs_linear_layers_and_widens_the_rest(gpu, training):
    demand = training(LLAMA, method=TrainingMethod.QLORA, lora_rank=16)
    terms = estimate_footprint(demand, Layout(), gpu("L4")).per_gpu
    model = find_model(LLAMA)
    linear = sum(
        n * (k.mixer.matrix_params + k.mlp.matrix_params) for n, k in zip(model.counts, model.kinds, strict=True)
    )
    packed = linear * (4 + 8 / 64 + 32 / 16_384) / 8
    wide = 4 * (model.params_total - linear)
    assert terms.weights_bytes == pytest.approx(packed + wide + 4 * 41_943_040, rel=1e-4)
    assert terms.optimizer_bytes == 8 * 41_943_040


def test_ddp_doubles_gradients_and_zero_divides_states(gpu, training):
    card = gpu("H200")
    one = estimate_footprint(training(QWEN), Layout(), card).per_gpu

    def spread(sharding):
        return estimate_footprint(training(QWEN), Layout(data_parallel=4, sharding=sharding), card).per_gpu

    assert spread(Sharding.DDP).gradient_bytes == 2 * one.gradient_bytes
    assert spread(Sharding.DDP).weights_bytes == one.weights_bytes
    zero1, zero2, zero3 = (spread(s) for s in (Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3))
    params = find_model(QWEN).params_total
    # DeepSpeed: 16-bit weights and gradients, fp32 master and moments.
    assert (zero1.weights_bytes, zero1.gradient_bytes) == (2 * params, 2 * params)
    assert zero1.optimizer_bytes == 3 * params
    assert zero2.gradient_bytes == round(params / 2)
    assert zero3.weights_bytes == round(params / 2)


def test_tensor_and_pipeline_ranks_share_states(gpu, training):
    card = gpu("H200")
    one = estimate_footprint(training(QWEN, sharding=Sharding.TP), Layout(), card).per_gpu
    four = estimate_footprint(
        training(QWEN, sharding=Sharding.TP), Layout(tensor_parallel=4, sharding=Sharding.TP), card
    ).per_gpu
    assert four.weights_bytes == pytest.approx(one.weights_bytes / 4)
    stages = estimate_footprint(
        training(QWEN, sharding=Sharding.PP), Layout(pipeline_parallel=4, sharding=Sharding.PP), card
    ).per_gpu
    model = find_model(QWEN)
    inner = model.params_total - model.embedding_params - model.head_params
    assert stages.weights_bytes == 4 * round(inner / 4 + model.embedding_params)


def test_meters_are_in_order(gpu, training):
    footprint = estimate_footprint(training(QWEN), Layout(), gpu("H200"))
    assert footprint.allocated_bytes < footprint.reserved_bytes < footprint.device_bytes


def test_the_default_loss_is_stated(gpu, training):
    footprint = estimate_footprint(training(QWEN), Layout(), gpu("H200"))
    loss = next(item for item in footprint.assumptions if item.name == "loss")
    assert loss.value.startswith("14 B")


@pytest.mark.parametrize("change", [{"sequence_tokens": 0}, {"micro_batch": 0}])
def test_impossible_sizes_are_refused(gpu, training, change):
    with pytest.raises(UsageError, match="1 or more"):
        estimate_footprint(training(QWEN, **change), Layout(), gpu("L4"))


@pytest.mark.parametrize(
    "case",
    [
        (QWEN, {"method": TrainingMethod.QLORA, "sequence_tokens": 1024}, "L4", Fit.FITS),
        (QWEN, {"method": TrainingMethod.LORA, "sequence_tokens": 2048}, "L40S", Fit.FITS),
        (QWEN, {"method": TrainingMethod.LORA, "sequence_tokens": 2048}, "T4", Fit.DOES_NOT_FIT),
        (QWEN, {}, "H100-SXM-80GB", Fit.DOES_NOT_FIT),
        (
            "meta-llama/Meta-Llama-3-70B-Instruct",
            {"method": TrainingMethod.QLORA, "sequence_tokens": 2048},
            "H100-SXM-80GB",
            Fit.FITS,
        ),
        (
            "meta-llama/Meta-Llama-3-70B-Instruct",
            {"method": TrainingMethod.QLORA, "sequence_tokens": 2048},
            "L40S",
            Fit.DOES_NOT_FIT,
        ),
    ],
)
def test_what_people_know_to_fit(gpu, training, case):
    model, changes, card, fit = case
    assert estimate_footprint(training(model, **changes), Layout(), gpu(card)).fit is fit
