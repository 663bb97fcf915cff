"""How the weights reach a machine, and what the way costs: from the hub, from a bucket near or far, through a NAT gateway.

Bytes that arrive cost nothing; whoever sends them pays. A bucket in the machine's region sends for nothing, one in another
region pays the inter-region rate of its cloud, one in another cloud pays its cloud's rate to the internet. A NAT gateway bills
each byte that it passes on, but a bucket of the same cloud and region is reached past it (a gateway endpoint on AWS, Private
Google Access on Google Cloud; both are free).

Source: EC2 on-demand pricing page (data transfer), VPC pricing page (NAT gateway), Google Cloud network pricing.
"""

from __future__ import annotations

from typing import NamedTuple

from provisioner.catalog.prices import REFERENCE_REGIONS, ServicePrices, Tiers
from provisioner.workload.spec import Workload

_CLOUD_OF_SCHEME = {"s3": "aws", "gs": "gcp"}
_CONTINENTS = {"us": "NA", "northamerica": "NA", "europe": "EU", "eu": "EU"}
"""First word of a Google Cloud region or multi-region -> continent with rates of its own."""
_LOCAL = {"NA": "within North America", "EU": "within Europe"}
_CLOSE = frozenset({"us-east-1", "us-east-2"})
"""Two AWS regions with a rate of their own between them."""


class Bucket(NamedTuple):
    """Where the weights lie. ``cloud`` is ``None`` for a hub on the internet, ``region`` where the spec names none."""

    cloud: str | None
    region: str | None


class Way(NamedTuple):
    """What it costs to send to a machine: ``tiers`` per GiB; none where it is free, and where it is unknown."""

    kind: str
    """``internet``, ``same-region``, ``other-region`` or ``other-cloud``."""
    is_known: bool
    tiers: Tiers
    passes_nat: bool
    """Whether it goes through the NAT gateway of a machine without an address."""


def bucket_of(workload: Workload) -> Bucket:
    """Where ``model.source`` says that the weights are; the hub where it says nothing."""
    source = workload.model.source or ""
    cloud = _CLOUD_OF_SCHEME.get(source.partition("://")[0])
    return Bucket(cloud, workload.model.source_region if cloud else None)


def way_to(services: ServicePrices, bucket: Bucket, cloud: str, region: str) -> Way:
    """The way from a bucket to a machine in a region, with its price per GiB."""
    if bucket.cloud is None:
        return Way("internet", is_known=True, tiers=(), passes_nat=True)
    if bucket.cloud != cloud:
        start = bucket.region or REFERENCE_REGIONS[bucket.cloud]
        tiers = services.egress_tiers(bucket.cloud, start)
        return Way("other-cloud", is_known=bool(tiers) and bucket.region is not None, tiers=tiers, passes_nat=True)
    if bucket.region is None:
        return Way("other-region", is_known=False, tiers=(), passes_nat=False)
    if bucket.region == region:
        return Way("same-region", is_known=True, tiers=(), passes_nat=False)
    destination = _aws_destination(bucket.region, region) if cloud == "aws" else _gcp_destination(bucket.region, region)
    tiers = services.traffic_tiers(cloud, "inter_region", destination, bucket.region)
    return Way("other-region", is_known=bool(tiers), tiers=tiers, passes_nat=True)


def _aws_destination(start: str, end: str) -> str:
    return "us-east-1 and us-east-2" if {start, end} == _CLOSE else "other region of the same cloud"


def _gcp_destination(start: str, end: str) -> str:
    here, there = (_CONTINENTS.get(region.partition("-")[0]) for region in (start, end))
    if here is None or there is None:
        return "other continents"
    return _LOCAL[here] if here == there else "NA-Europe"
