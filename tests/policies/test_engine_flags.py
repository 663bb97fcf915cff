"""Flags as each engine takes them: every spelling, form and variable, and what is none of them."""

from __future__ import annotations

import pytest

from policies.engine_flags import FLAGS, VARIABLES, EngineSetting, read_settings, spelling
from provisioner.vocabulary import Engine

S = EngineSetting
VLLM, SGLANG, TRT, LLAMA = Engine.VLLM, Engine.SGLANG, Engine.TENSORRT_LLM, Engine.LLAMA_CPP


def read(engine: Engine | None, *command: str, **env: str) -> dict[EngineSetting, str]:
    return {setting: asked.value for setting, asked in read_settings(engine, command, env).items()}


@pytest.mark.parametrize("engine", [VLLM, SGLANG, TRT, LLAMA, None])
def test_each_spelling_is_read_in_each_form(engine: Engine | None) -> None:
    for setting, flags in FLAGS[engine].items():
        for flag in flags:
            assert read(engine, "program", f"{flag}=1") == {setting: "1"}
            is_key = not flag.startswith("-")
            assert read(engine, "program", flag, "1") == ({} if is_key else {setting: "1"})
            if flag.startswith("--"):
                other = f"--{flag[2:].replace('-', '_')}"
                assert read(engine, "program", other, "0", flag, "1") == {setting: "1"}, "the last one wins"
        assert spelling(engine, setting) == flags[0]


@pytest.mark.parametrize("engine", list(VARIABLES))
def test_each_variable_is_read_where_it_stands_and_the_flag_wins(engine: Engine | None) -> None:
    for name, setting in VARIABLES[engine].items():
        assert read(engine, "program", **{name: "3"}) == {setting: "3"}
        assert read(engine, f"{name}=4", "program", **{name: "3"}) == {setting: "4"}
        assert read(engine, "sh", "-c", f"export {name}=4 && exec program") == {setting: "4"}
        assert read(engine, f"{name}=4", "program", spelling(engine, setting), "5", **{name: "3"}) == {setting: "5"}


@pytest.mark.parametrize(
    ("engine", "command", "found"),
    [
        (VLLM, "vllm serve m --tensor-parallel 2 --max-model 8k", {S.TENSOR_PARALLEL: "2", S.CONTEXT: "8k"}),
        (VLLM, "vllm serve m --gpu_memory_util=0.8 -qfp8", {S.MEMORY_SHARE: "0.8", S.QUANTISATION: "fp8"}),
        (VLLM, "vllm serve m --max-lo 2 --m 3", {}),
        (VLLM, "vllm serve m -tp=2 -pp 1", {S.TENSOR_PARALLEL: "2", S.PIPELINE_PARALLEL: "1"}),
        (VLLM, "vllm serve m --max-model-len", {S.CONTEXT: ""}),
        (SGLANG, "python3 -m sglang.launch_server --tp 4 --context-len 9", {S.TENSOR_PARALLEL: "4", S.CONTEXT: "9"}),
        (SGLANG, "sglang serve --max-running-request 1 --kv-cache fp8_e5m2", {S.CONCURRENCY: "1", S.KV_CACHE: "fp8_e5m2"}),
        (TRT, "trtllm-serve m --tp 2 --max_seq 9", {}),
        (TRT, "trtllm-serve m --free_gpu_memory_fraction 0.8 --tp_size 2", {S.CACHE_SHARE: "0.8", S.TENSOR_PARALLEL: "2"}),
        (LLAMA, "llama-server -ngl 20 -np 2 -ctv q8_0 --ctx_size 0", {S.GPU_LAYERS: "20", S.CONCURRENCY: "2", S.KV_VALUES: "q8_0", S.CONTEXT: "0"}),
        (LLAMA, "llama-server --ctx 9", {}),
        (None, "torchrun --nproc_per_node gpu train.py", {S.PROCESSES: "gpu"}),
        (None, "accelerate launch --num-processes 4 t.py", {S.PROCESSES: "4"}),
        (None, "deepspeed --num_gpus=4 t.py --per_device_train_batch_size 2", {S.PROCESSES: "4", S.MICRO_BATCH: "2"}),
        (None, "NPROC_PER_NODE=4 swift sft --max_length 2048", {S.PROCESSES: "4", S.SEQUENCE: "2048"}),
        (None, "llamafactory-cli train x.yaml cutoff_len=2048 per_device_train_batch_size=2", {S.SEQUENCE: "2048", S.MICRO_BATCH: "2"}),
        (None, "litgpt finetune m --train.micro_batch_size 2 --train.max_seq_length=512", {S.MICRO_BATCH: "2", S.SEQUENCE: "512"}),
        (None, "python nemo.py +trainer.devices=8 model.micro_batch_size=1", {S.PROCESSES: "8", S.MICRO_BATCH: "1"}),
        (None, "python pretrain_gpt.py --micro-batch-size 1 --seq-length 4096", {S.MICRO_BATCH: "1", S.SEQUENCE: "4096"}),
        (None, "tune run --nproc_per_node 2 full_finetune_distributed tokenizer.max_seq_len=2048", {S.PROCESSES: "2", S.SEQUENCE: "2048"}),
        (None, "python train.py training.micro_batch=64 batch_size=8", {}),
    ],
)  # fmt: skip
def test_what_an_engine_takes_is_read_and_nothing_else(
    engine: Engine | None, command: str, found: dict[EngineSetting, str]
) -> None:
    assert read(engine, *command.split()) == found
    assert read(engine, "/bin/bash", "-lc", command) == found


@pytest.mark.parametrize(
    ("engine", "command", "found"),
    [
        (VLLM, ["sh", "-c", "pip install -q x && vllm serve m -tp 2"], {S.TENSOR_PARALLEL: "2"}),
        (VLLM, ["sh", "-c", "sleep 1; exec vllm serve m -tp 2 2>&1 | tee -q log"], {S.TENSOR_PARALLEL: "2"}),
        (VLLM, ["sh", "-c", "# a note\nvllm serve m \\\n  -tp 2 \\\n  --max-model-len '8192'\n"], {S.TENSOR_PARALLEL: "2", S.CONTEXT: "8192"}),
        (VLLM, ["sh", "-c", "vllm serve 'm -tp 2"], {S.TENSOR_PARALLEL: "2"}),
        (VLLM, ["vllm", "serve", "m", "--chat-template", "{{ x }} -tp 4", "-tp", "2"], {S.TENSOR_PARALLEL: "2"}),
        (VLLM, ["bash", "start.sh", "--max-model-len", "9"], {S.CONTEXT: "9"}),
        (LLAMA, ["sh", "-c", "llama-server -m x"], {}),
        (LLAMA, ["sh", "-c", "start.sh"], {}),
        (LLAMA, ["bash", "-ec", "LLAMA_ARG_CTX_SIZE=9 /app/llama-server -m x"], {S.CONTEXT: "9"}),
        (VLLM, [], {}),
    ],
)  # fmt: skip
def test_a_shells_text_is_read_as_a_shell_reads_it(
    engine: Engine, command: list[str], found: dict[EngineSetting, str]
) -> None:
    assert read(engine, *command) == found


def test_the_flag_is_told_as_it_was_written() -> None:
    assert read_settings(VLLM, ["vllm", "--max_model_len=9"])[S.CONTEXT].flag == "--max_model_len"
    assert read_settings(SGLANG, ["sglang", "--tp", "9"])[S.TENSOR_PARALLEL].flag == "--tp"
    assert read_settings(None, [], {"NPROC_PER_NODE": "2"})[S.PROCESSES].flag == "NPROC_PER_NODE"
