"""How a stack's machine is, beside whether it runs: impaired by its host or its system, or to be retired. Told, never acted on."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from provisioner.clouds.cloud import Cloud, Health, Placement

OK = "ok"


@runtime_checkable
class Diagnosing(Protocol):
    """A cloud that can tell how a machine is."""

    def read_health(self, placement: Placement, instance_id: str) -> Health | None:
        """How a running machine is; what may not be read is unknown and no error."""
        ...


def look(cloud: Cloud, placement: Placement, instance_id: str) -> Health | None:
    """How a running machine is; ``None`` where its cloud tells no such thing."""
    return cloud.read_health(placement, instance_id) if isinstance(cloud, Diagnosing) else None


def spoken(health: Health | None) -> str | None:
    """One line with what to do, ``ok``, or ``None`` where it is not known."""
    if health is None or health.unknown is not None:
        return None
    return "; ".join(f"{one.text}: {one.remedy}" for one in health.ailments) or OK
