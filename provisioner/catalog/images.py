"""Machine image selectors, and the driver branches that a GPU generation needs."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.catalog.files import CatalogFiles


@dataclass(frozen=True, slots=True)
class ImageSelector:
    """One row of images.csv: how to ask a cloud for the newest image of a kind."""

    cloud: str
    image: str
    selector_kind: str
    """``ssm``, ``describe_images_name``, ``name``, ``image_family`` or ``image``."""
    selector: str
    owner_or_project: str
    cpu_architecture: str
    supported_gpus: str
    nvidia_driver_seen: str | None
    os_user: str | None
    local_nvme_mount: str | None
    source: str
    as_of: str
    confidence: str


@dataclass(frozen=True, slots=True)
class DriverFloor:
    """One row of driver_floors.csv. Branches are NVIDIA driver major versions; ``None`` is no floor or no ceiling noted."""

    generation: str
    compute_capabilities: tuple[tuple[int, int], ...]
    kernel_modules: str
    """``open``, ``proprietary`` or ``open_or_proprietary``."""
    min_driver_branch: int | None
    max_driver_branch: int | None
    cuda: str
    source: str
    as_of: str
    confidence: str


def read_images(files: CatalogFiles) -> tuple[ImageSelector, ...]:
    """All image selectors in file order."""
    return tuple(
        ImageSelector(
            cloud=row["cloud"],
            image=row["image"],
            selector_kind=row["selector_kind"],
            selector=row["selector"],
            owner_or_project=row["owner_or_project"],
            cpu_architecture=row["cpu_architecture"],
            supported_gpus=row["supported_gpus"],
            nvidia_driver_seen=row["nvidia_driver_seen"] or None,
            os_user=row["os_user"] or None,
            local_nvme_mount=row["local_nvme_mount"] or None,
            source=row["source"],
            as_of=row["as_of"],
            confidence=row["confidence"],
        )
        for row in files.records("images.csv")
    )


def read_driver_floors(files: CatalogFiles) -> tuple[DriverFloor, ...]:
    """Driver limits of all GPU generations in file order."""
    return tuple(
        DriverFloor(
            generation=row["generation"],
            compute_capabilities=tuple(_capability(text) for text in row["compute_capability"].split()),
            kernel_modules=row["kernel_modules"],
            min_driver_branch=int(row["min_driver_branch"]) if row["min_driver_branch"] else None,
            max_driver_branch=int(row["max_driver_branch"]) if row["max_driver_branch"] else None,
            cuda=row["cuda"],
            source=row["source"],
            as_of=row["as_of"],
            confidence=row["confidence"],
        )
        for row in files.records("driver_floors.csv")
    )


def _capability(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    return int(major), int(minor)
