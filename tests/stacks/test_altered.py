"""When ``up`` goes no further with a machine that somebody has changed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from provisioner.errors import Rejected
from stacks.altered import refuse_altered
from stacks.outcome import Drift, Outcome
from stacks.program import ProgramInputs
from stacks.state import GPU_INSTANCE
from tests.fakes.mini_engine import offer

PLACE = {"cloud": "aws", "region": "us-east-1", "zone": "use1-az1", "capacityType": "on-demand"}
BEFORE = {**PLACE, "instanceId": "i-1", "instanceType": "g6.xlarge", "image": "ami-1", "power": "running"}
CHANGE = {"what": "instance type", "wanted": "g6.xlarge", "found": "g6.2xlarge", "undo": "aws ec2 undo"}


def seen(*changes: dict[str, str], **after: Any) -> Outcome:
    shown = {**BEFORE, "foreignChanges": list(changes), **after}
    return Outcome(drift=(Drift(GPU_INSTANCE, "instance", "i-1", is_gone=False, before=BEFORE, after=shown),))


def inputs(*offers: dict[str, Any], **workload: Any) -> ProgramInputs:
    return ProgramInputs(workload=workload, offers=offers or (offer("use1-az1"), offer("use1-az2")))


def test_a_machine_that_the_spec_does_not_allow_is_refused_with_every_way_on() -> None:
    with pytest.raises(Rejected, match=r"instance type is g6\.2xlarge, not g6\.xlarge; nothing was changed") as refused:
        refuse_altered("chat", inputs(), seen(CHANGE, instanceType="g6.2xlarge"))
    assert refused.value.remedy is not None
    for way in ("aws ec2 undo", "gpuprov down chat --keep-data", "allow it in the spec"):
        assert way in refused.value.remedy
    image = {**CHANGE, "what": "image", "wanted": "ami-1", "found": "ami-2"}
    with pytest.raises(Rejected, match="image is ami-2, not ami-1"):
        refuse_altered("chat", inputs(aws={"image": "ami-1"}), seen(image, image="ami-2"))


@pytest.mark.parametrize(
    ("wanted", "outcome"),
    [
        (inputs(), Outcome()),
        (inputs(), seen()),
        (inputs(), seen(CHANGE)),
        (inputs(), seen(CHANGE, instanceType="g6.2xlarge", power="terminated")),
        (inputs({**offer("use1-az1"), "instanceType": "g6.2xlarge"}), seen(CHANGE, instanceType="g6.2xlarge")),
        (inputs(), seen({**CHANGE, "what": "image"}, image="ami-2")),
    ],
)
def test_what_the_spec_allows_goes_on(wanted: ProgramInputs, outcome: Outcome) -> None:
    refuse_altered("chat", wanted, outcome)
