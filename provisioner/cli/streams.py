"""Standard streams of the process: usable whatever the caller closed, UTF-8 whatever the locale, and flushed before the end."""

from __future__ import annotations

import codecs
import io
import os
import sys

import click

_ESCAPED = "gpuprov-escaped"
"""Name of our way to write what an encoding lacks."""
_CANNOT_WRITE = 1
"""Exit code where the result could not be written and nothing else went wrong."""


def prepare() -> None:
    """Make standard output and error usable.

    A closed descriptor is opened on the null device, so that no file that is opened later gets its number. Pipes and files are
    UTF-8 under any locale, since JSON is; a terminal keeps its encoding, and what that lacks is escaped.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest free number: this one
    codecs.register_error(_ESCAPED, _escape)
    sys.stdout = sys.stdout or _null_stream()
    sys.stderr = sys.stderr or _null_stream()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            encoding = stream.encoding if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors=_ESCAPED)


def _escape(error: UnicodeError) -> tuple[str | bytes, int]:
    """What stands for characters that an encoding lacks: escapes, but for bytes of a file name that the locale could not read.

    Those come as lone surrogates (PEP 383); where they are UTF-8 after all they are written as what they are.
    """
    if isinstance(error, UnicodeEncodeError):
        try:
            text = error.object[error.start : error.end].encode("utf-8", "surrogateescape").decode("utf-8")
            return text.encode(error.encoding), error.end
        except UnicodeError:
            return codecs.backslashreplace_errors(error)
    return codecs.backslashreplace_errors(error)


def finish(code: int) -> int:
    """Exit code of the process, after all that was printed has been written; one that could not be is an error of its own."""
    try:
        sys.stdout.flush()
    except OSError as error:
        discard(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            complain(f"error: standard output: {error.strerror}; free some space, or write elsewhere")
        code = code or _CANNOT_WRITE
    try:
        sys.stderr.flush()
    except OSError:
        discard(sys.stderr)  # nobody is left who could be told
    return code


def complain(line: str) -> None:
    """A line on standard error, which may be gone too."""
    try:
        click.echo(line, err=True)
    except OSError:
        discard(sys.stderr)


def discard(stream: io.TextIOBase | object) -> None:
    """Send what a stream still holds to the null device: its reader is gone or its disk is full, and Python flushes at exit."""
    if isinstance(stream, io.TextIOWrapper):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _null_stream() -> io.TextIOWrapper:
    return open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123 - stays open as long as the process
