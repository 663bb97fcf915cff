"""Random histories of an account: what bills is listed, what is listed and alive bills, tokens keep their law, nothing is left."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest

from provisioner.clouds.cloud import InstanceRequest, InstanceState, VolumeRequest
from provisioner.errors import GpuprovError, TokenMismatch, TokenSpent
from provisioner.tags import format_time
from provisioner.units import GIB

STEPS = 60
ALIVE = ("pending", "running")


class Life:
    """One account that things happen to at random."""

    def __init__(self, box, seed: int) -> None:
        self.box = box
        self.random = random.Random(seed)
        self.machines: dict[str, InstanceRequest] = {}
        self.disks: dict[str, VolumeRequest] = {}

    def step(self) -> None:
        """One event, refused or not, and some time."""
        events = (
            self.create, self.create, self.replay, self.start, self.stop, self.terminate, self.make_disk,
            self.attach, self.grow, self.delete_disk, self.reclaim, self.vanish, self.retag,
        )  # fmt: skip
        try:
            self.random.choice(events)()
        except GpuprovError:
            pass  # the account refuses what makes no sense; what it is then is checked below
        except IndexError:
            pass  # nothing to do it to yet
        self.box.clock.pass_time(seconds=self.random.choice([0, 0.1, 1, 60, 3600]))

    def create(self) -> None:
        key = f"token-{len(self.machines)}-{self.random.random()}"
        place = self.random.choice([self.box.here, self.box.next_zone, self.box.spot])
        expires = self.random.choice(["none", format_time(self.box.cloud.now() + timedelta(minutes=30))])
        request = self.box.request(
            key,
            placement=place,
            root_volume_bytes=self.random.randint(1, 500) * GIB,
            tags={"gpuprov:stack-id": "s", "gpuprov:expires-at": expires},
            stop_on_shutdown=self.random.random() < 0.5,
        )
        self.machines[self.box.cloud.create_instance(request).id] = request

    def replay(self) -> None:
        machine, request = self.any_machine()
        seen = self.box.cloud.get_instance(request.placement, machine)
        try:
            assert self.box.cloud.create_instance(request).id == machine
        except TokenSpent:
            assert seen is None or seen.state.is_gone or seen.state is InstanceState.TERMINATING
        with pytest.raises(TokenMismatch):
            self.box.cloud.create_instance(replace(request, user_data="other"))

    def start(self) -> None:
        machine, request = self.any_machine()
        self.box.cloud.start_instance(request.placement, machine)

    def stop(self) -> None:
        machine, request = self.any_machine()
        self.box.cloud.stop_instance(request.placement, machine)

    def terminate(self) -> None:
        machine, request = self.any_machine()
        self.box.cloud.terminate_instance(request.placement, machine)

    def make_disk(self) -> None:
        request = self.box.volume(f"disk-{self.random.random()}", size_bytes=self.random.randint(1, 500) * GIB)
        self.disks[self.box.cloud.create_volume(request).id] = request

    def attach(self) -> None:
        machine, request = self.any_machine()
        self.box.cloud.attach_volume(request.placement, machine, self.any_disk())

    def grow(self) -> None:
        self.box.cloud.grow_volume(self.box.here, self.any_disk(), self.random.randint(1, 900) * GIB)

    def delete_disk(self) -> None:
        self.box.cloud.delete_volume(self.box.here, self.any_disk())

    def reclaim(self) -> None:
        self.box.controls.reclaim(self.any_machine()[0])

    def vanish(self) -> None:
        if self.random.random() < 0.3:
            self.box.controls.vanish(self.random.choice([self.any_machine()[0], self.any_disk()]))

    def retag(self) -> None:
        machine, request = self.any_machine()
        later = format_time(self.box.cloud.now() + timedelta(hours=1))
        self.box.cloud.set_tags(request.placement, machine, {"gpuprov:expires-at": later})

    def any_machine(self) -> tuple[str, InstanceRequest]:
        return self.random.choice(sorted(self.machines.items()))

    def any_disk(self) -> str:
        return self.random.choice(sorted(self.disks))

    def end(self) -> None:
        """End everything, as a careful owner would."""
        for machine, request in self.machines.items():
            self.box.cloud.terminate_instance(request.placement, machine)
        self.box.wait()
        for disk in self.disks:
            self.box.cloud.delete_volume(self.box.here, disk)


def check(life: Life) -> None:
    """The account's books and its lists agree."""
    life.box.wait()
    bill = life.box.controls.bill()
    billing = {line.id for line in bill.lines if line.is_running}
    listed = life.box.cloud.list_objects()
    assert billing <= {one.id for one in listed}
    for one in listed:
        if one.kind == "instance":
            assert (one.id in billing) == (one.state in ALIVE)
        elif one.kind in ("volume", "ip"):
            assert one.id in billing
    prices = [one.price_usd_per_hour for one in listed]
    assert None not in prices
    assert float(bill.running_usd_per_hour) == pytest.approx(sum(map(float, prices)), abs=1e-8)


@pytest.mark.parametrize("seed", range(4))
def test_books_and_lists_agree_whatever_happens(box, seed):
    life = Life(box, seed)
    before = box.controls.bill().total_usd
    for _ in range(STEPS):
        life.step()
        check(life)
        total = box.controls.bill().total_usd
        assert total >= before
        before = total
    life.end()
    assert box.controls.bill(running_only=True).lines == ()
    assert box.cloud.list_objects() == []
    after = box.controls.bill().total_usd
    box.clock.pass_time(days=30)
    assert box.controls.bill().total_usd == after > 0


def test_the_bill_of_a_machine_is_its_hours_at_its_rates(box):
    """By hand, from the prices that the list shows: 3 h alive, 5 h stopped, the root disk through both."""
    made = box.running()
    rates = {one.kind: one for one in box.cloud.list_objects()}
    assert set(rates) == {"instance", "volume", "ip"}
    started = box.controls.bill().lines[0].started_us
    box.clock.pass_time(seconds=3 * 3600 - (box.controls.bill().now_us - started) / 1e6)
    box.cloud.stop_instance(box.here, made.id)
    stopping = box.controls.bill().now_us
    box.clock.pass_time(hours=5)
    lines = {line.kind: line for line in box.controls.bill().lines}
    assert stopping - started == 3 * 3600 * 10**6
    for kind in ("instance", "ip"):
        assert lines[kind].billed_us == 3 * 3600 * 10**6
        assert float(lines[kind].usd) == pytest.approx(3 * float(rates[kind].price_usd_per_hour), abs=1e-9)
    root = lines["root-volume"]
    assert root.billed_us == 8 * 3600 * 10**6
    assert float(root.usd) == pytest.approx(8 * float(rates["volume"].price_usd_per_hour), abs=1e-9)
