"""A hub on the loopback, and small models to put on it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from provisioner.catalog.patience import Patience
from provisioner.cli.main import run
from provisioner.hub import client
from tests.fakes.hub import Hub, Repository, hub_servers, safetensors

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 2000,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}


def llama_tensors(config: dict[str, Any] = CONFIG, dtype: str = "BF16") -> dict[str, tuple[str, tuple[int, ...]]]:
    """Names and shapes as transformers saves a Llama."""
    hidden, width, vocabulary = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    found: dict[str, tuple[str, tuple[int, ...]]] = {
        "model.embed_tokens.weight": (dtype, (vocabulary, hidden)),
        "model.norm.weight": (dtype, (hidden,)),
        "lm_head.weight": (dtype, (vocabulary, hidden)),
    }
    matrices = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (kv, hidden),
        "self_attn.v_proj": (kv, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (width, hidden),
        "mlp.up_proj": (width, hidden),
        "mlp.down_proj": (hidden, width),
    }
    for layer in range(config["num_hidden_layers"]):
        for name, shape in matrices.items():
            found[f"model.layers.{layer}.{name}.weight"] = (dtype, shape)
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"model.layers.{layer}.{name}.weight"] = (dtype, (hidden,))
    return found


def sharded(tensors: dict[str, tuple[str, tuple[int, ...]]], count: int) -> dict[str, bytes]:
    """The tensors over so many shards, with the index."""
    names = list(tensors)
    files: dict[str, bytes] = {}
    weight_map: dict[str, str] = {}
    for number in range(count):
        path = f"model-{number + 1:05d}-of-{count:05d}.safetensors"
        own = names[number::count]
        files[path] = safetensors({name: tensors[name] for name in own})
        weight_map |= dict.fromkeys(own, path)
    files["model.safetensors.index.json"] = json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
    return files


def repository(config: dict[str, Any] = CONFIG, files: dict[str, bytes] | None = None, **changes: Any) -> Repository:
    """A model with its config and its weights in one file, unless other files are given."""
    own = {"model.safetensors": safetensors(llama_tensors(config))} if files is None else files
    return Repository(files={"config.json": json.dumps(config).encode(), **own}, **changes)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub that commands read from; nothing waits between attempts."""
    with hub_servers() as servers:
        monkeypatch.setenv("HF_ENDPOINT", servers.endpoint)
        monkeypatch.setattr(client, "Patience", lambda attempts: Patience(attempts=attempts, sleep=lambda _: None))
        yield servers


@pytest.fixture
def gpuprov(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command; gives code, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call
