"""What a call asks of IAM, and whether a policy document allows it: the part of IAM's language that our documents use.

A call is allowed where each thing that it names or makes is allowed by some statement, tags in create calls included.

Source: IAM user guide, "Policy evaluation logic", "IAM JSON policy elements: Condition operators"; EC2 user guide, "Grant permission
to tag Amazon EC2 resources during creation"; Service Authorization Reference, EC2, Systems Manager, S3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from tests.fakes.aws import Call

Tags = Mapping[str, str]
TagsOf = Callable[[str, str], Tags]
"""Tags of an object by region and id; none of one that is not there."""

ACCOUNT = "123456789012"
FREE = {"sts:GetCallerIdentity"}
"""Allowed to everybody. Source: STS API reference, GetCallerIdentity."""
_SERVICES = {"monitoring": "cloudwatch"}
"""How calls are signed -> how IAM calls the service, where it differs."""
_KINDS = {
    "i": "instance",
    "vol": "volume",
    "sg": "security-group",
    "sir": "spot-instances-request",
    "eni": "network-interface",
    "snap": "snapshot",
    "eipalloc": "elastic-ip",
    "subnet": "subnet",
    "vpc": "vpc",
    "ami": "image",
    "cr": "capacity-reservation",
}
_MAKES = {
    "RunInstances": ("instance", "network-interface", "volume"),
    "CreateVolume": ("volume",),
    "CreateSecurityGroup": ("security-group",),
}
_OBJECTS = {
    "GetObject": ("GetObject",),
    "HeadObject": ("GetObject",),
    "PutObject": ("PutObject",),
    "CopyObject": ("GetObject", "PutObject"),
    "DeleteObject": ("DeleteObject",),
}
"""Call of S3 -> rights on the object. Source: S3 user guide, "Required permissions for Amazon S3 API operations"."""
_OWN_ID = "AIDATESTING"


@dataclass(frozen=True, slots=True)
class Ask:
    """One right that a call needs."""

    action: str
    resource: str
    context: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.action} on {self.resource} with {dict(self.context)}"


def asks(call: Call, tags_of: TagsOf) -> Iterator[Ask]:
    """All that must be allowed for a call."""
    service = _SERVICES.get(call.service, call.service)
    action = f"{service}:{call.operation}"
    if action in FREE:
        return
    if service == "ec2" and not call.operation.startswith("Describe"):
        yield from _of_ec2(call, tags_of)
    elif service == "s3":
        yield from _of_objects(call)
    elif service == "kms":
        yield Ask(action, str(call.parameters.get("KeyId", "KEY")))
    elif action == "servicequotas:GetServiceQuota":
        yield Ask(action, f"arn:aws:servicequotas:{call.region}:{ACCOUNT}:ec2/{call.parameters['QuotaCode']}")
    elif action == "ssm:GetParameter":
        yield Ask(action, f"arn:aws:ssm:{call.region}::parameter{call.parameters['Name']}")
    elif service == "ssm":
        yield from _of_sessions(call, tags_of)
    else:
        yield Ask(action, "*")


def _of_ec2(call: Call, tags_of: TagsOf) -> Iterator[Ask]:
    action, stated = f"ec2:{call.operation}", dict(_tag_specifications(call.parameters))
    for kind in _made(call):
        tags = stated.get(kind, {})
        yield Ask(action, _arn(call.region, kind, "*"), _context("aws:RequestTag", tags))
        if tags:
            created = {"ec2:CreateAction": (call.operation,), **_context("aws:RequestTag", tags)}
            yield Ask("ec2:CreateTags", _arn(call.region, kind, "*"), created)
    written = _tags(call.parameters, "Tag.") if call.operation == "CreateTags" else {}
    for object_id in sorted(set(_ids(call))):
        kind = _KINDS[object_id.partition("-")[0]]
        carried = {
            **_context("aws:ResourceTag", tags_of(call.region, object_id)),
            **_context("aws:RequestTag", written),
        }
        yield Ask(action, _arn(call.region, kind, object_id), carried)
    if call.operation == "RunInstances":  # the image's snapshot, and a subnet of the default VPC where none is named
        yield Ask(action, _arn(call.region, "snapshot", "snap-of-the-image"))
        yield Ask(action, _arn(call.region, "subnet", "subnet-by-default"))
    if not _made(call) and not list(_ids(call)):
        yield Ask(action, "*")


def _made(call: Call) -> tuple[str, ...]:
    made = _MAKES.get(call.operation, ())
    is_spot = call.parameters.get("InstanceMarketOptions.MarketType") == "spot"
    return (*made, "spot-instances-request") if is_spot and call.operation == "RunInstances" else made


def _ids(call: Call) -> Iterator[str]:
    """Ids of existing objects that a call names."""
    for key, value in call.parameters.items():
        if key.startswith(("Tag", "Filter", "ClientToken", "UserData")) or ".UserIdGroupPairs." in key:
            continue
        if re.fullmatch(r"[a-z]+-[0-9a-f]{8,}", str(value)) and str(value).partition("-")[0] in _KINDS:
            yield str(value)


def _tag_specifications(parameters: Mapping[str, Any]) -> Iterator[tuple[str, Tags]]:
    number = 1
    while kind := parameters.get(f"TagSpecification.{number}.ResourceType"):
        yield str(kind), _tags(parameters, f"TagSpecification.{number}.Tag.")
        number += 1


def _tags(parameters: Mapping[str, Any], start: str) -> Tags:
    found: dict[str, str] = {}
    number = 1
    while (key := parameters.get(f"{start}{number}.Key")) is not None:
        found[str(key)] = str(parameters.get(f"{start}{number}.Value", ""))
        number += 1
    return found


def _of_objects(call: Call) -> Iterator[Ask]:
    bucket, key = str(call.parameters["Bucket"]), str(call.parameters.get("Key", ""))
    if call.operation in ("ListObjects", "ListObjectsV2"):
        yield Ask("s3:ListBucket", f"arn:aws:s3:::{bucket}")
        return
    for right in _OBJECTS.get(call.operation, (call.operation,)):
        yield Ask(f"s3:{right}", f"arn:aws:s3:::{bucket}/{key}")


def _of_sessions(call: Call, tags_of: TagsOf) -> Iterator[Ask]:
    action = f"ssm:{call.operation}"
    if call.operation != "StartSession":
        yield Ask(action, f"arn:aws:ssm:{call.region}:{ACCOUNT}:session/{call.parameters.get('SessionId', '')}")
        return
    target = str(call.parameters["Target"])
    carried = _context("ssm:resourceTag", tags_of(call.region, target), names=False)
    yield Ask(action, _arn(call.region, "instance", target), carried)
    if name := call.parameters.get("DocumentName"):
        yield Ask(action, f"arn:aws:ssm:{call.region}:{ACCOUNT}:document/{name}")


def _arn(region: str, kind: str, object_id: str) -> str:
    owner = "" if kind in ("image", "snapshot") else ACCOUNT
    return f"arn:aws:ec2:{region}:{owner}:{kind}/{object_id}"


def _context(prefix: str, tags: Tags, *, names: bool = True) -> dict[str, tuple[str, ...]]:
    found = {f"{prefix}/{key}": (value,) for key, value in tags.items()}
    if names and tags and prefix == "aws:RequestTag":
        found["aws:TagKeys"] = tuple(tags)
    return found


def allowing(document: Mapping[str, Any] | None, ask: Ask) -> list[str]:
    """Names of the statements that allow it; none: it is refused."""
    statements: Sequence[Mapping[str, Any]] = document["Statement"] if document else ()
    return [
        str(one["Sid"])
        for one in statements
        if one["Effect"] == "Allow" and ask.action in one["Action"] and _covers(one, ask) and _holds(one, ask)
    ]


def _covers(statement: Mapping[str, Any], ask: Ask) -> bool:
    patterns = (str(one).replace("${aws:userid}", _OWN_ID) for one in statement["Resource"])
    return any(fnmatchcase(ask.resource, one.replace("[", "[[]")) for one in patterns)


def _holds(statement: Mapping[str, Any], ask: Ask) -> bool:
    return all(
        _compare(operator, ask.context.get(key), [wanted] if isinstance(wanted, str) else list(wanted))
        for operator, pairs in statement.get("Condition", {}).items()
        for key, wanted in pairs.items()
    )


def _compare(operator: str, have: tuple[str, ...] | None, wanted: Sequence[str]) -> bool:
    if operator == "Null":
        return (have is None) == (wanted == ["true"])
    if operator == "StringEquals":
        return have is not None and have[0] in wanted
    if operator == "ForAllValues:StringLike":
        return all(any(fnmatchcase(one, pattern) for pattern in wanted) for one in have or ())
    raise AssertionError(f"the condition operator {operator} is not known here")
