"""Why a row must not be bought by: each rule gives a code, and the offer is kept aside with its codes.

The rules are those of the catalog's data: skip what cannot be started in this way, what is sold to selected customers, what
looks like another product's price, and what is not offered where it is priced. Codes that only call for care
(``region_outlier``, ``spot_equals_on_demand``, ``spot_at_floor_10pct``, ...) stay on the offer. ``stale`` (older than 12
months) takes away the price, not the offer: the machine can still be had, at a price that is unknown.
"""

from __future__ import annotations

from provisioner.catalog import codes
from provisioner.catalog.instance_prices import InstancePrice
from provisioner.catalog.instances import InstanceType
from provisioner.vocabulary import CapacityType

EXCLUDING_PRICE_CODES = frozenset(
    {"not_purchasable_on_demand", "possible_dws_sku", "restricted_type", "not_offered_2026_10"}
)
"""Codes of a price row that keep its offer out."""

_STATUS_CODES = {
    "not_listed": codes.NOT_LISTED,
    "reservation_only": codes.RESERVATION_ONLY,
    "restricted": codes.RESTRICTED,
}


_RESERVATIONS = frozenset({CapacityType.RESERVED, CapacityType.CAPACITY_BLOCK, CapacityType.FLEX_START})
"""How a type is bought that is sold by reservation only."""


def type_codes(instance: InstanceType, capacity: CapacityType | None = None) -> tuple[str, ...]:
    """Why an instance type makes no offers at all, or none of a capacity type; empty where it may."""
    found = []
    if instance.kind == "cpu_host":
        found.append(codes.CPU_HOST)
    elif instance.kind != "gpu":
        found.append(codes.NOT_GPU)
    code = _STATUS_CODES.get(instance.status)
    if code is not None and not (code == codes.RESERVATION_ONLY and capacity in _RESERVATIONS):
        found.append(code)
    return tuple(found)


def capacity_types(instance: InstanceType) -> tuple[CapacityType, ...]:
    """The ways to buy an instance type that are worth a word: capacity blocks and flex-start only where they exist.

    A reservation is known by its price alone.
    """
    ahead = (
        (CapacityType.CAPACITY_BLOCK, instance.capacity_block_available),
        (CapacityType.FLEX_START, instance.flex_start_available),
    )
    return (CapacityType.ON_DEMAND, CapacityType.SPOT, *(kind for kind, available in ahead if available == "yes"))


def capacity_codes(instance: InstanceType, capacity: CapacityType, *, priced_on_demand: bool) -> tuple[str, ...]:
    """Why an instance type is not sold as this capacity type; ``priced_on_demand``: some region has an on-demand price."""
    if capacity is CapacityType.SPOT:
        return (codes.NO_SPOT,) if instance.spot_available == "no" else ()
    if capacity is CapacityType.CAPACITY_BLOCK:
        return () if instance.capacity_block_available == "yes" else (codes.NO_CAPACITY_BLOCK,)
    if capacity in (CapacityType.FLEX_START, CapacityType.RESERVED):
        return ()
    if instance.on_demand_available == "no":
        return (codes.NO_ON_DEMAND,)
    if instance.capacity_block_available == "yes" and not priced_on_demand:
        return (codes.CAPACITY_BLOCK_ONLY,)
    return ()


def price_codes(price: InstancePrice, *, is_outlier: bool) -> tuple[str, ...]:
    """Why a price keeps its offer out; empty where it does not."""
    found = [code for code in price.suspect if code in EXCLUDING_PRICE_CODES]
    return (*found, codes.PRICE_OUTLIER) if is_outlier else tuple(found)
