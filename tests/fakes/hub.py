"""A loopback hub that speaks the wire form of huggingface.co: resolve addresses, redirects to a content network, ranges, error codes.

Small files are answered directly. Weight files are redirected to a second server on another port, which refuses requests that
carry a token, as a signed address of the real network does.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
import threading
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_test"
BITS = {"F32": 32, "BF16": 16, "F16": 16, "I32": 32, "U8": 8, "F8_E4M3": 8}


@dataclass
class Repository:
    """One model: its files, and how it answers."""

    files: dict[str, bytes] = field(default_factory=dict)
    commit: str = "0123456789abcdef0123456789abcdef01234567"
    gated: bool = False
    hidden: bool = False
    """Private: without a token the hub does not say whether it exists."""
    moved_to: str | None = None
    status: int | None = None
    """Answers everything with this status."""
    failures: int = 0
    """So many 503 answers before the truth."""


@dataclass
class Hub:
    """What the servers hold and saw."""

    repositories: dict[str, Repository] = field(default_factory=dict)
    log: list[tuple[str, str, str | None]] = field(default_factory=list)
    """(path, range, authorization) of each request."""
    ranges: bool = True
    cut: bool = False
    """Bodies of the content network end before they should."""
    endpoint: str = ""
    network: str = ""


def safetensors(tensors: Mapping[str, tuple[str, tuple[int, ...]]], *, data: bool = True) -> bytes:
    """A file with these tensors, name -> (number format, shape); zeros for data, or none where it would be large."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        size = BITS[dtype] // 8
        for side in shape:
            size *= side
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + (b"\0" * end if data else b"")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", headers.pop("length", None) or str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def note(self) -> None:
        self.hub.log.append((self.path, self.headers.get("Range", ""), self.headers.get("Authorization")))


class _Front(_Handler):
    def do_GET(self) -> None:
        self.note()
        found = re.fullmatch(r"/(?P<id>[^/]+(?:/[^/]+)?)/resolve/(?P<revision>[^/]+)/(?P<file>.+)", self.path)
        if found is None:
            self.answer(404)
            return
        model, file = found["id"], urllib.parse.unquote(found["file"])
        repository = self.hub.repositories.get(model)
        authorized = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if repository is None or (repository.hidden and not authorized):
            known = authorized
            self.answer(404 if known else 401, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        elif repository.moved_to is not None:
            self.answer(307, Location=self.path.replace(f"/{model}/", f"/{repository.moved_to}/", 1))
        elif repository.gated and not authorized:
            status = 401 if self.headers.get("Authorization") is None else 403
            self.answer(status, X_Error_Code="GatedRepo", X_Error_Message=f"Access to model {model} is restricted")
        elif repository.failures:
            repository.failures -= 1
            self.answer(503)
        elif repository.status is not None:
            self.answer(repository.status)
        elif found["revision"] not in ("main", repository.commit):
            self.answer(404, X_Error_Code="RevisionNotFound")
        elif file not in repository.files:
            self.answer(404, X_Error_Code="EntryNotFound", X_Repo_Commit=repository.commit)
        else:
            self.file(model, repository, file)

    def file(self, model: str, repository: Repository, file: str) -> None:
        body = repository.files[file]
        if not file.endswith(".safetensors"):
            self.answer(200, body, X_Repo_Commit=repository.commit, ETag=f'"{hashlib.sha1(body).hexdigest()}"')  # noqa: S324
            return
        target = f"{self.hub.network}/{model}/{urllib.parse.quote(file, safe='')}?signature=x"
        digest = hashlib.sha256(body).hexdigest()
        self.answer(
            302,
            b"Found. Redirecting",
            Location=target,
            X_Repo_Commit=repository.commit,
            X_Linked_Size=str(len(body)),
            X_Linked_ETag=f'"{digest}"',
        )


class _Network(_Handler):
    def do_GET(self) -> None:
        self.note()
        if self.headers.get("Authorization") is not None:
            self.answer(400, b"two ways of authorization")
            return
        model, _, file = urllib.parse.urlsplit(self.path).path.lstrip("/").rpartition("/")
        body = self.hub.repositories[model].files[urllib.parse.unquote(file)]
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None or not self.hub.ranges:
            self.answer(200, body)
            return
        start, stop = int(wanted[1]), min(int(wanted[2]) + 1, len(body))
        if start >= len(body):
            self.answer(416, Content_Range=f"bytes */{len(body)}")
            return
        piece = body[start:stop]
        if self.hub.cut:
            self.close_connection = True
            self.send_response(206)
            self.send_header("Content-Length", str(len(piece)))
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(body)}")
            self.end_headers()
            self.wfile.write(piece[: len(piece) // 2])
            return
        self.answer(206, piece, Content_Range=f"bytes {start}-{stop - 1}/{len(body)}")


@contextmanager
def hub_servers() -> Iterator[Hub]:
    """A hub and its content network, on two ports."""
    hub = Hub()
    servers = []
    try:
        for handler in (_Front, _Network):
            kind = type(handler.__name__, (handler,), {"hub": hub})
            server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
            servers.append(server)
        hub.endpoint, hub.network = (f"http://127.0.0.1:{server.server_address[1]}" for server in servers)
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
