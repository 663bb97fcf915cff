"""The one door to Google's REST APIs: credentials, endpoints, time-outs, and every error of theirs as one of ours.

Credentials are the application default ones (``GOOGLE_APPLICATION_CREDENTIALS``, ``gcloud auth application-default login``, a
machine's own). ``GOOGLE_API_KEY`` serves for public prices where there are none.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from provisioner.catalog.patience import Patience
from provisioner.clouds.gcp.errors import error_of, translate, unreadable
from provisioner.errors import CredentialsError

COMPUTE_ENDPOINT = "GPUPROV_GCE_ENDPOINT"
"""Environment variable that replaces the Compute Engine endpoint, for tests and private access."""
BILLING_ENDPOINT = "GPUPROV_GCP_BILLING_ENDPOINT"
"""Likewise for the Cloud Billing endpoint."""
_COMPUTE = "https://compute.googleapis.com"
_BILLING = "https://cloudbilling.googleapis.com"
_SCOPES = (
    "https://www.googleapis.com/auth/compute.readonly",
    "https://www.googleapis.com/auth/cloud-billing.readonly",
)
_TIMEOUT_S = (5, 60)
"""To connect, and between two pieces of an answer: a page of 5,000 SKUs takes seconds."""
_PAGES_MAX = 500
"""More pages than any list has: an endless ``nextPageToken`` must end."""


class GcpReader:
    """Reads lists of one project. Safe to share between threads."""

    def __init__(self, patience: Patience | None = None) -> None:
        self._patience = patience or Patience()
        self._lock = threading.Lock()
        self._session: Any = None
        self._plain: Any = None
        self._project: str | None = None

    @property
    def project(self) -> str:
        """``GOOGLE_CLOUD_PROJECT``, else the project of the credentials.

        Raises:
            CredentialsError: there are no credentials, or they name no project.
        """
        self._authorized()
        project = os.environ.get("GOOGLE_CLOUD_PROJECT") or self._project
        if not project:
            raise CredentialsError("the Google credentials name no project", remedy="set GOOGLE_CLOUD_PROJECT")
        return project

    def compute_pages(self, path: str, **parameters: str) -> Iterator[dict[str, Any]]:
        """All pages of a Compute Engine list below the project; any failure is a failure of the whole.

        Raises:
            GpuprovError: by ``errors.error_of``.
        """
        base = os.environ.get(COMPUTE_ENDPOINT) or _COMPUTE
        url = f"{base.rstrip('/')}/compute/v1/projects/{self.project}/{path}"
        yield from self._pages(url, f"compute {path}", "compute.googleapis.com", parameters, key=None)

    def billing_pages(self, path: str, **parameters: str) -> Iterator[dict[str, Any]]:
        """All pages of a Cloud Billing list; with ``GOOGLE_API_KEY`` no other credentials are needed.

        Raises:
            GpuprovError: by ``errors.error_of``.
        """
        base = os.environ.get(BILLING_ENDPOINT) or _BILLING
        url = f"{base.rstrip('/')}/v1/{path}"
        key = os.environ.get("GOOGLE_API_KEY")
        yield from self._pages(url, f"cloudbilling {path}", "cloudbilling.googleapis.com", parameters, key=key)

    def _pages(
        self, url: str, where: str, service: str, parameters: Mapping[str, str], *, key: str | None
    ) -> Iterator[dict[str, Any]]:
        token = ""
        for _ in range(_PAGES_MAX):
            query = {**parameters, **({"pageToken": token} if token else {})}
            page = self._patience.call(lambda query=query: self._get(url, where, service, query, key))  # type: ignore[misc]
            yield page
            token = page.get("nextPageToken") or ""
            if not token:
                return
        raise unreadable(where, f"more than {_PAGES_MAX} pages")

    def _get(self, url: str, where: str, service: str, query: Mapping[str, str], key: str | None) -> dict[str, Any]:
        """One page."""
        session = self._keyed(key) if key else self._authorized()
        try:
            answer = session.get(url, params=query, timeout=_TIMEOUT_S)
            status, body = answer.status_code, answer.content
        except Exception as error:
            ours = translate(error, where)
            if ours is None:
                raise
            raise ours from error
        if status != 200:
            raise error_of(status, body, where, service)
        try:
            page = answer.json()
        except ValueError as error:
            raise unreadable(where, str(error)) from None
        if not isinstance(page, dict):
            raise unreadable(where, "no JSON object")
        return page

    def _authorized(self) -> Any:
        """A session with the application default credentials; token and project are read once."""
        with self._lock:
            if self._session is None:
                self._session, self._project = _default_session()
            return self._session

    def _keyed(self, key: str) -> Any:
        """A session with an API key, in a header so that it is in no log of addresses."""
        with self._lock:
            if self._plain is None:
                import requests

                self._plain = requests.Session()
                self._plain.headers["X-Goog-Api-Key"] = key
            return self._plain


def _default_session() -> tuple[Any, str | None]:
    import google.auth
    from google.auth.transport.requests import AuthorizedSession

    try:
        credentials, project = google.auth.default(scopes=_SCOPES)
    except Exception as error:
        ours = translate(error, "Google application default credentials")
        if ours is None:
            raise
        raise ours from error
    # Only our own patience retries: google-auth would repeat a failed token call with waits of its own.
    return AuthorizedSession(credentials, max_refresh_attempts=1), project  # type: ignore[no-untyped-call]
