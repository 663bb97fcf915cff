"""What every operation of the plugin works with: one cloud, this host's home, the lifeline, a voice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pulumi.provider.experimental.property_value import PropertyValue

from provisioner.clouds.cloud import Placement
from provisioner.errors import GpuprovError, UsageError
from stacks.failures import Attempt
from stacks.provider.disks import Disks
from stacks.provider.lifeline import Lifeline
from stacks.provider.machine import Watch
from stacks.provider.offers import catalog_quota_family
from stacks.provider.patience import PatientCloud
from stacks.provider.values import Properties, plain_map, replaced

Tell = Callable[[str, str], None]
"""Say something about a resource (URN, text) to whoever watches the engine."""


class PartialFailure(Exception):
    """Something exists and is not whole: the engine must keep it, and fail."""

    def __init__(
        self, resource_id: str, properties: Properties, cause: GpuprovError, attempts: Sequence[Attempt] = ()
    ) -> None:
        super().__init__(str(cause))
        self.resource_id = resource_id
        self.properties = properties
        self.cause = cause
        self.attempts = tuple(attempts)


class ProviderFailure(Exception):
    """Nothing was made or changed; why, and what was tried."""

    def __init__(self, cause: GpuprovError, attempts: Sequence[Attempt] = ()) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.attempts = tuple(attempts)


@dataclass(frozen=True, slots=True)
class Session:
    """One configured plugin process."""

    provider: str
    cloud: PatientCloud
    home: Path
    lifeline: Lifeline
    tell: Tell
    warn: Tell = lambda _urn, _text: None
    """Say what somebody should know before an update."""
    quota_family: Callable[[Placement], str] = catalog_quota_family
    note_made: Callable[[str, str], None] = lambda _stack_id, _stack: None
    """Write a new stack-id and its stack's name down for `gc`."""
    account: Callable[[], str | None] = lambda: None
    """The account that the cloud asks; ``None`` where there are none."""
    issued: set[tuple[str, int]] = field(default_factory=set)
    """Launches (stack-id, generation) that this very process made: nobody else can have used them before."""

    @property
    def watch(self) -> Watch:
        """Waits for machines."""
        return Watch(self.cloud, self.lifeline)

    @property
    def disks(self) -> Disks:
        """Data disks."""
        return Disks(self.cloud, self.lifeline, self.home)

    @property
    def is_shared(self) -> bool:
        """Whether other hosts reach the same account: all but the sandbox, which lies in this home."""
        return self.provider != "sandbox"

    def require_own(self, outputs: Mapping[str, Any]) -> None:
        """Refuse a resource that was made on another provider: there it lives, here it would look gone.

        Raises:
            UsageError: it was.
        """
        made_on = outputs.get("provider")
        if made_on is not None and made_on != self.provider:
            raise UsageError(
                f"this resource was made on {made_on}, and the plugin is set to {self.provider}",
                remedy=f"set `gpuprov:cloud` (or GPUPROV_CLOUD) to {made_on}",
            )


def cloud_settings(provider: str, workload: Any) -> dict[str, Any] | None:
    """The spec's section for the provider (``aws`` or ``gcp``): which of the user's own objects a cloud is opened with.

    Without the image, which belongs to a launch. ``None`` where the spec has no such section.
    """
    part = workload.get(provider) if isinstance(workload, Mapping) else None
    settings = {key: value for key, value in part.items() if key != "image"} if isinstance(part, Mapping) else {}
    return settings or None


def settings_output(provider: str, inputs: Properties) -> Properties:
    """The output ``cloudSettings`` of some inputs, sealed where the spec holds a secret; none without such settings."""
    settings = cloud_settings(provider, plain_map(inputs).get("workload"))
    return {} if settings is None else {"cloudSettings": replaced(inputs.get("workload"), settings)}


@dataclass(frozen=True, slots=True)
class Checked:
    """Inputs as they are used from here on, and what is wrong with them: property -> reason."""

    inputs: Properties
    wrong: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Created:
    """A new resource."""

    resource_id: str
    properties: Properties


@dataclass(frozen=True, slots=True)
class Found:
    """A resource as it was read; ``None`` for the id where it is gone."""

    resource_id: str | None
    properties: Properties = field(default_factory=dict)
    inputs: Properties = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed: input -> whether it needs another object."""

    changed: Mapping[str, bool] = field(default_factory=dict)
    stable: Sequence[str] = ()

    @property
    def replaces(self) -> list[str]:
        """Inputs that need another object."""
        return [key for key, forces in self.changed.items() if forces]


def echo(properties: Mapping[str, PropertyValue], keys: Sequence[str]) -> Properties:
    """Some inputs as outputs, secrets still sealed."""
    return {key: properties[key] for key in keys if key in properties}
