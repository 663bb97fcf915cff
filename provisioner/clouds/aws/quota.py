"""Account quotas, read before a create where the account's rights allow it: refused here costs no call and tells the figures.

Source: Service Quotas API reference, GetServiceQuota; EC2 user guide, "On-Demand Instance quotas" (vCPUs of running machines
per family, one quota each for on-demand and spot).
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from provisioner.clouds.aws.session import AwsApi
from provisioner.clouds.aws.views import capacity_type
from provisioner.clouds.cloud import Placement
from provisioner.errors import CloudError, CredentialsError, QuotaError
from provisioner.vocabulary import CapacityType

if TYPE_CHECKING:  # the catalog is read when a quota is first asked for
    from provisioner.catalog.instances import InstanceType
    from provisioner.catalog.quotas import QuotaNeed
    from provisioner.catalog.snapshot import Catalog

_LIMIT_KEPT_S = 600.0
_USE_KEPT_S = 5.0
"""A walk over many offers of a region reads its use once."""
_LIMIT_IN_MESSAGE = re.compile(r"vCPU limit of (\d+)")
_FAMILY = re.compile(r"[a-z]+")
_ALIVE = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]


@dataclass(frozen=True, slots=True)
class Use:
    """Machines that take quota in a region at one moment."""

    read_at_s: float
    machines: tuple[Mapping[str, Any], ...]


class Quotas:
    """Limits and their use. Safe to share between threads."""

    def __init__(self, api: AwsApi, catalog: Callable[[], Catalog], profile: str | None) -> None:
        self._api = api
        self._load = catalog
        self._profile = profile
        self._lock = threading.Lock()
        self._limits: dict[tuple[str, str], tuple[float, float | None]] = {}
        self._uses: dict[str, Use] = {}

    def check(self, placement: Placement, token: str | None, ending: str | None = None) -> None:
        """Refuse a machine that would exceed its quota. Unknown figures refuse nothing: EC2 itself will say.

        Args:
            placement: what is asked for.
            token: of the create call; a machine that it made already takes no further quota.
            ending: id of a machine that counts as gone.

        Raises:
            QuotaError: with code, need, have, used and the command that asks for more.
        """
        need = self._need(placement)
        if need is None:
            return
        have = self._limit(placement.region, need.quota.code)
        if have is None:
            return
        use = self._use(placement.region)
        if use is None or (token and any(machine.get("ClientToken") == token for machine in use.machines)):
            return
        staying = (machine for machine in use.machines if machine.get("InstanceId") != ending or ending is None)
        used = sum(self._units(machine, need.quota.code) for machine in staying)
        if used + need.units > have:
            raise self._refusal(placement, need, have=f"{have:g}", used=f"{used:g}", wanted=used + need.units)

    def explain(self, placement: Placement, error: QuotaError) -> QuotaError:
        """A refusal by EC2 itself with the quota's code, what is needed, and the command that asks for more."""
        need = self._need(placement)
        if need is None:
            return error
        stated = _LIMIT_IN_MESSAGE.search(error.message)
        have = stated[1] if stated else "unknown"
        least = need.units + (float(stated[1]) if stated else 0.0)
        told = self._refusal(placement, need, have=have, used="unknown", wanted=least)
        explained = QuotaError(f"{error.message}; {told.message}", where=error.where, remedy=told.remedy)
        explained.scope, explained.lasts = error.scope, error.lasts
        return explained

    def forget_use(self, region: str) -> None:
        """Read the use again at the next check: something was made or ended."""
        with self._lock:
            self._uses.pop(region, None)

    @cached_property
    def _catalog(self) -> Catalog:
        return self._load()

    @cached_property
    def _families(self) -> Mapping[str, set[str]]:
        """Letters of the instance families that take from each quota: ``G and VT`` has g, gr and vt."""
        found: dict[str, set[str]] = {}
        for (cloud, name), instance in self._catalog.instances.items():
            for code in (instance.quota_on_demand, instance.quota_spot):
                if cloud == "aws" and code is not None:
                    found.setdefault(code, set()).add(_letters(name))
        return {code: letters | ({"vt"} if "g" in letters else set()) for code, letters in found.items()}

    def _need(self, placement: Placement) -> QuotaNeed | None:
        instance: InstanceType | None = self._catalog.instances.get(("aws", placement.instance_type))
        return None if instance is None else self._catalog.quota_need(instance, placement.capacity_type)

    def _limit(self, region: str, code: str) -> float | None:
        """The quota's value; ``None`` where it cannot be read, for want of rights or of the service."""
        with self._lock:
            known = self._limits.get((region, code))
        if known is not None and time.monotonic() - known[0] < _LIMIT_KEPT_S:
            return known[1]
        try:
            answer = self._api.call("service-quotas", "GetServiceQuota", region, ServiceCode="ec2", QuotaCode=code)
            value: float | None = float(answer["Quota"]["Value"])
        except (CloudError, CredentialsError):
            value = None
        with self._lock:
            self._limits[region, code] = (time.monotonic(), value)
        return value

    def _use(self, region: str) -> Use | None:
        with self._lock:
            known = self._uses.get(region)
        if known is not None and time.monotonic() - known.read_at_s < _USE_KEPT_S:
            return known
        try:
            found = self._api.pages("ec2", "DescribeInstances", region, "Reservations", Filters=_ALIVE)
        except (CloudError, CredentialsError):
            return None
        use = Use(time.monotonic(), tuple(machine for one in found for machine in one["Instances"]))
        with self._lock:
            self._uses[region] = use
        return use

    def _units(self, machine: Mapping[str, Any], code: str) -> float:
        """What a running machine takes from a quota, in vCPUs."""
        name = str(machine["InstanceType"])
        quota = self._catalog.quotas[("aws", code)]
        is_spot_quota = "spot" in quota.name.lower()
        if (capacity_type(machine) is CapacityType.SPOT) != is_spot_quota:
            return 0.0
        known = self._catalog.instances.get(("aws", name))
        if known is not None:
            codes = (known.quota_on_demand, known.quota_spot)
            return float(known.quota_units or known.vcpu) if code in codes else 0.0
        if _letters(name) not in self._families.get(code, set()):
            return 0.0
        cpu = machine.get("CpuOptions") or {}
        return float(cpu.get("CoreCount", 0) * cpu.get("ThreadsPerCore", 1))

    def _refusal(self, placement: Placement, need: QuotaNeed, *, have: str, used: str, wanted: float) -> QuotaError:
        quota, region = need.quota, placement.region
        option = f" --profile {self._profile}" if self._profile else ""
        return QuotaError(
            f"quota {quota.code} ({quota.name}) in {region} is too small for {placement.instance_type}"
            f" {placement.capacity_type}: need {need.units:g} {quota.unit}, have {have}, used {used}",
            remedy=f"ask for more: `aws service-quotas request-service-quota-increase --service-code ec2 --quota-code"
            f" {quota.code} --desired-value {wanted:g} --region {region}{option}`",
        )


def _letters(instance_type: str) -> str:
    match = _FAMILY.match(instance_type)
    return match[0] if match else instance_type
