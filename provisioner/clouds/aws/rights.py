"""The least IAM rights for each thing that gpuprov does on AWS, as policy documents that can be attached as they are.

Whatever can cost or destroy is bound to gpuprov's own tag: what is made must carry it, and only what carries it can be changed or
ended. Readings that EC2 cannot narrow are on everything.

Source: Service Authorization Reference, "Actions, resources, and condition keys" for Amazon EC2, AWS Systems Manager and Amazon S3;
Systems Manager user guide, "Sample IAM policies for Session Manager".
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

INSPECT = "ec2:DescribeInstanceAttribute"
"""Reading what somebody may have changed on a machine and its description does not show; without it that is unknown."""

CONSOLE = "ec2:GetConsoleOutput"
"""Reading what the node says: ``logs``, ``reap``, and the last decision in ``status``."""

METRICS = ("cloudwatch:GetMetricData", "cloudwatch:ListMetrics")
"""Reading what a machine does: ``reap``."""

OWN_MACHINE = ("ec2:DescribeAvailabilityZones", "ec2:DescribeInstances")
"""Reading one machine that the state names: ``keepalive`` and ``connect``."""

QUOTE = (
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeCapacityBlockOfferings",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeRegions",
    "ec2:DescribeSpotPriceHistory",
    "ec2:GetSpotPlacementScores",
    "pricing:GetProducts",
    "servicequotas:GetServiceQuota",
)
"""Reading prices and supply: ``prices refresh``."""

SHELL = "ssm:StartSession"
"""A shell or a forwarded port: ``connect``."""

SESSION = ("ssm:ResumeSession", "ssm:TerminateSession", "ssmmessages:OpenDataChannel")
"""What the Session Manager plugin does with its own session."""

_NARROW = {
    "servicequotas:GetServiceQuota": ("Quotas", "arn:aws:servicequotas:*:*:ec2/*"),
    "ssm:GetParameter": ("Images", "arn:aws:ssm:*:*:parameter/aws/service/deeplearning/*"),
}
"""Reading -> where it is narrowed to, and the statement's name."""

_CREATED = {
    "ec2:CreateSecurityGroup": ("security-group",),
    "ec2:CreateVolume": ("volume",),
    "ec2:RunInstances": ("instance", "network-interface", "spot-instances-request", "volume"),
}
"""Call -> objects that it makes, each of which must be tagged in that call."""

_USED = {
    "ec2:CreateSecurityGroup": ("vpc",),
    "ec2:RunInstances": ("capacity-reservation", "image", "snapshot", "subnet"),
}
"""Call -> objects of others that it refers to."""

CHANGE = (
    "ec2:AttachVolume",
    "ec2:AuthorizeSecurityGroupIngress",
    "ec2:ModifyInstanceMetadataOptions",
    "ec2:ModifyVolume",
    "ec2:RevokeSecurityGroupIngress",
)
POWER = ("ec2:ModifyInstanceAttribute", "ec2:StartInstances", "ec2:StopInstances")
"""``ModifyInstanceAttribute`` changes the user data of a stopped machine (what it runs), what its own shutdown does to it, and back
what somebody has changed."""
END = ("ec2:CancelSpotInstanceRequests", "ec2:ModifyInstanceAttribute", "ec2:TerminateInstances")
"""``ModifyInstanceAttribute`` lets a root disk end with its machine where somebody has changed that."""
SWEEP = ("ec2:DeleteSecurityGroup", "ec2:DeleteVolume")
END_STRAYS = ("ec2:DeleteNetworkInterface", "ec2:DeleteSnapshot", "ec2:ReleaseAddress")
TAG = "ec2:CreateTags"

_BOUND = (CONSOLE, *CHANGE, *POWER, *END, *SWEEP, *END_STRAYS)
"""What is allowed on objects alone that carry the tag."""

_VERSION = "2012-10-17"
"""Of the policy language."""
_DOCUMENTS = ("AWS-StartPortForwardingSession", "SSM-SessionManagerRunShell")

PURPOSES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "plan": (),
        "prices": QUOTE,
        "status": tuple(sorted({*LOOK, HEALTH, INSPECT, CONSOLE})),
        "up": tuple(sorted({*LOOK, *CHOOSE, HEALTH, INSPECT, CONSOLE, *_CREATED, *CHANGE, *POWER, *END, *SWEEP, TAG})),
        "keepalive": tuple(sorted({*OWN_MACHINE, TAG})),
        "connect": tuple(sorted({*OWN_MACHINE, SHELL, *SESSION})),
        "reap": tuple(sorted({*LOOK, *METRICS, CONSOLE, "ec2:StopInstances", *END, TAG})),
        "gc": tuple(sorted({*LOOK, *STRAYS, *END, *SWEEP, *END_STRAYS})),
    }
)
"""Purpose -> all actions that it needs; ``plan`` needs none."""

COMMANDS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "plan": ("check", "export", "plan", "size"),
        "prices": ("prices",),
        "status": ("logs", "refresh", "status"),
        "up": ("doctor", "down", "preview", "start", "stop", "up"),
        "keepalive": ("keepalive",),
        "connect": ("connect",),
        "reap": ("reap",),
        "gc": ("gc",),
    }
)
"""Purpose -> the commands that its policy is for; ``unlock`` needs rights on the backend alone."""


