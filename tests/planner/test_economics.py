"""The whole bill against hand-made arithmetic, to the cent."""

from __future__ import annotations

import math
from dataclasses import replace
from decimal import Decimal

import pytest

from provisioner.planner.candidates import Sizer
from provisioner.planner.ranking import Candidate
from provisioner.planner.storage import checkpoint_disk_bytes, disk_service, root_bytes
from provisioner.planner.tariff import Tariff
from provisioner.sizing.throughput import Throughput
from provisioner.units import GIB
from provisioner.vocabulary import CapacityType, Fit


@pytest.fixture
def priced(request_of, catalog):
    """A workload as a candidate on an offer, speeds given; and its account."""

    def build(workload, offer, speed=None, on_demand=None):
        request = request_of(workload)
        instance = offer.instance
        arrangement = next(Sizer(request).arrangements(instance, catalog.gpus[instance.gpu_model], (Fit.FITS,)))
        if speed is not None:
            arrangement = replace(arrangement, throughput=speed)
        price = Decimal(on_demand) if on_demand else None
        account = Tariff(request, catalog, lambda *_: price).account(arrangement)
        return Candidate(arrangement, offer, account.terms(offer)), account

    return build


def test_p7_month_of_an_endpoint(priced, serve, offer):
    """Llama 8B on g6e.xlarge: 730 h x (1.861 + 0.005) + 70 GiB x 0.08 (root: 50 + 1.2 x 15 GiB, up to tens)."""
    found, _ = priced(serve(), offer("g6e.xlarge", "1.861"))
    cost = found.bill.cost
    assert cost.compute_usd_per_hour == Decimal("1.861")
    assert cost.storage_usd_per_month == Decimal("5.6")
    assert cost.public_ip_usd_per_month == Decimal("3.65")
    assert cost.egress_usd_per_month == 0
    assert cost.total_usd_per_month == Decimal("1367.78")
    assert cost.stopped_usd_per_month == Decimal("5.6")
    assert cost.run_usd is None
    assert cost.spot is None
    assert found.terms.is_complete
    assert found.arrangement.instances == 1


def test_one_tebibyte_of_data_is_in_the_bill(priced, serve, offer):
    """P7: 1024 GiB x 0.08 on EBS gp3, x 0.10 on balanced persistent disk."""
    on_aws = priced(serve(storage={"data": "1TiB"}), offer("g6e.xlarge"))[0].bill.cost
    on_gcp = priced(serve(storage={"data": "1TiB"}), offer("a2-highgpu-1g"))[0].bill.cost
    assert on_aws.storage_usd_per_month == Decimal("5.6") + Decimal("81.92")
    assert on_gcp.storage_usd_per_month == Decimal("7.0") + Decimal("102.4")


def test_egress_by_tiers(priced, serve, offer):
    """200 GiB from us-east-1: 100 free, 100 x 0.09; from us-central1: 200 x 0.12."""
    spec = serve(storage={"egress": "200GiB/month"})
    assert priced(spec, offer("g6e.xlarge"))[0].bill.cost.egress_usd_per_month == Decimal(9)
    assert priced(spec, offer("a2-highgpu-1g"))[0].bill.cost.egress_usd_per_month == Decimal(24)


def test_bursty_hours(priced, serve, offer):
    cost = priced(serve(lifecycle={"pattern": "bursty"}), offer("g6e.xlarge", "2.00"))[0].bill.cost
    assert cost.hours_per_month == 120
    assert cost.total_usd_per_month == Decimal("5.6") + 120 * Decimal("2.005")


def test_terminated_when_idle_keeps_data_disks_only(priced, serve, offer):
    spec = serve(storage={"data": "100GiB"}, lifecycle={"pattern": "bursty", "idle": {"then": "terminate"}})
    assert priced(spec, offer("g6e.xlarge"))[0].bill.cost.stopped_usd_per_month == Decimal(8)
    spot = offer("g6e.xlarge", capacity_type=CapacityType.SPOT)
    assert (
        priced(serve(storage={"data": "100GiB"}, placement={"capacity": "spot"}), spot)[
            0
        ].bill.cost.stopped_usd_per_month
        == 8
    )


