"""What the event stream of an engine run says."""

from __future__ import annotations

import pytest
from pulumi.automation.events import EngineEvent

from provisioner.errors import CapacityError, CloudError, PolicyViolation
from stacks.documents import drift as drift_documents
from stacks.failures import Attempt, encode, encode_attempt
from stacks.outcome import Changes, EventLog, describe
from stacks.progress import Progress, drift_lines, preview_lines

URN = "urn:pulumi:demo::gpuprov::gpuprov:index:GpuInstance::instance"
LAUNCH_URN = "urn:pulumi:demo::gpuprov::gpuprov:index:Launch::launch"


def event(**parts):
    return EngineEvent.from_json({"sequence": 1, "timestamp": 1, **parts})


def step(kind, op, urn=URN, *, old=None, new=None, diffs=(), status=2):
    def side(outputs):
        if outputs is None:
            return None
        return {
            "type": urn.split("::")[2],
            "urn": urn,
            "id": "i-1",
            "inputs": {},
            "outputs": outputs,
            "parent": "",
            "provider": "",
        }

    metadata = {
        "op": op,
        "urn": urn,
        "type": urn.split("::")[2],
        "provider": "",
        "old": side(old),
        "new": side(new),
        "keys": None,
        "diffs": list(diffs),
        "detailedDiff": None,
    }
    return event(
        **{
            kind: {"metadata": metadata, "status": status, "steps": 1}
            if kind == "resOpFailedEvent"
            else {"metadata": metadata}
        }
    )


def diagnostic(severity, message, urn=""):
    return event(
        diagnosticEvent={
            "message": message,
            "color": "never",
            "severity": severity,
            "urn": urn,
            "prefix": f"{severity}: ",
        }
    )


def log_of(*events):
    log = EventLog()
    for entry in events:
        log.on_event(entry)
    return log


def test_steps_are_counted_once_each():
    outcome = log_of(
        step("resourcePreEvent", "create", LAUNCH_URN),
        step("resOutputsEvent", "create", LAUNCH_URN),
        step("resourcePreEvent", "same"),
        step("resOutputsEvent", "same"),
    ).outcome()
    assert outcome.changes == Changes(create=1, same=1)
    assert outcome.failure is None


def test_other_peoples_resources_do_not_count():
    stack = "urn:pulumi:demo::gpuprov::pulumi:pulumi:Stack::gpuprov-demo"
    provider = "urn:pulumi:demo::gpuprov::pulumi:providers:gpuprov::default"
    outcome = log_of(*(step("resourcePreEvent", "create", urn) for urn in (stack, provider))).outcome()
    assert outcome.changes.is_empty
    assert outcome.steps == ()


def test_a_replacement_is_one_change():
    outcome = log_of(
        *(
            step("resourcePreEvent", op)
            for op in ("delete-replaced", "replace", "create-replacement", "delete-replaced")
        )
    ).outcome()
    assert outcome.changes == Changes(replace=1)


@pytest.mark.parametrize(("status", "created"), [(2, 1), (1, 2)])
def test_a_failed_step_counts_only_where_it_left_something(status, created):
    outcome = log_of(
        step("resourcePreEvent", "create", LAUNCH_URN),
        step("resOutputsEvent", "create", LAUNCH_URN),
        step("resourcePreEvent", "create"),
        step("resOpFailedEvent", "create", status=status),
    ).outcome("exit 255")
    assert outcome.changes == Changes(create=created)
    assert len(outcome.steps) == 2


def test_a_replacement_that_ended_the_old_one_counts_though_there_is_no_new_one():
    outcome = log_of(
        step("resourcePreEvent", "delete-replaced"),
        step("resOutputsEvent", "delete-replaced"),
        step("resourcePreEvent", "create-replacement"),
        step("resOpFailedEvent", "create-replacement"),
    ).outcome("exit 255")
    assert outcome.changes == Changes(replace=1)


def test_a_refresh_within_an_update_is_drift_and_no_step():
    outcome = log_of(
        step("resourcePreEvent", "refresh", old={"power": "running"}, new={"power": "running"}),
        step("resOutputsEvent", "refresh", old={"power": "running"}, new={"power": "stopped"}),
        step("resourcePreEvent", "update", diffs=("power",)),
        step("resOutputsEvent", "update"),
    ).outcome()
    assert outcome.changes == Changes(update=1)
    (drift,) = outcome.drift
    assert drift.changed() == {"power": ("running", "stopped")}
    assert drift_lines(outcome) == ["  ! GpuInstance instance is stopped, was running"]
    assert preview_lines(outcome)[-1] == "  ~ update GpuInstance instance (power)"


