"""Reads AWS prices for ``prices refresh``: Price List, spot price history, type offerings by zone id, blocks, quotas, scores.

Rights: pricing:GetProducts and ec2:DescribeRegions, DescribeAvailabilityZones, DescribeInstanceTypeOfferings and
DescribeSpotPriceHistory are needed; without ec2:DescribeCapacityBlockOfferings, servicequotas:GetServiceQuota or
ec2:GetSpotPlacementScores these parts are left out.

Source: AWS Price List Query API and EC2 API references; the filters are those of aws/karpenter-provider-aws (pkg/providers/pricing).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from provisioner.catalog.fetched import (
    CAPACITY_BLOCK,
    COMMIT_1Y,
    COMMIT_3Y,
    DISKS,
    OFFERINGS,
    ON_DEMAND,
    QUOTAS,
    SPOT,
    DiskQuote,
    PriceQuote,
    RegionFacts,
    Score,
    Scores,
    SourceRow,
)
from provisioner.catalog.instances import InstanceType
from provisioner.catalog.patience import Patience
from provisioner.catalog.snapshot import Catalog
from provisioner.clouds.aws.blocks import DAY_HOURS, block_types, read_offerings
from provisioner.clouds.aws.errors import code_of
from provisioner.clouds.aws.places import Places
from provisioner.clouds.aws.price_list import read_disk, read_entry
from provisioner.clouds.aws.session import AwsApi
from provisioner.clouds.aws.settings import AwsSettings
from provisioner.errors import Ambiguous, CloudError, CredentialsError, GpuprovError, NotFound

PRICE_LIST = SourceRow(
    "aws_price_list", "AWS Price List, GetProducts of AmazonEC2", "pricing API of the user's account", "2017-10-15"
)
SPOT_HISTORY = SourceRow(
    "aws_spot_history", "EC2 DescribeSpotPriceHistory", "EC2 API of the user's account", "2016-11-15"
)
TYPE_OFFERINGS = SourceRow(
    "aws_type_offerings", "EC2 DescribeInstanceTypeOfferings by zone id", "EC2 API of the user's account", "2016-11-15"
)
BLOCK_OFFERINGS = SourceRow(
    "aws_block_offerings", "EC2 DescribeCapacityBlockOfferings", "EC2 API of the user's account", "2016-11-15"
)
SERVICE_QUOTAS = SourceRow(
    "aws_service_quotas", "Service Quotas GetServiceQuota", "Service Quotas API of the user's account", "2019-06-24"
)

PRICING_REGION = "us-east-1"
"""One of the three regions with an endpoint of the Price List API; each knows the prices of all regions."""
_ON_DEMAND_FILTERS = {
    "operatingSystem": "Linux",
    "preInstalledSw": "NA",
    "capacitystatus": "Used",
    "marketoption": "OnDemand",
}
"""Without ``marketoption`` capacity-block rows come as on-demand prices of 0."""
_PASSES = (
    {"tenancy": "Shared", "productFamily": "Compute Instance"},
    {"tenancy": "Dedicated", "productFamily": "Compute Instance (bare metal)"},
)
"""Bare-metal types are listed with dedicated tenancy only."""
_DISK_FILTERS = (
    {"productFamily": "Storage", "volumeApiName": "gp3"},
    {"productFamily": "Storage Snapshot"},
)
_PRODUCTS_A_PAGE = 100
_TYPES_A_FILTER = 200
"""Most values of one EC2 filter."""
_LINUX = ("Linux/UNIX", "Linux/UNIX (Amazon VPC)")
_REGION_ZONE = re.compile(r"[a-z]+\d+-az\d+")
"""Ids of a region's own zones. Local and wavelength zones (usw2-lax1-az1) have prices of their own and need opting in."""
_SCORED_TYPES = 10
"""New configurations that an account may ask scores for in 24 hours are few (MaxConfigLimitExceeded); the same ones may be
asked again, so the same types are asked each time."""
_SCORED_REGIONS = 10
_LIMITED = "MaxConfigLimitExceeded"


