"""The program that a plan becomes."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pulumi
import pytest
from pulumi.runtime import Mocks, set_mocks
from pulumi.runtime import test as run_program

from provisioner import tags
from provisioner.errors import NothingFits, UsageError
from provisioner.planner.plan import Cost, Plan, PlannedOffer, StorageItem
from provisioner.sizing.layout import Layout
from provisioner.units import DiskSpeed
from provisioner.workload.spec import Workload
from stacks.power import write_expiry
from stacks.program import ProgramInputs, bounded_document, inputs_of_plan, make_program
from stacks.state import GPU_INSTANCE, LAUNCH, ResourceState, StackState

SPEC = {
    "version": 1,
    "name": "demo",
    "task": "serve",
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
    "inference": {"context_tokens": 8192},
    "tags": {"team": "search"},
}
TUNING = {
    "version": 1,
    "name": "tune",
    "task": "finetune",
    "model": {"id": "meta-llama/Llama-3.1-8B-Instruct"},
    "training": {"method": "lora", "sequence_tokens": 2048, "tokens": "100M"},
}


def offer(zone="use1-az1", instances=1):
    return PlannedOffer(
        "aws", "us-east-1", zone, "g6.xlarge", instances, "L4", 1.0, "on-demand", Decimal("0.8"), None, "none", Layout()
    )


def cost(run_hours=None):
    return replace(Cost(None, None, None, None, None, None, None, None), run_hours=run_hours)


def plan(**changes):
    made = Plan(
        workload_name="demo",
        task="serve",
        workload_digest="sha256:0",
        workload_spec={},
        catalog_digest="sha256:1",
        catalog_as_of="2026-08-01",
        verdict="fits",
        choice=offer(),
        footprint=None,
        throughput=None,
        cost=cost(),
        storage=(
            StorageItem("root", "root", 70 * 2**30, "gp3", None),
            StorageItem("data", "data", 50 * 2**30, "gp3", None),
            StorageItem("local", "local", 2**40, None, None),
        ),
        failover=(offer(), offer("use1-az2"), offer(None), offer("use1-az4", instances=2)),
    )
    return replace(made, **changes)


def workload(document=None):
    return Workload.from_document(document or SPEC)


def test_a_plan_becomes_inputs():
    inputs = inputs_of_plan(plan(), workload())
    assert [entry.get("zone") for entry in inputs.offers] == ["use1-az1", "use1-az2", None]
    assert "zone" not in inputs.offers[2]
    assert inputs.root_bytes == 70 * 2**30
    assert [(disk.name, disk.size_bytes) for disk in inputs.disks] == [("data", 50 * 2**30)]
    assert inputs.tags == {"team": "search", tags.SPEC_DIGEST: workload().digest}
    assert inputs.wait is None
    assert Workload.from_document(dict(inputs.workload)) == workload()


FAST = DiskSpeed(4000, 1000)


def fast_plan():
    return plan(
        storage=(
            StorageItem("root", "root", 70 * 2**30, "ebs_gp3", None, speed=FAST),
            StorageItem("data", "data", 50 * 2**30, "ebs_gp3", None, speed=DiskSpeed(3000, 500)),
        )
    )


def test_speeds_of_disks_are_taken_from_the_plan():
    inputs = inputs_of_plan(fast_plan(), workload())
    assert inputs.root_speed == FAST
    assert [disk.speed for disk in inputs.disks] == [DiskSpeed(3000, 500)]
    plain = inputs_of_plan(plan(), workload())
    assert (plain.root_speed, plain.disks[0].speed) == (None, None)


@pytest.mark.parametrize(
    ("digest", "kind", "kept"),
    [
        (workload().digest, "g6.xlarge", True),
        ("sha256:another", "g6.xlarge", False),
        (workload().digest, "g6e.xlarge", False),
    ],
)
def test_a_machine_of_this_spec_keeps_the_speeds_that_it_was_made_with(digest, kind, kept):
    inputs = {
        "tags": {tags.SPEC_DIGEST: digest},
        "rootSpeed": {"iops": 6000.0, "throughput": 1500.0},
        "volumes": [{"name": "data", "size": 50 * 2**30}],
    }
    state = StackState(
        "demo", (ResourceState(f"u::{GPU_INSTANCE}::instance", GPU_INSTANCE, "i", inputs, {"instanceType": kind}),)
    )
    found = inputs_of_plan(fast_plan(), workload(), state=state)
    wanted = (DiskSpeed(6000, 1500), None) if kept else (FAST, DiskSpeed(3000, 500))
    assert (found.root_speed, found.disks[0].speed) == wanted


def test_equal_plans_make_equal_inputs():
    assert inputs_of_plan(plan(), workload()) == inputs_of_plan(plan(), workload())


def test_nothing_chosen_makes_nothing():
    with pytest.raises(NothingFits):
        inputs_of_plan(plan(choice=None), workload())


def test_several_machines_are_refused():
    with pytest.raises(UsageError, match="needs 2 instances"):
        inputs_of_plan(plan(choice=offer(instances=2)), workload())


# The lifetime of a run whose length is predicted.


def lifetime(document):
    return document["lifecycle"].get("max_lifetime")


def test_a_predicted_run_may_take_twice_its_length():
    assert lifetime(bounded_document(workload(TUNING), plan(cost=cost(10.01)), None)) == "1202m"


def test_a_stated_lifetime_stays():
    stated = workload({**TUNING, "lifecycle": {"max_lifetime": "6h"}})
    assert lifetime(bounded_document(stated, plan(cost=cost(10.0)), None)) == "6h"


def test_a_run_of_unknown_length_has_the_specs_own_default():
    document = bounded_document(workload(), plan(), None)
    assert document == workload().to_document()


def machine(digest, max_lifetime):
    inputs = {"tags": {tags.SPEC_DIGEST: digest}, "workload": {"lifecycle": {"max_lifetime": max_lifetime}}}
    return StackState("tune", (ResourceState(f"u::{GPU_INSTANCE}::instance", GPU_INSTANCE, "i", inputs, {}),))


def test_a_machine_keeps_the_lifetime_that_it_was_made_with():
    made = machine(workload(TUNING).digest, "9h")
    assert lifetime(bounded_document(workload(TUNING), plan(cost=cost(10.0)), made)) == "9h"


def test_an_edited_spec_is_predicted_anew():
    made = machine("sha256:another", "9h")
    assert lifetime(bounded_document(workload(TUNING), plan(cost=cost(10.0)), made)) == "20h"


# The resources.


class Engine(Mocks):
    """Answers like the plugin would."""

    def __init__(self):
        self.made = {}

    def new_resource(self, args):
        self.made[args.name] = (args.typ, args.inputs)
        outputs = {
            "stackId": "f00d",
            "generation": 1,
            "createdAt": "now",
            "expiresAt": "none",
            "image": {},
            "owner": "me",
        }
        return args.name, {**args.inputs, **(outputs if args.typ == LAUNCH else {})}

    def call(self, args):
        raise AssertionError("the program asks nothing")


def run(inputs):
    engine = Engine()
    set_mocks(engine, project="gpuprov", stack="demo")

    @run_program
    def program():
        make_program(inputs)()
        return pulumi.Output.from_input(None)

    program()
    return engine.made


def test_the_machine_gets_the_launchs_outputs():
    made = run(inputs_of_plan(plan(), workload()))
    assert list(made) == ["launch", "data", "instance"]
    assert made["launch"][0] == "gpuprov:index:Launch"
    assert made["data"][1]["stackId"] == "f00d"
    assert made["data"][1]["size"] == 50 * 2**30
    kind, inputs = made["instance"]
    assert kind == "gpuprov:index:GpuInstance"
    assert inputs["launch"]["stackId"] == "f00d"
    assert inputs["launch"]["generation"] == 1
    assert inputs["volumes"] == [{"name": "data", "size": 50 * 2**30}]
    assert inputs["rootVolume"] == made["launch"][1]["rootVolume"] == 70 * 2**30
    assert inputs["power"] == "running"
    assert "wait" not in inputs


def test_speeds_are_stated_on_the_machine_and_on_its_disks():
    made = run(inputs_of_plan(fast_plan(), workload()))
    slow = {"iops": 3000, "throughput": 500}
    assert made["instance"][1]["rootSpeed"] == {"iops": 4000, "throughput": 1000}
    assert made["instance"][1]["volumes"] == [{"name": "data", "size": 50 * 2**30, "speed": slow}]
    assert made["data"][1]["speed"] == slow


def test_what_is_not_stated_is_absent():
    made = run(ProgramInputs({"name": "demo"}, ({"cloud": "aws"},), wait="created"))
    assert "rootVolume" not in made["launch"][1]
    assert made["instance"][1]["wait"] == "created"
    assert made["instance"][1]["volumes"] == []


def test_a_new_expiry_goes_into_the_launch_and_its_own_machine():
    old, new = "2026-12-01T00:00:00Z", "2026-12-02T00:00:00Z"

    def machine(instance_id, carried):
        return {
            "type": GPU_INSTANCE,
            "outputs": {"instanceId": instance_id, "expiresAt": old, "cloudTags": dict(carried)},
        }

    sealed = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "v1:x"}
    carried = {tags.EXPIRES_AT: old, "team": "search"}
    deployment = {
        "resources": [
            {"type": LAUNCH, "outputs": {"expiresAt": old, "stackId": "f00d"}},
            machine("i-1", carried),
            machine("i-0", carried),
            machine("i-1", sealed),
            {"type": "pulumi:pulumi:Stack"},
        ]
    }
    assert write_expiry(deployment, "i-1", new)
    launch, own, other, shut = (resource["outputs"] for resource in deployment["resources"][:4])
    assert launch == {"expiresAt": new, "stackId": "f00d"}
    assert own == {"instanceId": "i-1", "expiresAt": new, "cloudTags": {tags.EXPIRES_AT: new, "team": "search"}}
    assert other == {"instanceId": "i-0", "expiresAt": old, "cloudTags": carried}
    assert (shut["expiresAt"], shut["cloudTags"]) == (new, sealed)
    assert not write_expiry(deployment, "i-1", new)
    assert not write_expiry({}, "i-1", "none")


def test_lifetimes_are_whole_minutes():
    text = lifetime(bounded_document(workload(TUNING), plan(cost=cost(0.001)), None))
    assert text == "1m"
