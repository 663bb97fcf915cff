"""Pulumi documents as facts: ``pulumi preview --json`` and ``pulumi stack export``.

Source: pulumi/pulumi, sdk/go/common/apitype (deployment v3) and sdk/go/common/resource/plugin/rpc.go for the sentinels of
unknown values; pkg/backend/display/json.go for the preview's steps. Versions 3.272 to 3.274.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from policies.facts import UNKNOWN, AttachmentFacts, Source, Subject
from policies.facts_links import attachments
from policies.facts_others import Project, resource_subjects
from policies.facts_own import INSTANCE_RESOURCE, Holder, instance_subjects
from policies.json_source import JsonSource, PathStep
from policies.json_value import Value
from policies.placement import Placer
from policies.resources import Resource, spellings
from provisioner.errors import Position, SpecError, UsageError

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - Pulumi's public mark of a secret value
OUTPUT = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
UNKNOWN_WORDS = frozenset(
    {
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "04da6b54-80e4-46f7-96ec-b56ff0331ba9",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "030794c1-ac77-496b-92df-f27374a8bd58",
        "e48ece36-62e2-4504-bad9-02848725956a",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
        "[secret]",
    }
)
"""What stands for a value that is computed later, or that is kept from the document."""
TERRAFORM_TYPES = {
    "aws:ec2/instance:Instance": "aws_instance",
    "aws:ec2/spotInstanceRequest:SpotInstanceRequest": "aws_spot_instance_request",
    "aws:ec2/launchTemplate:LaunchTemplate": "aws_launch_template",
    "aws:ec2/launchConfiguration:LaunchConfiguration": "aws_launch_configuration",
    "aws:ebs/volume:Volume": "aws_ebs_volume",
    "aws:ec2/capacityReservation:CapacityReservation": "aws_ec2_capacity_reservation",
    "aws:ec2/capacityBlockReservation:CapacityBlockReservation": "aws_ec2_capacity_block_reservation",
    "aws:ec2/securityGroup:SecurityGroup": "aws_security_group",
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": "aws_default_security_group",
    "aws:ec2/securityGroupRule:SecurityGroupRule": "aws_security_group_rule",
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": "aws_vpc_security_group_ingress_rule",
    "gcp:compute/instance:Instance": "google_compute_instance",
    "gcp:compute/instanceTemplate:InstanceTemplate": "google_compute_instance_template",
    "gcp:compute/regionInstanceTemplate:RegionInstanceTemplate": "google_compute_region_instance_template",
    "gcp:compute/disk:Disk": "google_compute_disk",
    "gcp:compute/regionDisk:RegionDisk": "google_compute_region_disk",
    "gcp:compute/firewall:Firewall": "google_compute_firewall",
}
"""Terraform type of a bridged Pulumi type."""
ATTACHMENT_TYPES = {
    "aws:ec2/volumeAttachment:VolumeAttachment": "aws_volume_attachment",
    "gcp:compute/attachedDisk:AttachedDisk": "google_compute_attached_disk",
}
"""The same of types that only say what belongs to what."""
_GONE = (
    "delete",
    "delete-replaced",
    "read-discard",
    "discard-replaced",
    "remove-pending-replace",
    "read",
    "read-replacement",
)
"""Steps after which the resource is not, or no longer, this program's."""
_DEPTH_MAX = 200


def is_pulumi(document: Any) -> bool:
    """Whether a document is a Pulumi preview or an exported stack."""
    if not isinstance(document, Mapping):
        return False
    deployment = document.get("deployment")
    return (
        isinstance(document.get("steps"), list)
        or (isinstance(deployment, Mapping) and "manifest" in deployment)
        or (isinstance(deployment, Mapping) and isinstance(deployment.get("resources"), list))
    )


def pulumi_subjects(source: JsonSource, placer: Placer, project: Project) -> tuple[list[Subject], int]:
    """The subjects of a Pulumi document, and how many resources it has in all.

    Raises:
        UsageError: a workload inside it is no valid spec, or its parts are of another kind, or it is of a preview that failed.
    """
    subjects: list[Subject] = []
    try:
        _refuse_failed(source)
        states = list(_states(source.document))
        for state, path in states:
            subjects.extend(_subjects(source, state, path, placer, project))
        subjects.extend(_attached(source, states))
    except (TypeError, AttributeError, KeyError) as error:
        missing = f": the key {error} is missing" if isinstance(error, KeyError) else ""
        raise UsageError(
            f"this Pulumi document has an unexpected form{missing}",
            where=Position(source.file),
            remedy="write it again with `pulumi preview --json` or `pulumi stack export`",
        ) from None
    return subjects, len(states)


def _attached(
    source: JsonSource, states: Sequence[tuple[Mapping[str, Any], tuple[PathStep, ...]]]
) -> Iterator[AttachmentFacts]:
    """Disks attached to machines; what refers to what is told by ids, or by the engine's own record of dependencies."""
    types = TERRAFORM_TYPES | ATTACHMENT_TYPES
    resources: list[Resource] = []
    by_link: dict[str, Resource] = {}
    depends: dict[int, Mapping[str, Any]] = {}
    for state, path in states:
        if (kind := types.get(str(state.get("type", "")))) is None:
            continue
        resource = _bridged(source, state, path, kind)
        resources.append(resource)
        depends[id(resource)] = state.get("propertyDependencies") or {}
        by_link |= {str(state[name]): resource for name in ("urn", "id") if state.get(name)}

    def find(resource: Resource, attribute: str, value: Value) -> Resource | None:
        if isinstance(value.value, str):
            return by_link.get(value.value)
        names = spellings(attribute)
        urns = [urn for name in names for urn in depends[id(resource)].get(name) or ()]
        return by_link.get(str(urns[0])) if len(urns) == 1 else None

    yield from attachments(resources, find)


