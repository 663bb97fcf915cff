"""Every command and every YAML block in the documents is run or loaded.

Fences say what they are: ``sh`` blocks are run line by line in a folder that has the examples; ``yaml`` blocks are workload
specs, and ``yaml policy`` and ``yaml waivers`` what those words say; ``text`` and ``json`` blocks are only shown.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").glob("*/README.md")]
    if path.is_file()
)
FENCE = re.compile(r"^```(\w+)([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
KNOWN = {"sh", "yaml", "text", "json", "python"}
SET_UP = re.compile(r"^(make (demo|test|setup|check)|git clone|cd |pip install)")
"""Set-up lines: CI itself is their test."""


def blocks(kind: str) -> list[tuple[Path, str, str]]:
    return [
        (path, words.strip(), body)
        for path in DOCUMENTS
        for word, words, body in FENCE.findall(path.read_text(encoding="utf-8"))
        if word == kind
    ]


def named(items: list[tuple[Path, str, str]]) -> list[str]:
    return [f"{path.relative_to(ROOT)}-{number}" for number, (path, _words, _body) in enumerate(items)]


def test_every_fence_has_a_known_kind() -> None:
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        assert text.count("```") % 2 == 0, path
        for line in re.findall(r"^```(.*)$", text, re.MULTILINE)[::2]:
            assert line.split(" ")[0] in KNOWN, f"{path}: ```{line}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    shutil.copytree(ROOT / "examples", work / "examples")
    shutil.copy(ROOT / "examples" / "llama-3.1-8b-chat" / "workload.yaml", work / "workload.yaml")
    return work


SHELL = blocks("sh")


@pytest.mark.engine
@pytest.mark.parametrize(("path", "words", "body"), SHELL, ids=named(SHELL))
def test_commands_run(path: Path, words: str, body: str, folder: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "120"}
    for line in body.replace("\\\n", " ").splitlines():
        command = line.split("  #")[0].strip()
        if not command or SET_UP.match(command):
            continue
        done = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        wanted = int(match[1]) if (match := re.search(r"# exit (\d+)", line)) else 0
        assert done.returncode == wanted, f"{path}: {command}\n{done.stdout}\n{done.stderr}"


YAML = blocks("yaml")
WRITTEN = date(2026, 11, 30)
"""The day of the examples: a waiver ends at most 90 days later."""


@pytest.mark.parametrize(("path", "words", "body"), YAML, ids=named(YAML))
def test_yaml_loads(path: Path, words: str, body: str, folder: Path) -> None:
    if words == "policy":
        from policies.config import load_policy

        file = folder / "gpuprov-policy.yaml"
        file.write_text(body)
        load_policy(file, today=WRITTEN)
    elif words == "waivers":
        from policies.config import load_waivers

        file = folder / "waivers.yaml"
        file.write_text(body)
        load_waivers(file, today=WRITTEN)
    else:
        from provisioner.workload.load import load

        file = folder / "spec.yaml"
        file.write_text(body)
        assert not load(file).warnings, path
