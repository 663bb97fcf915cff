"""Footprints of serving copies: sums, bands, engines, layouts and what each setting adds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.errors import UsageError
from provisioner.sizing.engines import find_profile
from provisioner.sizing.estimate import estimate_footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.models import find_model, shape_from_dimensions
from provisioner.sizing.serving import cache_pool, setting_of, stage_terms
from provisioner.units import GIB
from provisioner.vocabulary import Engine, Fit, KvDtype

LLAMA_8B = "meta-llama/Llama-3.1-8B-Instruct"
LLAMA_70B = "meta-llama/Meta-Llama-3-70B-Instruct"


def parts(footprint):
    terms = footprint.per_gpu
    return terms.weights_bytes + terms.kv_cache_bytes + terms.activation_bytes + terms.overhead_bytes


@pytest.mark.parametrize("name", ["L4", "A10G", "L40S", "H100-SXM-80GB"])
@pytest.mark.parametrize("engine", [Engine.VLLM, Engine.SGLANG, Engine.TENSORRT_LLM, Engine.TRANSFORMERS])
def test_named_parts_add_up_to_the_total(gpu, serving, name, engine):
    demand = serving(LLAMA_8B, engine=engine, engine_version=None, concurrency=4)
    footprint = estimate_footprint(demand, Layout(), gpu(name))
    terms = footprint.per_gpu
    assert 0.98 * terms.total_bytes <= parts(footprint) <= 1.34 * terms.total_bytes
    assert terms.low_bytes <= terms.total_bytes <= terms.high_bytes


def test_a_7b_model_in_16_bit_fits_one_l4(gpu, serving):
    model = find_model("Qwen/Qwen2.5-7B-Instruct")
    footprint = estimate_footprint(serving(model, context_tokens=4096), Layout(), gpu("L4"))
    assert footprint.fit is Fit.FITS


def test_a_13b_model_in_16_bit_does_not_fit_one_l4(gpu, serving):
    footprint = estimate_footprint(serving("meta-llama/Llama-2-13b-hf", context_tokens=4096), Layout(), gpu("L4"))
    assert footprint.fit is Fit.DOES_NOT_FIT


def test_bands_are_narrow_for_known_engines_and_wider_for_unknown_versions(gpu, serving):
    known = estimate_footprint(serving(LLAMA_8B), Layout(), gpu("L4")).per_gpu
    unknown = estimate_footprint(serving(LLAMA_8B, engine_version="0.27"), Layout(), gpu("L4")).per_gpu
    assert (known.high_bytes - known.low_bytes) / known.total_bytes < 0.12
    assert unknown.high_bytes - unknown.low_bytes > known.high_bytes - known.low_bytes


def test_a_version_between_profiles_takes_the_nearest_and_says_so(gpu, serving):
    footprint = estimate_footprint(serving(LLAMA_8B, engine_version="0.20.1"), Layout(), gpu("L4"))
    profile = next(item for item in footprint.assumptions if item.name == "engine profile")
    assert profile.value == "vllm@0.19 (nearest profile to 0.20.1)"
    exact = estimate_footprint(serving(LLAMA_8B, engine_version="0.19.2"), Layout(), gpu("L4"))
    assert next(item for item in exact.assumptions if item.name == "engine profile").value == "vllm@0.19"


def test_without_a_version_the_newest_profile_counts():
    assert find_profile("vllm", None)[0].version == "0.31"
    assert find_profile("vllm", "99")[0].version == "0.31"
    assert find_profile("vllm", "0.1")[0].version == "0.2"


def test_old_gpus_ran_the_old_core():
    assert find_profile("vllm", "0.8.5", (7, 5))[0].runner == "V0"
    assert find_profile("vllm", "0.8.5", (8, 9))[0].runner == "V1"


def test_a_version_without_a_number_is_refused():
    with pytest.raises(UsageError, match="nightly"):
        find_profile("vllm", "nightly")


def test_engines_without_a_profile_serve_no_language_models(serving, gpu):
    with pytest.raises(UsageError, match="diffusers"):
        estimate_footprint(serving(LLAMA_8B, engine=Engine.DIFFUSERS), Layout(), gpu("L4"))


@pytest.mark.parametrize("change", [{"context_tokens": 0}, {"concurrency": 0}])
def test_impossible_lengths_are_refused(serving, gpu, change):
    with pytest.raises(UsageError, match="1 or more"):
        estimate_footprint(serving(LLAMA_8B, **change), Layout(), gpu("L4"))


def test_unknown_formats_are_refused_by_name(serving, gpu):
    with pytest.raises(UsageError, match="int3"):
        estimate_footprint(serving(LLAMA_8B, weights="int3"), Layout(), gpu("L4"))


def test_the_engines_fraction_bounds_usable_memory(gpu, serving):
    card = gpu("L4")
    default = estimate_footprint(serving(LLAMA_8B), Layout(), card)
    assert default.usable_bytes == round(0.9 * card.memory_usable_bytes)
    asked = estimate_footprint(serving(LLAMA_8B, gpu_memory_fraction=0.95), Layout(), card)
    assert asked.usable_bytes == round(0.95 * card.memory_usable_bytes)
    assert asked.per_gpu.weights_bytes == default.per_gpu.weights_bytes


def test_a_fraction_of_free_memory_is_told_as_a_need(gpu, serving):
    demand = serving(LLAMA_8B, engine=Engine.TENSORRT_LLM, engine_version=None, concurrency=8)
    card = gpu("H100-SXM-80GB")
    footprint = estimate_footprint(demand, Layout(), card)
    assert footprint.usable_bytes == card.memory_usable_bytes
    # What is needed for the cache leaves the engine's share of free memory for nothing.
    half = estimate_footprint(replace(demand, gpu_memory_fraction=0.5), Layout(), card)
    grown = half.per_gpu.total_bytes - footprint.per_gpu.total_bytes
    assert grown == pytest.approx(demand.concurrency * GIB * (1 / 0.5 - 1 / 0.9), rel=0.01)


def test_tensor_parallel_divides_weights_and_cache(gpu, serving):
    demand = serving(LLAMA_70B, concurrency=8)
    card = gpu("H100-SXM-80GB")
    one = estimate_footprint(demand, Layout(2), card).per_gpu
    two = estimate_footprint(demand, Layout(4), card).per_gpu
    assert two.weights_bytes == pytest.approx(one.weights_bytes / 2, rel=0.001)
    assert two.kv_cache_bytes == one.kv_cache_bytes / 2


def test_pipeline_ends_hold_embedding_and_head(serving, gpu):
    demand = serving(LLAMA_8B)
    stages = stage_terms(setting_of(demand, Layout(1, 4), gpu("L4")))
    model = demand.model
    assert stages[0].weights - stages[1].weights == 2 * model.embedding_params
    assert stages[-1].weights > stages[1].weights
    whole = estimate_footprint(demand, Layout(1, 4), gpu("L4")).per_gpu
    assert whole.weights_bytes == max(round(stage.weights) for stage in stages)


def test_stages_cover_all_layers(serving, gpu):
    demand = serving("google/gemma-2-9b-it")
    for count in (2, 3, 4, 8):
        stages = stage_terms(setting_of(demand, Layout(1, count), gpu("L4")))
        single = stage_terms(setting_of(demand, Layout(), gpu("L4")))[0]
        assert sum(stage.cache for stage in stages) == pytest.approx(single.cache)
        # A tied embedding stands on the first and on the last stage.
        tied = 2 * demand.model.embedding_params
        assert sum(stage.weights for stage in stages) == pytest.approx(single.weights + tied)


def test_narrow_caches_halve(serving, gpu):
    wide = estimate_footprint(serving(LLAMA_8B, concurrency=8), Layout(), gpu("L40S")).per_gpu
    narrow = estimate_footprint(serving(LLAMA_8B, concurrency=8, kv_dtype=KvDtype.FP8), Layout(), gpu("L40S")).per_gpu
    assert narrow.kv_cache_bytes * 2 == wide.kv_cache_bytes


def test_a_checkpoint_can_ask_for_a_narrow_cache(serving, gpu):
    model = find_model("nvidia/MiniMax-M2.5-NVFP4")
    assert model.quantisation is not None
    assert model.quantisation.kv_dtype == "fp8"
    asked = estimate_footprint(serving(model), Layout(8), gpu("B200")).per_gpu
    wide = estimate_footprint(serving(model, kv_dtype=KvDtype.BF16), Layout(8), gpu("B200")).per_gpu
    assert asked.kv_cache_bytes * 2 == wide.kv_cache_bytes


def test_adapters_add_weights(serving, gpu):
    card = gpu("H100-SXM-80GB")
    plain = estimate_footprint(serving(LLAMA_8B), Layout(), card).per_gpu
    four = estimate_footprint(serving(LLAMA_8B, adapters=4), Layout(), card).per_gpu
    # All linear layers at rank 16: 41.9 million parameters an adapter; vLLM keeps room on embedding and head as well.
    assert (four.weights_bytes - plain.weights_bytes) / 4 / 2 == 41_943_040 + 2 * 16 * (128_256 + 4096)
    wide = estimate_footprint(serving(LLAMA_8B, adapters=4, adapter_rank=40), Layout(), card).per_gpu
    assert (wide.weights_bytes - plain.weights_bytes) == 4 * (four.weights_bytes - plain.weights_bytes)
    few = serving(LLAMA_8B, adapters=4, adapter_targets=("q_proj", "v_proj"))
    assert estimate_footprint(few, Layout(), card).per_gpu.weights_bytes < four.weights_bytes


def test_half_of_an_adapter_stands_whole_on_every_rank(serving, gpu):
    card = gpu("H100-SXM-80GB")
    plain, adapted = (estimate_footprint(serving(LLAMA_8B, adapters=n), Layout(2), card).per_gpu for n in (0, 8))
    alone, alone_adapted = (estimate_footprint(serving(LLAMA_8B, adapters=n), Layout(), card).per_gpu for n in (0, 8))
    on_two = adapted.weights_bytes - plain.weights_bytes
    on_one = alone_adapted.weights_bytes - alone.weights_bytes
    assert on_one / 2 < on_two < on_one


def test_drafts_add_weights(serving, gpu):
    moe = find_model("deepseek-ai/DeepSeek-V3")
    without = estimate_footprint(serving(moe), Layout(8), gpu("H200")).per_gpu
    draft = estimate_footprint(serving(moe, uses_draft=True), Layout(8), gpu("H200")).per_gpu
    assert 1.2 * GIB < draft.weights_bytes - without.weights_bytes < 1.5 * GIB


def test_eager_mode_needs_no_graphs(serving, gpu):
    demand = serving(LLAMA_8B, engine_version="0.22")
    graphs = estimate_footprint(demand, Layout(), gpu("L4")).per_gpu
    eager = estimate_footprint(replace(demand, uses_graphs=False), Layout(), gpu("L4")).per_gpu
    assert graphs.overhead_bytes - eager.overhead_bytes == GIB // 2


def test_larger_batches_need_more_working_memory(serving, gpu):
    demand = serving(LLAMA_8B, engine_version="0.31")
    usual = estimate_footprint(demand, Layout(), gpu("L4")).per_gpu
    large = estimate_footprint(replace(demand, max_batched_tokens=16_384), Layout(), gpu("L4")).per_gpu
    many = estimate_footprint(replace(demand, max_sequences=2_048), Layout(), gpu("L4")).per_gpu
    assert large.activation_bytes > usual.activation_bytes
    assert many.activation_bytes > usual.activation_bytes


def test_llama_cpp_keeps_the_embedding_on_the_host(serving, gpu):
    demand = serving(LLAMA_8B, engine=Engine.LLAMA_CPP, engine_version=None, weights="gguf-q4_k_m")
    terms = estimate_footprint(demand, Layout(), gpu("L4")).per_gpu
    model = demand.model
    assert terms.weights_bytes == pytest.approx((model.params_total - model.embedding_params) * 4.9 / 8, rel=0.01)


def test_the_pool_is_what_the_budget_leaves(serving, gpu):
    demand, card = serving(LLAMA_8B, concurrency=1), gpu("L4")
    pool = cache_pool(demand, Layout(), card)
    terms = estimate_footprint(demand, Layout(), card)
    left = terms.usable_bytes - (terms.per_gpu.total_bytes - terms.per_gpu.kv_cache_bytes)
    assert pool.first_rank_bytes == pytest.approx(left, abs=4)
    assert pool.tokens == pytest.approx(pool.smallest_bytes / (128 * 1024), rel=0.001)


def test_more_requests_than_the_pool_holds_do_not_fit(serving, gpu):
    card = gpu("L4")
    requests = int(cache_pool(serving(LLAMA_8B), Layout(), card).requests)
    assert requests >= 1
    assert estimate_footprint(serving(LLAMA_8B, concurrency=requests), Layout(), card).fit is not Fit.DOES_NOT_FIT
    beyond = serving(LLAMA_8B, concurrency=requests + 1)
    assert estimate_footprint(beyond, Layout(), card).fit is Fit.DOES_NOT_FIT


def test_experts_can_be_shared_between_data_parallel_ranks(serving, gpu):
    demand = serving("deepseek-ai/DeepSeek-V3")
    whole = estimate_footprint(demand, Layout(), gpu("H200")).per_gpu.weights_bytes
    shared = estimate_footprint(demand, Layout(data_parallel=8), gpu("H200")).per_gpu.weights_bytes
    model = demand.model
    experts = sum(
        n * kind.mlp.experts * kind.mlp.expert_params for n, kind in zip(model.counts, model.kinds, strict=True)
    )
    assert whole - shared == pytest.approx(experts * 7 / 8, rel=0.01)


def test_two_calls_agree_to_the_byte(serving, gpu):
    demand = serving(LLAMA_70B, weights="fp8", concurrency=3)
    first = estimate_footprint(demand, Layout(2), gpu("H100-SXM-80GB"))
    assert estimate_footprint(demand, Layout(2), gpu("H100-SXM-80GB")) == first


def test_a_model_of_explicit_dimensions_is_sized_like_its_twin(serving, gpu):
    twin = shape_from_dimensions(
        {
            "layers": 32,
            "hidden_size": 4096,
            "heads": 32,
            "kv_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 128256,
        }
    )
    ours = estimate_footprint(serving(twin), Layout(), gpu("L4")).per_gpu
    assert ours == estimate_footprint(serving(LLAMA_8B), Layout(), gpu("L4")).per_gpu


def test_old_releases_hold_the_wide_model_while_they_narrow_it(serving, gpu):
    card = gpu("L40S-48GB")
    model = "Qwen/Qwen2.5-32B-Instruct"
    settings = {"weights": "fp8", "context_tokens": 2048, "quantises_on_load": True}
    old = estimate_footprint(serving(model, engine_version="0.11", **settings), Layout(), card)
    new = estimate_footprint(serving(model, engine_version="0.19", **settings), Layout(), card)
    stored = estimate_footprint(
        serving(model, engine_version="0.11", **{**settings, "quantises_on_load": False}), Layout(), card
    )
    assert old.per_gpu.total_bytes > 2 * 32.7e9
    assert old.per_gpu.weights_bytes == new.per_gpu.weights_bytes == stored.per_gpu.weights_bytes
    assert stored.per_gpu.total_bytes < old.per_gpu.total_bytes
    assert old.fit is Fit.DOES_NOT_FIT
    assert new.fit is Fit.FITS
    assert any(each.name == "loading" for each in old.assumptions)


def test_llama_cpp_keeps_a_micro_batch_beyond_each_window(gpu, serving):
    """Ten full layers of 8,192 tokens, 52 windowed ones of 1,024 + 512 cells, 16 heads of 128, keys and values in 16 bit."""
    demand = serving("google/gemma-3-27b-it", engine=Engine.LLAMA_CPP, weights="gguf-q4_k_m", context_tokens=8192)
    terms = estimate_footprint(demand, Layout(), gpu("H100-SXM-80GB")).per_gpu
    assert terms.kv_cache_bytes == 2 * 16 * 128 * 2 * (10 * 8192 + 52 * (1024 + 512)) * demand.concurrency
