"""The arithmetic of bills against worked examples of the vendors' own pricing pages, to their last digit.

Each example goes through the functions that plans are priced with. Where an example states other prices than the catalog has
(another region, another year), its own are fed in.
"""

from __future__ import annotations

from decimal import Decimal

import pytest

from provisioner.catalog.billing import BillingRule
from provisioner.catalog.prices import Price, PriceTier, Tiers
from provisioner.catalog.snapshot import Catalog
from provisioner.planner.bill_lines import Item, billed_hours, block_days, line_of, prorated, tier_lines
from provisioner.vocabulary import CapacityType

DAYS_30 = 30 * 24
ITEM = Item("example", "month", "unit")
EBS = "Amazon EBS pricing, examples 1 to 10 (aws.amazon.com/ebs/pricing)"
PD = "Compute Engine disk pricing, prorating example (cloud.google.com/compute/disks-image-pricing)"
NAT = "Cloud NAT pricing, example of 720 hours (cloud.google.com/nat/pricing)"
GCS = "Cloud Storage pricing examples, simple example (cloud.google.com/storage/pricing-examples)"
CALCULATOR = "Google Cloud pricing calculator, estimate of 2023-05-18 for Iowa"


def price(usd: str) -> Price:
    return Price(Decimal(usd), "unit", "example", "vendor", "2026-11-30", "observed")


def usd(quantity: Decimal | str, unit_price: str | Price) -> Decimal:
    """The amount of a bill line."""
    at = unit_price if isinstance(unit_price, Price) else price(unit_price)
    amount = line_of(ITEM, Decimal(quantity), at).amount_usd
    assert amount is not None
    return amount


def tiers(*steps: tuple[str, str | None, str]) -> Tiers:
    return tuple(PriceTier(Decimal(start), Decimal(end) if end else None, price(each)) for start, end, each in steps)


def summed(quantity: str | Decimal, of: Tiers) -> Decimal:
    amounts = [line.amount_usd for line in tier_lines(ITEM, Decimal(quantity), of)]
    assert None not in amounts
    return sum((each for each in amounts if each is not None), Decimal(0))