@dataclass(slots=True)
class AwsPrices:
    """A ``PriceFetcher`` of one AWS account. Safe to share between threads."""

    catalog: Catalog
    api: AwsApi = field(default_factory=lambda: AwsApi(AwsSettings()))
    patience: Patience = field(default_factory=Patience)
    cloud: str = "aws"
    sources: Sequence[SourceRow] = (PRICE_LIST, SPOT_HISTORY, TYPE_OFFERINGS, BLOCK_OFFERINGS, SERVICE_QUOTAS)
    _places: Places = field(init=False)

    def __post_init__(self) -> None:
        self._places = Places(self.api)

    def regions(self) -> tuple[str, ...]:
        """Regions that are enabled for the account, sorted.

        Raises:
            CredentialsError: no valid credentials, or no right to list regions.
            CloudError: AWS did not answer.
        """
        return self.patience.call(self._places.regions)

    def fetch(self, region: str) -> RegionFacts:
        """On-demand, reserved and spot prices, capacity blocks, offerings and quotas of one region.

        Raises:
            GpuprovError: any page of the prices or offerings could not be read.
        """
        # The long list comes last: a region that is denied to the account says so with the first, short one.
        offerings = tuple(sorted(self._offerings(region)))
        spot = tuple(self._spot(region))
        listed = self._listed(region)
        disks, disks_left_out = self._disks(region)
        blocks, blocks_left_out = self._blocks(region, offerings)
        quotas, quotas_left_out = self._quotas(region)
        return RegionFacts(
            region=region,
            prices={**listed, SPOT: spot, **blocks},
            sources={
                **dict.fromkeys((ON_DEMAND, COMMIT_1Y, COMMIT_3Y, DISKS), PRICE_LIST.source),
                SPOT: SPOT_HISTORY.source,
                CAPACITY_BLOCK: BLOCK_OFFERINGS.source,
                OFFERINGS: TYPE_OFFERINGS.source,
                QUOTAS: SERVICE_QUOTAS.source,
            },
            offerings=offerings,
            quotas=quotas,
            disks=disks,
            notes=(*disks_left_out, *blocks_left_out, *quotas_left_out),
        )

    def placement_scores(self, regions: Sequence[str]) -> Scores:
        """Scores of one machine of the smallest type of the newest GPUs, in at most ten regions."""
        found: list[Score] = []
        asked = list(regions)[:_SCORED_REGIONS]
        for name in scored_types(self._types()):
            try:
                found += self._scores(name, asked)
            except CredentialsError as error:
                return Scores(tuple(found), (f"spot placement scores left out: {error.message}",))
            except GpuprovError as error:
                if code_of(error) != _LIMITED:
                    raise
                return Scores(
                    tuple(found), ("spot placement scores from here on left out: AWS allows few new questions a day",)
                )
        return Scores(tuple(found))

    # Prices

    def _listed(self, region: str) -> dict[str, tuple[PriceQuote, ...]]:
        """On-demand prices and reserved terms of the Price List."""
        known = self._types()
        found: dict[str, list[PriceQuote]] = {ON_DEMAND: [], COMMIT_1Y: [], COMMIT_3Y: []}
        for one_pass in _PASSES:
            for entry in self._products({"regionCode": region, **_ON_DEMAND_FILTERS, **one_pass}):
                listed = read_entry(entry, region)
                if listed.instance_type in known:
                    for model, quote in listed.committed.items():
                        found[model].append(quote)
                elif not listed.has_gpus:
                    continue
                if listed.on_demand is not None:
                    found[ON_DEMAND].append(listed.on_demand)
        return {model: tuple(quotes) for model, quotes in found.items()}

    def _disks(self, region: str) -> tuple[tuple[DiskQuote, ...] | None, tuple[str, ...]]:
        """Prices of the disks that plans use; a help, like blocks."""
        found: dict[str, DiskQuote] = {}
        try:
            for wanted in _DISK_FILTERS:
                for entry in self._products({"regionCode": region, **wanted}):
                    quote = read_disk(entry, region)
                    if quote is not None:
                        found[quote.service] = quote
        except GpuprovError as error:
            return None, (f"disk prices left out: {error.message}",)
        return tuple(found.values()), ()

    def _blocks(
        self, region: str, offered: Sequence[tuple[str, str]]
    ) -> tuple[dict[str, tuple[PriceQuote, ...]], tuple[str, ...]]:
        """Offers of capacity blocks; without the right to read them, nothing and a note. They are a help, not a part of the whole."""
        names = block_types(self._types(), (name for _, name in offered))
        found: dict[tuple[str, str], PriceQuote] = {}
        try:
            for name in names:
                entries = self._pages(
                    "ec2",
                    "DescribeCapacityBlockOfferings",
                    region,
                    "CapacityBlockOfferings",
                    InstanceType=name,
                    InstanceCount=1,
                    CapacityDurationHours=DAY_HOURS,
                )
                found |= read_offerings(entries, lambda zone: self._places.zone_id(region, zone))
        except GpuprovError as error:
            return {}, (f"capacity blocks left out: {error.message}",)
        return ({CAPACITY_BLOCK: tuple(found.values())} if names else {}), ()

    def _spot(self, region: str) -> Iterator[PriceQuote]:
        """The newest price of each type and zone."""
        newest: dict[tuple[str, str], tuple[datetime, str]] = {}
        for entry in self._of_types(
            region,
            "DescribeSpotPriceHistory",
            "SpotPriceHistory",
            StartTime=datetime.now(UTC),
            ProductDescriptions=["Linux/UNIX"],
        ):
            zone = entry.get("AvailabilityZoneId") or self._places.zone_id(region, entry.get("AvailabilityZone"))
            if zone is None or not _REGION_ZONE.fullmatch(zone) or entry.get("ProductDescription") not in _LINUX:
                continue
            key, seen = (str(entry["InstanceType"]), str(zone)), (entry["Timestamp"], str(entry["SpotPrice"]))
            newest[key] = max(newest.get(key, seen), seen)
        for (name, zone), (_, price) in sorted(newest.items()):
            yield PriceQuote(name, zone, price)

    def _offerings(self, region: str) -> Iterator[tuple[str, str]]:
        for entry in self._of_types(
            region, "DescribeInstanceTypeOfferings", "InstanceTypeOfferings", LocationType="availability-zone-id"
        ):
            if _REGION_ZONE.fullmatch(str(entry["Location"])):
                yield str(entry["Location"]), str(entry["InstanceType"])

    def _scores(self, instance_type: str, regions: Sequence[str]) -> list[Score]:
        entries = self._pages(
            "ec2",
            "GetSpotPlacementScores",
            self.api.home_region,
            "SpotPlacementScores",
            InstanceTypes=[instance_type],
            TargetCapacity=1,
            SingleAvailabilityZone=True,
            RegionNames=list(regions),
        )
        return [
            Score(str(one["Region"]), str(one["AvailabilityZoneId"]), instance_type, int(one["Score"]))
            for one in entries
            if one.get("AvailabilityZoneId")
        ]

    # Quotas

    def _quotas(self, region: str) -> tuple[tuple[tuple[str, str], ...] | None, tuple[str, ...]]:
        """Limits of the GPU families in vCPU; without the right to read them, nothing and a note."""
        found = []
        for code in quota_codes(self._types()):
            try:
                answer = self._call(
                    "service-quotas", "GetServiceQuota", region, "Quota", ServiceCode="ec2", QuotaCode=code
                )
            except NotFound:
                continue  # Not every region has every family.
            except GpuprovError as error:
                return None, (f"quotas left out: {error.message}",)
            found.append((code, str(answer["Quota"]["Value"])))
        return tuple(found), ()

    # Calls

    def _products(self, wanted: Mapping[str, str]) -> Iterator[Any]:
        """Entries of the Price List of EC2 with these attributes."""
        return self._pages(
            "pricing",
            "GetProducts",
            PRICING_REGION,
            "PriceList",
            ServiceCode="AmazonEC2",
            Filters=[{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in wanted.items()],
            MaxResults=_PRODUCTS_A_PAGE,
        )

    def _types(self) -> Mapping[str, InstanceType]:
        return {name: instance for (cloud, name), instance in self.catalog.instances.items() if cloud == self.cloud}

    def _of_types(self, region: str, operation: str, key: str, **parameters: Any) -> Iterator[dict[str, Any]]:
        """Items of an EC2 list about the types that the catalog knows."""
        names = sorted(self._types())
        for start in range(0, len(names), _TYPES_A_FILTER):
            some = [{"Name": "instance-type", "Values": names[start : start + _TYPES_A_FILTER]}]
            yield from self._pages("ec2", operation, region, key, Filters=some, **parameters)

    def _pages(self, service: str, operation: str, region: str, key: str, **parameters: Any) -> Iterator[Any]:
        """Items of all pages, each page with patience of its own."""
        token: str | None = None
        while True:
            more = {"NextToken": token} if token else {}
            answer = self._call(service, operation, region, key, **parameters, **more)
            yield from answer[key]
            token, before = answer.get("NextToken"), token
            if not token:
                return
            if token == before:
                raise CloudError(
                    f"{operation} in {region} gives the same page again and again", remedy="try again later"
                )

    def _call(self, service: str, operation: str, region: str, expected: str, **parameters: Any) -> dict[str, Any]:
        """An answer that has the part that is asked for.

        The SDK reads a page of a proxy as an answer without any part; without this check it would pass for an empty list.
        """

        def once() -> dict[str, Any]:
            answer = self.api.call(service, operation, region, once=True, **parameters)
            if expected not in answer:
                raise Ambiguous(
                    f"{operation} in {region} was answered without {expected}: by a proxy, it seems",
                    remedy="try again later, or look at HTTPS_PROXY",
                )
            return answer

        return self.patience.call(once)


def quota_codes(types: Mapping[str, InstanceType]) -> tuple[str, ...]:
    """Codes of the quotas that these types take from, sorted."""
    codes = {code for one in types.values() if one.kind == "gpu" for code in (one.quota_on_demand, one.quota_spot)}
    return tuple(sorted(code for code in codes if code))


def scored_types(types: Mapping[str, InstanceType]) -> tuple[str, ...]:
    """The smallest spot type of each GPU, those with the most memory first: there supply is shortest."""
    smallest: dict[str, InstanceType] = {}
    for one in types.values():
        if one.kind != "gpu" or one.spot_available != "yes" or one.status != "current" or one.gpu_model is None:
            continue
        best = smallest.get(one.gpu_model)
        if one.gpu_fraction == 1 and (best is None or (one.gpu_count, one.vcpu) < (best.gpu_count, best.vcpu)):
            smallest[one.gpu_model] = one
    ranked = sorted(smallest.values(), key=lambda one: (-(one.gpu_memory_nominal_bytes or 0), one.name))
    return tuple(one.name for one in ranked[:_SCORED_TYPES])
