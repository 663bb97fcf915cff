"""Fetch the engine with Pulumi's official installer."""

from __future__ import annotations

import urllib.error
import urllib.request
from pathlib import Path

from stacks.engine.cache import Say
from stacks.engine.releases import Release

INSTALLER_URL = "https://get.pulumi.com/install.sh"
_PROBE_TIMEOUT_S = 10.0


class InstallFailed(Exception):
    """Why this way gave no program; the text is for the list of the four ways."""


def install(release: Release, folder: Path, say: Say) -> None:
    """Install ``release`` below ``folder`` with ``PulumiCommand.install``.

    The installer itself has no time-out, so its address is probed first: a machine without a way out fails in seconds.

    Raises:
        InstallFailed: the installer cannot be reached, or failed.
    """
    try:
        request = urllib.request.Request(INSTALLER_URL, method="HEAD")
        urllib.request.urlopen(request, timeout=_PROBE_TIMEOUT_S).close()  # noqa: S310 - a constant https address
    except (urllib.error.URLError, OSError) as error:
        raise InstallFailed(f"the official installer cannot be reached ({_reason(error)})") from error
    say(f"fetching {release.program} {release.version} with the official installer")
    from pulumi.automation import PulumiCommand
    from semver import VersionInfo

    try:
        PulumiCommand.install(root=str(folder), version=VersionInfo.parse(release.version))
    except Exception as error:  # the installer runs a foreign script: any failure means "try the next way"
        raise InstallFailed(f"the official installer failed ({_reason(error)})") from error


def _reason(error: BaseException) -> str:
    text = " ".join(str(getattr(error, "reason", error)).split())
    return text[:200] or type(error).__name__