@pytest.mark.parametrize(
    ("gib", "rate", "hours", "printed", "source"),
    [
        ("2000", "0.08", 12, "2.667", EBS),  # gp3
        ("2000", "0.10", 12, "3.33", EBS),  # gp2
        ("2000", "0.125", 12, "4.167", EBS),  # io1 and io2
        ("2000", "0.045", 12, "1.50", EBS),  # st1
        ("2000", "0.015", 12, "0.50", EBS),  # sc1
        ("200", "0.05", 15 * 24, "5", EBS),  # a restored snapshot for 15 days
        ("200", "0.0125", DAYS_30, "2.50", EBS),  # an archived snapshot
        ("200", "0.0125", 19 * 24 + 12, "1.625", EBS),  # the rest of its 90 days
        ("2000", "0.09394", 12, "3.1313", "Amazon EBS pricing of the EU sovereign cloud, in EUR (aws.eu/ebs/pricing)"),
        ("200", "0.04", DAYS_30, "8.00", PD),
        ("200", "0.04", DAYS_30 // 2, "4.00", PD),
        ("200", "0.17", DAYS_30, "34.00", PD),
        ("200", "0.17", DAYS_30 // 2, "17.00", PD),
    ],
)
def test_disks_by_the_hour(gib: str, rate: str, hours: int, printed: str, source: str) -> None:
    assert source
    digits = len(printed.partition(".")[2])
    assert round(usd(prorated(Decimal(gib), hours, DAYS_30), rate), digits) == Decimal(printed)


@pytest.mark.parametrize(
    ("metric", "asked", "rate", "printed"),
    [("iops", "10000", "0.005", "0.583"), ("mib_per_s", "500", "0.06", "0.375")],
)
def test_gp3_beyond_what_is_included(metric: str, asked: str, rate: str, printed: str) -> None:
    """EBS example 1: 3,000 IOPS and 125 MB/s come with a volume; 12 of 720 hours of the rest are billed."""
    included = {"iops": "3000", "mib_per_s": "125"}[metric]
    beyond = tier_lines(ITEM, Decimal(asked), tiers(("0", included, "0"), (included, None, rate)))
    share = prorated(Decimal(1), 12, DAYS_30)
    total = sum((line.amount_usd * share for line in beyond if line.amount_usd is not None), Decimal(0))
    assert round(total, 3) == Decimal(printed)


def test_the_whole_gp3_example() -> None:
    """EBS example 1: 2.667 + 0.583 + 0.375 = 3.625 USD."""
    volume = usd(prorated(Decimal(2000), 12, DAYS_30), "0.08")
    iops = usd(prorated(Decimal(7000), 12, DAYS_30), "0.005")
    throughput = usd(prorated(Decimal(375), 12, DAYS_30), "0.06")
    assert round(volume + iops + throughput, 3) == Decimal("3.625")


def test_io2_iops_by_tier() -> None:
    """EBS example 3: 60,000 IOPS for 12 hours; the printed 56.133 counts 32,000 at 0.065 and 28,000 at 0.046."""
    by_tier = tiers(("0", "32000", "0.065"), ("32000", "64000", "0.046"), ("64000", None, "0.032"))
    month = summed("60000", by_tier)
    assert round(month * 12 / DAYS_30, 3) == Decimal("56.133")
    assert round(summed("1000", by_tier) * 12 / DAYS_30, 3) == Decimal("1.083")


def test_io1_volume_and_iops() -> None:
    """EBS example 4: 5.25 USD."""
    volume = usd(prorated(Decimal(2000), 12, DAYS_30), "0.125")
    iops = usd(prorated(Decimal(1000), 12, DAYS_30), "0.065")
    assert round(volume + iops, 2) == Decimal("5.25")


@pytest.mark.parametrize(
    ("machines", "gib", "printed"), [(14, "100", "18.61"), (36, "200", "40.68")], ids=["14 VMs", "36 VMs"]
)
def test_cloud_nat(catalog: Catalog, machines: int, gib: str, printed: str) -> None:
    """Cloud NAT's own table, with the catalog's prices: 720 hours, by the VM up to 32."""
    assert NAT
    item = "nat_gateway_per_vm" if machines < 32 else "nat_gateway_32_vms_or_more"
    hour = catalog.services.misc_price("gcp", item, "us-central1")
    passing = catalog.services.traffic_tiers("gcp", "nat_processing", "any", "us-central1")
    assert hour is not None
    units = machines if machines < 32 else 1
    assert round(usd(Decimal(720 * units), hour) + summed(gib, passing), 2) == Decimal(printed)


def test_cloud_storage_and_its_network(catalog: Catalog) -> None:
    """Cloud Storage's simple example: 50 GB at 0.020, 10 and 50 thousand operations, 1 GB out: 1.19 USD."""
    assert GCS
    stored = catalog.storage_price("gcp", "gcs_standard", "us-central1")
    assert stored is not None
    sent = summed("1", catalog.egress_price_tiers("gcp", "us-central1"))
    assert (usd("50", stored), usd("10", "0.005"), usd("50", "0.0004"), sent) == (
        1,
        Decimal("0.05"),
        Decimal("0.02"),
        Decimal("0.12"),
    )
    assert usd("50", stored) + usd("10", "0.005") + usd("50", "0.0004") + sent == Decimal("1.19")


def test_efs_average_storage() -> None:
    """Amazon EFS pricing (aws.amazon.com/efs/pricing): 132,000 GB-hours of March are 177 GB-months, 53.10 USD."""
    hours = 100 * 15 * 24 + 250 * 16 * 24
    assert hours == 132_000
    months = prorated(Decimal(1), hours, 744)
    assert int(months) == 177
    assert usd(Decimal(int(months)), "0.30") == Decimal("53.10")


def test_s3_tiers(catalog: Catalog) -> None:
    """S3 FAQ: 100 GB for 15 days and 100 TB for 16 of March are 52,900 GB-months: 51,200 at the first tier, 1,700 at the next."""
    byte_hours = 107_374_182_400 * 15 * 24 + 109_951_162_777_600 * 16 * 24
    assert byte_hours == 42_259_901_212_262_400
    months = prorated(Decimal(byte_hours) / 2**30, 1, 744)
    assert round(months) == 52_900
    assert summed("52900", catalog.services.storage_tiers("aws", "s3_standard", "us-east-1")) == Decimal("1215.00")


def test_filestore_by_the_hour() -> None:
    """Filestore pricing example: 1 TiB of Basic HDD in us-west1 at 0.000274 USD per GiB-hour."""
    assert usd(Decimal(1024), "0.000274") == Decimal("0.2806")


def test_fsx_for_lustre(catalog: Catalog) -> None:
    """1.2 TB of persistent SSD storage at 125 MB/s per TiB: about 174 USD a month (c3x estimate of aws_fsx_lustre_file_system)."""
    found = catalog.storage_price("aws", "fsx_for_lustre_persistent_2_ssd_125_mb_s_per_tib", "us-east-1")
    assert found is not None
    assert usd("1200", found) == Decimal(174)


def test_an_estimate_of_googles_calculator(catalog: Catalog) -> None:
    """Six n1-standard-8 and two n1-standard-1 nodes, their boot disks, an SSD disk and an address: 1,808.26 USD."""
    assert CALCULATOR
    nodes = usd(Decimal(6 * 730), "0.379998") + usd(Decimal(2 * 730), "0.0474999")
    boot = usd(Decimal(8 * 30), catalog.storage_price("gcp", "pd_balanced", "us-central1") or "")
    ssd = usd("280", catalog.storage_price("gcp", "pd_ssd", "us-central1") or "")
    address = usd(Decimal(730), "0.004")  # of 2023
    assert (round(boot, 2), round(ssd, 2), round(address, 2)) == (Decimal("24.00"), Decimal("47.60"), Decimal("2.92"))
    assert round(nodes + boot + ssd + address, 2) == Decimal("1808.26")
    host = catalog.instance_prices("gcp")["n1-standard-8", "us-central1"]["*", CapacityType.ON_DEMAND]
    assert abs(host.amount_usd - Decimal("0.379998")) < Decimal("0.0001")


def test_nat_gateway_of_a_month(catalog: Catalog) -> None:
    """A NAT gateway in US East for 720 hours, 100 GB through it: 32.40 + 4.50 USD (cloudburn.io, after the VPC pricing page)."""
    hour = catalog.services.misc_price("aws", "nat_gateway", "us-east-1")
    assert hour is not None
    passing = catalog.services.traffic_tiers("aws", "nat_processing", "any", "us-east-1")
    assert (usd(Decimal(720), hour), summed("100", passing)) == (Decimal("32.40"), Decimal("4.50"))


def test_public_ipv4_of_a_year_and_a_month(catalog: Catalog) -> None:
    """AWS announcement of public IPv4 charges: 0.005 USD an hour, 3.60 in a month of 720 hours, 43.80 a year."""
    hour = catalog.public_ip_price("aws")
    assert hour is not None
    assert (usd(Decimal(720), hour), usd(Decimal(8760), hour)) == (Decimal("3.60"), Decimal("43.80"))


def test_egress_of_ten_tebibytes(catalog: Catalog) -> None:
    """EC2 pricing, data transfer out: 100 GB free, then 0.09 up to 10 TB, 0.085 for the next 40."""
    of = catalog.egress_price_tiers("aws", "us-east-1")
    assert summed("10240", of) == (10240 - 100) * Decimal("0.09")
    assert summed("20480", of) == (10240 - 100) * Decimal("0.09") + 10240 * Decimal("0.085")


@pytest.mark.parametrize(
    ("cloud", "capacity", "seconds", "billed_s"),
    [
        ("gcp", CapacityType.ON_DEMAND, 30, 60),  # VM instance pricing: 30 seconds are billed as one minute
        ("gcp", CapacityType.ON_DEMAND, 90, 90),  # and by the second after it
        ("aws", CapacityType.ON_DEMAND, 1, 60),  # EC2 user guide: each start has a minimum of one minute
        ("aws", CapacityType.ON_DEMAND, 3600.2, 3601),
        ("aws", CapacityType.SPOT, 59.5, 60),
        ("aws", CapacityType.CAPACITY_BLOCK, 3600, 86400),
        ("aws", CapacityType.CAPACITY_BLOCK, 86400 * 2 + 1, 86400 * 3),
        ("aws", CapacityType.CAPACITY_BLOCK, 86400 * 15, 86400 * 21),
        ("gcp", CapacityType.RESERVED, 3600, 86400),
    ],
)
def test_granularity_and_minimum_charge(
    catalog: Catalog, cloud: str, capacity: CapacityType, seconds: float, billed_s: int
) -> None:
    rule: BillingRule | None = catalog.billing_rule(cloud, capacity)
    assert rule is not None
    assert billed_hours(seconds / 3600, rule) * 3600 == pytest.approx(billed_s)


def test_blocks_are_sold_by_the_day_then_by_the_week() -> None:
    """EC2 guide, Capacity Blocks: 1-day steps up to 14 days, 7-day steps up to 182."""
    assert [block_days(days * 24) for days in (0.1, 1, 13.5, 14, 14.5, 22, 182)] == [1, 1, 14, 14, 21, 28, 182]
    assert block_days(183 * 24) is None
