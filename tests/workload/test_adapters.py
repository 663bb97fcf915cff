"""Adapters of a spec: addresses, ranks, folders on this machine; each error at its entry."""

from __future__ import annotations

import json

import pytest

from provisioner.workload.adapters import Adapter
from provisioner.workload.spec import Workload

SPEC = "version: 1\nname: chat\ntask: serve\nmodel:\n  id: meta-llama/Llama-3.1-8B-Instruct\n  adapters: {adapters}\n"


def test_addresses_and_mappings(read):
    text = SPEC.format(adapters="[s3://b/lora-a, {source: hf://me/lora-b, rank: 64, targets: [q_proj, v_proj]}]")
    loaded = read(text)
    assert loaded.workload.model.adapters == (
        Adapter("s3://b/lora-a"),
        Adapter("hf://me/lora-b", 64, ("q_proj", "v_proj")),
    )
    assert [adapter.name for adapter in loaded.workload.model.adapters] == ["lora-a", "lora-b"]
    document = loaded.workload.to_document()
    assert document["model"]["adapters"][0] == "s3://b/lora-a"
    assert Workload.from_document(document) == loaded.workload
    assert not any("adapters" in warning for warning in loaded.warnings)


def test_a_folder_says_its_own_rank(read, tmp_path):
    folder = tmp_path / "mine"
    folder.mkdir()
    config = {
        "r": 32,
        "rank_pattern": {"down_proj": 48},
        "target_modules": ["model.layers.0.q_proj", "k_proj", "q_proj"],
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    (adapter,) = read(SPEC.format(adapters="[./mine]")).workload.model.adapters
    assert adapter == Adapter("./mine", 48, ("k_proj", "q_proj"))
    (stated,) = read(SPEC.format(adapters="[{source: ./mine, rank: 8}]")).workload.model.adapters
    assert stated == Adapter("./mine", 8)


@pytest.mark.parametrize(
    ("adapters", "column", "words"),
    [
        ("[lora-a]", 14, "it starts with hf://"),
        ("[{rank: 3}]", 14, "needs the key source"),
        ("[{source: s3://b/a, rnk: 3}]", 33, "did you mean rank"),
        ("[{source: s3://b/a, rank: 0}]", 39, "out of range"),
        ("[{source: s3://b/a, targets: []}]", 33, "the list is empty"),
        ("[s3://b/a, s3://b/a]", 24, "listed twice"),
        ("[./nowhere]", 14, "cannot be read"),
    ],
)
def test_what_is_wrong_has_its_place(refused, adapters, column, words):
    error = refused(SPEC.format(adapters=adapters))
    assert words in str(error)
    assert (error.where.line, error.where.column) == (6, column)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"r": "many"}', '{"r": true}'])
def test_a_folder_without_a_rank_is_refused(refused, tmp_path, content):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "adapter_config.json").write_text(content)
    error = refused(SPEC.format(adapters="[./bad]"))
    assert "adapter_config.json" in str(error)
    assert "rank" in str(error.remedy)
