"""Every exception as a contracted error: one line, one document, one exit code."""

from __future__ import annotations

import errno
import json
import re
import stat
from pathlib import Path

import click
import pytest

from provisioner import errors
from provisioner.cli.failure import DocumentedFailure, command_of, error_document, report, translate, wants_json

CODES = {
    errors.GpuprovError: 1,
    errors.UsageError: 2,
    errors.SpecError: 2,
    errors.EngineMissing: 2,
    errors.CredentialsError: 3,
    errors.CloudError: 4,
    errors.Rejected: 4,
    errors.Locked: 4,
    errors.Ambiguous: 4,
    errors.Throttled: 4,
    errors.NotFound: 4,
    errors.TokenMismatch: 4,
    errors.TokenSpent: 4,
    errors.PolicyViolation: 5,
    errors.NothingFits: 6,
    errors.CapacityError: 7,
    errors.Cancelled: 8,
    errors.TimedOut: 9,
    errors.QuotaError: 10,
    errors.Leaked: 11,
    errors.InternalBug: 255,
}
"""CONTRACTS section 3."""


@pytest.mark.parametrize(("kind", "code"), CODES.items())
def test_each_error_has_its_code(
    kind: type[errors.GpuprovError], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    error = kind("it broke", where=errors.Position("w.yaml", 3, 7), remedy="mend it")
    assert report(error, as_json=True) == code
    out, err = capsys.readouterr()
    assert err == "error: w.yaml:3:7: it broke; mend it\n"
    assert json.loads(out) == {
        "schema": "gpuprov.error/1",
        "code": code,
        "kind": kind.kind,
        "message": "it broke",
        "where": "w.yaml:3:7",
        "remedy": "mend it",
    }


def test_every_class_of_the_tree_is_covered() -> None:
    def below(kind: type[errors.GpuprovError]) -> set[type[errors.GpuprovError]]:
        return {kind}.union(*(below(each) for each in kind.__subclasses__() if each.__module__ == errors.__name__))

    assert below(errors.GpuprovError) == set(CODES)


def test_a_documented_failure_prints_no_second_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(DocumentedFailure(errors.NothingFits("nothing fits")), as_json=True) == 6
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 8, "interrupted"),
        (click.Abort(), 8, "interrupted"),
        (click.UsageError("No such thing."), 2, "No such thing; see `gpuprov --help`"),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x"), 2, "x: No such file or directory"),
        (PermissionError(errno.EACCES, "Permission denied", "x"), 2, "x: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "cannot write the output: No space left on device"),
        (OSError(errno.ENOSPC, "No space left on device", "f.json"), 1, "cannot write f.json: No space left"),
        (ValueError("two\nlines"), 255, "ValueError: two\\nlines; this is a bug in gpuprov"),
    ],
)
def test_foreign_exceptions_are_translated(
    error: BaseException, code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error, as_json=False) == code
    out, err = capsys.readouterr()
    assert not out
    assert err.startswith(f"error: {said}")
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_a_bug_keeps_its_traceback_in_a_file_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    remedies = {translate(ZeroDivisionError("oh")).remedy or "" for _ in range(2)}
    logs = sorted(tmp_path.glob("*.log"))
    assert len(remedies) == len(logs) == 2  # never a name that somebody else can guess and occupy
    for log in logs:
        assert re.search(re.escape(str(log)), "".join(remedies))
        assert "ZeroDivisionError: oh" in log.read_text()
        assert stat.S_IMODE(log.stat().st_mode) == 0o600


def test_a_bug_without_a_place_for_its_traceback_is_still_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere/at/all")
    error = translate(ZeroDivisionError("oh"))
    assert error.exit_code == 255
    assert "could not be kept" in (error.remedy or "")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["plan", "x", "--format", "json"], True),
        (["plan", "--format=json", "x"], True),
        (["plan", "x", "--format", "table"], False),
        (["plan", "x", "--format"], False),
        (["plan", "json"], False),
    ],
)
def test_json_is_wanted_whatever_else_is_wrong(arguments: list[str], wanted: bool) -> None:
    assert wants_json(arguments) is wanted


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["up", "down"], "up"),
        (["--quiet", "--home", "plan", "down", "x"], "down"),
        (["--home=plan", "up"], "up"),
        (["--home"], None),
        ([], None),
    ],
)
def test_the_command_is_known_whatever_else_is_wrong(arguments: list[str], wanted: str | None) -> None:
    assert command_of(arguments) == wanted


def test_the_document_says_null_for_what_is_unknown() -> None:
    document = error_document(errors.CloudError("no"))
    assert (document["where"], document["remedy"]) == (None, None)
