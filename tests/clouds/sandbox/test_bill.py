"""The bill is exact: hand-made timelines, and a random walk against an independent ledger."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.clouds.cloud import InstanceState
from provisioner.clouds.sandbox import bill as books
from provisioner.clouds.sandbox.latencies import Latency
from provisioner.clouds.sandbox.prices import usd_text
from provisioner.errors import CloudError
from provisioner.units import GIB, DiskSpeed

G6_XLARGE = Decimal("0.8048")
"""USD an hour on demand in us-east-1, from the bundled prices.csv."""
GP3 = Decimal("0.08")
"""USD per GiB-month."""
IPV4 = Decimal("0.005")
HOUR_US = 3_600_000_000


def lines(box, **only):
    return {line.kind: line for line in box.controls.bill(**only).lines}


def instant(box) -> None:
    for name in ("boot", "stopping", "terminating", "visibility"):
        box.controls.set_latency(Latency(name, timedelta(0)))


def test_one_hour_of_a_machine(box):
    instant(box)
    box.cloud.create_instance(box.request())
    box.clock.pass_time(hours=1)
    found = lines(box)
    assert found["instance"].usd == Fraction(G6_XLARGE)
    assert found["ip"].usd == Fraction(IPV4)
    assert found["root-volume"].usd == Fraction(GP3) * 100 / 730
    assert box.controls.bill().running_usd_per_hour == Fraction(G6_XLARGE) + Fraction(IPV4) + Fraction(GP3) * 100 / 730


def test_a_microsecond_counts_and_no_time_costs_nothing(box):
    instant(box)
    box.cloud.create_instance(box.request())
    assert box.controls.bill().total_usd == 0
    box.clock.pass_time(microseconds=1)
    assert lines(box)["instance"].usd == Fraction(G6_XLARGE) / HOUR_US


def test_a_stopped_machine_bills_its_disks_only(box):
    instant(box)
    made = box.cloud.create_instance(box.request())
    box.clock.pass_time(hours=2)
    box.cloud.stop_instance(box.here, made.id)
    box.clock.pass_time(hours=10)
    assert [line.kind for line in box.controls.bill(running_only=True).lines] == ["root-volume"]
    assert lines(box)["instance"].ended_us is None
    box.cloud.start_instance(box.here, made.id)
    box.clock.pass_time(minutes=30)
    box.cloud.terminate_instance(box.here, made.id)
    box.clock.pass_time(days=40)
    found = lines(box)
    assert found["instance"].usd == Fraction(G6_XLARGE) * Fraction(5, 2)
    assert found["ip"].usd == Fraction(IPV4) * Fraction(5, 2)
    assert found["root-volume"].usd == Fraction(GP3) * 100 / 730 * Fraction(25, 2)
    assert {line.is_running for line in found.values()} == {False}
    assert found["instance"].ended_us == found["root-volume"].ended_us


def test_a_pending_machine_bills_and_a_stopping_one_does_not(box):
    instant(box)
    box.controls.set_latency(Latency("boot", timedelta(minutes=10)))
    box.controls.set_latency(Latency("stopping", timedelta(minutes=20)))
    made = box.cloud.create_instance(box.request())
    box.clock.pass_time(minutes=10)
    box.cloud.stop_instance(box.here, made.id)
    box.clock.pass_time(minutes=20)
    assert lines(box)["instance"].billed_us == 10 * 60 * 10**6


def test_a_volume_bills_from_creation_to_deletion_at_its_size_of_the_time(box):
    instant(box)
    volume = box.cloud.create_volume(box.volume(size_bytes=73 * GIB))
    box.clock.pass_time(hours=10)
    box.cloud.grow_volume(box.here, volume.id, 146 * GIB)
    box.clock.pass_time(hours=5)
    box.cloud.delete_volume(box.here, volume.id)
    box.clock.pass_time(hours=100)
    line = lines(box)["volume"]
    assert line.usd == Fraction(GP3) / 10 * 10 + Fraction(GP3) / 5 * 5
    assert line.billed_us == 15 * HOUR_US
    assert not line.is_running


def test_speeds_bill_from_the_moment_on_that_they_are_given(box):
    """Source of the prices: storage_performance_prices.csv, ebs_gp3 in us-east-1."""
    instant(box)
    plain, fast = Fraction(0), Fraction(1000, 1) * Fraction("0.005") + Fraction(875, 1) * Fraction("0.04")
    volume = box.cloud.create_volume(box.volume(size_bytes=73 * GIB))
    machine = box.cloud.create_instance(box.request(root_volume_bytes=73 * GIB, root_speed=DiskSpeed(4000, 1000)))
    box.clock.pass_time(hours=10)
    box.cloud.grow_volume(box.here, volume.id, 73 * GIB, DiskSpeed(4000, 1000))
    box.cloud.set_root_speed(box.here, machine.id, DiskSpeed(3000, 125))
    box.clock.pass_time(hours=20)
    size_usd = Fraction(GP3) / 10 * 30
    assert lines(box)["volume"].usd == size_usd + (plain * 10 + fast * 20) / 730
    assert lines(box)["root-volume"].usd == size_usd + (fast * 10 + plain * 20) / 730


def test_the_bill_ends_at_the_lifetime_not_when_somebody_looks(box):
    instant(box)
    expires_at = "2026-11-30T15:30:00Z"
    box.cloud.create_instance(box.request(tags={"gpuprov:stack-id": "s", "gpuprov:expires-at": expires_at}))
    box.clock.pass_time(days=100)
    assert lines(box)["instance"].usd == Fraction(G6_XLARGE) * Fraction(7, 2)
    assert lines(box)["root-volume"].billed_us == lines(box)["instance"].billed_us


def test_a_start_with_the_lifetime_over_bills_until_its_system_is_up(box):
    instant(box)
    box.controls.set_latency(Latency("boot", timedelta(minutes=6)))
    own = {"gpuprov:stack-id": "s", "gpuprov:expires-at": "2026-11-30T13:00:00Z"}
    made = box.cloud.create_instance(box.request(tags=own, stop_on_shutdown=True))
    box.clock.pass_time(hours=5)
    assert lines(box)["instance"].billed_us == HOUR_US
    box.cloud.start_instance(box.here, made.id)
    box.clock.pass_time(hours=5)
    assert lines(box)["instance"].billed_us == HOUR_US + HOUR_US // 10
    assert box.see(made).state is InstanceState.STOPPED


def test_the_spot_price_is_the_zone_s(box):
    instant(box)
    box.cloud.create_instance(box.request(placement=box.spot))
    rate = lines(box)["instance"].usd_per_hour
    assert 0 < rate < Fraction(G6_XLARGE)


def test_an_unknown_price_is_unknown_and_named(box):
    from dataclasses import replace

    instant(box)
    unpriced = replace(box.spot, instance_type="g7.2xlarge")
    made = box.cloud.create_instance(box.request(placement=unpriced))
    box.clock.pass_time(hours=1)
    bill = box.controls.bill()
    assert bill.unpriced == (made.id,)
    assert lines(box)["instance"].usd is None
    assert bill.total_usd == Fraction(IPV4) + Fraction(GP3) * 100 / 730
    assert {line.id for line in box.controls.bill(running_only=True).lines} >= {made.id}
    document = books.document(bill)
    assert document["unpriced"] == [made.id]
    assert [line["usd"] for line in document["lines"] if line["id"] == made.id] == [None]
    prices = {thing.id: thing.price_usd_per_hour for thing in box.cloud.list_objects()}
    assert prices[made.id] is None


def test_the_document(box):
    instant(box)
    made = box.cloud.create_instance(box.request())
    box.clock.pass_time(minutes=90)
    document = books.document(box.controls.bill(stack_id="stack-0001"))
    assert document["schema"] == "gpuprov.bill/1"
    assert document["as_of"] == "2026-11-30T13:30:00+00:00"
    line = next(line for line in document["lines"] if line["kind"] == "instance")
    assert line == {
        "id": made.id,
        "kind": "instance",
        "instance": None,
        "cloud": "aws",
        "region": "us-east-1",
        "zone": "use1-az2",
        "name": "machine-token-1",
        "stack": "chat",
        "stack_id": "stack-0001",
        "from": "2026-11-30T12:00:00+00:00",
        "to": None,
        "hours": "1.5",
        "usd": "1.2072",
        "usd_per_hour": "0.8048",
        "running": True,
    }
    assert {line["instance"] for line in document["lines"] if line["kind"] != "instance"} == {made.id}
    assert books.document(box.controls.bill(stack_id="another"))["lines"] == []


def test_inventory_and_bill_agree_on_what_bills_now(box):
    box.running("token-1")
    stopped = box.running("token-2")
    box.cloud.stop_instance(box.here, stopped.id)
    box.cloud.create_volume(box.volume())
    box.wait()
    bill = {line.id: usd_text(line.usd_per_hour) for line in box.controls.bill(running_only=True).lines}
    listed = {thing.id: thing.price_usd_per_hour for thing in box.cloud.list_objects()}
    assert {one: price for one, price in listed.items() if price != "0"} == bill
    assert listed[stopped.id] == "0"


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["wait", "create", "stop", "start", "terminate", "vanish", "volume", "grow", "delete"]),
        st.integers(0, 3),
        st.integers(0, 10**8),
    ),
    max_size=25,
)


@pytest.fixture(scope="module")
def homes(tmp_path_factory):
    return tmp_path_factory


@given(steps=STEPS)
@settings(max_examples=40)
def test_any_timeline_equals_an_independent_ledger(homes, make_box, steps):
    """Sum over all objects of price x time in a billing state, kept beside the sandbox by the test."""
    box = make_box(homes.mktemp("walk"))
    instant(box)
    ledger = _Ledger()
    machines, volumes = [], []
    for step, (action, which, elapsed_us) in enumerate(steps):
        _act(box, (action, which, f"token-{step}"), machines, volumes)
        ledger.pass_time(box, machines, volumes, elapsed_us)
    bill = box.controls.bill()
    box.cloud.close()
    assert bill.total_usd == ledger.usd


class _Ledger:
    def __init__(self) -> None:
        self.usd = Fraction(0)

    def pass_time(self, box, machines, volumes, elapsed_us: int) -> None:
        """Look at each object's state, then let time pass at the rates of these states."""
        rate = Fraction(0)
        for machine in machines:
            seen = box.see(machine)
            if seen is None or seen.state.is_gone:
                continue
            rate += Fraction(GP3) * 100 / 730
            if seen.state is InstanceState.RUNNING:
                rate += Fraction(G6_XLARGE) + Fraction(IPV4)
        sizes = {found.id: found.size_bytes for found in box.cloud.find_volumes({}, [box.here])}
        rate += sum((Fraction(GP3) * sizes.get(volume.id, 0) / GIB / 730 for volume in volumes), Fraction(0))
        self.usd += rate * elapsed_us / HOUR_US
        box.clock.pass_time(microseconds=elapsed_us)


def _act(box, step, machines, volumes) -> None:
    """One step; what the sandbox refuses changes nothing."""
    action, which, key = step
    try:
        if action == "create":
            machines.append(box.cloud.create_instance(box.request(key)))
        elif action == "volume":
            volumes.append(box.cloud.create_volume(box.volume(key)))
        elif action in {"grow", "delete"} and volumes:
            volume = volumes[which % len(volumes)]
            if action == "grow":
                box.cloud.grow_volume(box.here, volume.id, (500 + which * 100) * GIB)
            else:
                box.cloud.delete_volume(box.here, volume.id)
        elif action == "vanish" and machines:
            box.controls.vanish(machines[which % len(machines)].id)
        elif action in {"stop", "start", "terminate"} and machines:
            getattr(box.cloud, f"{action}_instance")(box.here, machines[which % len(machines)].id)
    except CloudError:
        pass
