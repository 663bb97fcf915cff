"""Argument lists of known engines."""

from __future__ import annotations

import pytest

from provisioner.planner.launch import launch_argv, launch_env
from provisioner.sizing.layout import Layout
from provisioner.vocabulary import Sharding

TWO = Layout(tensor_parallel=2)


@pytest.fixture
def argv(request_of):
    return lambda workload, layout=TWO, fraction=0.9: list(launch_argv(request_of(workload), layout, fraction))


def test_vllm(argv, serve):
    words = argv(serve(inference={"kv_cache": "fp8"}, model={"weights": "fp8"}))
    assert words[:3] == ["vllm", "serve", "meta-llama/Llama-3.1-8B-Instruct"]
    pairs = dict(zip(words[3::2], words[4::2], strict=True))
    assert pairs == {
        "--tensor-parallel-size": "2",
        "--max-model-len": "8192",
        "--max-num-seqs": "4",
        "--gpu-memory-utilization": "0.9",
        "--quantization": "fp8",
        "--kv-cache-dtype": "fp8",
    }


def test_vllm_pipeline_and_dtype(argv, serve):
    words = argv(serve(model={"weights": "bf16"}), Layout(tensor_parallel=2, pipeline_parallel=2), None)
    assert words[words.index("--pipeline-parallel-size") + 1] == "2"
    assert words[words.index("--dtype") + 1] == "bfloat16"
    assert "--gpu-memory-utilization" not in words


def test_formats_of_a_checkpoint_are_not_named(argv, serve):
    assert "--quantization" not in argv(serve(model={"weights": "int4-awq"}))
    assert "--quantization" not in argv(serve(model={"id": "deepseek-ai/DeepSeek-V3", "weights": "auto"}))


@pytest.mark.parametrize(
    ("engine", "head", "degree"),
    [
        ("sglang", ["python3", "-m", "sglang.launch_server", "--model-path"], "--tp-size"),
        ("tensorrt-llm", ["trtllm-serve", "meta-llama/Llama-3.1-8B-Instruct"], "--tp_size"),
    ],
)
def test_other_servers(argv, serve, engine, head, degree):
    words = argv(serve(inference={"engine": engine}))
    assert words[: len(head)] == head
    assert words[words.index(degree) + 1] == "2"


def test_llama_cpp_shares_its_context(argv, serve):
    words = argv(serve(inference={"engine": "llama.cpp"}, model={"weights": "gguf-q4_k_m"}), Layout())
    assert words[words.index("--ctx-size") + 1] == str(8192 * 4)
    assert words[words.index("--hf-repo") + 1] == "meta-llama/Llama-3.1-8B-Instruct:Q4_K_M"


@pytest.mark.parametrize(
    ("engine", "weights", "words"),
    [
        ("sglang", "bf16", ["--kv-cache-dtype", "fp8_e5m2"]),
        ("tensorrt-llm", "bf16", ["--kv_cache_dtype", "fp8"]),
        ("llama.cpp", "gguf-q8_0", ["--cache-type-k", "q8_0", "--cache-type-v", "q8_0", "--flash-attn", "on"]),
    ],
)
def test_a_cache_that_is_sized_at_8_bits_is_asked_for(argv, serve, engine, weights, words):
    def command(cache):
        return argv(serve(inference={"engine": engine, "kv_cache": cache}, model={"weights": weights}), Layout())

    asked = command("fp8")
    start = asked.index(words[0])
    assert asked[start : start + len(words)] == words
    assert words[0] not in command("auto")


def test_libraries_have_no_command(argv, serve):
    assert argv(serve(inference={"engine": "transformers"})) == []


def test_source_wins_over_id(argv, serve):
    assert argv(serve(model={"source": "hf://org/copy@main"}))[2] == "org/copy"
    assert argv(serve(model={"source": "s3://bucket/llama"}))[2] == "s3://bucket/llama"


def test_own_command_wins(argv, serve):
    image = f"registry.example/app@sha256:{'0' * 64}"
    assert argv(serve(run={"image": image, "command": ["./serve", "--fast"]})) == ["./serve", "--fast"]


def test_training_of_several_processes(argv, finetune, request_of):
    eight = Layout(data_parallel=8, sharding=Sharding.FSDP)
    assert argv(finetune(), eight) == ["torchrun", "--standalone", "--nproc-per-node=8"]
    assert argv(finetune(), Layout()) == []
    assert launch_env(request_of(finetune()), eight) == {"OMP_NUM_THREADS": "1"}
    assert launch_env(request_of(finetune()), Layout()) == {}
    image = f"registry.example/app@sha256:{'0' * 64}"
    newer = finetune(run={"image": image, "command": ["python3", "train.py"]})
    assert argv(newer, eight) == ["torchrun", "--standalone", "--nproc-per-node=8", "train.py"]
    script = finetune(run={"image": image, "command": ["python", "train.py", "--lr", "1e-4"]})
    assert argv(script, eight) == ["torchrun", "--standalone", "--nproc-per-node=8", "train.py", "--lr", "1e-4"]
    assert argv(script, Layout()) == ["python", "train.py", "--lr", "1e-4"]
