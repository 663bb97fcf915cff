"""``gpuprov plan --compare`` from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provisioner.cli.main import run

SPEC = Path(__file__).parents[2] / "examples" / "long-context-chat" / "workload.yaml"
CHANGE = "inference.context_tokens=4096"


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = run(["plan", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_change_beside_its_spec(capsys) -> None:
    code, out, _ = call(capsys, "--compare", str(SPEC), str(SPEC), "--set", CHANGE, "--format", "json")
    assert code == 0
    document = json.loads(out)
    assert document["b"]["source"].endswith(f"--set {CHANGE}")
    assert "kv_cache_bytes" in {each["name"] for each in document["differences"]}


def test_a_saved_plan_is_taken_as_it_is(capsys, tmp_path) -> None:
    saved = tmp_path / "plan.json"
    assert call(capsys, str(SPEC), "-o", str(saved))[0] == 0
    code, out, _ = call(capsys, "--compare", str(saved), str(SPEC), "--format", "json")
    assert code == 0
    assert json.loads(out)["differences"] == []
    table = tmp_path / "table.txt"
    assert call(capsys, "--compare", str(saved), str(SPEC), "-o", str(table))[0] == 0
    assert "the same plan" in " ".join(table.read_text().split())


def test_what_cannot_be_compared_is_refused(capsys, tmp_path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text("{")
    other = tmp_path / "other.json"
    other.write_text('{"schema": "gpuprov.check/1"}')
    for arguments, words in (
        (("--compare", str(broken), str(SPEC)), "no JSON"),
        (("--compare", str(other), str(SPEC)), "no plan"),
        (("--compare", str(tmp_path / "none.json"), str(SPEC)), "cannot read the plan"),
        (("--compare", str(SPEC), str(other), "--set", CHANGE), "cannot change a saved plan"),
        (("--compare", str(SPEC), str(SPEC), "--format", "html"), "no form html"),
        (("--compare", str(SPEC), str(SPEC), "--explain"), "--explain"),
        ((str(SPEC), "--compare", str(SPEC), str(SPEC)), "takes the place of SPEC"),
        ((), "Missing argument 'SPEC'"),
    ):
        code, _, err = call(capsys, *arguments)
        assert code == 2, arguments
        assert words in err
