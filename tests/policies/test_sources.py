"""What is judged: named files always, in folders only what is surely ours, and nothing unreadable ever passes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies.placement import Placer
from policies.sources import read_file, read_paths
from provisioner.errors import GpuprovError, UsageError
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
    return project


def files(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def test_a_folder_is_searched_for_what_is_surely_ours(folder: Path) -> None:
    ours = {
        "workload.yaml": SPEC,
        "a/chat.workload.yaml": SPEC,
        "b/other.yaml": SPEC,
        "b/quoted.yml": 'version: 1\n"task": serve\nname: x\nmodel: {id: meta-llama/Llama-3.1-8B-Instruct}\n',
        "c/x.tfplan.json": TERRAFORM,
        "c/plan.json": PLAN,
        "c/tf.json": TERRAFORM,
    }
    others = {
        "README.md": "x",
        "k8s.yaml": "apiVersion: v1\nkind: Pod\n",
        "version-only.yaml": "version: 1\nservices: {}\n",
        "nested.yaml": "jobs:\n  version: 1\n  task: x\n",
        "package.json": "{}",
        "broken.json": "{",
        "gpuprov-policy.yaml": "version: 1\n",
        ".git/workload.yaml": SPEC,
        ".terraform/workload.yaml": SPEC,
        "node_modules/workload.yaml": SPEC,
    }
    for name, text in {**ours, **others}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    reading = read_paths([Path()], Placer(catalog()))
    assert set(reading.files) == set(ours)
    assert reading.skipped == 7
    assert not reading.errors


def test_a_file_that_is_named_twice_is_judged_once(folder: Path) -> None:
    (folder / "workload.yaml").write_text(SPEC)
    reading = read_paths([Path("workload.yaml"), Path(), folder / "workload.yaml"], Placer(catalog()))
    assert reading.files == ("workload.yaml",)
    assert len(reading.subjects) == 2


@pytest.mark.parametrize("names", [[], ["README.md"], ["k8s.yaml"]])
def test_a_folder_without_anything_of_ours_is_an_error(folder: Path, names: list[str]) -> None:
    for name in names:
        (folder / name).write_text("kind: Pod\n")
    with pytest.raises(UsageError, match="nothing to judge") as found:
        read_paths([Path()], Placer(catalog()))
    assert found.value.exit_code == 2


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\ntask: serve\n  bad: [\n",
        "version: 1\ntask: serve\nname: 'open\n",
        "version: 1\nversion: 1\ntask: serve\n",
    ],
)
def test_a_broken_spec_in_a_folder_is_not_skipped(folder: Path, text: str) -> None:
    (folder / "chat.yaml").write_text(text)
    (folder / "workload.yaml").write_text(SPEC)
    assert len(read_paths([Path()], Placer(catalog())).errors) == 1


def test_a_broken_plan_in_a_folder_is_not_skipped(folder: Path) -> None:
    (folder / "workload.yaml").write_text(SPEC)
    (folder / "cut.json").write_text(PLAN[: len(PLAN) // 2])
    (folder / "cut.tfplan.json").write_text(TERRAFORM[:40])
    assert len(read_paths([Path()], Placer(catalog())).errors) == 2


def test_a_missing_path_is_named(folder: Path) -> None:
    with pytest.raises(UsageError, match=r"no nothing\.yaml"):
        read_paths([Path("nothing.yaml")], Placer(catalog()))


BROKEN = [
    "",
    "   \n",
    "not a spec",
    "- a\n- b\n",
    "version: 1\n",
    "version: 1\ntask: serve\n",
    "version: 1\nname: x\ntask: srve\nmodel: {id: a}\n",
    "\x00",
    "a: [",
    "{",
    "{}",
    "[]",
    "null",
    "1",
    '{"schema": "gpuprov.plan/1"}',
    '{"schema": "gpuprov.up/1"}',
    '{"steps": 1}',
    '{"deployment": {}}',
    '{"format_version": "1.2"}',
    '{"resource_changes": 1}',
    '{"a": 1, "a": 2}',
    "apiVersion: v1\nkind: Pod\n",
    "version: 1\npolicy: {}\n",
    "version: 1\nwaivers: []\n",
    "&a [*a]",
    "a: &x {b: *x}",
    "version: 1\ntask: serve\nname: x\nmodel: {id: no/such-model-anywhere}\n",
    "version: 1\ntask: serve\nname: x\nmodel: {id: meta-llama/Llama-3.1-8B-Instruct}\nplacement: {gpus: [H1000]}\n",
]


@pytest.mark.parametrize("name", ["workload.yaml", "x.json", "x.tfplan.json", "noext"])
@pytest.mark.parametrize("text", BROKEN)
def test_what_cannot_be_judged_is_refused_whatever_its_name(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text)
    with pytest.raises(UsageError) as found:
        read_file(Path(name), Placer(catalog()))
    assert found.value.exit_code == 2
    assert name in str(found.value.where)
    assert found.value.remedy


@pytest.mark.parametrize("content", [b"\xff\xfe{\x00", b"\xff\xfe\x00", b"\x80abc", b'{"a": "\xc3"}'])
@pytest.mark.parametrize("name", ["workload.yaml", "x.json"])
def test_bytes_that_are_no_utf8_are_refused(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(UsageError, match="UTF"):
        read_file(Path(name), Placer(catalog()))


def test_a_spec_may_be_written_as_json(folder: Path) -> None:
    (folder / "spec.json").write_text(json.dumps(document(), indent=2))
    subjects, _ = read_file(Path("spec.json"), Placer(catalog()))
    assert subjects[0].name == "chat"
    assert subjects[0].locate("access.cidrs").file == "spec.json"
    assert subjects[0].locate("inference.concurrency").line > 1


def test_what_was_expected_is_said(folder: Path) -> None:
    for name, text in (("k8s.yaml", "apiVersion: v1\nkind: Pod\n"), ("x.json", "{}")):
        (folder / name).write_text(text)
        with pytest.raises(UsageError) as found:
            read_file(Path(name), Placer(catalog()))
        assert "terraform show -json" in str(found.value.remedy)
    (folder / "p.yaml").write_text("version: 1\npolicy: {}\n")
    with pytest.raises(UsageError, match="policy or waiver file"):
        read_file(Path("p.yaml"), Placer(catalog()))


def test_keys_of_a_later_feature_are_said(folder: Path) -> None:
    (folder / "workload.yaml").write_text(json.dumps(document({"run": "auto"})))
    _, notes = read_file(Path("workload.yaml"), Placer(catalog()))
    assert all(note.startswith("workload.yaml: ") for note in notes)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "version",
                    "task",
                    "schema",
                    "steps",
                    "deployment",
                    "resources",
                    "resource_changes",
                    "planned_values",
                    "root_module",
                    "change",
                    "after",
                    "actions",
                    "type",
                    "values",
                    "format_version",
                    "a",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
QUICK = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@QUICK
@given(st.binary(max_size=200), st.sampled_from(["workload.yaml", "x.json"]))
def test_random_bytes_never_crash_and_never_pass(folder: Path, content: bytes, name: str) -> None:
    (folder / name).write_bytes(content)
    with pytest.raises(GpuprovError):
        read_file(Path(name), Placer(catalog()))


@QUICK
@given(JSON)
def test_random_json_never_crashes(folder: Path, value: object) -> None:
    (folder / "x.json").write_text(json.dumps(value))
    try:
        subjects, notes = read_file(Path("x.json"), Placer(catalog()))
    except GpuprovError:
        return
    assert subjects or notes


@QUICK
@given(st.integers(0, len(PLAN) - 1), st.sampled_from(["cut", "drop", "digit"]))
def test_a_plan_with_a_broken_byte_never_crashes(folder: Path, at: int, how: str) -> None:
    text = {"cut": PLAN[:at], "drop": PLAN[:at] + PLAN[at + 1 :], "digit": PLAN[:at] + "7" + PLAN[at + 1 :]}[how]
    (folder / "plan.json").write_text(text)
    try:
        subjects, _ = read_file(Path("plan.json"), Placer(catalog()))
    except UsageError:
        return
    assert subjects


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.json")
    with pytest.raises(UsageError, match="no regular file"):
        read_file(Path("pipe.json"), Placer(catalog()))
