"""What an engine says that cannot reach or read the state, as one of our errors with the line that mends it.

The engine has no codes for this: the words are those of the object stores that it passes on.
"""

from __future__ import annotations

import re

from provisioner.errors import CloudError, CredentialsError, GpuprovError, UsageError

_MISSING = re.compile(r"NoSuchBucket|bucket doesn't exist|bucket does not exist|ContainerNotFound", re.IGNORECASE)
_DENIED = re.compile(r"AccessDenied|Forbidden|StatusCode: 403|PermissionDenied|insufficient permission", re.IGNORECASE)
_KEYS = re.compile(
    r"ExpiredToken|InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|failed to refresh cached credentials"
    r"|get credentials|no EC2 IMDS role found|failed to retrieve credentials|could not find default credentials|SSO token",
    re.IGNORECASE,
)
_PASSPHRASE = re.compile(r"incorrect passphrase|passphrase must be set", re.IGNORECASE)
_NEWER = re.compile(
    r"deployment (version|schema)|unsupported (checkpoint )?(version|schema)|newer (than|version)", re.IGNORECASE
)
_BLOB = re.compile(r",? ?(RequestID|HostID): ?[^,]*")


def explain(text: str, url: str) -> GpuprovError | None:
    """The error for what the engine printed; ``None`` where it is not about the backend.

    Args:
        text: the engine's last error, in one line.
        url: the backend.
    """
    said = " ".join(_BLOB.sub("", text).split())
    if _MISSING.search(text):
        return UsageError(
            f"the state cannot be reached: {said}",
            where=url,
            remedy="make the bucket (versioned, closed to the public), or correct GPUPROV_BACKEND or --backend",
        )
    if _KEYS.search(text):
        return CredentialsError(
            f"the state cannot be reached: {said}",
            where=url,
            remedy="log in again, or set AWS_PROFILE; nothing was changed",
        )
    if _PASSPHRASE.search(text):
        return UsageError(
            f"the state's secrets cannot be opened: {said}",
            where=url,
            remedy="set PULUMI_CONFIG_PASSPHRASE to the team's passphrase",
        )
    if _NEWER.search(text):
        return CloudError(
            f"the state cannot be read: {said}", where=url, remedy="use the version of gpuprov that wrote it"
        )
    if _DENIED.search(text):
        return CredentialsError(
            f"the state cannot be reached: {said}",
            where=url,
            remedy="ask for the right to list, read and write that bucket",
        )
    return None


def last_error(printed: str) -> str:
    """The line of the engine's output that says what went wrong, without decoration."""
    lines = [line.strip() for line in printed.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("error:", "stderr: error:"))]
    text = (marked or lines or ["no reason given"])[-1]
    return text.removeprefix("stderr:").strip().removeprefix("error:").strip()
