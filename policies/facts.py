"""What the gate judges: one model for workload specs, saved plans, Pulumi and Terraform documents.

A fact is known, absent (``None``) or ``UNKNOWN`` (computed later, or not told by the file); the three are never mixed up.
Kinds of subjects: a workload's own words (``SpecFacts``), a workload on the machines it may end up on (``PlacementFacts``, and
``OfferedFacts`` where gpuprov takes the offers), and what other people's programs declare (``MachineFacts``, ``DiskFacts``, ``FirewallFacts``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from datetime import date
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any, Final, TypeAlias, TypeVar

from policies.engine_flags import EngineSetting
from provisioner.catalog.gpus import Gpu
from provisioner.catalog.instances import InstanceType
from provisioner.errors import Position
from provisioner.planner.judge import OfferFit
from provisioner.planner.plan import Plan
from provisioner.records import record
from provisioner.sizing.layout import Layout
from provisioner.sizing.shapes import ModelShape
from provisioner.workload.part import SpecPart
from provisioner.workload.spec import Run, Workload

T = TypeVar("T")


class Unknown(Enum):
    """The type of ``UNKNOWN``."""

    UNKNOWN = "unknown"

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown.UNKNOWN
"""A value that exists but cannot be told from what is judged."""

Known: TypeAlias = T | Unknown
"""A fact that may be unknown."""

_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class Source(StrEnum):
    """Where a subject was read."""

    SPEC = "spec"
    PLAN = "plan"
    PULUMI = "pulumi"
    TERRAFORM = "terraform"
    ENGINE = "engine"


def nowhere(key: str) -> Position:
    """Position of subjects that come from no file (the engine's)."""
    del key
    return Position("-")


@record(frozen=True, slots=True, kw_only=True)
class Subject:
    """One thing that is judged.

    ``name`` is what waivers and people call it: the workload's name, a Terraform address, a Pulumi resource name. ``locate``
    gives the place of a fact's key, the nearest thing above it where the file does not write it.
    """

    name: str
    path: str
    source: Source
    tags: Known[Mapping[str, Known[str]]] = field(default_factory=dict)
    locate: Callable[[str], Position] = field(default=nowhere, compare=False, repr=False)


@record(frozen=True, slots=True, kw_only=True)
class SpecFacts(Subject):
    """What a workload asks for. ``unknown_keys`` are dotted keys whose value is computed later; ``workload`` lacks them."""

    workload: Known[Workload]
    unknown_keys: frozenset[str] = frozenset()

    def read(self, key: str) -> Any:
        """The value of a dotted key as the spec's model holds it: ``None`` where absent, ``UNKNOWN`` where computed later."""
        if isinstance(self.workload, Unknown) or any(overlaps(key, other) for other in self.unknown_keys):
            return UNKNOWN
        return value_of(self.workload, key)

    def read_entries(self, key: str) -> Known[Mapping[str, Any]]:
        """A mapping with the user's own keys; an entry computed later is ``UNKNOWN`` while the others stay known."""
        if isinstance(self.workload, Unknown) or any(
            overlaps(key, other) for other in self.unknown_keys if other in parents(key)
        ):
            return UNKNOWN
        entries = dict(value_of(self.workload, key) or {})
        prefix = f"{key}."
        entries |= {
            other[len(prefix) :].split(".")[0]: UNKNOWN for other in self.unknown_keys if other.startswith(prefix)
        }
        return entries


@record(frozen=True, slots=True, kw_only=True)
class QuotaRoom:
    """What an offer takes of an account's quota, and what the account may use; ``limit`` ``None`` where nobody has read it."""

    name: str
    code: str
    unit: str
    needed: float
    limit: Known[float | None] = None
    as_of: str | None = None


@record(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure that a saved plan states, and what it is by the catalog and the sizing of this run, both as a report shows them."""

    key: str
    name: str
    stated: str | None
    found: Known[str | None]


@record(frozen=True, slots=True, kw_only=True)
class Candidate:
    """An offer that the workload may end up on. ``key`` leads to it in its document (``choice``, ``offers[1]``).

    ``instance`` and ``gpu`` are the catalog's rows, ``None`` where it has none. ``price_usd_per_hour`` is the catalog's, for one
    instance. ``disk_bytes`` sums the attached disks; local ones do not count, since images and weights go to the root disk unless
    someone mounts them. ``None`` where the provider sizes the disk itself.
    """

    key: str
    cloud: Known[str]
    instance_type: Known[str]
    region: Known[str | None] = None
    zone: Known[str | None] = None
    capacity_type: Known[str | None] = None
    instances: Known[int] = 1
    layout: Layout | None = None
    """The layout that a plan wants to run, copies included."""
    instance: Known[InstanceType | None] = None
    gpu: Known[Gpu | None] = None
    fit: Known[OfferFit | None] = None
    price_usd_per_hour: Known[Decimal | None] = None
    price_as_of: Known[str | None] = None
    disk_bytes: Known[int | None] = None
    refusals: Known[Mapping[str, str]] = field(default_factory=dict)
    """Why the GPU cannot run what is asked, by planner filter (``runtime``, ``precision``); memory is ``fit``'s business."""
    regions_offered: Known[frozenset[str] | None] = None
    zones_offered: Known[frozenset[str] | None] = None
    breaches: Known[Mapping[str, str]] = field(default_factory=dict)
    """Why it is none of the instance types or GPUs that the spec allows, by planner filter (``instance-type``, ``gpu``)."""
    planned: Known[Mapping[EngineSetting, Known[str]]] = field(default_factory=dict)
    """How the engine would be started, where the spec has a command of its own to compare it with."""
    quota: Known[QuotaRoom | None] = None
    cuda_least: Known[tuple[int, int] | None] = None
    """Oldest CUDA version that was built for the GPU's generation; ``None`` where any will do or nothing is known."""

    @property
    def label(self) -> str:
        """Name for people."""
        kind = self.instance_type if isinstance(self.instance_type, str) else "an instance type that is not known yet"
        return f"{kind} in {self.region}" if isinstance(self.region, str) else kind


@record(frozen=True, slots=True, kw_only=True)
class PlacementFacts(Subject):
    """A workload together with the offers that it may end up on.

    ``candidates`` is empty where nothing fits; ``plan`` is the planner's answer for a spec. ``pinned`` says that a person, not
    the planner, named the instance type.
    """

    workload: Known[Workload]
    shape: Known[ModelShape | None] = None
    candidates: Known[tuple[Candidate, ...]] = ()
    plan: Plan | None = None
    layout_objections: Known[tuple[str, ...] | None] = None
    """Why the layout that is asked for cannot be; ``None`` where none is asked for."""
    degrees_possible: tuple[int, ...] = ()
    digest_stated: str | None = None
    digest_found: Known[str | None] = None
    figures: Known[tuple[Figure, ...]] = ()
    catalog_stated: str | None = None
    catalog_found: Known[str | None] = None
    container: Known[str | None] = None
    """The container image that the spec runs."""
    command: Known[tuple[str, ...] | None] = None
    """The command that the spec runs in place of the planned one."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Plain variables beside it."""
    pinned: bool = False
    suggest: Callable[[], str | None] = field(default=lambda: None, compare=False, repr=False)
    """What would hold the workload, in words; asked for only when something fails."""

    @property
    def constraint_key(self) -> str:
        """The key that narrows the choice of machines, for the position of a finding on a spec."""
        return "placement" if isinstance(self.workload, Unknown) else constraint_key(self.workload)


@record(frozen=True, slots=True, kw_only=True)
class OfferedFacts(PlacementFacts):
    """The same where the offers are gpuprov's own to take, from a spec, a plan or a ``GpuInstance``: price and place count too."""


@record(frozen=True, slots=True, kw_only=True)
class Disk:
    """A disk of a machine, or on its own. ``role`` is ``root`` or ``data``; ``encrypted`` ``None``: the account's default decides."""

    key: str
    role: str
    encrypted: Known[bool | None]
    customer_key: Known[bool] = False
    size_bytes: Known[int | None] = None


@record(frozen=True, slots=True, kw_only=True)
class MachineFacts(Subject):
    """A machine, or a template of one, that another program declares."""

    cloud: str
    instance_type: Known[str | None]
    region: Known[str | None] = None
    zone: Known[str | None] = None
    capacity_type: Known[str] = "on-demand"
    instance: Known[InstanceType | None] = None
    disks: Known[tuple[Disk, ...]] = ()
    metadata_tokens: Known[str | None] = None
    """EC2 ``http_tokens``: ``required`` or ``optional``; ``None`` where the program leaves it to image and account."""
    metadata_endpoint: Known[str | None] = None
    metadata_hop_limit: Known[int | None] = None
    image: Known[str | None] = None
    public_ip: Known[bool | None] = None
    texts: Known[Mapping[str, Known[str]]] = field(default_factory=dict)
    """User-data, start-up scripts and metadata by key: what anyone on the machine can read."""
    sensitive_texts: frozenset[str] = frozenset()
    """Keys of ``texts`` that the program itself marks as secret."""
    scopes: Known[tuple[str, ...]] = ()
    service_account: Known[str | None] = None
    on_host_maintenance: Known[str | None] = None
    regions_offered: Known[frozenset[str] | None] = None
    has_gpu: Known[bool] = False
    driver_branches: Known[tuple[int | None, int | None] | None] = None
    """First and last branch of NVIDIA's driver that knows the GPU; ``None`` where there is no GPU or nothing is known of it."""
    workload_path: Known[str | None] = None
    """Value of the tag that names the workload spec; ``None`` = no such tag."""
    workload_error: str | None = None
    """Why that spec could not be read."""


@record(frozen=True, slots=True, kw_only=True)
class DiskFacts(Subject):
    """A disk declared on its own."""

    disk: Disk


@record(frozen=True, slots=True, kw_only=True)
class AttachmentFacts(Subject):
    """A disk that is attached to a machine. A zone is ``None`` where the document leaves it to others, or shows no such resource."""

    disk: str
    machine: str
    disk_zone: Known[str | None]
    machine_zone: Known[str | None]


@record(frozen=True, slots=True, kw_only=True)
class ReservationFacts(Subject):
    """Reserved capacity. ``ends_on`` is ``None`` where it has no end."""

    ends_on: Known[date | None]


@record(frozen=True, slots=True, kw_only=True)
class Opening:
    """What a firewall lets in: from one range of addresses to some ports (``None`` = all)."""

    key: str
    cidr: Known[str]
    ports: Known[tuple[int, int] | None]


@record(frozen=True, slots=True, kw_only=True)
class FirewallFacts(Subject):
    """A security group, or a firewall rule, with what it lets in."""

    openings: Known[tuple[Opening, ...]]


def constraint_key(workload: Workload) -> str:
    """The key of a workload that narrows the choice of machines: the first that is written, else its model."""
    placement = workload.placement
    written = (placement.instance_types, placement.gpus, placement.max_gpus)
    keys = ("placement.instance_types", "placement.gpus", "placement.max_gpus")
    return next((key for key, value in zip(keys, written, strict=True) if value), "model")


def value_of(part: Any, key: str) -> Any:
    """What stands behind a dotted key; ``None`` below a word (``run: auto``) and below what is absent."""
    for name in key.split("."):
        part = getattr(part, name) if isinstance(part, SpecPart) else None
    return part


def plain_variables(workload: Workload) -> dict[str, str]:
    """Variables of ``run.env`` that are no secrets."""
    run = workload.run
    return {name: value for name, value in run.env.items() if isinstance(value, str)} if isinstance(run, Run) else {}


def overlaps(key: str, other: str) -> bool:
    """Whether one dotted key lies on the way to the other, or is the same."""
    return key == other or key.startswith((f"{other}.", f"{other}[")) or other.startswith((f"{key}.", f"{key}["))


def parents(key: str) -> tuple[str, ...]:
    """A dotted key and all keys above it, nearest first."""
    found = [key]
    while (cut := max(key.rfind("."), key.rfind("["))) > 0:
        key = key[:cut]
        found.append(key)
    return tuple(found)


def steps(key: str) -> tuple[str | int, ...]:
    """A dotted key as path: ``offers[1].region`` is ``("offers", 1, "region")``."""
    return tuple(int(index) if index else name for index, name in _STEP.findall(key))
