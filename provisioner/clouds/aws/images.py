"""The machine image of an offer: a Deep Learning AMI with a driver for its GPU generation, from the catalog's selectors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from provisioner.clouds.aws.places import Places
from provisioner.clouds.aws.session import AwsApi
from provisioner.clouds.cloud import Placement
from provisioner.errors import NotFound, Rejected
from provisioner.units import GIB

if TYPE_CHECKING:  # the catalog is read when an image is first looked up
    from provisioner.catalog.images import DriverFloor, ImageSelector
    from provisioner.catalog.instances import InstanceType
    from provisioner.catalog.snapshot import Catalog

_OPEN_MODULES = "OSS"
_BASE = "Base"
_SAME_AS = "as "
_USUAL_ROOT = "/dev/sda1"
_NAMED = ("name", "describe_images_name")
_CONFIDENCE = ("observed", "derived", "assumed", "unverified")


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk that an image brings."""

    device: str
    snapshot_bytes: int | None
    """What the snapshot needs; ``None`` where the image does not say."""


@dataclass(frozen=True, slots=True)
class Image:
    """What a create call must know of an image. The first disk is the root; nothing of it ever changes for an id."""

    id: str
    disks: tuple[Disk, ...]


class Images:
    """Images by placement and by id. Safe to share between threads."""

    def __init__(self, api: AwsApi, places: Places, catalog: Callable[[], Catalog]) -> None:
        self._api = api
        self._places = places
        self._load = catalog
        self._lock = threading.Lock()
        self._found: dict[tuple[str, str], str | None] = {}
        self._described: dict[tuple[str, str], Image] = {}

    def resolve(self, placement: Placement) -> str:
        """Id of the newest image for a placement, in its region.

        Raises:
            Rejected: no image is known for the instance type, or the region is not enabled.
            NotFound: none of the known ones exists in the region.
        """
        selectors = tuple(self.selectors(placement.instance_type))
        if not selectors:
            raise Rejected(
                f"no Deep Learning AMI is known for {placement.instance_type}", remedy="pin one for it: aws.image"
            )
        self._places.require(placement.region)
        for selector in selectors:
            found = self._newest(selector, placement.region)
            if found is not None:
                return found
        tried = ", ".join(selector.selector for selector in selectors)
        raise NotFound(f"none of {tried} exists in {placement.region}", remedy="pin an image: aws.image")

    def describe(self, image_id: str, region: str) -> Image:
        """Root device and sizes of an image; the usual root device of one that does not show.

        An image that has been withdrawn must not keep a call from being made again: EC2 itself says what it thinks of it.
        """
        return self._describe(image_id, region) or Image(image_id, (Disk(_USUAL_ROOT, None),))

    def exists(self, image_id: str, region: str) -> bool:
        """Whether an image shows in a region."""
        return self._describe(image_id, region) is not None

    def _describe(self, image_id: str, region: str) -> Image | None:
        key = (region, image_id)
        with self._lock:
            known = self._described.get(key)
        if known is not None:
            return known
        try:
            found = self._api.call("ec2", "DescribeImages", region, ImageIds=[image_id])["Images"]
        except NotFound:
            found = []
        if not found:
            return None
        image = _image(image_id, found[0])
        with self._lock:
            self._described[key] = image
        return image

    def selectors(self, instance_type: str) -> Iterator[ImageSelector]:
        """Selectors of images that drive the GPUs of an instance type, the best known first."""
        instance = self._catalog.instances.get(("aws", instance_type))
        if instance is None or instance.gpu_model is None:
            return
        floor = self._floor(instance)
        if floor is None:
            return
        rows = [row for row in self._catalog.images if row.cloud == "aws" and _BASE in row.image]
        fitting = [row for row in rows if _drives(row, instance, floor) and _lists(row, instance, rows)]
        yield from sorted(fitting, key=_preference)

    @cached_property
    def _catalog(self) -> Catalog:
        return self._load()

    def _floor(self, instance: InstanceType) -> DriverFloor | None:
        gpu = self._catalog.gpus.get(instance.gpu_model or "")
        if gpu is None or gpu.compute_capability is None:
            return None
        floors = self._catalog.driver_floors
        return next((floor for floor in floors if gpu.compute_capability in floor.compute_capabilities), None)

    def _newest(self, selector: ImageSelector, region: str) -> str | None:
        key = (region, selector.selector)
        with self._lock:
            if key in self._found:
                return self._found[key]
        found = (
            self._by_name(selector, region)
            if selector.selector_kind in _NAMED
            else self._by_parameter(selector, region)
        )
        with self._lock:
            self._found[key] = found
        return found

    def _by_parameter(self, selector: ImageSelector, region: str) -> str | None:
        try:
            answer = self._api.call("ssm", "GetParameter", region, Name=selector.selector)
        except NotFound:
            return None
        return str(answer["Parameter"]["Value"])

    def _by_name(self, selector: ImageSelector, region: str) -> str | None:
        answer = self._api.call(
            "ec2",
            "DescribeImages",
            region,
            Owners=[selector.owner_or_project.split()[0]],
            Filters=[
                {"Name": "name", "Values": [selector.selector]},
                {"Name": "state", "Values": ["available"]},
                {"Name": "architecture", "Values": [selector.cpu_architecture]},
            ],
        )
        newest = max(answer["Images"], key=lambda image: str(image.get("CreationDate", "")), default=None)
        return None if newest is None else str(newest["ImageId"])