def policies() -> dict[str, Any]:
    """Purpose -> IAM policy document; ``None`` where no right is needed."""
    return {purpose: _document(_statements(purpose)) for purpose in PURPOSES}


def options() -> dict[str, Any]:
    """Key of the spec or variable -> what is needed besides where it is set; words in capitals are to be filled in.

    The rights on a backend and on its key are for every command that reads or writes a stack.
    """
    key = ["kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext"]
    objects = ["s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
    return {
        "aws.instance_profile": _document(
            [
                _statement(
                    "PassTheRole", ["iam:PassRole"], ["ROLE"], _equals("iam:PassedToService", ["ec2.amazonaws.com"])
                )
            ]
        ),
        "aws.kms_key": _document([_statement("EncryptWithTheKey", key, ["KEY"])]),
        "GPUPROV_BACKEND=s3://BUCKET": _document(
            [
                _statement("ListTheStates", ["s3:ListBucket"], ["arn:aws:s3:::BUCKET"]),
                _statement("KeepTheStates", objects, ["arn:aws:s3:::BUCKET/*"]),
            ]
        ),
        "GPUPROV_SECRETS_PROVIDER=awskms://KEY": _document(
            [_statement("KeepTheSecrets", ["kms:Decrypt", "kms:Encrypt"], ["KEY"])]
        ),
    }


def machine_role() -> dict[str, Any]:
    """What the role of ``aws.instance_profile`` lets the machine do; statements that a spec does not need can be left out.

    Source: Systems Manager user guide, "Create an IAM role with minimal Session Manager permissions".
    """
    channels = [f"ssmmessages:{verb}{kind}Channel" for verb in ("Create", "Open") for kind in ("Control", "Data")]
    statements = [
        _statement("AnswerSessions", ["ssm:UpdateInstanceInformation", *channels], ["*"]),
        _statement("ListWhatIsFetched", ["s3:ListBucket"], ["arn:aws:s3:::BUCKET"]),
        _statement("FetchDataAndWeights", ["s3:GetObject"], ["arn:aws:s3:::BUCKET/*"]),
        _statement("ReadSecrets", ["secretsmanager:GetSecretValue"], ["SECRET"]),
    ]
    return {"Version": _VERSION, "Statement": statements}


def _document(statements: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    return {"Version": _VERSION, "Statement": list(statements)} if statements else None


def _statements(purpose: str) -> list[dict[str, Any]]:
    """Readings, then makings, changes and ends bound to the tag."""
    actions = PURPOSES[purpose]
    reads = [action for action in actions if action in (*LOOK, *CHOOSE, *STRAYS, HEALTH, INSPECT, *METRICS, *QUOTE)]
    wide = [action for action in reads if action not in _NARROW]
    found = [_statement("Read", wide, ["*"])] if wide else []
    found += [_statement(f"Read{name}", [action], [arn]) for action, (name, arn) in _NARROW.items() if action in reads]
    for action in (action for action in actions if action in _CREATED):
        found += _making(action)
    if bound := [action for action in actions if action in _BOUND]:
        found.append(_statement("ChangeOwn", sorted(bound), _arns(("*",)), _null("aws:ResourceTag")))
    if TAG in actions:
        found += _tagging(makes=any(action in _CREATED for action in actions))
    if SHELL in actions:
        found += _shell()
    return found


def _making(action: str) -> list[dict[str, Any]]:
    """What a call makes carries the tag; a group that a machine is put into does so already."""
    name = action.partition(":")[2]
    found = [_statement(f"{name}Tagged", [action], _arns(_CREATED[action]), _null("aws:RequestTag"))]
    if action in _USED:
        found.append(_statement(f"{name}From", [action], _arns(_USED[action])))
    if action == "ec2:RunInstances":
        found.append(_statement(f"{name}In", [action], _arns(("security-group",)), _null("aws:ResourceTag")))
    return found


def _tagging(*, makes: bool) -> list[dict[str, Any]]:
    """Tags in the call that makes an object, and changes of tags of our own objects.

    Who makes nothing writes marks and leases alone (``gpuprov-``), never what says whose an object is and when it ends.
    """
    if not makes:
        marks = {"ForAllValues:StringLike": {"aws:TagKeys": ["gpuprov-*"]}}
        return [_statement("MarkOwn", [TAG], _arns(("*",)), _null("aws:ResourceTag") | marks)]
    makers = sorted(action.partition(":")[2] for action in _CREATED)
    made = _equals("ec2:CreateAction", makers) | _null("aws:RequestTag")
    return [
        _statement("TagWhatIsMade", [TAG], _arns(("*",)), made),
        _statement("TagOwn", [TAG], _arns(("*",)), _null("aws:ResourceTag")),
    ]


def _shell() -> list[dict[str, Any]]:
    """A session to our own machines, by the documents of a shell and of a forwarded port, and the caller's own sessions."""
    documents = [f"arn:aws:ssm:*:*:document/{name}" for name in _DOCUMENTS]
    tagged = {"Null": {f"ssm:resourceTag/{STACK_ID}": "false"}}
    return [
        _statement("OpenOwn", [SHELL], _arns(("instance",)), tagged),
        _statement("OpenBy", [SHELL], documents),
        _statement("UseOwnSession", SESSION, ["arn:aws:ssm:*:*:session/${aws:userid}-*"]),
    ]


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


def _equals(key: str, values: Sequence[str]) -> dict[str, Any]:
    return {"StringEquals": {key: list(values)}}
