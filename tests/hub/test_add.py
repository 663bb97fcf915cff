"""``gpuprov models add`` against a loopback hub: what is stored, what sizing makes of it, and every refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provisioner.added_models import file_of, models_folder, read_added
from provisioner.sizing.models import find_model, shape_from_config
from provisioner.sizing.weights import total_weight_bytes
from tests.fakes.hub import TOKEN, Hub, safetensors
from tests.hub.conftest import CONFIG, llama_tensors, repository, sharded

SPEC = "version: 1\nname: chat\ntask: serve\nmodel:\n  id: {id}\ninference: {{context_tokens: 2048}}\nplacement: {{gpus: [L4]}}\n"


@pytest.fixture
def spec(tmp_path):
    """A spec that serves a model by id."""

    def write(model_id: str) -> str:
        path = tmp_path / "workload.yaml"
        path.write_text(SPEC.format(id=model_id))
        return str(path)

    return write


def weights(tensors) -> int:
    return sum(
        len(safetensors({name: each})) - len(safetensors({name: each}, data=False)) for name, each in tensors.items()
    )


def test_a_sharded_model_is_added_by_its_headers_alone(hub: Hub, gpuprov):
    tensors = llama_tensors()
    hub.repositories["org/tiny"] = repository(files=sharded(tensors, 3))
    code, out, _ = gpuprov("models", "add", "org/tiny", "--format", "json")
    assert code == 0
    document = json.loads(out)
    assert document["schema"] == "gpuprov.models/1"
    (model,) = document["models"]
    assert model["origin"] == "added"
    assert model["commit"] == hub.repositories["org/tiny"].commit
    assert model["stored_weights_bytes"] == weights(tensors)
    assert sum(model["components"].values()) == model["params_total"]
    ranges = [wanted for path, wanted, _ in hub.log if ".safetensors" in path and "index" not in path]
    assert len(ranges) == 6
    assert set(ranges) == {"bytes=0-99999"}


def test_size_and_plan_know_an_added_model_offline(hub: Hub, gpuprov, spec, monkeypatch):
    hub.repositories["org/tiny"] = repository()
    assert gpuprov("models", "add", "org/tiny")[0] == 0
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    asked = len(hub.log)
    code, out, _ = gpuprov("size", spec("Org/Tiny"), "--format", "json")
    assert code == 0
    per_gpu = json.loads(out)["layouts"][0]["footprint"]["per_gpu"]
    assert per_gpu["weights_bytes"] == weights(llama_tensors())
    first, second = (gpuprov("plan", spec("org/tiny"), "--format", "json") for _ in range(2))
    assert first[0] == 0
    assert first[1] == second[1]
    assert len(hub.log) == asked


def test_a_saved_plan_is_whole_without_the_cache(hub: Hub, gpuprov, spec, tmp_path):
    hub.repositories["org/tiny"] = repository()
    gpuprov("models", "add", "org/tiny")
    plan = tmp_path / "plan.json"
    assert gpuprov("plan", spec("org/tiny"), "-o", str(plan))[0] == 0
    assert gpuprov("models", "remove", "org/tiny")[0] == 0
    code, out, _ = gpuprov("check", str(plan), "--format", "json")
    findings = json.loads(out)["findings"]
    assert code == 0, findings
    assert [each for each in findings if each["result"] == "unknown" and "model" in each["message"]] == []
    code, _, error = gpuprov("plan", spec("org/tiny"))
    assert code == 2
    assert "workload.yaml:5:7" in error
    assert "models add org/tiny" in error


def test_real_bytes_override_what_the_config_says(hub: Hub, gpuprov):
    tensors = llama_tensors()
    for name in list(tensors):
        if "mlp" in name:
            tensors[name] = ("F8_E4M3", tensors[name][1])
    config = {**CONFIG, "quantization_config": {"quant_method": "fp8", "modules_to_not_convert": ["lm_head"]}}
    hub.repositories["org/mixed"] = repository(config, {"model.safetensors": safetensors(tensors)})
    code, _, error = gpuprov("models", "add", "org/mixed")
    assert code == 0
    shape = find_model("org/mixed")
    assert total_weight_bytes(shape) == weights(tensors)
    assert dict(shape.stored.bits)["mlp"] == pytest.approx(8, rel=0.01)
    assert dict(shape.stored.bits)["attention"] == pytest.approx(16, rel=0.01)
    assert "the shards count" in error


def test_agreement_is_silent(hub: Hub, gpuprov):
    hub.repositories["org/tiny"] = repository()
    _, _, error = gpuprov("models", "add", "org/tiny")
    assert "warning" not in error
    assert find_model("org/tiny").notes == ()


def test_a_disagreement_is_told_with_both_numbers_in_the_plan(hub: Hub, gpuprov, spec):
    tensors = {**llama_tensors(), "model.layers.0.self_attn.extra.weight": ("BF16", (4000, 4000))}
    hub.repositories["org/odd"] = repository(files={"model.safetensors": safetensors(tensors)})
    _, _, error = gpuprov("models", "add", "org/odd")
    assert "its config gives" in error
    _, out, _ = gpuprov("plan", spec("org/odd"), "--format", "json")
    assert any("its config gives" in warning for warning in json.loads(out)["warnings"])
    assert total_weight_bytes(find_model("org/odd")) == weights(tensors)


def test_fp32_shards_of_a_config_that_says_nothing(hub: Hub, gpuprov):
    config = {key: value for key, value in CONFIG.items() if key != "torch_dtype"}
    tensors = llama_tensors(dtype="F32")
    hub.repositories["org/wide"] = repository(config, {"model.safetensors": safetensors(tensors)})
    gpuprov("models", "add", "org/wide")
    shape = find_model("org/wide")
    assert shape.weights_dtype == "fp32"
    assert total_weight_bytes(shape, keeps_fp32=True) == weights(tensors)
    assert total_weight_bytes(shape) == weights(tensors) // 2


def test_draft_heads_in_the_shards_are_left_out(hub: Hub, gpuprov):
    extra = {name.replace("layers.3", "layers.4"): each for name, each in llama_tensors().items() if "layers.3" in name}
    hub.repositories["org/draft"] = repository(files={"model.safetensors": safetensors({**llama_tensors(), **extra})})
    gpuprov("models", "add", "org/draft")
    assert total_weight_bytes(find_model("org/draft")) == weights(llama_tensors())


def test_no_safetensors_means_the_config_decides(hub: Hub, gpuprov):
    hub.repositories["org/bin"] = repository(files={})
    code, out, error = gpuprov("models", "add", "org/bin", "--format", "json")
    assert code == 0
    assert "no safetensors files" in error
    assert json.loads(out)["models"][0]["stored_weights_bytes"] is None
    assert total_weight_bytes(find_model("org/bin")) == weights(llama_tensors())


def test_quantisation_from_a_file_of_its_own(hub: Hub, gpuprov):
    tensors = llama_tensors()
    for name in list(tensors):
        if "_proj" in name:
            rows, columns = tensors[name][1]
            tensors[name] = ("U8", (rows, columns // 2))
            tensors[f"{name}_scale"] = ("F8_E4M3", (rows, columns // 16))
    files = {
        "model.safetensors": safetensors(tensors),
        "hf_quant_config.json": json.dumps(
            {"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}
        ).encode(),
    }
    hub.repositories["org/four"] = repository(files=files)
    gpuprov("models", "add", "org/four")
    shape = find_model("org/four")
    assert shape.quantisation is not None
    assert shape.quantisation.format_of("mlp") == "nvfp4"
    assert total_weight_bytes(shape) == weights(tensors)


def test_a_token_goes_to_the_hub_and_to_nobody_else(hub: Hub, gpuprov, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    hub.repositories["org/gated"] = repository(gated=True)
    assert gpuprov("models", "add", "org/gated")[0] == 0
    front = [authorization for path, _, authorization in hub.log if "/resolve/" in path]
    behind = [authorization for path, _, authorization in hub.log if "/resolve/" not in path]
    assert set(front) == {f"Bearer {TOKEN}"}
    assert behind
    assert set(behind) == {None}


def test_the_old_name_of_the_token_works(hub: Hub, gpuprov, monkeypatch):
    monkeypatch.setenv("HUGGING_FACE_HUB_TOKEN", TOKEN)
    hub.repositories["org/gated"] = repository(gated=True)
    assert gpuprov("models", "add", "org/gated")[0] == 0


@pytest.mark.parametrize(
    ("token", "words"),
    [
        (None, ("is gated", "401", "set HF_TOKEN")),
        ("wrong", ("token in HF_TOKEN", "403", "licence")),
    ],
)
def test_gated_models_say_which_token(hub: Hub, gpuprov, monkeypatch, token, words):
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    hub.repositories["org/gated"] = repository(gated=True)
    code, out, error = gpuprov("models", "add", "org/gated")
    assert code == 3
    assert out == ""
    assert all(word in error for word in words)
    assert token is None or f" {token} " not in error
    assert not models_folder().exists()


def test_unknown_and_private_models(hub: Hub, gpuprov, monkeypatch):
    code, _, error = gpuprov("models", "add", "org/none")
    assert code == 3
    assert "does not exist" in error
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    code, _, error = gpuprov("models", "add", "org/none")
    assert code == 2
    assert "no model 'org/none'" in error


def test_a_repository_without_a_config(hub: Hub, gpuprov, tmp_path):
    hub.repositories["org/gguf"] = repository(files={"model-Q4_K_M.gguf": b"GGUF"})
    del hub.repositories["org/gguf"].files["config.json"]
    code, _, error = gpuprov("models", "add", "org/gguf")
    assert code == 2
    assert "404" in error
    assert "GGUF" in error
    code, _, error = gpuprov("models", "add", str(tmp_path))
    assert code == 2
    assert "no config.json" in error


def test_revisions(hub: Hub, gpuprov):
    hub.repositories["org/tiny"] = repository()
    assert gpuprov("models", "add", f"hf://org/tiny@{hub.repositories['org/tiny'].commit}")[0] == 0
    code, _, error = gpuprov("models", "add", "org/tiny", "--revision", "v9")
    assert code == 2
    assert "no revision 'v9'" in error


def test_a_moved_model_is_followed(hub: Hub, gpuprov):
    hub.repositories["org/new"] = repository()
    hub.repositories["org/old"] = repository(moved_to="org/new")
    assert gpuprov("models", "add", "org/old")[0] == 0
    assert find_model("org/old").num_layers == 4


def test_endless_redirects_end(hub: Hub, gpuprov):
    hub.repositories["a/a"] = repository(moved_to="b/b")
    hub.repositories["b/b"] = repository(moved_to="a/a")
    code, _, error = gpuprov("models", "add", "a/a")
    assert code == 4
    assert "redirects" in error


def test_passing_failures_are_waited_out_and_lasting_ones_told(hub: Hub, gpuprov):
    hub.repositories["org/shy"] = repository(failures=2)
    assert gpuprov("models", "add", "org/shy")[0] == 0
    hub.repositories["org/down"] = repository(status=500)
    code, _, error = gpuprov("models", "add", "org/down")
    assert code == 4
    assert "answers 500" in error
    hub.repositories["org/busy"] = repository(status=429)
    code, _, error = gpuprov("models", "add", "org/busy")
    assert code == 4
    assert "too many requests" in error


def test_offline_names_the_other_ways(hub: Hub, gpuprov, monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    code, _, error = gpuprov("models", "add", "org/tiny")
    assert code == 4
    assert "cannot be reached" in error
    assert "HF_ENDPOINT" in error
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    code, _, error = gpuprov("models", "add", "org/tiny")
    assert code == 2
    assert "HF_HUB_OFFLINE" in error


@pytest.mark.parametrize("endpoint", ["ftp://hub", "nonsense", "https://"])
def test_an_endpoint_that_is_no_address(gpuprov, monkeypatch, endpoint):
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    code, _, error = gpuprov("models", "add", "org/tiny")
    assert code == 2
    assert "HF_ENDPOINT" in error


def test_a_server_without_ranges_still_serves(hub: Hub, gpuprov):
    hub.ranges = False
    hub.repositories["org/tiny"] = repository(files=sharded(llama_tensors(), 2))
    assert gpuprov("models", "add", "org/tiny")[0] == 0
    assert total_weight_bytes(find_model("org/tiny")) == weights(llama_tensors())


def test_a_connection_that_breaks_is_an_error(hub: Hub, gpuprov):
    hub.cut = True
    hub.repositories["org/tiny"] = repository()
    code, _, error = gpuprov("models", "add", "org/tiny")
    assert code == 4
    assert "cut off" in error
    assert read_added("org/tiny") is None


def test_an_architecture_that_is_not_modelled_is_named(hub: Hub, gpuprov):
    hub.repositories["org/odd"] = repository({**CONFIG, "model_type": "wonderformer"})
    code, _, error = gpuprov("models", "add", "org/odd")
    assert code == 2
    assert "wonderformer" in error
    assert read_added("org/odd") is None


def test_a_failed_second_add_keeps_the_first(hub: Hub, gpuprov):
    hub.repositories["org/tiny"] = repository()
    gpuprov("models", "add", "org/tiny")
    before = file_of("org/tiny").read_bytes()
    hub.repositories["org/tiny"].files["model.safetensors"] = b"\x08"
    assert gpuprov("models", "add", "org/tiny")[0] == 4
    assert file_of("org/tiny").read_bytes() == before


def test_an_adapter_is_told_from_a_model(hub: Hub, gpuprov):
    adapter = json.dumps({"base_model_name_or_path": "org/base", "r": 16}).encode()
    hub.repositories["org/lora"] = repository(files={"adapter_config.json": adapter})
    del hub.repositories["org/lora"].files["config.json"]
    code, _, error = gpuprov("models", "add", "org/lora")
    assert code == 2
    assert "LoRA adapter of org/base" in error


@pytest.mark.parametrize("name", ["a/b/c", "../etc", "org/..", "-x/y", "org/na me", "org/a--b", "%2e%2e/x"])
def test_what_is_no_id_is_refused(hub: Hub, gpuprov, name):
    code, _, error = gpuprov("models", "add", "--", name)
    assert code == 2
    assert "id" in error or "there is no" in error
    assert hub.log == []


def test_a_folder_and_a_file_are_added_without_a_hub(gpuprov, tmp_path: Path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    for name, content in sharded(llama_tensors(), 2).items():
        (folder / name).write_bytes(content)
    assert gpuprov("models", "add", str(folder))[0] == 0
    assert find_model("my-model").stored.total_bytes == weights(llama_tensors())
    assert gpuprov("models", "add", str(folder / "config.json"), "--as", "me/mine")[0] == 0
    assert find_model("me/mine").stored is None
    code, _, error = gpuprov("models", "add", str(tmp_path / "nothing.json"))
    assert code == 2
    assert "there is no" in error


def test_the_list_marks_added_models(hub: Hub, gpuprov):
    hub.repositories["org/tiny"] = repository()
    gpuprov("models", "add", "org/tiny")
    _, out, _ = gpuprov("models", "tiny")
    assert "added" in out
    _, out, _ = gpuprov("models", "--format", "json")
    origins = {model["id"]: model["origin"] for model in json.loads(out)["models"]}
    assert origins["org/tiny"] == "added"
    assert origins["Qwen/Qwen3-8B"] == "bundled"


def test_an_added_model_stands_in_for_the_bundled_one(hub: Hub, gpuprov, spec):
    hub.repositories["Qwen/Qwen3-8B"] = repository()
    gpuprov("models", "add", "Qwen/Qwen3-8B")
    _, out, _ = gpuprov("size", spec("Qwen/Qwen3-8B"), "--format", "json")
    assert json.loads(out)["layouts"][0]["footprint"]["per_gpu"]["weights_bytes"] == weights(llama_tensors())


def test_a_damaged_record_is_named(hub: Hub, gpuprov, spec):
    hub.repositories["org/tiny"] = repository()
    gpuprov("models", "add", "org/tiny")
    file_of("org/tiny").write_text("{")
    code, _, error = gpuprov("size", spec("org/tiny"))
    assert code == 2
    assert "models add" in error


def test_a_user_cannot_write_both_id_and_config(gpuprov, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    path = tmp_path / "workload.yaml"
    path.write_text(SPEC.format(id="org/tiny").replace("  id:", "  config: ./config.json\n  id:"))
    code, _, error = gpuprov("size", str(path))
    assert code == 2
    assert "exclude each other" in error


def test_a_damaged_section_is_refused():
    for parts in ("x", {"mlp": 3}, {"mlp": {"BF16": [1]}}):
        with pytest.raises(Exception, match="damaged"):
            shape_from_config({**CONFIG, "gpuprov_checkpoint": {"id": "x", "files": 1, "parts": parts}}, "x")
