"""A rig per cloud: the conformance suite and the clouds' own tests run on the same objects."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.clouds.cloud import Cloud, Instance, InstanceRequest, Placement, VolumeRequest
from provisioner.clouds.sandbox.clock import Host
from provisioner.clouds.sandbox.cloud import SandboxCloud
from provisioner.clouds.sandbox.controls import Controls
from provisioner.units import GIB
from provisioner.vocabulary import CapacityType

if TYPE_CHECKING:  # moto costs seconds, and most tests need none of it
    from tests.fakes.aws import FakeAws

START = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@dataclass
class FakeHost:
    """A host whose time moves only when told, or while somebody sleeps."""

    moment: datetime = START
    sleeps: list[float] = field(default_factory=list)

    def now(self) -> datetime:
        return self.moment

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.moment += timedelta(seconds=seconds)

    def pass_time(self, **duration: float) -> None:
        self.moment += timedelta(**duration)

    @property
    def host(self) -> Host:
        return Host(now=self.now, sleep=self.sleep)


@dataclass
class Rig:
    """One cloud under test.

    ``wait`` lets every change that is under way come to its end; ``here`` and ``next_zone`` are offers of one region in
    two zones, ``spot`` one of a market that allows no stop.
    """

    cloud: Cloud
    wait: Callable[[], None]
    here: Placement
    next_zone: Placement
    spot: Placement

    def request(self, key: str = "token-1", **changes: object) -> InstanceRequest:
        placement = changes.pop("placement", self.here)
        assert isinstance(placement, Placement)
        values: dict[str, object] = {
            "token": key,
            "name": f"machine-{key}",
            "placement": placement,
            "image": self.cloud.resolve_image(placement),
            "root_volume_bytes": 100 * GIB,
            "tags": tags(),
            **changes,
        }
        return InstanceRequest(**values)  # type: ignore[arg-type]

    def volume(self, key: str = "volume-1", **changes: object) -> VolumeRequest:
        values: dict[str, object] = {
            "token": key,
            "name": f"disk-{key}",
            "cloud": self.here.cloud,
            "region": self.here.region,
            "zone": self.here.zone,
            "size_bytes": 500 * GIB,
            "tags": tags(resource="data"),
            **changes,
        }
        return VolumeRequest(**values)  # type: ignore[arg-type]


def tags(stack_id: str = "stack-0001", resource: str = "machine", expires_at: str = "none") -> Mapping[str, str]:
    """All tags of CONTRACTS section 8."""
    return {
        "gpuprov:stack-id": stack_id,
        "gpuprov:stack": "chat",
        "gpuprov:resource": resource,
        "gpuprov:generation": "1",
        "gpuprov:owner": "search",
        "gpuprov:expires-at": expires_at,
        "gpuprov:idle-after": "none",
        "gpuprov:terminate-after": "7d",
        "gpuprov:spec-digest": "sha256:" + "0" * 64,
    }


@dataclass
class Box(Rig):
    """A sandbox under test: its clock stands still unless it is told to move."""

    home: Path
    clock: FakeHost

    @property
    def controls(self) -> Controls:
        assert isinstance(self.cloud, SandboxCloud)
        return self.cloud.controls

    def running(self, key: str = "token-1", **changes: object) -> Instance:
        """A machine that has come up."""
        made = self.cloud.create_instance(self.request(key, **changes))
        self.wait()
        return made

    def see(self, machine: Instance) -> Instance | None:
        return self.cloud.get_instance(machine.placement, machine.id)


@functools.cache
def read_catalog_once() -> Catalog:
    """The bundled catalog; its tables are read-only, so all tests can share them."""
    return load_catalog()


def _box(home: Path, here: Placement, zone: str, spot: Placement) -> Box:
    clock = FakeHost()
    return Box(
        cloud=SandboxCloud(home, host=clock.host, catalog=read_catalog_once),
        wait=lambda: clock.pass_time(seconds=10),
        here=here,
        next_zone=replace(here, zone=zone),
        spot=spot,
        home=home,
        clock=clock,
    )


def sandbox_aws(home: Path) -> Iterator[Box]:
    here = Placement("aws", "us-east-1", "use1-az2", "g6.xlarge", CapacityType.ON_DEMAND)
    made = _box(home, here, "use1-az4", replace(here, capacity_type=CapacityType.SPOT))
    yield made
    made.cloud.close()


def sandbox_gcp(home: Path) -> Iterator[Box]:
    here = Placement("gcp", "us-central1", "us-central1-a", "g2-standard-8", CapacityType.ON_DEMAND)
    spot = replace(here, instance_type="a3-highgpu-8g", capacity_type=CapacityType.SPOT)
    made = _box(home, here, "us-central1-b", spot)
    yield made
    made.cloud.close()


@dataclass
class AwsRig(Rig):
    """EC2 as patched moto plays it, with the door that tests look through."""

    fake: FakeAws

    def running(self, key: str = "token-1", **changes: object) -> Instance:
        """A machine that has come up."""
        return self.cloud.create_instance(self.request(key, **changes))


@functools.cache
def serve_aws_once() -> FakeAws:
    """One emulated account a test process; each test finds it empty."""
    from tests.fakes.aws import FakeAws

    return FakeAws().start()


@functools.cache
def load_models_once(path: str | None = None) -> object:
    """The SDK's descriptions of services, read once a process."""
    from botocore.loaders import create_loader

    return create_loader(path)