def _refuse_failed(source: JsonSource) -> None:
    """A preview that failed stops at the failure: what it would have shown afterwards is missing."""
    for index, diagnostic in enumerate(source.document.get("diagnostics") or ()):
        if diagnostic.get("severity") == "error":
            raise UsageError(
                "this preview failed: resources may be missing from it",
                where=source.position(("diagnostics", index)),
                remedy="mend what the preview says, and write it again",
            )


def _states(document: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], tuple[PathStep, ...]]]:
    """Resources that exist after the document's steps, with their places."""
    if isinstance(document.get("steps"), list):
        seen: dict[object, list[object]] = {}
        for index, step in enumerate(document["steps"]):
            new = step.get("newState")
            if step.get("op") in _GONE or not isinstance(new, Mapping):
                continue
            # A replacement is told in several steps; one resource is judged once, unless they differ.
            told = seen.setdefault(new.get("urn"), [])
            if new.get("inputs") not in told:
                told.append(new.get("inputs"))
                yield new, ("steps", index, "newState")
        return
    for index, state in enumerate(document["deployment"].get("resources") or ()):
        if not state.get("delete") and not state.get("external"):
            yield state, ("deployment", "resources", index)


def _subjects(
    source: JsonSource, state: Mapping[str, Any], path: tuple[PathStep, ...], placer: Placer, project: Project
) -> Iterator[Subject]:
    token, name = str(state.get("type", "")), _name(state)
    if token == INSTANCE_RESOURCE:
        holder = Holder(name, source.file, Source.PULUMI, lambda inner: source.position((*path, "inputs", *inner)))
        try:
            yield from instance_subjects(Value(_held(state), (*path, "inputs")), holder, placer)
        except SpecError as error:
            where = source.position((*path, "inputs", "workload"))
            raise UsageError(f"the workload of {name}: {error.message}", where=where, remedy=error.remedy) from None
    elif token in TERRAFORM_TYPES:
        resource = _bridged(source, state, path, TERRAFORM_TYPES[token])
        yield from resource_subjects(resource, resource.type, placer, project)


def _bridged(source: JsonSource, state: Mapping[str, Any], path: tuple[PathStep, ...], kind: str) -> Resource:
    """A resource of a bridged provider under Terraform's names."""
    inputs = plain(state.get("inputs") or {})
    return Resource(
        address=_name(state),
        type=kind,
        attributes=Value(_held(state), (*path, "inputs")),
        json=source,
        source=Source.PULUMI,
        sensitive=secret_names(state.get("inputs")),
        declared=frozenset(inputs) if isinstance(inputs, Mapping) else None,
    )


def _name(state: Mapping[str, Any]) -> str:
    urn = str(state.get("urn", ""))
    return urn.rpartition("::")[2] or urn or str(state.get("type", ""))


def _held(state: Mapping[str, Any]) -> Any:
    """Inputs, and what was observed where the program says nothing."""
    inputs, outputs = plain(state.get("inputs") or {}), plain(state.get("outputs") or {})
    return {**outputs, **inputs} if isinstance(inputs, Mapping) and isinstance(outputs, Mapping) else inputs


def plain(value: Any, depth: int = 0) -> Any:
    """A property value as plain JSON: secrets unwrapped where they are readable, ``UNKNOWN`` for what is computed or hidden."""
    if depth > _DEPTH_MAX:
        return UNKNOWN
    if isinstance(value, str):
        return UNKNOWN if value in UNKNOWN_WORDS else value
    if isinstance(value, list):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return (
            _plain_object(value, depth)
            if SIGNATURE in value
            else {str(key): plain(item, depth + 1) for key, item in value.items()}
        )
    return value


def _plain_object(value: Mapping[str, Any], depth: int) -> Any:
    """A value with a signature: a secret, an output, an asset."""
    if "value" in value and value[SIGNATURE] in (SECRET, OUTPUT):
        return plain(value["value"], depth + 1)
    if value[SIGNATURE] == SECRET and isinstance(value.get("plaintext"), str):
        try:
            return plain(json.loads(value["plaintext"]), depth + 1)
        except ValueError:
            return UNKNOWN
    text = value.get("text")
    return text if isinstance(text, str) else UNKNOWN


def secret_names(inputs: Any) -> frozenset[str]:
    """Inputs that are secret as a whole, under their Terraform names; of metadata, its keys."""
    if not isinstance(inputs, Mapping):
        return frozenset()
    names = {_snake(str(key)) for key, value in inputs.items() if _is_secret(value)}
    metadata = inputs.get("metadata")
    if isinstance(metadata, Mapping):
        names |= {str(key) for key, value in metadata.items() if _is_secret(value)}
    return frozenset(names)


def _is_secret(value: Any) -> bool:
    return value == "[secret]" or (isinstance(value, Mapping) and value.get(SIGNATURE) == SECRET)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
