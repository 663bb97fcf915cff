"""Whether a machine's own system and its host are well, and what EC2 has announced for it.

Source: EC2 API reference, DescribeInstanceStatus and InstanceStatusEvent; EC2 user guide, "Status checks for your instances" and
"Scheduled events for your instances" (an event that is over says so at the start of its description).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from provisioner.clouds.aws.session import AwsApi
from provisioner.clouds.cloud import Ailment, Health, Placement
from provisioner.errors import GpuprovError

_IMPAIRED = "impaired"
_OVER = ("[Completed]", "[Canceled]")
_MOVE = "stop and start it, which moves it to another host; what cannot stop is made again by `down` and `up`"
_CHECKS = {
    "SystemStatus": ("system-check", "the host's status check fails (network, power or hardware of the host)", _MOVE),
    "InstanceStatus": (
        "instance-check",
        "the machine's own status check fails (its system does not answer)",
        "see `gpuprov logs`; if it does not come back by itself, stop and start it",
    ),
    "AttachedEbsStatus": ("disk-check", "its disks do not complete reads or writes", _MOVE),
}
"""Part of the answer -> kind, what it means, and what to do. Source: EC2 user guide, "Types of status checks"."""
_EVENTS = {
    "instance-retirement": _MOVE,
    "instance-stop": _MOVE,
    "system-reboot": "nothing, if it may reboot then; else stop and start it before",
    "instance-reboot": "nothing, if it may reboot then; else reboot it before",
    "system-maintenance": "nothing, if it may pause or reboot then; else stop and start it before",
}
"""Code of an event -> what to do."""


def read_health(api: AwsApi, placement: Placement, instance_id: str) -> Health:
    """See ``Cloud.read_health``. What may not be read, or is not answered, is unknown and no error."""
    try:
        answer = api.call("ec2", "DescribeInstanceStatus", placement.region, InstanceIds=[instance_id])
    except GpuprovError as error:
        return Health(unknown=error.message)
    found = next(iter(answer.get("InstanceStatuses") or ()), None)
    return Health() if found is None else Health((*_checks(found), *_events(found)))


def _checks(status: Mapping[str, Any]) -> Iterator[Ailment]:
    for part, (kind, text, remedy) in _CHECKS.items():
        if (status.get(part) or {}).get("Status") == _IMPAIRED:
            yield Ailment(kind, text, remedy)


def _events(status: Mapping[str, Any]) -> Iterator[Ailment]:
    for event in status.get("Events") or ():
        said = str(event.get("Description") or "")
        if said.startswith(_OVER):
            continue
        code, start = str(event.get("Code")), event.get("NotBefore")
        when = start.astimezone(UTC).strftime(" from %Y-%m-%d %H:%M UTC on") if isinstance(start, datetime) else ""
        yield Ailment(
            code, f"AWS has scheduled {code}{when}" + (f" ({said})" if said else ""), _EVENTS.get(code, _MOVE)
        )