def test_copies_on_several_instances(priced, serve, offer):
    found, account = priced(serve(inference={"replicas": 3}), offer("g6e.xlarge", "1.50"))
    assert found.arrangement.instances == 3
    assert found.bill.cost.compute_usd_per_hour == Decimal("4.50")
    assert found.bill.cost.storage_usd_per_month == Decimal("16.8")
    root = account.items("us-east-1")[0]
    assert (root.kind, root.size_bytes, root.count, root.usd_per_month) == ("root", 70 * GIB, 3, Decimal("16.8"))


def test_copies_packed_on_one_instance(priced, serve, offer):
    found, _ = priced(serve(inference={"replicas": 4}), offer("g6e.12xlarge", "10.00"))
    assert (found.arrangement.instances, found.arrangement.layout.replicas) == (1, 4)
    assert found.bill.cost.compute_usd_per_hour == Decimal(10)


def test_run_of_a_training(priced, finetune, offer):
    """36 M tokens at 1000/s = 10 h, and the start before it."""
    speed = Throughput(train_tokens_per_s=1000.0)
    found, _ = priced(finetune(training={"tokens": "36M"}), offer("g6e.xlarge", "2.00"), speed)
    hours = Decimal(str(found.bill.cost.run_hours))
    assert Decimal("10.03") < hours < Decimal("10.1")
    assert found.bill.cost.hours_per_month == found.bill.cost.run_hours
    expected = hours * Decimal("2.005") + Decimal("5.6") * hours / 730
    assert abs(found.bill.cost.run_usd - expected) < Decimal("0.01")
    assert found.bill.cost.usd_per_million_tokens == Decimal("0.5556")  # 2 USD / 3.6 M tokens


def test_stated_duration_is_the_bill(priced, finetune, offer):
    document = finetune().to_document()
    document["training"] = {**document["training"], "duration": "20h"}
    del document["training"]["tokens"]
    found, _ = priced(type(finetune()).from_document(document), offer("g6e.xlarge", "2.00"))
    assert found.bill.cost.run_hours == 20
    assert found.bill.cost.run_usd == Decimal("40.1") + (Decimal("5.6") * 20 / 730).quantize(Decimal("0.0001"))


def test_per_million_tokens_at_full_load(priced, serve, offer):
    speed = Throughput(decode_tokens_per_s_per_replica=500.0, time_to_first_token_s=0.1)
    found, _ = priced(serve(inference={"replicas": 2}), offer("g6e.xlarge", "1.80"), speed)
    assert found.bill.cost.usd_per_million_tokens == Decimal(1)  # 3.60 USD / (2 x 500 x 3600)
    assert priced(serve(), offer("g6e.xlarge"), Throughput())[0].bill.cost.usd_per_million_tokens is None


def test_spot_with_a_known_rate(priced, finetune, offer, catalog):
    spec = finetune(training={"tokens": "360M", "checkpoint": {"every": "1h", "resumable": True}})
    spot = offer("g6e.xlarge", "0.50", capacity_type=CapacityType.SPOT)
    assert catalog.interruption_band("aws", "g6e.xlarge", "us-east-1") is not None
    found, _ = priced(spec, spot, Throughput(train_tokens_per_s=1000.0), on_demand="2.00")
    economics = found.bill.cost.spot
    assert 0 < economics.interruption_rate < 1
    assert 0 < economics.expected_rework_usd < Decimal("2.00")
    assert found.terms.lost_hours > 0.5
    assert economics.breakeven == pytest.approx(Decimal(str(0.75 / found.terms.lost_hours)), abs=Decimal("0.01"))
    assert Decimal(140) < found.bill.saved_by_spot_usd < Decimal(152)  # 100 h x 1.50, less rework
    assert found.terms.expected_run_hours > found.bill.cost.run_hours


def test_spot_with_an_unknown_rate_says_unknown(priced, serve, offer):
    spot = offer("a2-highgpu-1g", "1.70", capacity_type=CapacityType.SPOT)
    found, _ = priced(serve(placement={"capacity": "spot"}), spot, on_demand="3.67")
    assert found.bill.cost.spot.interruption_rate is None
    assert found.bill.cost.spot.expected_rework_usd is None
    assert found.bill.cost.total_usd_per_month is not None
    assert found.terms.ranking_usd > found.bill.cost.total_usd_per_month  # ranked as if taken back once a day


