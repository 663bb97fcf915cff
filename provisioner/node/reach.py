"""How the node asks others: tools and pages, each within a time, whatever hangs. Python 3.9 and its standard library only."""

from __future__ import annotations

import http.client
import os
import subprocess
import time
import urllib.error
import urllib.request
from email.utils import parsedate_to_datetime
from typing import Any

TOOL_TIMEOUT_S = 10.0
HTTP_TIMEOUT_S = 2.0
BODY_TIMEOUT_S, BODY_BYTES_MAX = 5.0, 16_000_000
"""A page that is longer, or trickles for longer, is not read: half a page of counters would tell half of the requests."""


def fetch(url: str, timeout_s: float = HTTP_TIMEOUT_S) -> tuple[int, str]:
    """Status and text of a page.

    Raises:
        ConnectionRefusedError: nothing listens.
        ConnectionResetError: what listens does not speak HTTP.
        OSError: no answer, or one that does not end.
    """
    try:
        with _OPENER.open(url, timeout=timeout_s) as answer:
            return answer.status, _body(answer).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        error.close()
        return error.code, ""
    except urllib.error.URLError as error:
        raise error.reason if isinstance(error.reason, OSError) else OSError(str(error)) from None
    except http.client.HTTPException as error:
        raise ConnectionResetError(f"no HTTP: {error}") from None


def _body(answer: Any) -> bytes:
    until_s = time.monotonic() + BODY_TIMEOUT_S
    parts: list[bytes] = []
    while True:
        part = answer.read1(1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
        if time.monotonic() > until_s or sum(map(len, parts)) > BODY_BYTES_MAX:
            raise TimeoutError("the page does not end")


def run_tool(arguments: list[str], timeout_s: float = TOOL_TIMEOUT_S) -> str | None:
    """What a tool prints; ``None`` where it is missing, fails or hangs."""
    code, shown = run_bounded(arguments, timeout_s)
    return shown if code == 0 else None


_STUCK: dict[tuple[str, ...], Any] = {}
"""Commands that not even a kill has ended."""


def run_bounded(arguments: list[str], timeout_s: float) -> tuple[int | None, str]:
    """Exit status and output of a command; the status is ``None`` where it did not end in time, 127 where it is missing.

    A process that hangs in the kernel (a driver, a file server that is gone) outlives its kill. It is left behind and not waited
    for, and the same command is not started beside it.
    """
    key = tuple(arguments)
    left = _STUCK.pop(key, None)
    if left is not None and left.poll() is None:
        _STUCK[key] = left
        return None, ""
    try:
        process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except (OSError, ValueError):
        return 127, ""
    try:
        shown = process.communicate(timeout=timeout_s)[0]
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)  # what it started itself goes on holding a GPU, or its output
    else:
        return process.returncode, shown
    if process.stdout is not None:
        process.stdout.close()
    try:
        process.wait(1.0)
    except subprocess.TimeoutExpired:
        _STUCK[key] = process
    return None, ""


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Neither a local engine nor the metadata service is behind a proxy."""


def metadata_text(
    base: str, path: str, *, token: str | None = None, put: bool = False
) -> tuple[str | None, float | None]:
    """Text of a metadata path (``None`` for one that is not there) and the service's own time."""
    try:
        content, headers = metadata_bytes(base, path, token=token, put=put)
        return content.decode(), _date(headers)
    except urllib.error.HTTPError as error:
        date = _date(error.headers)
        error.close()
        if error.code == 404:
            return None, date
        raise OSError(f"metadata service answers {error.code}") from None


def metadata_bytes(base: str, path: str, *, token: str | None = None, put: bool = False) -> tuple[bytes, Any]:
    """Content and headers of a metadata path. Raises ``OSError`` without an answer."""
    headers = {"X-aws-ec2-metadata-token-ttl-seconds": "300"} if put else {"X-aws-ec2-metadata-token": token or ""}
    request = urllib.request.Request(base + path, headers=headers, method="PUT" if put else "GET")  # noqa: S310 - fixed scheme
    with _OPENER.open(request, timeout=HTTP_TIMEOUT_S) as answer:
        return _body(answer), answer.headers


def _date(headers: Any) -> float | None:
    try:
        return parsedate_to_datetime(headers.get("Date") or "").timestamp()
    except (TypeError, ValueError, IndexError):
        return None
