"""Files of a model on a hub that speaks the Hugging Face wire form: ``{endpoint}/{id}/resolve/{revision}/{file}``.

Small files are answered directly, large ones by a redirect to a content network, which gets no token of ours. Only ranges of
shards are read. Answers name the commit (``X-Repo-Commit``) and, before a redirect, the size of a large file (``X-Linked-Size``).

Source: huggingface/huggingface_hub ``file_download.py`` and ``utils/_http.py`` (headers and error codes of the hub).
"""

from __future__ import annotations

import os
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage
from typing import IO, Any

from provisioner.catalog.patience import Patience
from provisioner.errors import Ambiguous, CloudError, CredentialsError, GpuprovError, Throttled, UsageError
from provisioner.hub.source import Piece
from provisioner.records import record

DEFAULT_ENDPOINT = "https://huggingface.co"
ENDPOINT_VARIABLE = "HF_ENDPOINT"
TOKEN_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
OFFLINE_VARIABLE = "HF_HUB_OFFLINE"
TIMEOUT_S = 30
REDIRECTS_MAX = 5
LOOPBACK = ("127.0.0.1", "localhost")
MISSING = 404
_REDIRECTS = (301, 302, 303, 307, 308)
_CONTENT_RANGE = re.compile(r"bytes (\d+)-(\d+)/(\d+|\*)")


class _Answers(urllib.request.HTTPRedirectHandler):
    """Redirects are followed by hand: the token must not go to another host."""

    def redirect_request(  # noqa: PLR0917 - the signature of the base class
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """No request."""
        del req, fp, code, msg, headers, newurl


@record(frozen=True, slots=True)
class _Answer:
    status: int
    headers: Mapping[str, str]
    content: bytes
    linked_bytes: int | None
    """Size of a large file as the hub stated it before its redirect."""


def endpoint_of(environment: Mapping[str, str] = os.environ) -> str:
    """The hub to read from.

    Raises:
        UsageError: ``HF_ENDPOINT`` is no http address, or ``HF_HUB_OFFLINE`` forbids reading.
    """
    if environment.get(OFFLINE_VARIABLE, "").upper() in ("1", "ON", "YES", "TRUE"):
        raise UsageError(
            f"{OFFLINE_VARIABLE} is set: nothing is read from the hub",
            remedy=f"unset {OFFLINE_VARIABLE}, or name a local folder",
        )
    text = environment.get(ENDPOINT_VARIABLE) or DEFAULT_ENDPOINT
    parts = urllib.parse.urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"{ENDPOINT_VARIABLE} {text!r} is no http address", remedy="write it as https://huggingface.co"
        )
    return text.rstrip("/")