def test_price_of_another_region_is_marked(priced, serve, offer):
    found, _ = priced(serve(), offer("g6e.xlarge", region="eu-central-1"))
    assert found.terms.stand_ins == ("storage",)
    assert not found.terms.is_complete


def test_unknown_price_is_unknown_everywhere(priced, serve, offer):
    found, _ = priced(serve(), offer("g6e.xlarge", None))
    assert found.terms.ranking_usd == math.inf
    assert found.terms.unknown == ("compute",)
    cost = found.bill.cost
    assert (cost.compute_usd_per_hour, cost.total_usd_per_month, cost.usd_per_million_tokens) == (None, None, None)
    assert cost.storage_usd_per_month == Decimal("5.6")


def test_unknown_disk_price_makes_the_total_unknown(priced, serve, offer):
    found, _ = priced(serve(storage={"shared": "1TiB"}), offer("a2-highgpu-1g", "3.67"))
    assert found.terms.unknown == ("storage",)
    assert found.bill.cost.storage_usd_per_month is None
    assert found.bill.cost.total_usd_per_month is None
    assert found.terms.ranking_usd < math.inf


@pytest.mark.parametrize(
    ("name", "service"),
    [
        ("g6.xlarge", "ebs_gp3"),
        ("g2-standard-4", "pd_balanced"),
        ("g4-standard-48", "hyperdisk_balanced"),
        ("a3-highgpu-8g", "pd_balanced"),
        ("a3-ultragpu-8g", "hyperdisk_balanced"),
    ],
)
def test_disk_service(catalog, name, service):
    cloud = "gcp" if ("gcp", name) in catalog.instances else "aws"
    assert disk_service(catalog.instances[cloud, name]) == service


@pytest.mark.parametrize(
    ("model", "gib"),
    [
        ({"weights": "bf16"}, 70),  # 50 + 1.2 x 15.0
        ({"weights": "int4-awq"}, 60),  # 50 + 1.2 x 5.4, as downloaded
        ({"weights": "fp8"}, 70),  # made while loading: the disk holds 16 bit
    ],
)
def test_root_disk_holds_what_is_downloaded(priced, serve, request_of, offer, model, gib):  # noqa: PLR0917 - fixtures and parameters
    spec = serve(model=model)
    arrangement = priced(spec, offer("g6e.xlarge"))[0].arrangement
    assert root_bytes(request_of(spec), arrangement) == gib * GIB


def test_checkpoint_disk(priced, finetune, request_of, offer):
    def disk(name="g6e.xlarge", **sections):
        spec = finetune(**sections)
        return checkpoint_disk_bytes(request_of(spec), priced(spec, offer(name))[0].arrangement)

    assert disk() is None
    assert disk(storage={"checkpoints": "100GiB"}) == 100 * GIB
    assert disk(training={"checkpoint": {"every": "1h"}}) == 10 * GIB
    full = disk("p5.48xlarge", training={"method": "full", "checkpoint": {"every": "1h"}})
    assert 2 * 8.03e9 * 12 < full < 2 * 8.03e9 * 12 + 20 * GIB  # two of 4 B weights and 8 B moments
    assert disk(storage={"checkpoints": "auto"}) == 10 * GIB


@pytest.mark.parametrize("then", [None, "stop", "terminate"])
@pytest.mark.parametrize("instance_type", ["g6e.xlarge", "a3-highgpu-1g"])
def test_spot_is_kept_stopped_only_where_spec_and_disks_allow(priced, finetune, offer, then, instance_type):
    spec = finetune(lifecycle={"idle": {"after": "30m", **({} if then is None else {"then": then})}})
    found, _ = priced(spec, offer(instance_type, "1.00", capacity_type=CapacityType.SPOT), on_demand="2.00")
    assert found.terms.can_stop == (instance_type == "g6e.xlarge" and then == "stop")
    lasting = found.terms.lasting
    stopped = found.bill.cost.stopped_usd_per_month
    assert stopped == (lasting + found.terms.root if found.terms.can_stop else lasting)
