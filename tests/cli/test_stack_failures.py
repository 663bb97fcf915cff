"""What stack commands say when something that is no error of ours goes wrong: one document, and what exists now."""

from __future__ import annotations

import errno
import json

import pytest

from provisioner.cli import stack_ends, stack_orders, stack_verbs
from provisioner.cli.main import run
from stacks.state import stack_file

SPEC = """\
version: 1
name: demo
task: serve
model: {id: meta-llama/Llama-3.1-8B-Instruct}
inference: {context_tokens: 8192, concurrency: 4}
"""
FULL = OSError(errno.ENOSPC, "No space left on device", "/somewhere/state")
CAUSES = [(FULL, 1, "cannot write /somewhere/state"), (RuntimeError("odd"), 255, "RuntimeError: odd")]


@pytest.fixture
def spec(tmp_path):
    path = tmp_path / "workload.yaml"
    path.write_text(SPEC)
    return str(path)


@pytest.fixture
def stack(home):
    """A stack that holds nothing, as an engine leaves it behind."""
    path = stack_file(home / "state", "demo")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"version": 3, "checkpoint": {"stack": "demo", "latest": {}}}))
    (home / "state" / "passphrase").write_text("x")
    return "demo"


@pytest.fixture(autouse=True)
def _bug_reports_stay_here(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def answer(capsys, *arguments):
    code = run([*arguments, "--format", "json"])
    out, err = capsys.readouterr()
    assert err.count("error: ") == 1
    assert "Traceback" not in out + err
    return code, json.loads(out)


def failing(error):
    def fail(*_arguments, **_options):
        raise error

    return fail


@pytest.mark.parametrize("cause", CAUSES)
def test_up_says_what_exists_whatever_went_wrong(capsys, monkeypatch, spec, cause):
    error, code, text = cause
    monkeypatch.setattr(stack_orders, "_apply", failing(error))
    got, document = answer(capsys, "up", spec, "--yes")
    assert (got, document["error"]["code"]) == (code, code)
    assert document["schema"] == "gpuprov.up/1"
    assert text in document["error"]["message"]
    assert "nothing of the stack bills" in document["error"]["message"]


def test_up_that_cannot_begin_has_its_own_document(capsys, monkeypatch, spec):
    monkeypatch.setattr(stack_orders, "order_for", failing(OSError(errno.EACCES, "Permission denied", "/x")))
    code, document = answer(capsys, "up", spec, "--yes")
    assert (code, document["schema"], document["error"]["code"]) == (2, "gpuprov.up/1", 2)
    assert document["stack"] == "demo"


@pytest.mark.parametrize("cause", CAUSES)
def test_down_says_what_exists_whatever_went_wrong(capsys, monkeypatch, stack, cause):
    error, code, text = cause
    monkeypatch.setattr(stack_ends, "end_stack", failing(error))
    got, document = answer(capsys, "down", stack, "--yes")
    assert (got, document["error"]["code"]) == (code, code)
    assert document["schema"] == "gpuprov.down/1"
    assert document["removed"] is False
    assert text in document["error"]["message"]
    assert "nothing of the stack bills" in document["error"]["message"]


def test_down_that_cannot_begin_has_its_own_document(capsys, monkeypatch, stack):
    monkeypatch.setattr(stack_ends, "Session", failing(OSError(errno.EACCES, "Permission denied", "/x")))
    code, document = answer(capsys, "down", stack, "--yes")
    assert (code, document["schema"], document["error"]["code"]) == (2, "gpuprov.down/1", 2)


@pytest.mark.parametrize("cause", CAUSES)
def test_a_verb_says_what_exists_whatever_went_wrong(capsys, monkeypatch, stack, cause):
    error, code, text = cause
    monkeypatch.setattr(stack_verbs, "VERBS", {"stop": failing(error)})
    got, document = answer(capsys, "stop", stack)
    assert (got, document["code"]) == (code, code)
    assert text in document["message"]
    assert "nothing of the stack bills" in document["message"]


def test_unlock_tells_in_json_whose_lock_it_cleared(capsys, home, stack):
    folder = home / "state" / ".pulumi" / "locks" / "organization" / "gpuprov" / stack
    folder.mkdir(parents=True)
    lock = {"pid": 12, "username": "ana", "hostname": "another-host", "timestamp": "2026-01-01T00:00:00Z"}
    (folder / "lock.json").write_text(json.dumps(lock))
    assert run(["unlock", stack, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document == {
        "schema": "gpuprov.unlock/1",
        "stack": stack,
        "cleared": [{"user": "ana", "host": "another-host", "pid": 12, "created_at": "2026-01-01T00:00:00Z"}],
    }
    assert list(folder.iterdir()) == []
