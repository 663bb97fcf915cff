"""The registry of clouds: the one place that turns a provider's name into a ``Cloud``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from provisioner.clouds.cloud import Cloud
from provisioner.errors import UsageError
from stacks.state import StackState

PROVIDERS = ("sandbox", "aws", "gcp")
"""Where a plan can be carried out; the sandbox plays the offers of both clouds."""


@runtime_checkable
class Accounted(Protocol):
    """A cloud with accounts, that can say whose credentials it has."""

    def account(self) -> str:
        """Number or name of the account."""
        ...


def account_of(cloud: Cloud) -> str | None:
    """The account that a cloud asks; ``None`` where there are none, as in the sandbox.

    Raises:
        CredentialsError: there are no credentials, or they have expired.
    """
    return cloud.account() if isinstance(cloud, Accounted) else None


def open_cloud(
    provider: str, home: Path, settings: Mapping[str, Any] | None = None, account: str | None = None
) -> Cloud:
    """The cloud that carries out plans for a provider; opening asks it nothing.

    Args:
        provider: ``sandbox``, ``aws`` or ``gcp``.
        home: gpuprov's home; the sandbox keeps its objects there.
        settings: the spec's section of that name, ``aws`` or ``gcp``: the user's own objects to use.
        account: the account that a stack was made in: its calls refuse the credentials of another.

    Raises:
        UsageError: an unknown provider, or one that this version cannot reach yet.
    """
    if provider == "sandbox":
        from provisioner.clouds.sandbox.cloud import SandboxCloud

        return SandboxCloud(home)
    if provider == "aws":
        from provisioner.clouds.aws.cloud import AwsCloud
        from provisioner.clouds.aws.settings import AwsSettings

        return AwsCloud(replace(AwsSettings.of(settings), account=account))
    if provider in PROVIDERS:
        raise UsageError(
            f"carrying out plans on {provider} comes with a later step of gpuprov",
            remedy=f"`--cloud sandbox` plays {provider} offers without an account; `gpuprov plan` ranks them",
        )
    raise UsageError(f"there is no cloud {provider!r}", remedy=f"use one of {', '.join(PROVIDERS)}")


def cloud_of(state: StackState | None, provider: str, home: Path) -> Cloud:
    """The cloud of a stack, opened as its state says it was.

    Raises:
        UsageError: see ``open_cloud``.
    """
    if state is None:
        return open_cloud(provider, home)
    return open_cloud(provider, home, state.settings, state.account)
