"""``gpuprov size`` and ``gpuprov models`` from outside: documents, tables, refusals, and what they never import."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from provisioner.cli.main import run
from provisioner.sizing.models import known_models

SPEC = """\
version: 1
name: chat
task: serve
model:
  id: meta-llama/Llama-3.1-8B-Instruct
  weights: bf16
inference:
  engine: vllm@0.19
  context_tokens: 8192
  concurrency: 4
"""
GPUS = "placement:\n  gpus: [L4, H100]\n"


@pytest.fixture
def size(tmp_path, capsys):
    """Runs the command on a spec; gives code, standard output, standard error."""

    def call(text: str, *arguments: str) -> tuple[int, str, str]:
        spec = tmp_path / "workload.yaml"
        spec.write_text(text)
        code = run(["size", str(spec), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def models(capsys):
    """Runs ``gpuprov models``."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(["models", *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_json_is_the_contracted_document(size):
    code, out, _ = size(SPEC + GPUS, "--format", "json")
    assert code == 0
    document = json.loads(out)
    assert document["schema"] == "gpuprov.size/1"
    assert {each["gpu"] for each in document["layouts"]} == {"L4", "H100"}
    first = document["layouts"][0]
    assert (first["gpu"], first["tensor_parallel"], first["pipeline_parallel"], first["data_parallel"]) == (
        "L4",
        1,
        1,
        1,
    )
    assert first["footprint"]["per_gpu"]["weights_bytes"] == 16_060_522_496
    assert first["footprint"]["per_gpu"]["kv_cache_bytes"] == 4 * 2**30
    assert first["throughput"]["decode_tokens_per_s_per_replica"] > 0


def test_verdicts_follow_memory(size):
    _, out, _ = size(SPEC.replace("8B", "70B") + GPUS, "--format", "json")
    verdicts = {
        (each["gpu"], each["tensor_parallel"]): each["fits"]
        for each in json.loads(out)["layouts"]
        if each["pipeline_parallel"] == 1
    }
    assert verdicts["L4", 1] == verdicts["L4", 4] == verdicts["H100", 1] == "does-not-fit"
    assert verdicts["H100", 4] == verdicts["H100", 8] == "fits"


def test_all_gpu_kinds_without_a_placement(size):
    _, out, _ = size(SPEC, "--format", "json")
    kinds = {each["gpu"] for each in json.loads(out)["layouts"]}
    assert {"T4", "L4", "A10G", "L40S", "A100", "H100", "H200", "B200"} <= kinds | {"A100"}
    assert len(kinds) >= 8


def test_a_table_goes_to_standard_output_and_assumptions_beside_it(size):
    code, out, err = size(SPEC + GPUS)
    assert code == 0
    assert "WWWWWW" in out
    assert "fits" in out
    assert "engine profile: vllm@0.19" in err
    assert "usable memory" in err


def test_trainings_show_their_sharding(size):
    spec = """\
version: 1
name: tune
task: finetune
model: {id: Qwen/Qwen2.5-7B-Instruct}
training: {method: full, sequence_tokens: 2048, sharding: fsdp}
placement: {gpus: [H100]}
"""
    code, out, _ = size(spec, "--format", "json")
    assert code == 0
    layouts = json.loads(out)["layouts"]
    assert {each["sharding"] for each in layouts if each["data_parallel"] > 1} == {"fsdp"}
    need = [each["footprint"]["per_gpu"]["total_bytes"] for each in layouts]
    assert need == sorted(need, reverse=True)
    assert layouts[0]["footprint"]["per_gpu"]["optimizer_bytes"] > 0


def test_pictures_have_no_cache(size):
    spec = "version: 1\nname: art\ntask: serve\nmodel: {id: black-forest-labs/FLUX.1-dev, weights: bf16}\n" + GPUS
    code, out, _ = size(spec, "--format", "json")
    assert code == 0
    layouts = {each["gpu"]: each for each in json.loads(out)["layouts"]}
    assert layouts["L4"]["fits"] == "does-not-fit"
    assert layouts["H100"]["fits"] == "fits"
    assert layouts["H100"]["footprint"]["per_gpu"]["kv_cache_bytes"] is None
    assert layouts["H100"]["throughput"]["images_per_s"] > 0


