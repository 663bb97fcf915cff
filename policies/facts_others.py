"""Other people's machines as facts: their own, and, where a tag names the workload, the workload placed on them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from policies.facts import UNKNOWN, Known, MachineFacts, PlacementFacts, Subject, Unknown, value_of
from policies.facts_machines import READERS
from policies.files import shown
from policies.placement import Place, Placer
from policies.resources import Resource
from provisioner.errors import SpecError
from provisioner.planner.requirements import KeyedSpecError
from provisioner.records import record
from provisioner.workload.load import load
from provisioner.workload.spec import Workload


@record(frozen=True, slots=True)
class Project:
    """The folders that the tag's path may be relative to: the program's own, and those above it up to the repository's."""

    folders: tuple[Path, ...]

    def find(self, path: str) -> Path | None:
        """The spec that a tag names; never outside the folders."""
        if Path(path).is_absolute():
            return None
        for folder in self.folders:
            try:
                found = (folder / path).resolve()
                if found.is_file() and any(found.is_relative_to(root) for root in self.folders):
                    return found
            except (OSError, ValueError):  # too long, or a null byte: no path of a file
                return None
        return None


def project_of(document: Path) -> Project:
    """The project of a document: its folder, the folders above it up to the repository's root, and the current folder."""
    start = document.absolute().resolve().parent
    folders = [start]
    for folder in (start, *start.parents):
        if folder not in folders:
            folders.append(folder)
        if (folder / ".git").exists():
            break
    else:
        folders = [start]
    here = Path.cwd().resolve()
    return Project(tuple(folders if here in folders else [*folders, here]))


def resource_subjects(
    resource: Resource, terraform_type: str, placer: Placer, project: Project, template: Resource | None = None
) -> Iterator[Subject]:
    """The subjects of one resource of a known type."""
    if template is not None:
        from policies.facts_aws import aws_machine

        subject: Subject | None = aws_machine(resource, placer.catalog, template=template)
    else:
        subject = READERS[terraform_type](resource, placer.catalog)
    if isinstance(subject, MachineFacts):
        yield from machine_subjects(subject, placer, project)
    elif subject is not None:
        yield subject


def machine_subjects(machine: MachineFacts, placer: Placer, project: Project) -> Iterator[Subject]:
    """A machine, and the workload that it names placed on it."""
    offered: Known[frozenset[str] | None] = UNKNOWN if isinstance(machine.instance, Unknown) else None
    if not isinstance(machine.instance, Unknown) and machine.instance is not None:
        offered = placer.regions_offered(machine.cloud, machine.instance.name)
    machine = replace(machine, regions_offered=offered, driver_branches=_branches(machine, placer))
    if isinstance(machine.workload_path, Unknown) or machine.workload_path is None:
        yield machine
        return
    spec = project.find(machine.workload_path)
    if spec is None:
        yield replace(machine, workload_error="there is no such file in the project")
        return
    try:
        workload = load(spec).workload
        placed = _placed(machine, workload, placer)
    except SpecError as error:
        yield replace(machine, workload_error=f"{error.where or shown(spec)}: {error.message}")
        return
    yield machine
    yield placed


def _branches(machine: MachineFacts, placer: Placer) -> Known[tuple[int | None, int | None] | None]:
    """First and last driver branch that knows the machine's GPU."""
    if isinstance(machine.instance, Unknown):
        return UNKNOWN
    gpu = placer.catalog.gpus.get(machine.instance.gpu_model or "") if machine.instance is not None else None
    floor = placer.driver_floor(gpu)
    return (floor.min_driver_branch, floor.max_driver_branch) if floor is not None else None


def _placed(machine: MachineFacts, workload: Workload, placer: Placer) -> PlacementFacts:
    kind = machine.instance_type
    place = Place(
        key="instance_type",
        cloud=machine.cloud,
        instance_type=UNKNOWN if isinstance(kind, Unknown) or kind is None else kind,
        capacity_type=machine.capacity_type,
        region=machine.region,
        disk_bytes=_disk_bytes(machine),
    )
    try:
        shape = placer.shape(workload)
    except KeyedSpecError as error:
        raise SpecError(error.message, where=error.where or error.key, remedy=error.remedy) from None
    return PlacementFacts(
        name=machine.name,
        path=machine.path,
        source=machine.source,
        tags=machine.tags,
        locate=machine.locate,
        workload=workload,
        shape=shape,
        candidates=(placer.candidate(workload, place),),
        container=value_of(workload, "run.image"),
        command=value_of(workload, "run.command"),
        pinned=True,
        suggest=lambda: placer.suggestion(workload, machine.cloud),
    )


def _disk_bytes(machine: MachineFacts) -> Known[int | None]:
    """All disks together; ``None`` where the image decides the root disk's size."""
    if isinstance(machine.disks, Unknown):
        return UNKNOWN
    sizes = [disk.size_bytes for disk in machine.disks]
    if any(isinstance(size, Unknown) for size in sizes):
        return UNKNOWN
    if None in sizes or not sizes:
        return None
    return sum(size for size in sizes if isinstance(size, int))
