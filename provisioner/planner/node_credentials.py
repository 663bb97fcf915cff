"""What a machine reads at its start with credentials of a cloud, and will not have: it would bill, and its workload never start.

Source: EC2 user guide, "IAM roles for Amazon EC2": a machine without an instance profile has no credentials; the AWS CLI and
``gcloud storage`` sign their requests unless they are told not to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from provisioner.workload.patterns import SecretReference
from provisioner.workload.spec import Run, Workload

_CLOUD_OF = {"s3": "aws", "aws-secretsmanager": "aws", "gs": "gcp", "gcp-secretmanager": "gcp"}
"""Scheme of an address, or store of a secret, -> whose credentials it takes."""
_PRIVATE_REGISTRY = re.compile(r"\d{12}\.dkr\.ecr\.")
"""Private registries of AWS; public.ecr.aws asks for nothing."""


class Need(NamedTuple):
    """A key of the spec, and the cloud whose credentials it takes."""

    key: str
    cloud: str


def unmet_needs(workload: Workload, cloud: str) -> tuple[Need, ...]:
    """Keys that a machine of ``cloud`` could not read; none without ``run``, since nothing is fetched then."""
    if workload.run is None:
        return ()
    has_role = cloud != "aws" or (workload.aws is not None and workload.aws.instance_profile is not None)
    return tuple(need for need in _needs(workload) if need.cloud != cloud or not has_role)


def words(needs: tuple[Need, ...], cloud: str) -> str:
    """Why they cannot be read, in words; ``needs`` is not empty."""
    keys = " and ".join(dict.fromkeys(need.key for need in needs))
    verb = "is" if len({need.key for need in needs}) == 1 else "are"
    if any(need.cloud != cloud for need in needs):
        other = next(need.cloud for need in needs if need.cloud != cloud)
        why = f"a machine of {cloud} has no credentials of {other}"
    else:
        why = "aws.instance_profile is not given, so the machine has no credentials"
    return f"{keys} {verb} read at the start of the machine, and {why}: the workload would never start"


def remedy(needs: tuple[Need, ...], cloud: str) -> str:
    """What mends it."""
    if any(need.cloud != cloud for need in needs):
        return f"keep them where {cloud} can read them, or leave {cloud} out of placement.clouds"
    return "name an instance profile whose role may read them in aws.instance_profile"


def _needs(workload: Workload) -> Iterator[Need]:
    run, model = workload.run, workload.model
    addresses = [("model.source", model.source)]
    addresses += [("model.adapters", adapter.source) for adapter in model.adapters]
    if isinstance(run, Run):
        addresses.append(("run.data", run.data))
        if run.image is not None and _PRIVATE_REGISTRY.match(run.image):
            yield Need("run.image", "aws")
        for name, value in run.env.items():
            if isinstance(value, SecretReference):
                yield Need(f"run.env.{name}", _CLOUD_OF[value.store])
    for key, address in addresses:
        scheme = (address or "").partition("://")[0]
        if scheme in _CLOUD_OF:
            yield Need(key, _CLOUD_OF[scheme])
