"""The registry of clouds: the one place that turns a provider's name into a ``Cloud``."""

from __future__ import annotations

from pathlib import Path

from provisioner.clouds.cloud import Cloud
from provisioner.errors import UsageError

PROVIDERS = ("sandbox", "aws", "gcp")
"""Where a plan can be carried out; the sandbox plays the offers of both clouds."""


def open_cloud(provider: str, home: Path) -> Cloud:
    """The cloud that carries out plans for a provider.

    Args:
        provider: ``sandbox``, ``aws`` or ``gcp``.
        home: gpuprov's home; the sandbox keeps its objects there.

    Raises:
        UsageError: an unknown provider, or one that this version cannot reach yet.
    """
    if provider == "sandbox":
        from provisioner.clouds.sandbox.cloud import SandboxCloud

        return SandboxCloud(home)
    if provider in PROVIDERS:
        raise UsageError(
            f"carrying out plans on {provider} comes with a later step of gpuprov",
            remedy=f"`--cloud sandbox` plays {provider} offers without an account; `gpuprov plan` ranks them",
        )
    raise UsageError(f"there is no cloud {provider!r}", remedy=f"use one of {', '.join(PROVIDERS)}")
