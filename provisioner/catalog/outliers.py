"""Prices too far from their like to be believed: a broken source row must never win a ranking.

A price per GPU-hour is held against others of the same GPU and capacity type in the same cloud. Too low is below a fifth of
their median; a spot price must besides be below 9 % of the type's on-demand price there, since AWS spot bottoms out at 10 %
of on-demand and GCP's largest published discount is 91 %. Too high is an on-demand price above five times the median of the
same instance type: a large host makes a high price per GPU an honest one, and a spot price may rise up to that of on-demand.
Groups of fewer than three prices are not judged.

Source: public trackers: a B200 at 0.01 USD (skypilot-org/skypilot PR 9156), prices of 0.00 (skypilot-org/skypilot 2496).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from provisioner.catalog.instance_prices import ANY, Place, PriceView
from provisioner.catalog.instances import InstanceType
from provisioner.vocabulary import CapacityType

FACTOR = 5
SPOT_FLOOR = Decimal("0.09")
_GROUP_MIN = 3

PriceKey = tuple[str, str, Place]
"""Instance type, region, place."""
_Found = tuple[float, str, str, Place]
"""USD per GPU-hour and where it was found; a float will do, since the judgement is by factors."""


def price_outliers(
    cloud: str, prices: PriceView, instances: Mapping[tuple[str, str], InstanceType]
) -> frozenset[PriceKey]:
    """Keys of the prices that are not believed."""
    per_gpu: dict[tuple[str, CapacityType], list[_Found]] = {}
    per_type: dict[str, list[_Found]] = {}
    for (name, region), places in prices.items():
        instance = instances[cloud, name]
        if instance.gpu_model is None:
            continue
        gpus = instance.gpu_count * instance.gpu_fraction
        for place, price in places.items():
            found = (float(price.amount_usd) / gpus, name, region, place)
            per_gpu.setdefault((instance.gpu_model, place[1]), []).append(found)
            if place[1] is CapacityType.ON_DEMAND:
                per_type.setdefault(name, []).append(found)
    out: set[PriceKey] = set()
    for found_prices in per_gpu.values():
        if len(found_prices) >= _GROUP_MIN:
            floor = _median_low(found_prices) / FACTOR
            low = [found[1:] for found in found_prices if found[0] < floor]
            out.update(key for key in low if not _is_honest_spot(key, prices))
    for found_prices in per_type.values():
        if len(found_prices) >= _GROUP_MIN:
            ceiling = FACTOR * _median_low(found_prices)
            out.update(found[1:] for found in found_prices if found[0] > ceiling)
    return frozenset(out)


def _is_honest_spot(key: PriceKey, prices: PriceView) -> bool:
    """Whether a low price is spot within the discounts that the clouds give."""
    name, region, place = key
    places = prices[name, region]
    on_demand = places.get((ANY, CapacityType.ON_DEMAND))
    is_spot = place[1] is CapacityType.SPOT
    return is_spot and on_demand is not None and places[place].amount_usd >= on_demand.amount_usd * SPOT_FLOOR


def _median_low(found: list[_Found]) -> float:
    """The middle price, the lower of two."""
    return sorted([each[0] for each in found])[(len(found) - 1) // 2]