def _drives(row: ImageSelector, instance: InstanceType, floor: DriverFloor) -> bool:
    """Whether the image's architecture, kernel modules and driver suit a GPU generation."""
    if row.cpu_architecture != instance.cpu_architecture:
        return False
    wanted = _OPEN_MODULES in row.image
    if floor.kernel_modules == ("proprietary" if wanted else "open"):
        return False
    branches = [int(word.split(".")[0]) for word in (row.nvidia_driver_seen or "").split() if word[:3].isdecimal()]
    newest = max(branches, default=None)
    if newest is None:
        return True
    is_old = floor.min_driver_branch is not None and newest < floor.min_driver_branch
    is_new = floor.max_driver_branch is not None and newest > floor.max_driver_branch
    return not is_old and not is_new


def _lists(row: ImageSelector, instance: InstanceType, rows: list[ImageSelector]) -> bool:
    """Whether the vendor lists the instance family for an image; ``as above`` is the list of the same kind of image."""
    listed = row
    if row.supported_gpus.startswith(_SAME_AS):
        kin = [
            other
            for other in rows
            if not other.supported_gpus.startswith(_SAME_AS)
            and other.cpu_architecture == row.cpu_architecture
            and (_OPEN_MODULES in other.image) == (_OPEN_MODULES in row.image)
        ]
        if not kin:
            return False
        listed = kin[0]
    family = instance.name.partition(".")[0]
    return family in listed.supported_gpus.lower().split()


def _preference(row: ImageSelector) -> tuple[int, int, str]:
    """Parameters before name patterns, observed before unverified, then the newest system."""
    rank = _CONFIDENCE.index(row.confidence) if row.confidence in _CONFIDENCE else len(_CONFIDENCE)
    descending = "".join(chr(0x10FFFF - ord(letter)) for letter in row.image)
    return int(row.selector_kind in _NAMED), rank, descending


def _image(image_id: str, described: Mapping[str, Any]) -> Image:
    root = str(described.get("RootDeviceName") or _USUAL_ROOT)
    sizes = {
        str(mapping["DeviceName"]): mapping["Ebs"].get("VolumeSize")
        for mapping in described.get("BlockDeviceMappings") or ()
        if mapping.get("Ebs")
    }
    names = (root, *(name for name in sorted(sizes) if name != root))
    return Image(image_id, tuple(Disk(name, int(sizes[name]) * GIB if sizes.get(name) else None) for name in names))
