"""A rig per cloud: the conformance suite and the clouds' own tests run on the same objects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from provisioner.clouds.cloud import Cloud, InstanceRequest, Placement, VolumeRequest
from provisioner.clouds.sandbox.clock import Host
from provisioner.clouds.sandbox.cloud import SandboxCloud
from provisioner.units import GIB
from provisioner.vocabulary import CapacityType

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

    def request(self, token: str = "token-1", **changes: object) -> InstanceRequest:
        placement = changes.pop("placement", self.here)
        assert isinstance(placement, Placement)
        values: dict[str, object] = {
            "token": token,
            "name": f"machine-{token}",
            "placement": placement,
            "image": self.cloud.resolve_image(placement),
            "root_volume_bytes": 100 * GIB,
            "tags": tags(),
            **changes,
        }
        return InstanceRequest(**values)  # type: ignore[arg-type]

    def volume(self, token: str = "volume-1", **changes: object) -> VolumeRequest:
        values: dict[str, object] = {
            "token": token,
            "name": f"disk-{token}",
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


def sandbox_rig(home: Path) -> Iterator[Rig]:
    clock = FakeHost()
    cloud = SandboxCloud(home, host=clock.host)
    here = Placement("aws", "us-east-1", "use1-az2", "g6.xlarge", CapacityType.ON_DEMAND)
    yield Rig(
        cloud=cloud,
        wait=lambda: clock.pass_time(seconds=10),
        here=here,
        next_zone=Placement("aws", "us-east-1", "use1-az4", "g6.xlarge", CapacityType.ON_DEMAND),
        spot=Placement("aws", "us-east-1", "use1-az2", "g6.xlarge", CapacityType.SPOT),
    )
    cloud.close()


def sandbox_gcp_rig(home: Path) -> Iterator[Rig]:
    clock = FakeHost()
    cloud = SandboxCloud(home, host=clock.host)
    yield Rig(
        cloud=cloud,
        wait=lambda: clock.pass_time(seconds=10),
        here=Placement("gcp", "us-central1", "us-central1-a", "g2-standard-8", CapacityType.ON_DEMAND),
        next_zone=Placement("gcp", "us-central1", "us-central1-b", "g2-standard-8", CapacityType.ON_DEMAND),
        spot=Placement("gcp", "us-central1", "us-central1-a", "a3-highgpu-8g", CapacityType.SPOT),
    )
    cloud.close()


RIGS = {"sandbox-aws": sandbox_rig, "sandbox-gcp": sandbox_gcp_rig}
"""Clouds that the conformance suite runs on: a new cloud adds its rig here."""


@pytest.fixture(params=sorted(RIGS))
def rig(request: pytest.FixtureRequest, home: Path) -> Iterator[Rig]:
    yield from RIGS[request.param](home)
