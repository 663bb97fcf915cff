"""What a folder is searched for: nothing that a command of ours would take can be put where the gate does not look."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from policies.folders import find_files, is_ours
from policies.placement import Placer
from policies.sources import read_paths
from provisioner.errors import UsageError
from provisioner.planner.documents import plan_document
from tests.policies.builders import catalog, document, workload

SPEC = json.dumps(document())
PLAN = json.dumps(plan_document(Placer(catalog()).plan(workload())))
TERRAFORM = json.dumps({"format_version": "1.2", "terraform_version": "1.9", "resource_changes": []})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    (project / "workload.yaml").write_text(SPEC)
    return project


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (".deploy/workload.yaml", SPEC),
        (".github/gpu/chat.yaml", SPEC),
        (".workload.yaml", SPEC),
        ("WORKLOAD.YAML", SPEC),
        ("Chat.Workload.Yml", SPEC),
        ("chat.YAML", SPEC),
        ("chat.yaml", SPEC.encode("utf-16")),
        ("chat.yaml", SPEC.encode("utf-16-le")),
        ("chat.yaml", b"\xef\xbb\xbf" + SPEC.encode()),
        ("chat.yaml", "version: 1\r\ntask: serve\r\n"),
        ("chat.yaml", "version: 1\rtask: serve\r"),
        ("chat.yaml", "# " + "x" * 2**20 + "\nversion: 1\ntask: serve\n"),
        ("chat.yaml", '"vers\\u0069on": 1\n"t\\x61sk": serve\n'),
        ("chat.yaml", '{"vers\\u0069on": 1, "t\\u0061sk": serve}'),
        ("chat.yaml", "? version\n: 1\n? task\n: serve\n"),
        ("chat.yaml", "version: 1\ntask: serve\n---\nversion: 1\n"),
        ("chat.yaml", "version: 1\ntask: serve\nname: caf\xe9\n".encode("latin-1")),
        ("workload.json", SPEC),
        ("chat.json", SPEC),
        ("chat.JSON", SPEC),
        ("plan.json", PLAN),
        ("plan.json", PLAN.replace('"gpuprov.plan/1"', '"gpuprov.plan\\/1"')),
        ("plan.json", PLAN.replace('"schema"', '"sch\\u0065ma"')),
        ("plan.json", " " * 100_000 + PLAN),
        ("plan.json", PLAN[:-1]),
        ("plan.json", PLAN.encode("utf-16")),
        ("tf.json", TERRAFORM),
        ("tf.json", "\n" * 100_000 + TERRAFORM),
        ("tf.json", TERRAFORM.encode("utf-16")),
        ("tf.json", TERRAFORM.replace("resource_changes", "resource\\u005fchanges")),
        ("x.TFPLAN.json", "{}"),
    ],
)
def test_whatever_its_form_it_is_found(folder: Path, name: str, content: str | bytes) -> None:
    put(folder, name, content)
    found = find_files([folder])
    assert len(found.ours) == 2, name
    assert found.skipped == 0


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("values.yaml", 'version: 2\nregex: "a\\\\d+": 1\n'),
        ("Taskfile.yml", "version: '3'\ntasks:\n  build: {cmds: [make]}\n"),
        ("results.json", '{"version": 1, "task": "mmlu"}'),
        ("package.json", '{"name": "x", "version": "1.0", "task": {}}'),
        ("escaped.json", '{"text": "\\u00e9"}'),
        ("state.json", '{"version": 4, "terraform_version": "1.9", "resources": []}'),
        ("list.json", "[1, 2]"),
    ],
)
def test_what_is_others_is_left_to_them(folder: Path, name: str, content: str) -> None:
    assert not is_ours(put(folder, name, content))


def test_links_are_followed_once(folder: Path) -> None:
    put(folder, "hidden/inner/big.workload.yaml", SPEC)
    (folder / "deploy").mkdir()
    (folder / "deploy" / "link").symlink_to(folder / "hidden" / "inner")
    (folder / "deploy" / "again").symlink_to(folder / "hidden" / "inner")
    (folder / "deploy" / "circle").symlink_to(folder / "deploy")
    (folder / "deploy" / "file.workload.yaml").symlink_to(folder / "workload.yaml")
    found = find_files([folder / "deploy"])
    assert sorted(path.name for path in found.ours) == ["big.workload.yaml", "file.workload.yaml"]


def test_a_link_that_leads_nowhere_is_an_error_where_its_name_is_ours(folder: Path) -> None:
    (folder / "other.txt").symlink_to("nowhere")
    assert not read_paths([folder], Placer(catalog())).errors
    (folder / "chat.workload.yaml").symlink_to("nowhere")
    (error,) = read_paths([folder], Placer(catalog())).errors
    assert "chat.workload.yaml" in str(error)
    (folder / "self.workload.yaml").symlink_to("self.workload.yaml")
    assert len(read_paths([folder], Placer(catalog())).errors) == 2


def test_a_pipe_by_our_name_is_an_error_and_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "chat.workload.yaml")
    (error,) = read_paths([folder], Placer(catalog())).errors
    assert "no regular file" in str(error)


def test_a_folder_that_cannot_be_listed_is_an_error(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "closed").mkdir()
    scan = os.scandir

    def closed(path: str) -> object:
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(UsageError, match=r"cannot list closed"):
        find_files([folder])


@pytest.mark.parametrize("name", ["node_modules", ".terraform", ".git", "__pycache__"])
def test_folders_of_other_programs_are_left_out_and_named(folder: Path, name: str) -> None:
    put(folder, f"a/{name}/workload.yaml", SPEC)
    found = find_files([folder])
    assert len(found.ours) == 1
    assert found.left_out == (f"a/{name}",)


def test_a_virtual_environment_is_known_by_its_file_not_its_name(folder: Path) -> None:
    put(folder, "venv/workload.yaml", SPEC)
    assert len(find_files([folder]).ours) == 2
    put(folder, "venv/pyvenv.cfg", "")
    found = find_files([folder])
    assert len(found.ours) == 1
    assert found.left_out == ("venv",)
