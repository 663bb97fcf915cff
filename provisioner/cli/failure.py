"""How errors reach people and programs: one ``error:`` line, one JSON document, one exit code."""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import click

from provisioner.errors import Cancelled, GpuprovError, InternalBug, UsageError


class DocumentedFailure(GpuprovError):
    """A failure whose command has written its own JSON document already; only the line and the code remain."""

    def __init__(self, cause: GpuprovError) -> None:
        super().__init__(cause.message, where=cause.where, remedy=cause.remedy)
        self.exit_code = cause.exit_code
        self.kind = cause.kind


def error_document(error: GpuprovError) -> dict[str, Any]:
    """The contracted error object (``gpuprov.error/1``)."""
    return {
        "schema": "gpuprov.error/1",
        "code": error.exit_code,
        "kind": error.kind,
        "message": error.message,
        "where": str(error.where) if error.where else None,
        "remedy": error.remedy,
    }


def wants_json(args: Sequence[str]) -> bool:
    """Whether the invocation asked for JSON; read from the raw arguments, since parsing itself may have failed."""
    for index, argument in enumerate(args):
        if argument == "--format=json" or (argument == "--format" and args[index + 1 : index + 2] == ["json"]):
            return True
    return False


def report(error: BaseException, *, as_json: bool) -> int:
    """Print an error as contracted and give its exit code."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, BrokenPipeError):
        # The reader went away (`gpuprov offers | head`): no message, and no second error while Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    ours = translate(error)
    if as_json and not isinstance(ours, DocumentedFailure):
        click.echo(json.dumps(error_document(ours), indent=2, ensure_ascii=False))
    where = f"{ours.where}: " if ours.where else ""
    remedy = f"; {ours.remedy}" if ours.remedy else ""
    click.echo(f"error: {where}{ours.message}{remedy}", err=True)
    return ours.exit_code


def translate(error: BaseException) -> GpuprovError:
    """Any exception as one of ours."""
    if isinstance(error, GpuprovError):
        return error
    if isinstance(error, (KeyboardInterrupt, click.exceptions.Abort)):
        return Cancelled("interrupted", remedy="run the command again, or `gpuprov status` to see what exists")
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "gpuprov"
        return UsageError(" ".join(error.format_message().split()), remedy=f"see `{path} --help`")
    if isinstance(error, OSError) and error.filename is not None:
        return UsageError(f"{error.filename}: {error.strerror}", remedy="check the path and its permissions")
    return _bug(error)


def _bug(error: BaseException) -> InternalBug:
    """A bug of ours: the traceback goes to a file that the message names, never to the screen."""
    log = Path(gettempdir()) / f"gpuprov-bug-{os.getpid()}.log"
    try:
        log.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    except OSError as failure:
        kept = f"its traceback could not be kept ({failure.strerror})"
    else:
        kept = f"its traceback is in {log}"
    return InternalBug(f"{type(error).__name__}: {error}", remedy=f"this is a bug in gpuprov; {kept}: please report it")
