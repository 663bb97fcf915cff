"""Inputs of the three resources: from the engine's properties to typed, checked values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeVar

from provisioner import tags
from provisioner.clouds.cloud import Placement
from provisioner.errors import UsageError
from provisioner.units import GIB, DiskSpeed, parse_bytes
from provisioner.vocabulary import CapacityType
from stacks.provider.identity import OVERRIDABLE
from stacks.provider.values import has_unknown

T = TypeVar("T")

ROOT_VOLUME_BYTES = 100 * GIB
"""Where none is stated: a deep learning image takes about half, container layers the rest."""
UNKNOWN_OWNER = "unknown"
SPEED_CLOUDS = ("aws",)
"""Clouds whose default disk has IOPS and throughput to choose (gp3); the plan chooses them for no other."""
_SIZE_BYTES_MAX = 2**53
"""Larger numbers lose digits on their way through the engine (they travel as doubles)."""
_TAGS_MAX = 40
"""EC2 takes 50 tags; ten are left for our own. Source: EC2 user guide, "Tag restrictions"."""


class Power(StrEnum):
    """What a machine should do."""

    RUNNING = "running"
    STOPPED = "stopped"


class Wait(StrEnum):
    """What a create waits for."""

    READY = "ready"
    CREATED = "created"


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """Outputs of a ``Launch``, as a ``GpuInstance`` is given them."""

    stack_id: str
    generation: int
    created_at: datetime
    expires_at: str
    image: Mapping[str, str]
    owner: str
    avoid: tuple[str, ...] = ()
    """Pools (``offers.pool``) that took a machine back, the longest ago first."""


@dataclass(frozen=True, slots=True)
class WantedVolume:
    """A data disk that a machine should carry."""

    name: str
    size_bytes: int
    speed: DiskSpeed | None = None
    """Bought for it where its cloud's disks have a speed to choose; ``None``: what they include."""

    def speed_in(self, cloud: str) -> DiskSpeed | None:
        """What is bought for it on a cloud."""
        return self.speed if cloud in SPEED_CLOUDS else None