def aws(home: Path) -> Iterator[AwsRig]:
    import botocore.session

    from provisioner.clouds.aws.cloud import AwsCloud

    fake = serve_aws_once()
    fake.reset()
    here = Placement("aws", "us-east-1", "use1-az2", "g6.xlarge", CapacityType.ON_DEMAND)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in fake.environment.items():
            patch.setenv(name, value)
        # Each session would read the SDK's description of EC2 again, 3 MB of JSON.
        patch.setattr(botocore.session, "create_loader", load_models_once)
        yield AwsRig(
            cloud=AwsCloud(catalog=read_catalog_once),
            wait=lambda: None,
            here=here,
            next_zone=replace(here, zone="use1-az4"),
            spot=replace(here, capacity_type=CapacityType.SPOT),
            fake=fake,
        )


def memory(home: Path) -> Iterator[Rig]:
    """The model on which every crash point is tried (tests/faults)."""
    from tests.fakes.cloud import FakeCloud

    del home
    here = Placement("aws", "us-east-1", "use1-az2", "g6.xlarge", CapacityType.ON_DEMAND)
    sold = {"g6.xlarge"}, {"use1-az2", "use1-az4", None}
    cloud = FakeCloud(
        visibility=timedelta(milliseconds=300),
        offered=lambda place: place.instance_type in sold[0] and place.zone in sold[1] and place.region == here.region,
    )
    yield Rig(
        cloud=cloud,
        wait=lambda: cloud.clock.advance(timedelta(seconds=10)),
        here=here,
        next_zone=replace(here, zone="use1-az4"),
        spot=replace(here, capacity_type=CapacityType.SPOT),
    )


RIGS: Mapping[str, Callable[[Path], Iterator[Rig]]] = {
    "aws": aws,
    "memory": memory,
    "sandbox-aws": sandbox_aws,
    "sandbox-gcp": sandbox_gcp,
}
"""Clouds that the conformance suite runs on: a new cloud adds its rig here."""


@pytest.fixture(params=sorted(RIGS))
def rig(request: pytest.FixtureRequest, home: Path) -> Iterator[Rig]:
    yield from RIGS[request.param](home)


@pytest.fixture
def aws_rig(home: Path) -> Iterator[AwsRig]:
    """EC2 on patched moto, over HTTP."""
    yield from aws(home)


@pytest.fixture
def box(home: Path) -> Iterator[Box]:
    """A sandbox that plays AWS."""
    yield from sandbox_aws(home)


@pytest.fixture
def gcp_box(home: Path) -> Iterator[Box]:
    """A sandbox that plays GCP."""
    yield from sandbox_gcp(home)


@pytest.fixture(scope="session")
def make_box() -> Callable[[Path], Box]:
    """Makes sandboxes that play AWS, for tests that need many; the test closes them."""
    return lambda home: next(sandbox_aws(home))  # type: ignore[arg-type,return-value]
