"""The schema is what other languages see: it must name exactly what the plugin takes and gives."""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from stacks.provider import gpu_instance, launch, volume
from stacks.provider.alterations import CHANGES, RULES
from stacks.provider.machine_state import ECHOED, OUTPUTS
from stacks.provider.plugin import GPU_INSTANCE, LAUNCH, SCHEMA, VOLUME
from stacks.provider.server import VERSION
from tests.fakes.mini_engine import engine, program


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    document = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def test_versions_agree(schema: dict[str, Any]) -> None:
    assert schema["version"] == VERSION == version("gpuprov")


def test_inputs_are_those_that_check_takes(schema: dict[str, Any]) -> None:
    readers = {LAUNCH: launch._READERS, GPU_INSTANCE: gpu_instance._READERS, VOLUME: volume._READERS}
    for kind, taken in readers.items():
        assert schema["resources"][kind]["inputProperties"].keys() == taken.keys()
        assert set(schema["resources"][kind]["requiredInputs"]) <= taken.keys()


def test_outputs_are_those_that_are_given(schema: dict[str, Any], home: Path) -> None:
    assert schema["resources"][GPU_INSTANCE]["properties"].keys() == {*OUTPUTS, *ECHOED, "account", RULES, CHANGES}
    mini = engine(home)
    mini.up(program(disks={"data": "200GiB"}, tags={"team": "search"}))
    mini.refresh()
    mini.cloud.reclaim(mini.cloud.living[0].id)
    for name, kind in (("launch", LAUNCH), ("data", VOLUME), ("gpu", GPU_INSTANCE)):
        stated = schema["resources"][kind]
        given = mini.outputs(name)
        assert set(stated["required"]) <= given.keys() <= stated["properties"].keys()
    mini.refresh()
    assert mini.outputs("launch")["spent"]
    assert mini.outputs("launch").keys() <= schema["resources"][LAUNCH]["properties"].keys()


def test_references_lead_somewhere_and_everything_is_described(schema: dict[str, Any]) -> None:
    def walk(part: Any) -> None:
        if isinstance(part, dict):
            reference = part.get("$ref", "")
            if reference.startswith("#/types/"):
                assert reference.removeprefix("#/types/") in schema["types"]
            for properties in (part.get("properties"), part.get("inputProperties")):
                for name, entry in (properties or {}).items():
                    assert entry["description"], name
            for entry in part.values():
                walk(entry)
        elif isinstance(part, list):
            for entry in part:
                walk(entry)

    walk(schema)