@dataclass(frozen=True, slots=True)
class InstanceInputs:
    """All inputs of a ``GpuInstance``."""

    launch: LaunchFacts
    workload: Mapping[str, Any]
    offers: tuple[Placement, ...]
    root_volume_bytes: int
    root_speed: DiskSpeed | None = None
    """Bought for the root disk where the cloud's disks have a speed to choose; ``None``: what they include."""
    volumes: tuple[WantedVolume, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    power: Power = Power.RUNNING
    wait: Wait = Wait.READY
    node: Mapping[str, Any] = field(default_factory=dict)
    """What the plan adds to the spec for the machine itself; another start of it reaches a live machine too."""

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> InstanceInputs:
        """The inputs from plain values.

        Raises:
            UsageError: a value is missing or wrong; ``where`` is its property.
        """
        return cls(
            launch=at("launch", values, read_launch),
            workload=at("workload", values, read_mapping),
            offers=at("offers", values, read_offers),
            root_volume_bytes=root_volume(values),
            root_speed=at("rootSpeed", values, read_speed) if values.get("rootSpeed") else None,
            volumes=at("volumes", values, read_volumes) if values.get("volumes") else (),
            tags=at("tags", values, read_tags) if values.get("tags") else {},
            power=at("power", values, read_power) if "power" in values else Power.RUNNING,
            wait=at("wait", values, read_wait) if "wait" in values else Wait.READY,
            node=at("node", values, read_mapping) if values.get("node") else {},
        )


def at(key: str, values: Mapping[str, Any], read: Callable[[Any], T]) -> T:
    """One property, read.

    Raises:
        UsageError: it is missing or wrong; ``where`` is the property.
    """
    if values.get(key) is None:
        raise UsageError("is required", where=key)
    try:
        return read(values[key])
    except (ValueError, TypeError) as error:
        raise UsageError(str(error), where=key) from None


def failures(
    values: Mapping[str, Any], required: Sequence[str], readers: Mapping[str, Callable[[Any], Any]]
) -> dict[str, str]:
    """What is wrong with the properties: property -> reason. What a preview does not know yet is not judged."""
    wrong: dict[str, str] = {}
    for key in required:
        if values.get(key) is None:
            wrong[key] = "is required"
    for key in values.keys() - readers.keys():
        wrong[key] = f"is no input of this resource; there are {', '.join(sorted(readers))}"
    for key, read in readers.items():
        if values.get(key) is None or has_unknown(values[key]):
            continue
        try:
            read(values[key])
        except (ValueError, TypeError) as error:
            wrong[key] = str(error)
        except UsageError as error:
            wrong[key] = str(error)
    return wrong


def read_launch(value: Any) -> LaunchFacts:
    """The launch; raises ``ValueError`` where a part is missing or wrong."""
    facts = read_mapping(value)
    missing = [key for key in ("stackId", "generation", "createdAt", "expiresAt", "image") if facts.get(key) is None]
    if missing:
        raise ValueError(f"lacks {', '.join(missing)}: give it the outputs of a gpuprov:index:Launch")
    created_at = tags.parse_time(str(facts["createdAt"]))
    if created_at is None:
        raise ValueError("createdAt is no time")
    tags.parse_time(str(facts["expiresAt"]))
    return LaunchFacts(
        stack_id=str(facts["stackId"]),
        generation=int(facts["generation"]),
        created_at=created_at,
        expires_at=str(facts["expiresAt"]),
        image={str(key): str(image) for key, image in read_mapping(facts["image"]).items()},
        owner=str(facts.get("owner") or UNKNOWN_OWNER),
        avoid=tuple(str(entry) for entry in facts.get("avoid") or ()),
    )


def read_offers(value: Any) -> tuple[Placement, ...]:
    """The offers in rank order; raises ``ValueError`` for none or a wrong one."""
    if not isinstance(value, (list, tuple)) or not value:
        raise ValueError("must be a list of at least one offer")
    offers = [_read_offer(index, entry) for index, entry in enumerate(value)]
    return tuple(dict.fromkeys(offers))


def _read_offer(index: int, value: Any) -> Placement:
    entry = value if isinstance(value, Mapping) else {}
    missing = [k for k in ("cloud", "region", "instanceType", "capacityType") if not isinstance(entry.get(k), str)]
    if missing:
        raise ValueError(f"offer {index} lacks {', '.join(missing)}")
    try:
        capacity_type = CapacityType(entry["capacityType"])
    except ValueError:
        raise ValueError(f"offer {index}: capacityType is one of {', '.join(CapacityType)}") from None
    zone = entry.get("zone")
    return Placement(entry["cloud"], entry["region"], str(zone) if zone else None, entry["instanceType"], capacity_type)


def read_size(value: Any) -> int:
    """Bytes of a number or of a text with a unit; raises ``ValueError``."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise ValueError("must be bytes, or a text such as 100GiB")  # noqa: TRY004 - one kind of error for all wrong inputs
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value} is no whole number of bytes")
    size_bytes = parse_bytes(value) if isinstance(value, str) else int(value)
    if not GIB <= size_bytes <= _SIZE_BYTES_MAX:
        raise ValueError(f"{value} is out of range: at least 1GiB, as bytes or with a unit")
    return size_bytes


def root_volume(values: Mapping[str, Any]) -> int:
    """Bytes of the root disk, stated or by default."""
    return at("rootVolume", values, read_size) if values.get("rootVolume") is not None else ROOT_VOLUME_BYTES


def read_speed(value: Any) -> DiskSpeed:
    """IOPS and MiB/s of a disk; raises ``ValueError``."""
    speed = read_mapping(value)
    found = []
    for key in ("iops", "throughput"):
        number = speed.get(key)
        if isinstance(number, bool) or not isinstance(number, (int, float)) or number < 1 or number != int(number):
            raise ValueError(f"needs {key}, a whole number")
        found.append(int(number))
    if len(speed) != len(found):
        raise ValueError("has iops and throughput (MiB/s), and nothing else")
    return DiskSpeed(*found)


def speed_document(speed: DiskSpeed | None) -> dict[str, int] | None:
    """A speed as it stands among inputs and outputs."""
    return None if speed is None else {"iops": speed.iops, "throughput": speed.mib_per_s}


def read_volumes(value: Any) -> tuple[WantedVolume, ...]:
    """The data disks; raises ``ValueError`` for a wrong one or two of one name."""
    if not isinstance(value, (list, tuple)):
        raise ValueError("must be a list of {name, size}")  # noqa: TRY004 - one kind of error for all wrong inputs
    volumes = []
    for index, entry in enumerate(value):
        if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str) or entry.get("size") is None:
            raise ValueError(f"disk {index} lacks name or size: give it those outputs of a gpuprov:index:Volume")
        speed = read_speed(entry["speed"]) if entry.get("speed") else None
        volumes.append(WantedVolume(entry["name"], read_size(entry["size"]), speed))
    if len({volume.name for volume in volumes}) < len(volumes):
        raise ValueError("two disks have the same name")
    return tuple(volumes)


def read_tags(value: Any) -> dict[str, str]:
    """Tags that a program states; raises ``ValueError`` for those that are not its own to state."""
    stated = {str(key): str(entry) for key, entry in read_mapping(value).items()}
    for key in stated:
        if key.startswith(tags.PREFIX) and key not in OVERRIDABLE:
            raise ValueError(f"{key} is gpuprov's own tag")
        if key.lower().startswith("aws:"):
            raise ValueError(f"{key}: AWS keeps this prefix for itself")
    if len(stated) > _TAGS_MAX:
        raise ValueError(f"has {len(stated)} tags; at most {_TAGS_MAX} fit beside gpuprov's own")
    return stated


def read_mapping(value: Any) -> Mapping[str, Any]:
    """An object; raises ``ValueError`` for anything else."""
    if not isinstance(value, Mapping):
        raise ValueError("must be an object")  # noqa: TRY004 - one kind of error for all wrong inputs
    return value


def read_power(value: Any) -> Power:
    """What the machine should do; raises ``ValueError``."""
    if value not in tuple(Power):
        raise ValueError(f"is {value!r}; it is one of {', '.join(Power)}")
    return Power(value)


def read_wait(value: Any) -> Wait:
    """What a create waits for; raises ``ValueError``."""
    if value not in tuple(Wait):
        raise ValueError(f"is {value!r}; it is one of {', '.join(Wait)}")
    return Wait(value)
