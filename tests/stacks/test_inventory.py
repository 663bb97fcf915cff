"""What exists, what it costs, and what the state does not know."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from provisioner import tags
from provisioner.clouds.cloud import BillableObject
from provisioner.errors import CapacityError, CredentialsError, Leaked, UsageError
from stacks.inventory import Standing, account, held_ids, look, object_document
from stacks.pending import drop, leftovers, resolved_urns
from stacks.state import GPU_INSTANCE, LAUNCH, VOLUME, PendingOperation, ResourceState, StackState

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


class Shelf:
    """A cloud that lists what it is given."""

    def __init__(self, *objects):
        self._objects = objects

    def list_objects(self):
        return list(self._objects)


def thing(kind, object_id, price="1.5", *, stack_id="me", state="running", **extra):
    return BillableObject(
        "aws", kind, object_id, "us-east-1", "use1-az1", state, {tags.STACK_ID: stack_id}, price, NOW, extra
    )


MACHINE = thing("instance", "i-1", "0.80", instance_type="g6.xlarge")
ROOT = thing("volume", "vol-root", "0.01", role="root", instance="i-1", size_bytes="1073741824")
DATA = thing("volume", "vol-data", "0.02", role="data", instance="i-1")
GROUP = thing("security-group", "sg-1", "0")
FOREIGN = thing("instance", "i-9", stack_id="other")


def resource(resource_type, name, **outputs):
    return ResourceState(f"u::{resource_type}::{name}", resource_type, name, {}, outputs)


HELD = StackState(
    "demo",
    (
        resource(GPU_INSTANCE, "instance", instanceId="i-1", volumeIds=["vol-data"], securityGroups=[{"id": "sg-1"}]),
        resource(VOLUME, "data", volumeId="vol-data"),
    ),
)


def test_a_stopped_machine_is_named_where_its_disk_bills():
    stopped = thing("instance", "i-1", "0", state="stopped")
    assert Standing((stopped, ROOT, GROUP)).describe() == (
        "instance i-1 stopped in aws us-east-1 (use1-az1), $0.0000/h: $0.0100/h in all"
    )
    assert Standing((ROOT, GROUP)).describe().startswith("volume vol-root running")
    assert Standing((MACHINE, ROOT)).describe().count(";") == 0


def test_only_the_stack_id_counts():
    assert look(Shelf(MACHINE, FOREIGN), ("me", None)).objects == (MACHINE,)
    assert look(Shelf(MACHINE, FOREIGN), (None,)).objects == ()


def test_gone_objects_are_not_there():
    gone = [thing("instance", state, state=state) for state in ("terminated", "interrupted")]
    assert look(Shelf(*gone), ("me",)).objects == ()


def test_prices_add_up_exactly_and_unknown_stays_unknown():
    assert look(Shelf(MACHINE, ROOT, DATA, GROUP), ("me",)).price_usd_per_hour == Decimal("0.83")
    unknown = look(Shelf(MACHINE, thing("volume", "v", None)), ("me",))
    assert unknown.price_usd_per_hour is None
    assert "price unknown" in unknown.describe()
    assert {entry.id for entry in unknown.billing} == {"i-1", "v"}


def test_a_held_machine_holds_its_root_disk():
    assert held_ids(HELD) == {"i-1", "vol-data", "sg-1"}
    assert look(Shelf(MACHINE, ROOT, DATA, GROUP), ("me",)).unknown_to(HELD) == ()


def test_a_machine_outside_the_state_is_unknown_with_its_disks():
    assert look(Shelf(MACHINE, ROOT, DATA), ("me",)).unknown_to(None) == (MACHINE, ROOT, DATA)


def test_a_data_disk_is_not_excused_by_its_machine():
    state = StackState("demo", (resource(GPU_INSTANCE, "instance", instanceId="i-1", volumeIds=[]),))
    assert look(Shelf(MACHINE, ROOT, DATA), ("me",)).unknown_to(state) == (DATA,)


def test_a_free_group_never_leaks():
    assert look(Shelf(GROUP), ("me",)).unknown_to(None) == ()


def test_l1_a_failure_says_what_exists_and_what_it_costs():
    error = account(CapacityError("no capacity", remedy="wait"), look(Shelf(MACHINE, ROOT), ("me",)), HELD, "demo")
    assert isinstance(error, CapacityError)
    assert error.remedy == "wait"
    assert error.message == (
        "no capacity; exists now: instance i-1 (g6.xlarge) running in aws us-east-1 (use1-az1), $0.8000/h: $0.8100/h in all"
    )


def test_a_failure_without_a_remedy_says_how_to_end_what_exists():
    assert (
        account(CapacityError("no"), look(Shelf(MACHINE), ("me",)), HELD, "demo").remedy
        == "`gpuprov down demo` ends it"
    )


def test_a_failure_with_nothing_left_says_so():
    error = account(CapacityError("no capacity"), look(Shelf(), ("me",)), None, "demo")
    assert error.remedy is None
    assert error.message == "no capacity; nothing of the stack bills"


def test_a_leak_comes_before_its_cause_and_is_named():
    error = account(CredentialsError("expired"), look(Shelf(MACHINE), ("me",)), None, "demo")
    assert isinstance(error, Leaked)
    assert error.exit_code == 11
    assert "i-1" in error.message
    assert "expired" in error.message


def test_bad_use_comes_before_a_leak():
    assert account(UsageError("no"), look(Shelf(MACHINE), ("me",)), None, "demo").exit_code == 2


def test_a_cloud_that_does_not_answer_is_said():
    error = account(CapacityError("no capacity"), None, HELD, "demo")
    assert "could not be asked" in error.message


def test_objects_in_json():
    document = object_document(ROOT, "sandbox")
    assert document["provider"] == "sandbox"
    assert document["cloud"] == "aws"
    assert document["price_usd_per_hour"] == "0.01"
    assert document["created_at"] == "2026-11-30T12:00:00Z"
    assert document["size_bytes"] == 2**30
    assert object_document(thing("volume", "v", None), "sandbox")["price_usd_per_hour"] is None


# Pending creates.


def pending(resource_type, name):
    return PendingOperation("creating", ResourceState(f"u::{resource_type}::{name}", resource_type, None, {}, {}))


def test_a_create_whose_resource_exists_is_resolved():
    state = StackState("demo", HELD.resources, (pending(GPU_INSTANCE, "instance"),))
    assert resolved_urns(state) == {f"u::{GPU_INSTANCE}::instance"}


def test_l13_e18_a_machines_create_is_never_dropped_on_no_evidence():
    state = StackState("demo", (), (pending(GPU_INSTANCE, "instance"),))
    assert resolved_urns(state) == frozenset()
    assert resolved_urns(state, look(Shelf(MACHINE), ("me",))) == frozenset()
    assert resolved_urns(state, look(Shelf(), ("me",))) == {f"u::{GPU_INSTANCE}::instance"}


@pytest.mark.parametrize("resource_type", [LAUNCH, VOLUME])
def test_what_makes_nothing_in_a_cloud_is_resolved(resource_type):
    state = StackState("demo", (), (pending(resource_type, "x"),))
    assert resolved_urns(state) == {f"u::{resource_type}::x"}


def test_a_resource_on_its_way_out_resolves_nothing():
    doomed = ResourceState(f"u::{GPU_INSTANCE}::instance", GPU_INSTANCE, "i", {}, {}, is_doomed=True)
    assert resolved_urns(StackState("demo", (doomed,), (pending(GPU_INSTANCE, "instance"),))) == frozenset()


def test_only_the_named_creates_are_dropped():
    deployment = {
        "pending_operations": [
            {"type": "creating", "resource": {"urn": "a"}},
            {"type": "creating", "resource": {"urn": "b"}},
            {"type": "deleting", "resource": {"urn": "a"}},
        ]
    }
    assert drop(deployment, frozenset({"a"}))
    assert [(entry["type"], entry["resource"]["urn"]) for entry in deployment["pending_operations"]] == [
        ("creating", "b"),
        ("deleting", "a"),
    ]
    assert not drop(deployment, frozenset({"a"}))
    assert not drop({}, frozenset({"a"}))


def test_leftovers_are_named():
    assert leftovers(look(Shelf(MACHINE), ("me",)), HELD, "demo") is None
    assert "i-1" in leftovers(look(Shelf(MACHINE), ("me",)), None, "demo").message
