"""What stack commands say when something that is no error of ours goes wrong: one document, and what exists now."""

from __future__ import annotations

import errno
import json
import signal
import sys

import pytest

from provisioner.cli import stack_ends, stack_orders, stack_verbs
from provisioner.cli.main import run
from provisioner.errors import Cancelled
from stacks.apply import Applied
from stacks.documents import down_document, up_document
from stacks.state import stack_file
from stacks.teardown import Ended

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


def test_a_new_stack_that_was_cancelled_is_not_named_for_down(capsys, monkeypatch, spec):
    told = Cancelled("interrupted while it previewed", remedy="`gpuprov down demo` ends it")
    monkeypatch.setattr(stack_orders, "_apply", failing(told))
    code, document = answer(capsys, "up", spec, "--yes")
    assert (code, document["error"]["kind"]) == (8, "cancelled")
    assert document["error"]["message"] == "interrupted while it previewed; nothing of the stack bills"
    assert document["error"]["remedy"] == "no stack is left; the same command begins anew"


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


class _Interrupting:
    """A finder at which a signal arrives: the command is still importing."""

    def __init__(self, module, number):
        self.module, self.number = module, number

    def find_spec(self, name, _path=None, _target=None):
        if name == self.module:
            signal.raise_signal(self.number)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("module", "command", "empty"),
    [
        ("stacks.documents", "up", up_document(Applied(None))),
        ("provisioner.cli.stack_ends", "down", down_document(Ended("", "sandbox")) | {"stack": None}),
    ],
)
def test_an_interruption_while_importing_has_its_own_document(capsys, monkeypatch, *, module, command, empty, number):
    parent, _, name = module.rpartition(".")
    monkeypatch.delattr(sys.modules[parent], name)
    monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [_Interrupting(module, number), *sys.meta_path])
    code, document = answer(capsys, "--home", "somewhere", command, "demo", "--yes")
    error = document.pop("error")
    assert document == empty
    assert (code, error["schema"], error["code"], error["kind"]) == (8, "gpuprov.error/1", 8, "cancelled")
    assert signal.Signals(number).name in error["message"]


@pytest.mark.parametrize(("command", "schema"), [("up", "gpuprov.up/1"), ("down", "gpuprov.down/1")])
def test_an_option_that_there_is_not_has_the_commands_own_document(capsys, command, schema):
    code, document = answer(capsys, command, "x", "--no-such-option")
    assert (code, document["schema"], document["error"]["code"]) == (2, schema, 2)


def test_other_commands_have_no_document_of_their_own(capsys):
    code, document = answer(capsys, "stop", "x", "--no-such-option")
    assert (code, document["schema"], document["code"]) == (2, "gpuprov.error/1", 2)
