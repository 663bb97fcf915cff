"""`gpuprov init` writes a spec, and never over another."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.cli.main import run
from provisioner.workload.load import load, parse


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)


@pytest.mark.parametrize("task", ["serve", "batch", "finetune", "pretrain"])
def test_it_writes_a_spec_without_warnings(task: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "--task", task]) == 0
    loaded = load(Path("workload.yaml"))
    assert loaded.warnings == ()
    assert loaded.workload.task == task
    out, err = capsys.readouterr()
    assert out == ""
    assert "gpuprov plan workload.yaml" in err
    assert run(["plan", "workload.yaml"]) == 0


def test_it_refuses_to_overwrite(capsys: pytest.CaptureFixture[str]) -> None:
    Path("workload.yaml").write_text("mine")
    assert run(["init"]) == 2
    assert "--force" in capsys.readouterr().err
    assert Path("workload.yaml").read_text() == "mine"
    assert run(["init", "--force"]) == 0
    assert load(Path("workload.yaml")).workload.task == "serve"


def test_it_writes_to_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "-o", "-", "--model", "Qwen/Qwen2.5-7B-Instruct"]) == 0
    loaded = parse(capsys.readouterr().out.encode(), Path("x"))
    assert loaded.workload.model.id == "Qwen/Qwen2.5-7B-Instruct"
    assert list(Path().iterdir()) == []


def test_it_names_the_nearest_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "--model", "Qwen/Qwen2.5-7B-Instrct"]) == 2
    assert "qwen2.5-7b-instruct" in capsys.readouterr().err.lower()
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [["--task", "serv"], ["--model", "a\nb"], ["--model", ""], ["-o", "none/w.yaml"], ["-o", "."], ["extra"]],
)
def test_wrong_invocations(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", *arguments]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ")
    assert err.count("\n") == 1


MEDIA = {
    "image": "black-forest-labs/FLUX.1-dev",
    "video": "Wan-AI/Wan2.1-T2V-1.3B-Diffusers",
    "audio": "openai/whisper-large-v3",
    "music": "facebook/musicgen-small",
}


@pytest.mark.parametrize("task", ["serve", "batch", "finetune", "pretrain"])
@pytest.mark.parametrize("kind", MEDIA)
def test_specs_of_media_models_plan_as_they_are(
    kind: str, task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "workload.yaml"
    assert run(["init", "--model", MEDIA[kind], "--task", task, "-o", str(path)]) == 0
    text = path.read_text()
    assert "tokens" not in text.partition("storage:")[0]
    # The line that shows the size is one that may be used.
    section = kind if kind in ("image", "video") else "audio"
    assert f"  # {section}: {{" in text
    path.write_text(text.replace(f"  # {section}: {{", f"  {section}: {{"))
    capsys.readouterr()
    assert run(["plan", str(path), "--format", "json"]) == 0, capsys.readouterr().err
