"""Every answer of a Google API that is no success as one of our errors, by HTTP status and reason.

Source: Google API design guide, AIP-193 (errors); Compute Engine API, "Handle API errors"; Cloud Billing API limits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from provisioner.errors import (
    Ambiguous,
    CloudError,
    CredentialsError,
    GpuprovError,
    NotFound,
    Rejected,
    Throttled,
)

LOG_IN = "run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS to a key file"
_RATE_REASONS = frozenset(
    {"rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED", "concurrentLimitExceeded"}
)
_DISABLED_REASONS = frozenset({"accessNotConfigured", "SERVICE_DISABLED"})
_BAD_KEY_REASONS = frozenset({"keyInvalid", "keyExpired", "API_KEY_INVALID", "API_KEY_SERVICE_BLOCKED"})
_SERVER_FAILURE = 500
_MESSAGE_MAX = 600


def error_of(status: int, body: bytes, where: str, service: str) -> GpuprovError:
    """Our error for an HTTP answer that is no success; ``service`` is the API's host name, for the line that enables it."""
    error = _error_object(body)
    message = _short(str(error.get("message") or body.decode(errors="replace") or "no message"))
    text = f"HTTP {status}: {message}"
    reasons = _reasons(error)
    if status == 429 or reasons & _RATE_REASONS:
        return Throttled(text, where=where, remedy="nothing happened: run the command again in a minute")
    if reasons & _BAD_KEY_REASONS or "API key not valid" in message or "API key expired" in message:
        return CredentialsError(text, where=where, remedy="correct GOOGLE_API_KEY, or unset it and log in")
    if reasons & _DISABLED_REASONS:
        return CredentialsError(text, where=where, remedy=f"run `gcloud services enable {service}`")
    if status == 401:
        return CredentialsError(text, where=where, remedy=LOG_IN)
    if status == 403:
        return CredentialsError(text, where=where, remedy="ask for the right that the message names")
    if status == 404:
        return NotFound(text, where=where, remedy="look whether the project exists and GOOGLE_CLOUD_PROJECT names it")
    if status >= _SERVER_FAILURE:
        return Ambiguous(text, where=where, remedy="run the command again")
    return Rejected(text, where=where, remedy="see the message; it would be refused again")


def translate(error: Exception, where: str) -> GpuprovError | None:
    """Our error for what requests or google-auth raised; ``None`` for what is a bug of ours."""
    import requests
    from google.auth import exceptions as auth

    text = _short(str(error.args[0] if error.args else error))
    if isinstance(error, auth.DefaultCredentialsError):
        return CredentialsError(f"no Google credentials: {text}", where=where, remedy=LOG_IN)
    if isinstance(error, auth.RefreshError):
        if getattr(error, "retryable", False):
            return Ambiguous(f"no access token: {text}", where=where, remedy="run the command again")
        return CredentialsError(f"the Google credentials are expired or revoked: {text}", where=where, remedy=LOG_IN)
    if isinstance(error, auth.TransportError | requests.RequestException):
        return Ambiguous(
            f"no answer from Google: {text}",
            where=where,
            remedy="check the network and proxy, then run the command again",
        )
    if isinstance(error, auth.GoogleAuthError):
        return CredentialsError(text, where=where, remedy=LOG_IN)
    return None


def unreadable(where: str, why: str) -> CloudError:
    """The error for an answer of another form than the documented one."""
    return Ambiguous(f"the answer cannot be read: {why}", where=where, remedy="run the command again")


def _error_object(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    error = found.get("error") if isinstance(found, dict) else None
    return error if isinstance(error, dict) else {}


def _reasons(error: Mapping[str, Any]) -> set[str]:
    """Reasons of the old (``errors``) and the new form (``details``)."""
    parts = [*(error.get("errors") or ()), *(error.get("details") or ())]
    return {str(part["reason"]) for part in parts if isinstance(part, dict) and "reason" in part}


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MESSAGE_MAX else f"{line[: _MESSAGE_MAX - 1]}…"
