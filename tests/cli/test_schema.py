"""`gpuprov schema` prints one JSON document."""

from __future__ import annotations

import json

import pytest
from jsonschema import Draft202012Validator

from provisioner.cli.main import run


@pytest.mark.parametrize("arguments", [[], ["--format", "json"]])
def test_it_prints_a_json_schema(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schema", *arguments]) == 0
    out, err = capsys.readouterr()
    schema = json.loads(out)
    Draft202012Validator.check_schema(schema)
    assert "version" in schema["required"]
    assert err == ""
