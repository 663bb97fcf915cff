"""Shapes from the bundled index, from a config.json and from dimensions; refusals name what is wrong."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from provisioner.errors import UsageError
from provisioner.sizing import models
from provisioner.sizing.models import find_model, known_models, shape_from_config, shape_from_dimensions
from provisioner.sizing.pipelines import PipelineShape

TRUTH = Path(__file__).parents[1] / "data" / "truth"
OTHER_SCOPE = {
    "Qwen/Qwen3.5-9B": 0.052,
    "google/gemma-3-4b-it": 0.12,
    "google/gemma-3-12b-it": 0.04,
    "google/gemma-3-27b-it": 0.02,
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": 0.025,
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct": 0.025,
    "microsoft/Phi-3.5-vision-instruct": 0.09,
    "moonshotai/Kimi-K3": 0.01,
    "deepseek-ai/DeepSeek-V2-Lite": 0.017,
}
"""Models whose published count has another scope -> largest difference: the vision tower that is loaded with Qwen3.5-9B,
Phi-3.5-vision, Gemma-3 and Llama-4 is left out or smaller, Kimi-K3's active count is rounded, and DeepSeek-V2-Lite's has a query projection
of low rank that its config switches off."""

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def published_counts() -> list[tuple[str, int, int]]:
    with (TRUTH / "parameters.csv").open(encoding="utf-8") as file:
        return [(row["id"], int(row["params_total"]), int(row["params_active"])) for row in csv.DictReader(file)]


def test_parameter_counts_are_the_published_ones():
    wrong = []
    for name, total, active in published_counts():
        model = find_model(name)
        bound = OTHER_SCOPE.get(name, 0.005)
        if abs(model.params_total / total - 1) > bound or abs(model.params_active / active - 1) > bound:
            wrong.append((name, model.params_total, total, model.params_active, active))
    assert wrong == []


def test_most_parameter_counts_are_exact():
    counts = published_counts()
    exact = sum(abs(find_model(name).params_total / total - 1) < 1e-5 for name, total, _ in counts)
    assert exact >= 0.96 * (len(counts) - len(OTHER_SCOPE))


def test_names_in_any_case_with_and_without_organisation():
    model = find_model("meta-llama/Llama-3.1-8B-Instruct")
    for name in ("META-LLAMA/llama-3.1-8b-instruct", " meta-llama/Llama-3.1-8B-Instruct ", "Llama-3.1-8B-Instruct"):
        assert find_model(name).params_total == model.params_total


def test_aliases_lead_to_shapes():
    aliases = [(model, alias) for model in known_models() for alias in model.aliases]
    assert len(aliases) > 100
    for model, alias in aliases:
        assert find_model(alias).params_total == model.params_total, alias


def test_a_renamed_family_is_found_under_both_names():
    short, long = (find_model(f"meta-llama/{name}-405B-Instruct-FP8") for name in ("Llama-3.1", "Meta-Llama-3.1"))
    assert (short.id, short.params_total, short.quantisation) == (long.id, long.params_total, long.quantisation)
    assert short.quantisation is not None
    with pytest.raises(UsageError):
        find_model("meta-llama/Llama-3.1-7B")


def test_an_alias_published_in_another_format_keeps_its_own():
    wide, narrow = find_model("Qwen/Qwen2.5-7B-Instruct"), find_model("Qwen/Qwen2.5-7B-Instruct-AWQ")
    assert wide.quantisation is None
    assert narrow.quantisation is not None
    assert narrow.quantisation.format_of("mlp") == "int4-awq"


def test_pipelines_are_found_beside_language_models():
    assert isinstance(find_model("black-forest-labs/FLUX.1-dev"), PipelineShape)
    assert find_model("openai/whisper-large-v3").modality == "speech_to_text"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("meta-llama/Llama-3.1-8B-Instrct", "meta-llama/llama-3.1-8b-instruct"),
        ("qwen2.5-7b-instuct", "Qwen/Qwen2.5-7B-Instruct"),
        ("black-forest-labs/FLUX1-dev", "black-forest-labs/FLUX.1-dev"),
    ],
)
def test_unknown_ids_are_answered_with_the_nearest(name, near):
    with pytest.raises(UsageError) as caught:
        find_model(name)
    assert repr(name) in str(caught.value)
    assert near in str(caught.value.remedy)
    assert "gpuprov models" in str(caught.value.remedy)


def test_a_name_like_no_other_gets_the_other_ways():
    with pytest.raises(UsageError) as caught:
        find_model("zzzz")
    assert "did you mean" not in str(caught.value.remedy)
    assert "gpuprov models add zzzz" in str(caught.value.remedy)
    assert "model.config" in str(caught.value.remedy)


def test_one_model_is_read_without_the_others(monkeypatch):
    read = []
    line = models._line
    monkeypatch.setattr(models, "_line", lambda offset, length: read.append(length) or line(offset, length))
    models._bundled_model.cache_clear()
    find_model("Qwen/Qwen3-8B")
    assert len(read) == 1
    assert read[0] < 4000


def test_the_index_points_at_whole_lines():
    lines = (models.DATA / "models.jsonl").read_bytes()
    for name, entry in models._names().items():
        record = json.loads(lines[entry[0] : entry[0] + entry[1]])
        assert name in {text.lower() for text in (record["id"], *record["aliases"])}


def test_a_config_gives_the_same_shape_as_the_index():
    model = shape_from_config(LLAMA, "mine")
    assert model.id == "mine"
    assert model.params_total == find_model("meta-llama/Llama-3.1-8B-Instruct").params_total
    assert model.num_layers == 32
    assert model.max_context_tokens == 131072


def test_an_unknown_architecture_is_refused_by_name():
    with pytest.raises(UsageError, match="wonderformer"):
        shape_from_config({**LLAMA, "model_type": "wonderformer"}, "mine")
    with pytest.raises(UsageError, match="model_type"):
        shape_from_config({key: value for key, value in LLAMA.items() if key != "model_type"}, "mine")


def test_all_missing_fields_are_named_at_once():
    with pytest.raises(UsageError) as caught:
        shape_from_config({"model_type": "llama", "hidden_size": 4096}, "mine")
    text = str(caught.value)
    for field in ("num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"):
        assert field in text


@pytest.mark.parametrize("value", ["many", -1, 0.5, True, 10**12])
def test_dimensions_that_are_no_counts_are_refused(value):
    with pytest.raises(UsageError, match="num_hidden_layers"):
        shape_from_config({**LLAMA, "num_hidden_layers": value}, "mine")


def test_dimensions_that_contradict_each_other_are_refused():
    with pytest.raises(UsageError, match=r"32 is not a multiple of .* 5"):
        shape_from_config({**LLAMA, "num_key_value_heads": 5}, "mine")


def test_a_config_that_is_no_mapping_is_refused():
    with pytest.raises(UsageError, match="list"):
        shape_from_config([LLAMA], "mine")  # type: ignore[arg-type]


def test_an_unknown_quantisation_is_refused_by_name():
    with pytest.raises(UsageError, match="mystery"):
        shape_from_config({**LLAMA, "quantization_config": {"quant_method": "mystery"}}, "mine")


DIMENSIONS = {
    "layers": 32,
    "hidden_size": 4096,
    "heads": 32,
    "kv_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}


def test_dimensions_make_a_llama_like_model():
    assert shape_from_dimensions(DIMENSIONS).params_total == shape_from_config(LLAMA, "x").params_total
    tied = shape_from_dimensions({**DIMENSIONS, "tied_embeddings": True})
    assert tied.params_total == shape_from_dimensions(DIMENSIONS).params_total - 4096 * 128256


def test_dimensions_with_experts():
    model = shape_from_dimensions(
        {**DIMENSIONS, "experts": 8, "experts_per_token": 2, "expert_intermediate_size": 14336}
    )
    assert model.is_moe
    assert model.params_total > 4 * shape_from_dimensions(DIMENSIONS).params_total
    assert model.params_active < 2 * shape_from_dimensions(DIMENSIONS).params_total


def test_missing_and_unknown_dimensions_are_named():
    with pytest.raises(UsageError, match="heads, vocab_size missing"):
        shape_from_dimensions({"layers": 2, "hidden_size": 64, "intermediate_size": 128})
    with pytest.raises(UsageError, match="'layer_count' is no dimension"):
        shape_from_dimensions({**DIMENSIONS, "layer_count": 3})


def test_the_list_has_every_bundled_model_once():
    ids = [model.id for model in known_models()]
    assert len(ids) == len(set(ids)) == 364 + 8 + 55
    assert ids == sorted(ids, key=str.lower)
    assert all(model.params_total >= model.params_active > 0 for model in known_models())


@pytest.mark.parametrize(
    ("known", "layers", "width", "mels", "vocabulary"),
    [
        ("openai/whisper-large-v3", (32, 32), 1280, 128, 51866),
        ("openai/whisper-large-v3-turbo", (32, 4), 1280, 128, 51866),
        ("openai/whisper-small", (12, 12), 768, 80, 51865),
    ],
)
def test_a_whisper_config_gives_the_bundled_counts(known, layers, width, mels, vocabulary):
    config = {
        "model_type": "whisper",
        "d_model": width,
        "encoder_layers": layers[0],
        "decoder_layers": layers[1],
        "encoder_attention_heads": width // 64,
        "decoder_attention_heads": width // 64,
        "num_mel_bins": mels,
        "vocab_size": vocabulary,
        "torch_dtype": "float16",
    }
    model, bundled = shape_from_config(config, "mine"), find_model(known)
    assert isinstance(model, PipelineShape)
    assert isinstance(bundled, PipelineShape)
    counts = [{part.name: part.params for part in each.components} for each in (model, bundled)]
    assert counts[0] == counts[1]
    assert (model.core_width, model.core_depth) == (bundled.core_width, bundled.core_depth)
    with pytest.raises(UsageError, match="encoder_layers"):
        shape_from_config({**config, "encoder_layers": None}, "mine")