def test_an_unknown_model_is_pointed_at(size):
    code, out, err = size(SPEC.replace("Llama-3.1-8B-Instruct", "Llama-3.1-8B-Instrukt") + GPUS)
    assert code == 2
    assert out == ""
    assert "meta-llama/llama-3.1-8b-instruct" in err
    assert "workload.yaml:5" in err


def test_one_model_by_alias(models):
    code, out, _ = models("qwen/qwen2.5-7b-instruct-awq", "--format", "json")
    assert code == 0
    document = json.loads(out)
    assert document["schema"] == "gpuprov.models/1"
    assert [model["id"] for model in document["models"]] == ["Qwen/Qwen2.5-7B"]


def test_part_of_an_id_lists_what_matches(models):
    _, out, _ = models("gemma-3", "--format", "json")
    ids = [model["id"] for model in json.loads(out)["models"]]
    assert len(ids) >= 4
    assert all("gemma-3" in name.lower() for name in ids)


def test_the_whole_list(models):
    code, out, err = models()
    assert code == 0
    assert "Qwen/Qwen2.5-7B" in out
    assert "8.03 B" in out
    assert f"{len(known_models())} models" in err


def test_an_unknown_id_is_refused_with_the_nearest(models):
    code, out, err = models("meta-llama/Llama-9-9000B")
    assert code == 2
    assert out == ""
    assert "did you mean" in err


@pytest.mark.slow
def test_json_needs_no_heavy_library(tmp_path):
    spec = tmp_path / "workload.yaml"
    spec.write_text(SPEC + GPUS)
    code = (
        "import sys\nfrom provisioner.cli.main import run\n"
        f"assert run(['size', {str(spec)!r}, '--format', 'json']) == 0\n"
        "heavy = {'rich', 'boto3', 'google', 'pulumi', 'grpc', 'numpy', 'benchmarks'} & set(sys.modules)\n"
        "sys.exit(f'imports {heavy}' if heavy else 0)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=root)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("columns", [80, 120])
def test_a_table_is_never_cut(size, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    code, out, _ = size(SPEC)
    assert code == 0
    assert "\N{HORIZONTAL ELLIPSIS}" not in out
    assert all(len(line) <= columns for line in out.splitlines())
    assert "up to: most requests at once / largest context" in out
    assert ("tokens/s" in out) == (columns == 120)


def test_json_names_the_largest_that_fits(size):
    _, out, _ = size(SPEC + GPUS, "--format", "json")
    document = json.loads(out)
    assert document["closest"] == []
    for each in document["layouts"]:
        assert set(each["largest"]) == {"context_tokens", "concurrency"}
        assert (each["largest"]["concurrency"] >= 4) == (each["fits"] == "fits")
        assert (each["largest"]["context_tokens"] >= 8192) == (each["fits"] == "fits")
        assert each["refusal"] is None


def test_what_would_fit_is_shown_where_nothing_does(size):
    spec = SPEC.replace("8192", "65536") + "placement: {gpus: [L4], max_gpus: 1}\n"
    code, out, _ = size(spec)
    assert code == 0
    assert "What would fit" in out
    assert "lower inference.context_tokens to" in out
    _, out, _ = size(spec, "--format", "json")
    assert json.loads(out)["closest"]


@pytest.mark.parametrize("columns", [80, 120])
def test_a_list_of_models_is_never_cut(models, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    _, out, _ = models("gemma")
    assert all(len(line.rstrip()) <= columns for line in out.splitlines())
    assert "131,072" in out
    assert "8,192" in out
    assert out.count("bf16") > 10
    assert ("text+image" in out) == (columns == 120)


def test_one_model_shows_its_components(models):
    _, out, _ = models("deepseek-ai/DeepSeek-V3")
    for component in ("embeddings", "attention", "experts", "shared experts", "routers", "head", "mtp"):
        assert component in out
    _, out, _ = models("deepseek-ai/DeepSeek-V3", "--format", "json")
    (model,) = json.loads(out)["models"]
    assert sum(model["components"].values()) - model["components"]["mtp"] == model["params_total"]