@pytest.mark.parametrize("how", ["same", "update", "refresh"])
def test_a_refresh_of_its_own_ends_in_other_words(how):
    outcome = log_of(
        step("resourcePreEvent", "refresh", old={"power": "running"}, new={}),
        step("resOutputsEvent", how, old={"power": "running"}, new={"power": "running"}),
    ).outcome()
    assert outcome.changes.is_empty
    assert not any(drift.changed() or drift.is_gone for drift in outcome.drift)
    assert preview_lines(outcome) == ["  no changes"]


ILL = "the host's status check fails: stop and start it"


@pytest.mark.parametrize(("before", "changes"), [("ok", {"health": ("ok", ILL)}), (ILL, {}), (None, {})])
def test_an_impaired_machine_is_drift_as_long_as_it_is_impaired(before, changes):
    outcome = log_of(
        step("resourcePreEvent", "refresh", old={"health": before}, new={"health": before}),
        step("resOutputsEvent", "refresh", old={"health": before}, new={"health": ILL}),
    ).outcome()
    (found,) = outcome.drift
    assert (found.changed(), found.ailment, found.is_gone) == (changes, ILL, False)
    assert drift_lines(outcome) == [f"  ! GpuInstance instance is impaired: {ILL}"]
    (document,) = drift_documents(outcome.drift)
    assert (document["health"], document["gone"]) == (ILL, False)
    assert outcome.changes.is_empty


def test_a_machine_that_is_well_again_is_said_once():
    outcome = log_of(
        step("resourcePreEvent", "refresh", old={"health": ILL}, new={}),
        step("resOutputsEvent", "refresh", old={"health": ILL}, new={"health": "ok"}),
    ).outcome()
    assert drift_lines(outcome) == ["  ! GpuInstance instance is well again"]
    unknown = log_of(
        step("resourcePreEvent", "refresh", old={"health": "ok"}, new={}),
        step("resOutputsEvent", "refresh", old={"health": "ok"}, new={}),
    ).outcome()
    assert drift_lines(unknown) == []


def test_p18_an_interrupted_machine_is_drift():
    outcome = log_of(
        step("resourcePreEvent", "refresh", old={"power": "running"}, new={"power": "running"}),
        step("resOutputsEvent", "refresh", old={"power": "running"}, new={"power": "interrupted"}),
    ).outcome()
    assert drift_lines(outcome) == ["  ! GpuInstance instance is interrupted, was running"]


@pytest.mark.parametrize("stated", ["offers", "workload"])
def test_what_the_program_states_is_no_drift(stated):
    outcome = log_of(
        step("resourcePreEvent", "refresh", old={stated: [1], "power": "running"}, new={}),
        step(
            "resOutputsEvent", "refresh", old={stated: [1], "power": "running"}, new={stated: [2], "power": "running"}
        ),
    ).outcome()
    assert outcome.drift[0].changed() == {}
    assert preview_lines(outcome) == ["  no changes"]


@pytest.mark.parametrize("how", ["refresh", "delete"])
def test_a_vanished_machine_is_drift(how):
    outcome = log_of(
        step("resourcePreEvent", "refresh", old={"instanceId": "i-0abc"}, new={}),
        step("resOutputsEvent", how, old={"instanceId": "i-0abc"}, new=None),
    ).outcome()
    (drift,) = outcome.drift
    assert drift.is_gone
    assert outcome.changes.is_empty
    assert drift_lines(outcome) == ["  ! GpuInstance instance is not there any more (i-0abc)"]


def test_a_marked_error_becomes_its_class_with_its_attempts():
    attempts = (Attempt("aws/r/z/t/spot", "capacity", "none"),)
    text = encode(CapacityError("no capacity in 1 offer", remedy="wait"), attempts)
    outcome = log_of(
        step("resourcePreEvent", "create"),
        step("resOpFailedEvent", "create"),
        diagnostic("error", f"sdk create: {text}\n", URN),
        diagnostic("error", "update failed\n"),
    ).outcome("error: update failed")
    assert isinstance(outcome.failure, CapacityError)
    assert outcome.failure.remedy == "wait"
    assert outcome.attempts == attempts


