"""The least IAM rights for each thing that gpuprov does on AWS, as policy documents that can be attached as they are.

Whatever can cost or destroy is bound to gpuprov's own tag: what is made must carry it, and only what carries it can be ended.

Source: Service Authorization Reference, "Actions, resources, and condition keys for Amazon EC2".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from provisioner.tags import STACK_ID

LOOK = (
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeInstances",
    "ec2:DescribeRegions",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSpotInstanceRequests",
    "ec2:DescribeVolumes",
)
"""Reading what there is, in every region: ``status``, ``refresh``, and the lists of ``reap`` and ``gc``."""

CHOOSE = (
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeRouteTables",
    "ec2:DescribeSubnets",
    "ec2:DescribeTags",
    "ec2:DescribeVpcEndpoints",
    "ec2:DescribeVpcs",
    "servicequotas:GetServiceQuota",
    "ssm:GetParameter",
)
"""Reading what a create call states, and whether the quota allows it."""

STRAYS = ("ec2:DescribeAddresses", "ec2:DescribeNetworkInterfaces", "ec2:DescribeSnapshots")
"""Reading what only ``gc`` looks for."""

HEALTH = "ec2:DescribeInstanceStatus"
"""Reading whether a machine is impaired; without it that is unknown, and nothing else changes."""

WATCH = ("cloudwatch:GetMetricData", "cloudwatch:ListMetrics", "ec2:GetConsoleOutput")
"""Reading what a machine does: ``reap``, ``logs``, and the last decision in ``status``."""

_CREATED = {
    "ec2:CreateSecurityGroup": ("security-group",),
    "ec2:CreateVolume": ("volume",),
    "ec2:RunInstances": ("instance", "network-interface", "spot-instances-request", "volume"),
}
"""Call -> objects that it makes, each of which must be tagged in that call."""

_USED = {
    "ec2:CreateSecurityGroup": ("vpc",),
    "ec2:RunInstances": ("capacity-reservation", "image", "security-group", "snapshot", "subnet"),
}
"""Call -> objects of others that it refers to."""

CHANGE = ("ec2:AttachVolume", "ec2:AuthorizeSecurityGroupIngress", "ec2:ModifyVolume", "ec2:RevokeSecurityGroupIngress")
POWER = ("ec2:ModifyInstanceAttribute", "ec2:StartInstances", "ec2:StopInstances")
"""``ModifyInstanceAttribute`` changes the user data of a stopped machine, what it runs, and what its own shutdown does to it."""
END = ("ec2:CancelSpotInstanceRequests", "ec2:TerminateInstances")
SWEEP = ("ec2:DeleteSecurityGroup", "ec2:DeleteVolume")
END_STRAYS = ("ec2:DeleteNetworkInterface", "ec2:DeleteSnapshot", "ec2:ReleaseAddress")
_TAG = "ec2:CreateTags"

PURPOSES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "plan": (),
        "status": tuple(sorted({*LOOK, HEALTH, "ec2:GetConsoleOutput"})),
        "up": tuple(
            sorted({*LOOK, *CHOOSE, HEALTH, "ec2:GetConsoleOutput", *_CREATED, *CHANGE, *POWER, *END, *SWEEP, _TAG})
        ),
        "reap": tuple(sorted({*LOOK, *WATCH, "ec2:StopInstances", *END, _TAG})),
        "gc": tuple(sorted({*LOOK, *STRAYS, *END, *SWEEP, *END_STRAYS})),
    }
)
"""Purpose -> all actions that it needs. ``up`` covers ``stop``, ``start`` and ``down`` too; ``plan`` needs none."""


def policies() -> dict[str, Any]:
    """Purpose -> IAM policy document; ``None`` where no right is needed."""
    return {purpose: _document(_statements(purpose)) for purpose in PURPOSES}


def options() -> dict[str, Any]:
    """Key of the spec -> what ``up`` needs besides, where the spec has it; ``ROLE`` and ``KEY`` are to be filled in."""
    return {
        "aws.instance_profile": _document([_statement("PassTheRole", ["iam:PassRole"], ["ROLE"])]),
        "aws.kms_key": _document(
            [
                _statement(
                    "EncryptWithTheKey",
                    ["kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext"],
                    ["KEY"],
                )
            ]
        ),
    }


def _document(statements: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    return {"Version": "2012-10-17", "Statement": list(statements)} if statements else None


def _statements(purpose: str) -> list[dict[str, Any]]:
    """Readings on everything, then makings, changes and ends bound to the tag."""
    actions = PURPOSES[purpose]
    reads = [action for action in actions if action in (*LOOK, *CHOOSE, *WATCH, *STRAYS, HEALTH)]
    bound = [action for action in actions if action in (*CHANGE, *POWER, *END, *SWEEP, *END_STRAYS)]
    found = [_statement("Read", reads, ["*"])] if reads else []
    for action in (action for action in actions if action in _CREATED):
        name = action.partition(":")[2]
        found.append(_statement(f"{name}Tagged", [action], _arns(_CREATED[action]), _null("aws:RequestTag")))
        if action in _USED:
            found.append(_statement(f"{name}From", [action], _arns(_USED[action])))
    if _TAG in actions:
        makers = sorted(action.partition(":")[2] for action in _CREATED)
        made = {"StringEquals": {"ec2:CreateAction": makers}}
        if any(action in _CREATED for action in actions):
            found.append(_statement("TagWhatIsMade", [_TAG], _arns(("*",)), made))
        bound.append(_TAG)
    if bound:
        found.append(_statement("ChangeOwn", sorted(bound), _arns(("*",)), _null("aws:ResourceTag")))
    return found


def _statement(
    name: str, actions: Iterable[str], resources: Sequence[str], condition: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    found: dict[str, Any] = {"Sid": name, "Effect": "Allow", "Action": list(actions), "Resource": list(resources)}
    return found | ({"Condition": dict(condition)} if condition else {})


def _arns(kinds: Iterable[str]) -> list[str]:
    return [f"arn:aws:ec2:*:*:{kind}/*" if kind != "*" else "arn:aws:ec2:*:*:*/*" for kind in kinds]


def _null(key: str) -> dict[str, Any]:
    """The condition that gpuprov's tag is there."""
    return {"Null": {f"{key}/{STACK_ID}": "false"}}
