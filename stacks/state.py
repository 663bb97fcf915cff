"""A stack's state as the backend keeps it, read without the engine where it is a file.

``status`` and the stickiness of a plan need a handful of values, not an engine start (half a second each).
Secret values stay sealed: they read as ``[secret]``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provisioner.errors import CloudError

PROJECT = "gpuprov"
LAUNCH = "gpuprov:index:Launch"
GPU_INSTANCE = "gpuprov:index:GpuInstance"
VOLUME = "gpuprov:index:Volume"
PROVIDER = "pulumi:providers:gpuprov"
STACK = "pulumi:pulumi:Stack"

SECRET = "[secret]"  # noqa: S105 - what people see instead of one
_VERSION = 4
"""Newest form of a checkpoint: 3, and 4 where it uses features. Source: pulumi/pulumi sdk/go/common/apitype,
DeploymentSchemaVersionLatest."""
_SIGNATURE = "4dabf18193072939515e22adb298388d"
"""Key by which Pulumi marks an object of the state that is not plain data (secret, asset, reference).

Source: pulumi/pulumi sdk/go/common/resource/sig.
"""


@dataclass(frozen=True, slots=True)
class ResourceState:
    """One resource as the state holds it."""

    urn: str
    type: str
    id: str | None
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    init_errors: tuple[str, ...] = ()
    """Why it is not whole: a create or update that failed half-way."""
    is_doomed: bool = False
    """Not what stands in this place: an old copy that waits for its deletion, or a machine whose replacement has ended it and
    is not made yet."""

    @property
    def name(self) -> str:
        """The logical name: the last part of the URN."""
        return self.urn.rpartition("::")[2]


@dataclass(frozen=True, slots=True)
class PendingOperation:
    """A step that an engine began and did not finish; ``creating`` ones may have made something."""

    kind: str
    resource: ResourceState


@dataclass(frozen=True, slots=True)
class StackState:
    """All resources of a stack, and what was cut off in the middle."""

    name: str
    resources: tuple[ResourceState, ...] = ()
    pending: tuple[PendingOperation, ...] = ()

    def of_type(self, resource_type: str) -> Iterator[ResourceState]:
        """Resources of a type that are not on their way out."""
        return (r for r in self.resources if r.type == resource_type and not r.is_doomed)

    @property
    def launch(self) -> ResourceState | None:
        """The launch: stack-id, generation, times, image."""
        return next(self.of_type(LAUNCH), None)

    @property
    def instance(self) -> ResourceState | None:
        """The machine."""
        return next(self.of_type(GPU_INSTANCE), None)

    @property
    def outputs(self) -> Mapping[str, Any]:
        """Outputs of the machine; empty where there is none."""
        return self.instance.outputs if self.instance is not None else {}

    @property
    def volumes(self) -> tuple[ResourceState, ...]:
        """The data disks."""
        return tuple(self.of_type(VOLUME))

    @property
    def own(self) -> tuple[ResourceState, ...]:
        """Resources of our plugin, those on their way out included."""
        return tuple(r for r in self.resources if r.type.startswith("gpuprov:index:"))

    @property
    def stack_id(self) -> str | None:
        """The random identity in tags and tokens, as the launch (or a step cut off after it) holds it."""
        if self.launch is not None and self.launch.outputs.get("stackId"):
            return str(self.launch.outputs["stackId"])
        for operation in self.pending:
            launch = operation.resource.inputs.get("launch")
            if isinstance(launch, Mapping) and launch.get("stackId"):
                return str(launch["stackId"])
        return None

    @property
    def provider(self) -> str | None:
        """What the stack was made on: ``sandbox``, ``aws`` or ``gcp``; ``None`` before the first resource."""
        if self.instance is not None and self.instance.outputs.get("provider"):
            return str(self.instance.outputs["provider"])
        clouds = (r.inputs.get("cloud") for r in self.of_type(PROVIDER))
        return next((str(cloud) for cloud in clouds if cloud), None)

    @property
    def account(self) -> str | None:
        """The cloud account that the stack was made in; ``None`` where that is not known, or there are none."""
        found = (resource.outputs.get("account") for resource in self.own)
        return next((str(account) for account in found if account), None)

    @property
    def regions(self) -> frozenset[str]:
        """Regions in which something of the stack may be: of all its offers and objects, earlier ones included."""
        held = (*self.own, *(operation.resource for operation in self.pending))
        return frozenset(region for resource in held for region in _regions(resource))

    @property
    def settings(self) -> Mapping[str, Any] | None:
        """The spec's ``aws`` or ``gcp`` section, by which the stack's cloud is opened; ``None`` where it has none."""
        provider = self.provider
        held = (self.launch, self.instance, *(operation.resource for operation in self.pending))
        for resource in (one for one in held if one is not None and provider is not None):
            workload = resource.inputs.get("workload")
            stated = workload.get(provider) if isinstance(workload, Mapping) else None
            for settings in (resource.outputs.get("cloudSettings"), stated):
                if isinstance(settings, Mapping):
                    return settings
        return None

    @property
    def pending_creates(self) -> tuple[ResourceState, ...]:
        """Resources whose creation was cut off: they may exist, and the state does not know."""
        return tuple(operation.resource for operation in self.pending if operation.kind == "creating")


def _regions(resource: ResourceState) -> Iterator[str]:
    for part in (resource.inputs, resource.outputs):
        places = [part, *_entries(part.get("offers")), *_entries(part.get("securityGroups"))]
        yield from (str(place["region"]) for place in places if place.get("region"))
    image = resource.outputs.get("image")
    if isinstance(image, Mapping):  # of a launch: one for each offer that it ever had, by the offer's key
        yield from (str(key).split("/")[1] for key in image if str(key).count("/") > 1)


def _entries(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, Mapping)] if isinstance(value, list) else []


def read_file_state(directory: Path, stack: str) -> StackState | None:
    """The state of a stack in a file backend, or ``None`` where there is no such stack.

    Raises:
        CloudError: the file is no checkpoint.
    """
    path = stack_file(directory, stack)
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        document = json.loads(text)
        version = document.get("version")
        if isinstance(version, int) and version > _VERSION:
            raise CloudError(
                f"{path} was written by a newer version (form {version}; this one reads {_VERSION})",
                remedy="use the version of gpuprov that wrote it; nothing was changed",
            )
        checkpoint = document["checkpoint"]
        return parse_deployment(stack, checkpoint.get("latest") or {})
    except (ValueError, KeyError, TypeError, AttributeError) as failure:
        raise CloudError(
            f"{path} is no state of a stack ({failure})", remedy=f"restore it, for instance from {path}.bak"
        ) from None


def stack_file(directory: Path, stack: str) -> Path:
    """The checkpoint file of a stack in a file backend."""
    return directory / ".pulumi" / "stacks" / PROJECT / f"{stack}.json"


def list_file_stacks(directory: Path) -> tuple[str, ...]:
    """Names of all stacks in a file backend, sorted."""
    return tuple(sorted(path.stem for path in stack_file(directory, "x").parent.glob("*.json")))


def parse_deployment(stack: str, deployment: Mapping[str, Any]) -> StackState:
    """A state from Pulumi's deployment document, version 3 (as in checkpoints and exports)."""
    return StackState(
        name=stack,
        resources=tuple(_resource(entry) for entry in deployment.get("resources") or ()),
        pending=tuple(
            PendingOperation(str(entry.get("type", "")), _resource(entry["resource"]))
            for entry in deployment.get("pending_operations") or ()
        ),
    )


def _resource(entry: Mapping[str, Any]) -> ResourceState:
    return ResourceState(
        urn=entry["urn"],
        type=entry["type"],
        id=entry.get("id") or None,
        inputs=_plain(entry.get("inputs") or {}),
        outputs=_plain(entry.get("outputs") or {}),
        init_errors=tuple(entry.get("initErrors") or ()),
        is_doomed=bool(entry.get("delete"))
        or (entry["type"] == GPU_INSTANCE and bool(entry.get("pendingReplacement"))),
    )


def _plain(value: Any) -> Any:
    """A value without Pulumi's wrappers: secrets masked, everything else as it is."""
    if isinstance(value, Mapping):
        if _SIGNATURE in value:
            return SECRET
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    return value
