"""What a spec and a launch say about one offer, and in which order offers are tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from provisioner.clouds.cloud import Placement
from provisioner.units import decimal_string, parse_money
from provisioner.vocabulary import CapacityType
from stacks.provider.inputs import LaunchFacts
from stacks.provider.lifetime import part


def image_of(launch: LaunchFacts, offer: Placement) -> str | None:
    """The image that the launch keeps for an offer, also where a zone was put into it since."""
    return launch.image.get(offer.key) or launch.image.get(replace(offer, zone=None).key)


def access(workload: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """CIDRs and ports that the spec opens; none by default."""
    cidrs = part(workload, "access").get("cidrs") or ()
    ports = part(workload, "run").get("ports") or ()
    return tuple(str(cidr) for cidr in cidrs), tuple(int(port) for port in ports)


def price_limit(workload: Mapping[str, Any], offer: Placement) -> str | None:
    """The spec's own limit of what a spot machine may cost an hour, in USD; ``None`` where it states none."""
    stated = part(workload, "placement").get("max_price")
    if not stated or offer.capacity_type is not CapacityType.SPOT:
        return None
    return decimal_string(parse_money(str(stated)).amount_usd)


def ordered(offers: Iterable[Placement], avoid: Sequence[str]) -> tuple[Placement, ...]:
    """The offers with those last whose pool lost a machine, the longest ago first (``avoid`` holds ``pool`` keys)."""
    rank = {key: number for number, key in enumerate(avoid, start=1)}
    return tuple(sorted(offers, key=lambda offer: rank.get(pool(offer), 0)))


def pool(placement: Placement) -> str:
    """Region and capacity type: where an interruption says something about the next machine."""
    return f"{placement.cloud}/{placement.region}/{placement.capacity_type}"


def catalog_quota_family(placement: Placement) -> str:
    """The quota that an offer counts against, from the catalog; the family of its name where that is not known."""
    from provisioner.catalog.snapshot import load_catalog

    instance = load_catalog().instances.get((placement.cloud, placement.instance_type))
    if instance is None:
        return placement.instance_type.partition("." if placement.cloud == "aws" else "-")[0]
    is_spot = placement.capacity_type in (CapacityType.SPOT, CapacityType.FLEX_START)
    return (instance.quota_spot if is_spot else instance.quota_on_demand) or instance.family
