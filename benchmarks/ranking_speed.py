"""``python -m benchmarks.ranking_speed``: filters, bills and order of many offers, with sizing done before.

The bundled catalog is repeated over synthetic regions with prices that differ a little, so that no two lots fall together. What
is timed is one search with the footprints known: the ranking itself. Reported are milliseconds, and how time grows with the
number of offers (1.0 is linear).
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from provisioner.catalog.offers import Lot, TypeMarket
from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.planner.candidates import Sizer
from provisioner.planner.request import Request, request_for
from provisioner.planner.search import Market, Outcome, search
from provisioner.workload.load import load

OFFERS = 20_000
LIMIT_MS = 250.0
GROWTH_MAX = 1.35
"""Time per offer at twice the offers, against that at once: above, the ranking is not linear."""
EXAMPLES = Path(__file__).parent.parent / "examples"
SPECS = ("llama-3.1-8b-chat", "batch-summaries", "qlora-8b-finetune", "latency-endpoint")


class Replicated(Catalog):
    """The bundled facts with each lot sold in ``copies`` regions, every zone at a price of its own."""

    def __init__(self, base: Catalog, copies: int) -> None:
        super().__init__(base._files)  # noqa: SLF001 - a catalog of the same files
        self._base = base
        self._copies = copies
        self._made: dict[tuple[str, str], TypeMarket] = {}

    def type_market(self, cloud: str, instance_type: str) -> TypeMarket:
        """All copies of a type's lots."""
        key = (cloud, instance_type)
        if key not in self._made:
            own = self._base.type_market(cloud, instance_type)
            lots = (lot for number in range(self._copies) for lot in own.lots)
            self._made[key] = TypeMarket(tuple(_moved(lot, index) for index, lot in enumerate(lots)), own.excluded)
        return self._made[key]

    def offers_seen(self) -> int:
        """Zones that all lots of all types sell in."""
        markets = (self.type_market(cloud, name) for cloud, name in self.instances)
        return sum(len(lot.zones) for market in markets for lot in market.lots)


def _moved(lot: Lot, index: int) -> Lot:
    """The lot at a price of its own: a thousandth of a cent more for each before it."""
    price = lot.price_usd_per_hour
    return lot if price is None else lot._replace(price_usd_per_hour=price + Decimal(index) / 100_000)


class Timing(NamedTuple):
    """Milliseconds of one ranking of so many offers."""

    offers: int
    ms: float


def time_ranking(request: Request, catalog: Replicated, offers: int, repeats: int) -> Timing:
    """The best of several rankings, so that the rest of the machine counts little."""
    market, sizer = Market(catalog), Sizer(request)
    search(request, market, sizer)  # joins the market and sizes the layouts
    times = [_seconds(lambda: search(request, market, sizer)) for _ in range(repeats)]
    return Timing(offers, min(times) * 1000)


def _seconds(work: Callable[[], Outcome]) -> float:
    """CPU seconds of one ranking, without a search for reference cycles in the middle: the command puts those off too."""
    gc.collect()
    gc.disable()
    began = time.process_time()
    work()
    took = time.process_time() - began
    gc.enable()
    return took


def main() -> int:
    """0 where every ranking keeps its limit and grows in line with the offers, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--offers", type=int, default=OFFERS)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    base = load_catalog(Path("bundled"))
    single = Replicated(base, 1).offers_seen()
    copies = -(-arguments.offers // single)
    catalogs = [Replicated(base, copies * factor) for factor in (1, 2)]
    sizes = [catalog.offers_seen() for catalog in catalogs]
    growths, worst = [], 0.0
    for name in SPECS:
        request = request_for(load(EXAMPLES / name / "workload.yaml").workload, base)
        one, two = (
            time_ranking(request, catalog, size, arguments.repeats)
            for catalog, size in zip(catalogs, sizes, strict=True)
        )
        growth = (two.ms / two.offers) / (one.ms / one.offers)
        growths.append(growth)
        worst = max(worst, one.ms)
        print(
            f"{name}: {one.offers:,} offers {one.ms:.0f} ms, {two.offers:,} offers {two.ms:.0f} ms, growth {growth:.2f}"
        )
    growth = statistics.median(growths)
    print(f"worst {worst:.0f} ms (limit {LIMIT_MS:.0f}), median growth {growth:.2f} (limit {GROWTH_MAX})")
    return 0 if worst <= LIMIT_MS and growth <= GROWTH_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
