"""What an engine says that cannot reach or read the state, as one of our errors with the line that mends it.

The engine has no codes for this: the words are those of the object stores that it passes on.
"""

from __future__ import annotations

import re

from provisioner.errors import CloudError, CredentialsError, GpuprovError, UsageError

_BLOB = re.compile(r",? ?(RequestID|HostID): ?[^,]*")
_CAUSES: tuple[tuple[str, type[GpuprovError], str, str], ...] = (
    (
        r"NoSuchBucket|bucket doesn't exist|bucket does not exist|ContainerNotFound",
        UsageError,
        "the state cannot be reached",
        "make the bucket (versioned, closed to the public), or correct GPUPROV_BACKEND or --backend",
    ),
    (
        (
            r"ExpiredToken|InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|failed to refresh cached credentials"
            r"|get credentials|no EC2 IMDS role found|failed to retrieve credentials|could not find default credentials"
            r"|SSO token"
        ),
        CredentialsError,
        "the state cannot be reached",
        "log in again, or set AWS_PROFILE; nothing was changed",
    ),
    (
        r"incorrect passphrase|passphrase must be set",
        UsageError,
        "the state's secrets cannot be opened",
        "set PULUMI_CONFIG_PASSPHRASE to the team's passphrase",
    ),
    (
        r"deployment (version|schema)|unsupported (checkpoint )?(version|schema)|newer (than|version)",
        CloudError,
        "the state cannot be read",
        "use the version of gpuprov that wrote it",
    ),
    (
        r"AccessDenied|Forbidden|StatusCode: 403|PermissionDenied|insufficient permission",
        CredentialsError,
        "the state cannot be reached",
        "ask for the right to list, read and write that bucket",
    ),
)
"""Words, the error that they mean, what is so, and what mends it; the first that fits counts."""


def explain(text: str, url: str) -> GpuprovError | None:
    """The error for what the engine printed; ``None`` where it is not about the backend.

    Args:
        text: the engine's last error, in one line.
        url: the backend.
    """
    said = " ".join(_BLOB.sub("", text).split())
    for words, kind, what, remedy in _CAUSES:
        if re.search(words, text, re.IGNORECASE):
            return kind(f"{what}: {said}", where=url, remedy=remedy)
    return None


def last_error(printed: str) -> str:
    """The line of the engine's output that says what went wrong, without decoration."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("error:", "stderr: error:"))]
    text = (marked or lines or ["no reason given"])[-1]
    return text.removeprefix("stderr:").strip().removeprefix("error:").strip()
