"""How errors reach people and programs: one ``error:`` line, one JSON document, one exit code."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import click

from provisioner.cli import streams
from provisioner.errors import Cancelled, GpuprovError, InternalBug, UsageError

_CANNOT_WRITE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS})
"""What a disk says that takes no more; the error names no file where an open stream was written to."""

_NO_CHANGES = {"create": 0, "update": 0, "replace": 0, "delete": 0, "same": 0}
_OWN_DOCUMENTS: Mapping[str, Mapping[str, Any]] = {
    "up": {
        "schema": "gpuprov.up/1",
        "stack": None,
        "changes": _NO_CHANGES,
        "outputs": {},
        "price_usd_per_hour": None,
        "attempts": [],
        "objects": [],
        "warnings": [],
    },
    "down": {
        "schema": "gpuprov.down/1",
        "stack": None,
        "changes": _NO_CHANGES,
        "removed": False,
        "kept": [],
        "objects": [],
    },
}
"""What a command with a failure document of its own writes when it ends before it has begun: interrupted while it still
loads, or called with options that it does not have. Written out here, since to import what builds them takes longest."""


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


def command_of(args: Sequence[str]) -> str | None:
    """Name of the command that raw arguments call, as ``wants_json`` reads them; ``None`` where they name none."""
    rest = iter(args)
    for argument in rest:
        if argument == "--home":
            next(rest, None)
        elif not argument.startswith("-"):
            return argument
    return None


def report(error: BaseException, *, as_json: bool, command: str | None = None) -> int:
    """Print an error as contracted and give its exit code.

    Args:
        error: what ended the command.
        as_json: whether its document goes to standard output.
        command: the command's name: some have a document of their own, which holds the error.
    """
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    if isinstance(error, BrokenPipeError):
        streams.discard(sys.stdout)  # the reader went away (`gpuprov offers | head`): no message
        return 1
    ours = translate(error)
    if as_json and not isinstance(ours, DocumentedFailure):
        try:
            click.echo(json.dumps(_document(ours, command), indent=2, ensure_ascii=False))
        except OSError:
            streams.discard(sys.stdout)  # the line on standard error says what happened
    where = f"{ours.where}: " if ours.where else ""
    remedy = f"; {ours.remedy}" if ours.remedy else ""
    streams.complain(f"error: {_on_one_line(f'{where}{ours.message}{remedy}')}")
    return ours.exit_code


def _document(error: GpuprovError, command: str | None) -> dict[str, Any]:
    own = _OWN_DOCUMENTS.get(command or "")
    return error_document(error) if own is None else {**own, "error": error_document(error)}


def _on_one_line(text: str) -> str:
    """The text with line breaks and other control characters as escapes: a file name or a foreign message may hold some.

    Lone surrogates are bytes of a file name, which the stream knows how to write.
    """
    return text if text.isprintable() else "".join(map(_printable, text))


def _printable(one: str) -> str:
    is_byte = "\udc80" <= one <= "\udcff"
    return one if is_byte or one.isprintable() else one.encode("unicode_escape").decode("ascii")


def translate(error: BaseException) -> GpuprovError:
    """Any exception as one of ours."""
    if isinstance(error, GpuprovError):
        return error
    if isinstance(error, (KeyboardInterrupt, click.exceptions.Abort)):
        return Cancelled("interrupted", remedy="run the command again, or `gpuprov status` to see what exists")
    if isinstance(error, click.ClickException):
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "gpuprov"
        return UsageError(" ".join(error.format_message().split()).rstrip("."), remedy=f"see `{path} --help`")
    if isinstance(error, OSError) and error.errno in _CANNOT_WRITE:
        what = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else "the output"
        return GpuprovError(f"cannot write {what}: {error.strerror}", remedy="free some space, or write elsewhere")
    if isinstance(error, OSError) and error.filename is not None:
        return UsageError(f"{error.filename}: {error.strerror}", remedy="check the path and its permissions")
    return _bug(error)


def _bug(error: BaseException) -> InternalBug:
    """A bug of ours: the traceback goes to a file that the message names, never to the screen."""
    import traceback  # both only where there is a bug to record
    from tempfile import mkstemp

    try:
        descriptor, log = mkstemp(prefix="gpuprov-bug-", suffix=".log")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write("".join(traceback.format_exception(error)))
    except OSError as failure:
        kept = f"its traceback could not be kept ({failure.strerror})"
    else:
        kept = f"its traceback is in {log}"
    return InternalBug(f"{type(error).__name__}: {error}", remedy=f"this is a bug in gpuprov; {kept}: please report it")