def test_an_unmarked_error_keeps_the_engines_words():
    outcome = log_of(diagnostic("error", "no such plugin\n"), diagnostic("error", "update failed")).outcome("exit 255")
    assert type(outcome.failure) is CloudError
    assert outcome.failure.message == "the engine failed: no such plugin"


def test_an_error_without_any_diagnostic_takes_the_exit_text():
    assert log_of().outcome("exit status 1").failure.message == "the engine failed: exit status 1"


def policy(level):
    return event(
        policyEvent={
            "message": "under-sized\n  by 3 GiB",
            "color": "never",
            "policyName": "under-sized",
            "policyPackName": "gpuprov",
            "policyPackVersion": "0.1.0",
            "policyPackVersionTag": "0.1.0",
            "enforcementLevel": level,
            "resourceUrn": URN,
        }
    )


def test_a_mandatory_violation_is_a_policy_failure_whatever_the_exit():
    outcome = log_of(policy("mandatory"), policy("mandatory"), diagnostic("error", "preview failed")).outcome(
        "exit 255"
    )
    assert isinstance(outcome.failure, PolicyViolation)
    assert outcome.failure.exit_code == 5
    assert "under-sized failed: under-sized by 3 GiB" in outcome.failure.message
    assert len(outcome.violations) == 1


def test_an_advisory_violation_fails_nothing():
    outcome = log_of(policy("advisory")).outcome()
    assert outcome.failure is None
    assert outcome.violations[0].rule == "under-sized"


def test_the_warning_about_our_own_plugin_is_noise():
    outcome = log_of(
        diagnostic("warning", "using pulumi-resource-gpuprov from $PATH at /x\n"),
        diagnostic("warning", "the disk is nearly full\n"),
        diagnostic("warning", "the disk is nearly full\n"),
    ).outcome()
    assert outcome.warnings == ("the disk is nearly full",)


def test_attempts_are_told_as_they_happen():
    told = []
    log = EventLog(tell=told.append)
    log.on_event(diagnostic("info", encode_attempt(Attempt("aws/r/z/t/spot", "capacity", "none left")), URN))
    assert told == ["aws/r/z/t/spot: capacity: none left"]
    assert log.outcome().attempts == (Attempt("aws/r/z/t/spot", "capacity", "none left"),)


def test_what_an_earlier_run_tried_is_not_told_by_this_one():
    """An update that fails lists what was tried when its machine was made."""
    earlier = (Attempt("aws/r/z/t/spot", "created", "i-1"),)
    outcome = log_of(diagnostic("error", encode(CloudError("no"), earlier), URN)).outcome("exit 255")
    assert outcome.attempts == earlier
    assert outcome.told == ()


def test_progress_tells_machines_and_what_is_done():
    told = []
    progress = Progress(told.append)
    log = EventLog(progress.step, progress.detail)
    for entry in (
        step("resourcePreEvent", "create", LAUNCH_URN),
        step("resOutputsEvent", "create", LAUNCH_URN),
        step("resourcePreEvent", "create"),
        diagnostic("info", "waiting for it to run", URN),
        step("resOutputsEvent", "create"),
        step("resourcePreEvent", "same", LAUNCH_URN),
    ):
        log.on_event(entry)
    assert [line.split("s  ")[1] for line in told] == [
        "created Launch launch",
        "creating GpuInstance instance",
        "waiting for it to run",
        "created GpuInstance instance",
    ]
    progress.is_on = False
    progress.step(log.outcome().steps[1], "done")
    assert len(told) == 4


@pytest.mark.parametrize(("diffs", "ends"), [(("offers",), True), (("power",), False), (("launch", "power"), False)])
def test_a_preview_says_that_a_replacement_ends_what_runs_first(diffs, ends):
    lines = preview_lines(log_of(step("resourcePreEvent", "replace", diffs=diffs)).outcome())
    assert any("ends first" in line for line in lines) is ends


def test_a_preview_that_ends_no_machine_says_no_such_thing():
    for log in (log_of(step("resourcePreEvent", "update")), log_of(step("resourcePreEvent", "replace", LAUNCH_URN))):
        assert not any("ends first" in line for line in preview_lines(log.outcome()))


def test_steps_read_as_sentences():
    (replaced,) = log_of(step("resourcePreEvent", "replace", diffs=("offers", "launch"))).outcome().steps
    assert describe(replaced) == "replace GpuInstance instance (offers, launch)"
