"""What moto lacks of how machines are: checks that fail, events that were announced, what a machine says on its console.

Source: EC2 API reference, DescribeInstanceStatus, GetConsoleOutput.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from tests.fakes.aws_rules import RULES, backend, patch, refuse

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


def _console(original: Any) -> Any:
    def get_console_output(self: Any) -> Any:
        answer = original(self)
        if RULES.console is not None:
            answer.result["Output"] = b64encode(RULES.console.encode()).decode()
        return answer

    return get_console_output


EC2Response.describe_instance_status = _status
patch(EC2Response, "get_console_output", _console)