class HubSource:
    """The files of one model at one revision. Safe to share between threads."""

    def __init__(
        self,
        model_id: str,
        revision: str = "main",
        *,
        endpoint: str,
        environment: Mapping[str, str] = os.environ,
        patience: Patience | None = None,
    ) -> None:
        self.model_id = model_id
        self._revision = revision
        self._endpoint = endpoint
        self._token_variable = next((name for name in TOKEN_VARIABLES if environment.get(name)), None)
        self._token = environment.get(self._token_variable, "").strip() if self._token_variable else ""
        self._patience = patience or Patience(attempts=4)
        self._opener = urllib.request.build_opener(_Answers())
        self._direct = urllib.request.build_opener(_Answers(), urllib.request.ProxyHandler({}))
        self._commits: set[str] = set()

    @property
    def name(self) -> str:
        """The model's page."""
        return f"{self._endpoint}/{self.model_id}"

    @property
    def commit(self) -> str | None:
        """The commit that all answers were of.

        Raises:
            CloudError: the model was changed while it was read.
        """
        if len(self._commits) > 1:
            raise CloudError("the model was changed while it was read", where=self.name, remedy="run the command again")
        return next(iter(self._commits), None)

    def file(self, path: str, limit_bytes: int) -> bytes | None:
        """A whole small file; ``None`` where there is none.

        Raises:
            CredentialsError: the hub wants a token, or one with more rights.
            CloudError: the hub cannot be reached, fails, or sends more than the limit.
        """
        answer = self._patience.call(lambda: self._get(path, None, limit_bytes + 1))
        if answer.status == MISSING:
            return None
        if len(answer.content) > limit_bytes:
            raise CloudError(
                f"{path} is larger than {limit_bytes // 2**20} MiB", where=self.name, remedy="is it the right model?"
            )
        return answer.content

    @property
    def is_local(self) -> bool:
        """It is not."""
        return False

    def piece(self, path: str, start: int, length: int) -> Piece | None:
        """A piece of a shard, ``None`` where there is none; servers that know no ranges are read up to its end.

        Raises:
            GpuprovError: as for ``file``.
        """
        answer = self._patience.call(lambda: self._get(path, (start, length), start + length))
        if answer.status == MISSING:
            return None
        size = answer.linked_bytes
        if answer.status == 206:
            found = _CONTENT_RANGE.fullmatch(answer.headers.get("content-range", ""))
            if found is None or int(found[1]) != start:
                raise CloudError(
                    f"the answer for {path} is of another range", where=self.name, remedy="run the command again"
                )
            return Piece(answer.content[:length], int(found[3]) if found[3] != "*" else size)
        stated = answer.headers.get("content-length", "")
        return Piece(answer.content[start : start + length], int(stated) if stated.isdigit() else size)

    def _get(self, path: str, wanted: tuple[int, int] | None, limit_bytes: int) -> _Answer:
        url = f"{self._endpoint}/{self.model_id}/resolve/{urllib.parse.quote(self._revision, safe='')}/{urllib.parse.quote(path)}"
        headers = {"User-Agent": "gpuprov", "Accept-Encoding": "identity"}
        if wanted is not None:
            headers["Range"] = f"bytes={wanted[0]}-{wanted[0] + wanted[1] - 1}"
        linked: int | None = None
        for _ in range(REDIRECTS_MAX + 1):
            answer = self._ask(url, headers, limit_bytes)
            self._note_commit(answer.headers)
            size = answer.headers.get("x-linked-size", "")
            linked = int(size) if size.isdigit() else linked
            if answer.status not in _REDIRECTS:
                return self._judged(answer, path, linked)
            target = urllib.parse.urljoin(url, answer.headers.get("location", ""))
            if not target.startswith("https:" if url.startswith("https:") else ("http:", "https:")) or target == url:
                raise CloudError(
                    f"the hub redirects {path} to {target!r}", where=self.name, remedy=f"check {ENDPOINT_VARIABLE}"
                )
            url = target
        raise CloudError(
            f"more than {REDIRECTS_MAX} redirects for {path}", where=self.name, remedy=f"check {ENDPOINT_VARIABLE}"
        )

    def _ask(self, url: str, headers: Mapping[str, str], limit_bytes: int) -> _Answer:
        request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 - endpoint_of and _get allow http(s) alone
        if self._token and _origin(url) == _origin(self._endpoint):
            request.add_unredirected_header("Authorization", f"Bearer {self._token}")
        # A proxy of the environment is for the world outside: this host it cannot reach.
        opener = self._direct if request.host.partition(":")[0] in LOOPBACK else self._opener
        try:
            with opener.open(request, timeout=TIMEOUT_S) as answer:
                return _read(answer.status, answer.headers, answer, limit_bytes)
        except urllib.error.HTTPError as error:
            with error:
                return _read(error.code, error.headers, error, min(limit_bytes, 65_536))
        except (urllib.error.URLError, OSError, HTTPException, ValueError) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise Ambiguous(
                f"the hub cannot be reached: {reason}",
                where=self.name,
                remedy=f"check the network and {ENDPOINT_VARIABLE}; offline, add a folder or a config.json instead",
            ) from None

    def _note_commit(self, headers: Mapping[str, str]) -> None:
        commit = headers.get("x-repo-commit", "")
        if re.fullmatch(r"[0-9A-Za-z]{1,64}", commit):
            self._commits.add(commit)

    def _judged(self, answer: _Answer, path: str, linked: int | None) -> _Answer:
        """The answer, or the error that its status stands for; a missing file is an answer where the model is there."""
        status, code = answer.status, answer.headers.get("x-error-code", "")
        if status in (200, 206) or (status == MISSING and code not in ("RepoNotFound", "RevisionNotFound")):
            return _Answer(status, answer.headers, answer.content, linked)
        raise self._error(status, code, path, answer.headers.get("x-error-message", ""))

    def _error(self, status: int, code: str, path: str, said: str) -> GpuprovError:
        detail = f" ({said[:200]})" if said else ""
        if status in (401, 403):
            return self._refused(status, code, detail)
        if code == "RevisionNotFound":
            return UsageError(
                f"{self.model_id} has no revision {self._revision!r} on the hub",
                where=self.name,
                remedy="name a branch, tag or commit that it has",
            )
        if status == MISSING:
            return UsageError(
                f"the hub has no model {self.model_id!r}",
                where=self.name,
                remedy="check the spelling; `gpuprov models` lists those that need no fetching",
            )
        if status == 416:
            return CloudError(
                f"{path} is shorter than its header says",
                where=self.name,
                remedy="the upload is broken: tell the model's authors",
            )
        if status == 429:
            return Throttled(
                f"the hub answers 429, too many requests{detail}",
                where=self.name,
                remedy="try again later, with a token",
            )
        if status >= 500:
            return Ambiguous(f"the hub answers {status} for {path}{detail}", where=self.name, remedy="try again later")
        return CloudError(
            f"the hub answers {status} for {path}{detail}",
            where=self.name,
            remedy=f"check the id and {ENDPOINT_VARIABLE}",
        )

    def _refused(self, status: int, code: str, detail: str) -> CredentialsError:
        if self._token_variable is None:
            what = "is gated" if code == "GatedRepo" else "is private or gated, or does not exist"
            return CredentialsError(
                f"{self.model_id} {what}: the hub answers {status} without a token{detail}",
                where=self.name,
                remedy=f"set {TOKEN_VARIABLES[0]} to a token that may read it, after accepting its licence on its page",
            )
        return CredentialsError(
            f"the token in {self._token_variable} may not read {self.model_id}: the hub answers {status}{detail}",
            where=self.name,
            remedy=f"accept the model's licence on its page with the account of {self._token_variable}, or set another token",
        )


def _read(status: int, headers: Any, stream: Any, limit_bytes: int) -> _Answer:
    named = {str(key).lower(): str(value) for key, value in headers.items()}
    content = b"" if status in _REDIRECTS else stream.read(limit_bytes)
    stated = named.get("content-length", "")
    if stated.isdigit() and len(content) < min(int(stated), limit_bytes) and status not in _REDIRECTS:
        raise HTTPException(f"the answer was cut off: {len(content)} of {stated} bytes came")
    return _Answer(status, named, content, None)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urllib.parse.urlsplit(url)
    return parts.scheme, parts.hostname, parts.port
