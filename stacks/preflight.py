"""Before anything is made: what a cloud says would refuse the launch, and whether an offer is left that nothing refuses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from provisioner.clouds.cloud import Cloud, Placement, Readiness
from provisioner.errors import CredentialsError, GpuprovError, QuotaError, Rejected, UsageError
from provisioner.node.packing import packed_user_data
from provisioner.planner.node_credentials import remedy, unmet_needs, words
from provisioner.workload.spec import Workload
from stacks.program import ProgramInputs
from stacks.provider.inputs import WantedVolume, read_offers
from stacks.provider.node import boot_data


@runtime_checkable
class Checking(Protocol):
    """A cloud that can tell what would refuse a launch."""

    def preflight(self, offers: Sequence[Placement], root_volume_bytes: int) -> list[Readiness]:
        """What it can tell before anything is made."""
        ...


def look(cloud: Cloud, offers: Sequence[Placement], root_volume_bytes: int) -> list[Readiness]:
    """What the cloud can tell; nothing where it cannot.

    Raises:
        GpuprovError: the cloud cannot be asked at all.
    """
    return cloud.preflight(offers, root_volume_bytes) if isinstance(cloud, Checking) else []


def script_refusal(inputs: ProgramInputs) -> UsageError | None:
    """Why a machine cannot be told all that it should run: user data is small. It is known before anything is made or stopped."""
    volumes = [WantedVolume(disk.name, disk.size_bytes) for disk in inputs.disks]
    for offer in read_offers(list(inputs.offers)):
        try:
            packed_user_data(boot_data(inputs.workload, inputs.node or {}, offer, volumes), offer.cloud)
        except Rejected as error:
            return UsageError(error.message, where=error.where, remedy=error.remedy)
    return None


def credentials_refusal(inputs: ProgramInputs, provider: str) -> UsageError | None:
    """Why a machine of AWS could not fetch what it starts: it would bill until its time to get ready is over.

    An image of one's own may bring credentials along, so it is let through; ``plan`` warns of it all the same.
    """
    workload = Workload.from_document(dict(inputs.workload))
    if provider != "aws" or (workload.aws is not None and workload.aws.image is not None):
        return None
    needs = unmet_needs(workload, provider)
    return UsageError(words(needs, provider), remedy=remedy(needs, provider)) if needs else None


def refusal(found: Sequence[Readiness], offers: Sequence[Placement]) -> GpuprovError | None:
    """Why no offer can be launched; ``None`` while one may be.

    Exit codes as contracted: a wrong set-up before rights, rights before quotas, a quota only where it is every refusal.
    """
    everywhere = next((one.error for one in found if one.offer is None and one.error is not None), None)
    if everywhere is not None:
        return everywhere
    by_offer: dict[str, GpuprovError] = {}
    for one in found:
        if one.offer is not None and one.error is not None:
            held = by_offer.get(one.offer)
            by_offer[one.offer] = one.error if held is None or _rank(one.error) < _rank(held) else held
    if not by_offer or any(offer.key not in by_offer for offer in offers):
        return None
    errors = list(by_offer.values())
    if all(isinstance(error, QuotaError) for error in errors):
        return errors[0]
    first = min((error for error in errors if not isinstance(error, QuotaError)), key=_rank)
    more = f" (and {len(errors) - 1} more offers are refused too)" if len(errors) > 1 else ""
    return type(first)(f"{first.message}{more}", where=first.where, remedy=first.remedy)


def _rank(error: GpuprovError) -> int:
    if isinstance(error, UsageError):
        return 0
    return 1 if isinstance(error, CredentialsError) else 2
