"""Start scripts within what a cloud takes as user data, with room for words of the user's own."""

from __future__ import annotations

import gzip
import random
from dataclasses import replace

import pytest

from provisioner.errors import Rejected
from provisioner.node.boot import user_data
from provisioner.node.packing import USER_DATA_BYTES_MAX, packed_user_data
from tests.node.test_boot import CONFIG, START

ROOM_BYTES = 1000
"""Left beside a start with many words, settings and secrets of its own."""
HEAVY = replace(
    START,
    argv=[
        *("vllm", "serve", "meta-llama/Llama-3.1-70B-Instruct", "--served-model-name", "chat", "--quantization", "fp8"),
        *("--tensor-parallel-size", "8", "--max-model-len", "32768", "--gpu-memory-utilization", "0.92"),
        *("--kv-cache-dtype", "fp8", "--max-num-seqs", "64", "--enable-prefix-caching", "--enable-chunked-prefill"),
        *("--tool-call-parser", "llama3_json", "--enable-auto-tool-choice", "--disable-log-requests"),
        *("--chat-template", "/data/templates/tool_chat.jinja", "--uvicorn-log-level", "warning", "--api-key", "$KEY"),
    ],
    env={
        "HF_HOME": "/scratch/hf",
        "VLLM_ATTENTION_BACKEND": "FLASHINFER",
        "VLLM_USE_V1": "1",
        "LOG_LEVEL": "info",
        "NCCL_DEBUG": "WARN",
        "NCCL_P2P_LEVEL": "NVL",
        "OMP_NUM_THREADS": "8",
        "TOKENIZERS_PARALLELISM": "false",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "WANDB_PROJECT": "search-relevance-2026",
        "WANDB_ENTITY": "acme",
    },
    secrets={
        "HF_TOKEN": "aws-secretsmanager:prod/ml/huggingface",
        "WANDB_API_KEY": "aws-secretsmanager:prod/ml/wandb",
        "API_KEY": "aws-secretsmanager:prod/chat/key",
    },
)


def test_a_start_with_many_words_settings_and_secrets_leaves_room() -> None:
    text = user_data(CONFIG, HEAVY)
    packed = packed_user_data(text, "aws")
    assert len(packed) <= USER_DATA_BYTES_MAX["aws"] - ROOM_BYTES
    assert gzip.decompress(packed).decode() == text
    assert packed == packed_user_data(text, "aws")
    assert len(packed) < len(gzip.compress(text.encode(), 9)) - 50, "base64 has its own blocks"


@pytest.mark.parametrize("text", ["x" * 20_000, "é\n" * 20_000, "A" * 999 + " " * 20_000 + "B" * 5000])
def test_any_text_is_read_back_whole(text: str) -> None:
    assert gzip.decompress(packed_user_data(text, "aws")).decode() == text


def test_a_script_that_does_not_fit_says_by_how_much_and_what_to_do() -> None:
    noise = "".join(random.Random(2).choices([chr(letter) for letter in range(33, 127)], k=40_000))
    with pytest.raises(Rejected, match=r"packed: \d+ more than user data on aws takes") as refused:
        packed_user_data(noise, "aws")
    assert refused.value.where == "run"
    assert "container image" in (refused.value.remedy or "")
    assert packed_user_data(noise, "gcp") == noise.encode()
