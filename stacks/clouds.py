"""The registry of clouds: the one place that turns a provider's name into a ``Cloud``."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from provisioner.clouds.cloud import BillableObject, Cloud, Placement, Survey
from provisioner.errors import GpuprovError, UsageError
from stacks.state import StackState

PROVIDERS = ("sandbox", "aws", "gcp")
"""Where a plan can be carried out; the sandbox plays the offers of both clouds."""


@runtime_checkable
class Accounted(Protocol):
    """A cloud with accounts, that can say whose credentials it has."""

    def account(self) -> str:
        """Number or name of the account."""
        ...


@runtime_checkable
class Walled(Protocol):
    """A cloud that can say what somebody has changed on a security group."""

    def foreign_rules(
        self, placement: Placement, group_id: str, cidrs: Sequence[str], ports: Sequence[int]
    ) -> tuple[str, ...]:
        """Rules that are other than the stated ones, for people."""
        ...


def account_of(cloud: Cloud) -> str | None:
    """The account that a cloud asks; ``None`` where there are none, as in the sandbox.

    Raises:
        CredentialsError: there are no credentials, or they have expired.
    """
    return cloud.account() if isinstance(cloud, Accounted) else None


@runtime_checkable
class Surveying(Protocol):
    """A cloud that can say which of its regions it could not list."""

    def survey(self) -> Survey:
        """Everything that could be listed, and why the rest could not."""
        ...


@runtime_checkable
class SurveyingOthers(Protocol):
    """The same of machines that are not ours."""

    def survey_others(self) -> Survey:
        """Those that could be listed, and why the rest could not."""
        ...


def survey(cloud: Cloud) -> Survey:
    """Everything of ours that the cloud lists, and the regions that do not answer.

    Raises:
        GpuprovError: nothing could be listed.
    """
    return cloud.survey() if isinstance(cloud, Surveying) else Survey(tuple(cloud.list_objects()))


def survey_others(cloud: Cloud) -> Survey:
    """Machines with GPUs that are not ours, and the regions that do not answer.

    Raises:
        GpuprovError: nothing could be listed.
    """
    return cloud.survey_others() if isinstance(cloud, SurveyingOthers) else Survey(tuple(cloud.list_others()))


def error_of_unlisted(unlisted: Mapping[str, GpuprovError]) -> GpuprovError | None:
    """What must be told of regions that do not answer: what is there is not known; ``None`` where all do."""
    for first in unlisted.values():
        names = ", ".join(sorted(unlisted))
        return type(first)(
            f"{first.message}; {names} could not be listed, so nothing was changed there",
            where=first.where,
            remedy=first.remedy or "run the command again",
        )
    return None


def list_within(cloud: Cloud, regions: Collection[str]) -> list[BillableObject]:
    """Everything of ours that the cloud lists; a region that does not answer matters only where it is one of ``regions``.

    Many companies deny their people some regions by policy: nothing of a stack is where no offer of it ever was.

    Args:
        cloud: the account.
        regions: where something may be; empty where that is not known, so anywhere.

    Raises:
        GpuprovError: one of them could not be listed.
    """
    seen = survey(cloud)
    for region, error in sorted(seen.unlisted.items()):
        if not regions or region in regions:
            raise error
    return list(seen.objects)


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
