"""What moto lacks of DescribeInstanceStatus: checks that fail, events that were announced, machines that run alone.

Source: EC2 API reference, DescribeInstanceStatus.
"""

from __future__ import annotations

from typing import Any

from tests.fakes.aws_rules import RULES, backend, refuse

# What is imported above tells moto what to validate, before moto is imported.
# isort: split
from moto.core.responses import ActionResult
from moto.ec2.responses import EC2Response

PARTS = ("SystemStatus", "InstanceStatus", "AttachedEbsStatus")


def _status(self: Any) -> Any:
    wanted, every = self._get_param("InstanceIds", []), self._get_param("IncludeAllInstances") in (True, "true")
    machines = {one.id: one for one in backend(self.region).all_instances()}
    if unknown := set(wanted) - machines.keys():
        raise refuse("InvalidInstanceID.NotFound", f"The instance IDs '{', '.join(sorted(unknown))}' do not exist")
    found = []
    for name, one in machines.items():
        if (wanted and name not in wanted) or (one._state.name != "running" and not every):
            continue
        said = RULES.health.get(name, {})
        state = {"Code": one._state.code, "Name": one._state.name}
        parts = {part: {"Status": said.get(part, "ok"), "Details": []} for part in PARTS}
        found.append({"InstanceId": name, "InstanceState": state, "Events": said.get("Events", []), **parts})
    return ActionResult({"InstanceStatuses": found})


EC2Response.describe_instance_status = _status
