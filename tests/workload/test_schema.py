"""The JSON Schema that editors use agrees with the reader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from provisioner.workload.keys import all_keys, parts_and_kinds
from provisioner.workload.load import load
from provisioner.workload.schema import json_schema
from provisioner.workload.spec import Workload
from provisioner.workload.tree import Node
from provisioner.workload.yaml_tree import read_yaml

Errors = Callable[[str], list[str]]
EXAMPLES = Path(__file__).parents[2] / "examples"
SERVE = "version: 1\nname: case\ntask: serve\nmodel: {id: a/b}\n"
TUNE = "version: 1\nname: case\ntask: finetune\nmodel: {id: a/b}\ntraining: {method: lora}\n"


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json_schema()


@pytest.fixture(scope="module")
def errors(schema: dict[str, Any], plain: Callable[[Node], Any]) -> Errors:
    """What the schema says of a text."""
    validator = Draft202012Validator(schema)
    return lambda text: [error.message for error in validator.iter_errors(plain(read_yaml(text)))]


def test_the_schema_is_valid(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_full_specs_are_valid(errors: Errors, full_spec: Path) -> None:
    assert errors(full_spec.read_text()) == []


def test_documents_are_valid(schema: dict[str, Any], full_spec: Path) -> None:
    document = load(full_spec).workload.to_document()
    assert list(Draft202012Validator(schema).iter_errors(document)) == []


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/workload.yaml")), ids=lambda path: path.parent.name)
def test_examples_are_valid(errors: Errors, path: Path) -> None:
    assert errors(path.read_text()) == []


WRONG = [
    SERVE + "infernce: {}",
    SERVE + "inference: {targets: {time_to_first_tokn: 500ms}}",
    SERVE + "storage: {data: 500}",
    SERVE + "storage: {data: 500gb}",
    SERVE + "lifecycle: {max_lifetime: 1:30}",
    SERVE + "lifecycle: {keep_failed: yes}",
    SERVE + "placement: {max_price: 12 USD}",
    SERVE + "placement: {gpus: L4}",
    SERVE + "placement: {gpus: []}",
    SERVE + "placement: {clouds: [aws, aws]}",
    SERVE + "placement: {max_gpus: 0}",
    SERVE + "placement: {deadline: 5h}",
    SERVE + "optimize: costs",
    SERVE + "training: {method: lora}",
    SERVE + "inference: {total: 5M tokens}",
    SERVE + "inference: {engine: vlm}",
    SERVE + "inference: {replicas: 1-4}",
    SERVE + "inference: {gpu_memory_fraction: 1.5}",
    SERVE + "run: no",
    SERVE + "run: {}",
    SERVE + "run: {env: {A: {secret: vault:x}}}",
    SERVE + "run: {env: {A-B: x}}",
    SERVE + "tags: {a: 5}",
    SERVE.replace("version: 1", "version: 2"),
    SERVE.replace("name: case", "name: Case"),
    SERVE.replace("name: case\n", ""),
    SERVE.replace("id: a/b", "id: a/b, shape: {a: 1}"),
    SERVE.replace("id: a/b", "weights: fp8"),
    SERVE.replace("id: a/b", "id: a/b, weights: fp7"),
    TUNE.replace("method: lora", "tokens: 2B"),
    TUNE.replace("training: {method: lora}\n", ""),
    TUNE + "inference: {}",
]


@pytest.mark.parametrize("text", WRONG)
def test_what_the_reader_refuses_the_schema_refuses(text: str, errors: Errors, refused: Any) -> None:
    refused(text)
    assert errors(text)


def test_every_key_has_a_description_and_a_type(schema: dict[str, Any]) -> None:
    parts = [schema, *schema["$defs"].values()]
    for part in parts:
        assert part["additionalProperties"] is False
        for key, value in part["properties"].items():
            assert value["description"].endswith((".", "]")), key
            assert set(value) & {"type", "enum", "const", "anyOf", "$ref"}, key


def test_every_key_of_the_reader_is_in_the_schema(schema: dict[str, Any]) -> None:
    parts = {part.__name__: part for part in _parts(Workload)}
    assert set(schema["$defs"]) == set(parts) - {"Workload"}
    for name, part in parts.items():
        properties = schema if name == "Workload" else schema["$defs"][name]
        assert list(properties["properties"]) == list(part.model_fields)
    assert sum(1 for _ in all_keys(Workload)) > 100


def _parts(part: Any) -> list[Any]:
    found = [part]
    for below, _ in parts_and_kinds(part).values():
        if below is not None:
            found += _parts(below)
    return found
