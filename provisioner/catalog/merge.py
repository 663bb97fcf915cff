"""Merges what was fetched over the files of a catalog: whole tables in, whole tables out, nothing else touched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from provisioner.catalog.codes import AT_FLOOR, NO_SPARE
from provisioner.catalog.fetched import ATTACHED_GPU, DISKS, OFFERINGS, ON_DEMAND, QUOTAS, SPOT, RegionFacts, SourceRow
from provisioner.catalog.files import QUOTAS as QUOTAS_FILE
from provisioner.catalog.files import CatalogFiles
from provisioner.catalog.instance_prices import ANY
from provisioner.catalog.instances import read_instances
from provisioner.catalog.quarantine import (
    REASONS,
    ROUNDING_USD,
    UNKNOWN_TYPE,
    Judge,
    Quarantined,
    Verdict,
    judge_disk,
    number,
)
from provisioner.catalog.tables import csv_bytes
from provisioner.units import decimal_string

PRICES = "prices.csv"
ATTACHED = "prices_attached_gpu.csv"
STORED = "storage_capacity_prices.csv"
OFFERED = "offerings.csv"
SOURCES = "sources.csv"
_SPOT_FLOOR = Decimal("0.1")
"""AWS spot bottoms out at a tenth of on-demand; there it may rise fast."""
_QUOTA_COLUMNS = ("cloud", "region", "quota_code", "limit", "source", "as_of")

Row = dict[str, str]


class Merge:
    """Collects the regions of one cloud, then gives the new tables and what was kept out of them.

    ``as_of`` (an ISO date) is the day of the fetch and becomes the date of every fetched row, ``seen_at`` its time.
    """

    def __init__(self, files: CatalogFiles, cloud: str, sources: Sequence[SourceRow], as_of: str, seen_at: str) -> None:
        self._files = files
        self._cloud = cloud
        self._sources = sources
        self._as_of = as_of
        self._seen_at = seen_at
        self._instances = read_instances(files)
        self._judge = Judge(cloud, self._instances)
        self.quarantined: list[Quarantined] = []
        self.counts: dict[tuple[str, str], int] = {}
        """Rows taken by (region, kind)."""
        self.notes: list[str] = []
        """What was read and is not believed as a whole; for people."""

    def tables(self, regions: Sequence[RegionFacts]) -> dict[str, bytes]:
        """The bytes of every table that these regions change."""
        self._learn(regions)
        rows = {name: self._files.records(name) for name in (PRICES, ATTACHED, STORED, OFFERED, SOURCES, QUOTAS_FILE)}
        for facts in regions:
            rows[PRICES] = self._merge_prices(rows[PRICES], facts)
            if facts.gpu_prices is not None:
                rows[ATTACHED] = self._merge_attached(rows[ATTACHED], facts)
            if facts.disks is not None:
                rows[STORED] = self._merge_disks(rows[STORED], facts)
            if facts.offerings is not None:
                rows[OFFERED] = self._merge_offerings(rows[OFFERED], rows[PRICES], facts)
            if facts.quotas is not None:
                rows[QUOTAS_FILE] = self._merge_quotas(rows[QUOTAS_FILE], facts)
        rows[SOURCES] = self._merge_sources(rows[SOURCES])
        return {name: self._bytes(name, table) for name, table in rows.items() if table}

    def _learn(self, regions: Sequence[RegionFacts]) -> None:
        for row in self._files.records(PRICES):
            if row["cloud"] == self._cloud:
                model, amount = row["purchase_model"], row["price_usd_per_hour"]
                self._judge.learn(row["instance_type"], model, amount, fetched=False)
        for row in self._files.records(ATTACHED):
            if row["cloud"] == self._cloud:
                model, amount = row["purchase_model"], row["price_usd_per_gpu_hour"]
                self._judge.learn_attached(row["gpu_model"], model, amount, fetched=False)
        for facts in regions:
            for model, quotes in facts.prices.items():
                for quote in quotes:
                    self._judge.learn(quote.instance_type, model, quote.price_usd_per_hour, fetched=True)
            for gpu in facts.gpu_prices or ():
                self._judge.learn_attached(gpu.gpu_model, gpu.purchase_model, gpu.price_usd_per_gpu_hour, fetched=True)

    # Prices of machines

    def _merge_prices(self, rows: list[Row], facts: RegionFacts) -> list[Row]:
        """On-demand rows replaced one by one, those of other models as a whole: no spot quote means no spot market there.

        A price list that has lost every on-demand price at once is a broken answer: all prices of the region stay.
        """
        own = {_key(row): row for row in rows if self._is_here(row, facts.region)}
        listed = sum(row["purchase_model"] == ON_DEMAND for row in own.values())
        if listed and facts.prices.get(ON_DEMAND) == ():
            self.notes.append(
                f"{self._cloud} {facts.region} lists no on-demand price where it had {listed}: not believed, all its prices stay"
            )
            return rows
        for model in facts.prices:
            if model != ON_DEMAND:
                own = {key: row for key, row in own.items() if row["purchase_model"] != model}
        # On-demand comes first: spot is judged by today's on-demand price.
        for model in sorted(facts.prices, key=lambda one: one != ON_DEMAND):
            taken = 0
            for quote in facts.prices[model]:
                on_demand = _on_demand(own, self._cloud, quote.instance_type, facts.region)
                verdict = self._judge.judge(quote, model, on_demand)
                if verdict.amount is None:
                    words = (quote.zone, quote.instance_type, model, quote.price_usd_per_hour)
                    self._keep_out(
                        facts, words, replace(verdict, detail=verdict.detail or quote.notes), facts.sources[model]
                    )
                    continue
                taken += 1
                row = {
                    "cloud": self._cloud,
                    "instance_type": quote.instance_type,
                    "region": facts.region,
                    "zone": quote.zone,
                    "purchase_model": model,
                    "excludes": quote.excludes,
                    "price_usd_per_hour": decimal_string(verdict.amount),
                    **self._provenance(facts, model),
                    "suspect_reason": self._care(model, verdict.amount, on_demand),
                    "notes": quote.notes,
                }
                own[_key(row)] = row
            self.counts[facts.region, model] = taken
        return [*(row for row in rows if not self._is_here(row, facts.region)), *own.values()]

    def _care(self, model: str, amount: Decimal, on_demand: Decimal | None) -> str:
        """Codes of a spot price that call for care."""
        if model != SPOT or on_demand is None:
            return ""
        if abs(amount - on_demand) <= ROUNDING_USD:
            return NO_SPARE
        return AT_FLOOR if amount <= on_demand * _SPOT_FLOOR else ""

    def _is_here(self, row: Mapping[str, str], region: str) -> bool:
        return row["cloud"] == self._cloud and row["region"] == region

    def _provenance(self, facts: RegionFacts, kind: str) -> Row:
        return {
            "source": facts.sources[kind],
            "as_of": self._as_of,
            "as_of_precision": "day",
            "confidence": facts.confidence if kind not in (DISKS, OFFERINGS, QUOTAS) else "observed",
        }

    def _keep_out(self, facts: RegionFacts, words: tuple[str, str, str, str], verdict: Verdict, source: str) -> None:
        zone, name, model, price = words
        detail = verdict.detail or REASONS[verdict.reason]
        out = (self._cloud, facts.region, zone, name, model, price, verdict.reason, detail, source, self._seen_at)
        self.quarantined.append(Quarantined(*out))

    # Attached GPUs

    def _merge_attached(self, rows: list[Row], facts: RegionFacts) -> list[Row]:
        """Rows of the region by (GPU, model); where no listing was read, the zones that the catalog knows stay."""
        own = {(row["gpu_model"], row["purchase_model"]): row for row in rows if self._is_here(row, facts.region)}
        taken = 0
        for quote in sorted(facts.gpu_prices or (), key=lambda one: one.purchase_model != ON_DEMAND):
            before = own.get((quote.gpu_model, quote.purchase_model))
            zones = " ".join(quote.zones) if quote.zones is not None else (before or {}).get("zones", "")
            if not zones:
                continue
            listed = own.get((quote.gpu_model, ON_DEMAND))
            verdict = self._judge.judge_attached(
                quote.gpu_model,
                quote.purchase_model,
                quote.price_usd_per_gpu_hour,
                number(listed["price_usd_per_gpu_hour"]) if listed else None,
            )
            if verdict.amount is None:
                words = (ANY, f"{quote.gpu_model} (attached)", quote.purchase_model, quote.price_usd_per_gpu_hour)
                self._keep_out(facts, words, verdict, facts.sources[ATTACHED_GPU])
                continue
            taken += 1
            own[quote.gpu_model, quote.purchase_model] = {
                "cloud": self._cloud,
                "gpu_model": quote.gpu_model,
                "region": facts.region,
                "zones": zones,
                "purchase_model": quote.purchase_model,
                "price_usd_per_gpu_hour": decimal_string(verdict.amount),
                **self._provenance(facts, ATTACHED_GPU),
                "suspect_reason": "",
                "notes": "one attached GPU; add the host",
            }
        self.counts[facts.region, ATTACHED_GPU] = taken
        return [*(row for row in rows if not self._is_here(row, facts.region)), *own.values()]

    # Disks

    def _merge_disks(self, rows: list[Row], facts: RegionFacts) -> list[Row]:
        """Rows of the region one by one; a service that no row of the cloud knows is left out."""
        classes = {row["service"]: row["service_class"] for row in rows if row["cloud"] == self._cloud}
        kept, fresh = {self._storage_key(row): row for row in rows}, 0
        for quote in facts.disks or ():
            if quote.service not in classes:
                continue
            like = [row["price_usd_per_gib_month"] for row in rows if self._is_like(row, quote.service)]
            verdict = judge_disk(quote.price_usd_per_gib_month, like)
            if verdict.amount is None:
                words = (ANY, f"{quote.service} (GiB-month)", ON_DEMAND, quote.price_usd_per_gib_month)
                self._keep_out(facts, words, verdict, facts.sources[DISKS])
                continue
            fresh += 1
            row = {
                "cloud": self._cloud,
                "service": quote.service,
                "service_class": classes[quote.service],
                "region": facts.region,
                "tier_from_gib": "0",
                "tier_to_gib": "",
                "price_usd_per_gib_month": decimal_string(verdict.amount),
                "published_unit": "GB-month" if self._cloud == "aws" else "GiB-month",
                **self._provenance(facts, DISKS),
                "suspect_reason": "",
                "notes": "",
            }
            kept[self._storage_key(row)] = row
        self.counts[facts.region, DISKS] = fresh
        return list(kept.values())

    def _is_like(self, row: Mapping[str, str], service: str) -> bool:
        return (row["cloud"], row["service"]) == (self._cloud, service)

    @staticmethod
    def _storage_key(row: Mapping[str, str]) -> tuple[str, ...]:
        return (row["cloud"], row["service"], row["region"], row["tier_from_gib"])

    # Listings, quotas, sources

    def _merge_offerings(self, rows: list[Row], prices: Iterable[Row], facts: RegionFacts) -> list[Row]:
        """The region's listing as it is now; a type that has a price there and is not listed is marked as not offered.

        A listing that has lost all its types at once is no news but a broken answer: the one before stays.
        """
        listed = sorted({pair for pair in facts.offerings or () if (self._cloud, pair[1]) in self._instances})
        before = sum(self._is_here(row, facts.region) and row["offered"] == "yes" for row in rows)
        if before and not listed:
            self.notes.append(
                f"{self._cloud} {facts.region} lists none of the {before} types in zones that it had: not believed, they stay"
            )
            return rows
        priced = {row["instance_type"] for row in prices if self._is_here(row, facts.region)}
        unlisted = sorted(priced - {name for _, name in listed})
        self.counts[facts.region, OFFERINGS] = len(listed)
        kept = [row for row in rows if not self._is_here(row, facts.region)]
        for offered, pairs in (("yes", listed), ("no", [(ANY, name) for name in unlisted])):
            kept += [
                {
                    "cloud": self._cloud,
                    "region": facts.region,
                    "zone": zone,
                    "instance_type": name,
                    "offered": offered,
                    **self._provenance(facts, OFFERINGS),
                }
                for zone, name in pairs
            ]
        return kept

    def _merge_quotas(self, rows: list[Row], facts: RegionFacts) -> list[Row]:
        kept = [row for row in rows if not self._is_here(row, facts.region)]
        own = sorted(set(facts.quotas or ()))
        self.counts[facts.region, QUOTAS] = len(own)
        source = {"source": facts.sources[QUOTAS], "as_of": self._as_of}
        return [
            *kept,
            *(
                {"cloud": self._cloud, "region": facts.region, "quota_code": code, "limit": limit, **source}
                for code, limit in own
            ),
        ]

    def _merge_sources(self, rows: list[Row]) -> list[Row]:
        own = {source.source for source in self._sources}
        fresh = [
            {
                "source": one.source,
                "title": one.title,
                "location": one.location,
                "version": one.version,
                "licence": "not recorded",
                "as_of": self._as_of,
                "as_of_precision": "day",
            }
            for one in self._sources
        ]
        return sorted([*(row for row in rows if row["source"] not in own), *fresh], key=lambda row: row["source"])

    def _bytes(self, name: str, rows: Iterable[Row]) -> bytes:
        header = _QUOTA_COLUMNS if name == QUOTAS_FILE else self._files.header(name)
        return csv_bytes(header, ([row[column] for column in header] for row in rows))


def unknown_types(quarantined: Iterable[Quarantined]) -> list[str]:
    """Names of instance types that the catalog does not know, sorted."""
    return sorted({one.instance_type for one in quarantined if one.reason == UNKNOWN_TYPE})


def _key(row: Mapping[str, str]) -> tuple[str, ...]:
    return (row["cloud"], row["instance_type"], row["region"], row["zone"], row["purchase_model"])


def _on_demand(rows: Mapping[tuple[str, ...], Row], cloud: str, name: str, region: str) -> Decimal | None:
    row = rows.get((cloud, name, region, ANY, ON_DEMAND))
    return number(row["price_usd_per_hour"]) if row else None
