"""The sandbox as a cloud: each call of the interface goes through the edge to the file that owns its concern."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from provisioner.clouds.cloud import (
    BillableObject,
    Health,
    Inspection,
    Instance,
    InstanceRequest,
    Placement,
    Signals,
    Terms,
    Volume,
    VolumeRequest,
)
from provisioner.clouds.sandbox import altered, health, instances, inventory, machines, metrics, network, storage
from provisioner.clouds.sandbox.api import Api
from provisioner.clouds.sandbox.call import About, Call
from provisioner.clouds.sandbox.clock import Host, from_us
from provisioner.clouds.sandbox.prices import Market, PriceList
from provisioner.clouds.sandbox.store import FILE_NAME, Store
from provisioner.units import DiskSpeed

if TYPE_CHECKING:  # the calls of a cloud need none of it
    from provisioner.clouds.sandbox.controls import Controls


def _bundled_catalog() -> PriceList:
    from provisioner.catalog.snapshot import load_catalog

    return load_catalog()


class SandboxCloud:
    """A pretend account that plays the offers of AWS and GCP. Opens its file and the catalog only when they are needed.

    Safe to share between threads; any number of processes may use the same home at once.
    """

    def __init__(
        self, home: Path, *, host: Host | None = None, catalog: Callable[[], PriceList] = _bundled_catalog
    ) -> None:
        self._store = Store(home / FILE_NAME)
        self._host = host or Host()
        self._market = Market(catalog)
        self._api = Api(self._store, self._host)

    @cached_property
    def controls(self) -> Controls:
        """What can be done to the sandbox from outside: limits, events, clock, faults, telemetry, bill."""
        from provisioner.clouds.sandbox.controls import Controls

        return Controls(self._store, self._host, self._market)

    @property
    def provider(self) -> str:
        """``sandbox``."""
        return inventory.PROVIDER

    def close(self) -> None:
        """Close the file; the next call opens it again."""
        self._store.close()

    def now(self) -> datetime:
        """The sandbox's time: the host's, plus what the clock was moved."""
        return self._api.now()

    def resolve_image(self, placement: Placement) -> str:
        """An image id that looks real and, like the real ones, is another one on another day."""
        self._market.prepare(placement.cloud)

        def act(call: Call) -> str:
            self._market.quote(placement)
            return _image(placement, from_us(call.now_us))

        return self._api.perform(About("resolve_image", placement.key), act)

    def create_instance(self, request: InstanceRequest) -> Instance:
        """See ``Cloud.create_instance``."""
        self._market.prepare(request.placement.cloud)
        about = About("create_instance", request.placement.key, token=request.token)
        return self._api.perform(about, lambda call: instances.create(call, request, self._market))

    def check_room(self, placement: Placement, ending: str | None = None) -> None:
        """See ``Cloud.check_room``."""
        self._market.prepare(placement.cloud)
        about = About("check_room", placement.key)
        self._api.perform(about, lambda call: instances.check_room(call, placement, self._market, ending))

    def get_instance(self, placement: Placement, instance_id: str) -> Instance | None:
        """See ``Cloud.get_instance``."""
        about = About("get_instance", placement.key, object_id=instance_id)
        return self._api.perform(about, lambda call: instances.get(call, placement, instance_id))

    def find_instances(self, tags: Mapping[str, str], placements: Sequence[Placement]) -> list[Instance]:
        """See ``Cloud.find_instances``."""
        return self._api.perform(About("find_instances"), lambda call: instances.find(call, tags, placements))

    def start_instance(self, placement: Placement, instance_id: str) -> Instance:
        """See ``Cloud.start_instance``."""
        about = About("start_instance", placement.key, object_id=instance_id)
        return self._api.perform(about, lambda call: instances.start(call, placement, instance_id))

    def stop_instance(self, placement: Placement, instance_id: str) -> Instance:
        """See ``Cloud.stop_instance``."""
        about = About("stop_instance", placement.key, object_id=instance_id)
        return self._api.perform(about, lambda call: instances.stop(call, placement, instance_id))

    def stop_refusal(self, placement: Placement, instance_id: str) -> str | None:
        """See ``Cloud.stop_refusal``."""
        about = About("stop_refusal", placement.key, object_id=instance_id)
        return self._api.perform(
            about, lambda call: machines.stop_refusal(instances.existing(call, placement, instance_id))
        )

    def set_user_data(self, placement: Placement, instance_id: str, user_data: str) -> None:
        """See ``Cloud.set_user_data``."""
        about = About("set_user_data", placement.key, object_id=instance_id)
        self._api.perform(about, lambda call: instances.set_user_data(call, placement, instance_id, user_data))

    def set_shutdown(self, placement: Placement, instance_id: str, *, stops: bool) -> None:
        """See ``Cloud.set_shutdown``."""
        about = About("set_shutdown", placement.key, object_id=instance_id)
        self._api.perform(about, lambda call: instances.set_shutdown(call, placement, instance_id, stops=stops))

    def terminate_instance(self, placement: Placement, instance_id: str) -> None:
        """See ``Cloud.terminate_instance``."""
        about = About("terminate_instance", placement.key, object_id=instance_id)
        self._api.perform(about, lambda call: instances.terminate(call, placement, instance_id))

    def set_tags(self, placement: Placement, object_id: str, tags: Mapping[str, str]) -> None:
        """See ``Cloud.set_tags``."""
        about = About("set_tags", placement.key, object_id=object_id)
        self._api.perform(about, lambda call: inventory.set_tags(call, placement, object_id, tags))

    def create_volume(self, request: VolumeRequest) -> Volume:
        """See ``Cloud.create_volume``."""
        self._market.prepare(request.cloud)
        about = About("create_volume", f"{request.cloud}/{request.region}/{request.zone}/*/*", token=request.token)
        return self._api.perform(about, lambda call: storage.create(call, request, self._market))

    def find_volumes(self, tags: Mapping[str, str], placements: Sequence[Placement]) -> list[Volume]:
        """See ``Cloud.find_volumes``."""
        return self._api.perform(About("find_volumes"), lambda call: storage.find(call, tags, placements))

    def get_volume(self, placement: Placement, volume_id: str) -> Volume | None:
        """See ``Cloud.get_volume``."""
        about = About("get_volume", placement.key, object_id=volume_id)
        return self._api.perform(about, lambda call: storage.get(call, placement, volume_id))

    def attach_volume(self, placement: Placement, instance_id: str, volume_id: str) -> None:
        """See ``Cloud.attach_volume``."""
        about = About("attach_volume", placement.key, object_id=volume_id)
        self._api.perform(about, lambda call: storage.attach(call, placement, instance_id, volume_id))

    def grow_volume(
        self, placement: Placement, volume_id: str, size_bytes: int, speed: DiskSpeed | None = None
    ) -> Volume:
        """See ``Cloud.grow_volume``."""
        about = About("grow_volume", placement.key, object_id=volume_id)
        return self._api.perform(
            about, lambda call: storage.grow(call, placement, volume_id, size_bytes, speed=speed, market=self._market)
        )

    def set_root_speed(self, placement: Placement, instance_id: str, speed: DiskSpeed) -> None:
        """See ``Cloud.set_root_speed``."""
        about = About("set_root_speed", placement.key, object_id=instance_id)
        self._api.perform(
            about, lambda call: instances.set_root_speed(call, placement, instance_id, speed, self._market)
        )

    def delete_volume(self, placement: Placement, volume_id: str) -> None:
        """See ``Cloud.delete_volume``."""
        about = About("delete_volume", placement.key, object_id=volume_id)
        self._api.perform(about, lambda call: storage.delete(call, placement, volume_id))

    def ensure_security_group(
        self, placement: Placement, tags: Mapping[str, str], cidrs: Sequence[str], ports: Sequence[int]
    ) -> str:
        """See ``Cloud.ensure_security_group``."""
        self._market.prepare(placement.cloud)
        rules = network.Rules(tuple(cidrs), tuple(ports))
        return self._api.perform(
            About("ensure_security_group", placement.key),
            lambda call: network.ensure(call, placement, tags, rules, self._market),
        )

    def delete_security_group(self, placement: Placement, group_id: str) -> None:
        """See ``Cloud.delete_security_group``."""
        about = About("delete_security_group", placement.key, object_id=group_id)
        self._api.perform(about, lambda call: network.delete(call, placement, group_id))

    def list_objects(self) -> list[BillableObject]:
        """See ``Cloud.list_objects``."""
        return self._api.perform(About("list_objects"), inventory.list_objects)

    def inspect(self, placement: Placement, instance_id: str, terms: Terms) -> Inspection:
        """What somebody has changed on a machine (``sandbox alter``); nothing of one that is not there."""
        about = About("inspect", placement.key, object_id=instance_id)

        def act(call: Call) -> Inspection:
            machine = machines.load(call.connection, instance_id)
            return Inspection() if machine is None or machine.is_gone else altered.inspect(machine, terms)

        return self._api.perform(about, act)

    def put_right(self, placement: Placement, instance_id: str, terms: Terms) -> None:
        """Change back what can be changed back while the machine runs."""
        about = About("put_right", placement.key, object_id=instance_id)
        self._api.perform(
            about, lambda call: altered.put_right(call, instances.existing(call, placement, instance_id), terms)
        )

    def read_health(self, placement: Placement, instance_id: str) -> Health:
        """How a machine is: well, unless ``sandbox impair`` says otherwise."""
        about = About("read_health", placement.key, object_id=instance_id)
        return self._api.perform(about, lambda call: health.read(call.connection, instance_id))

    def read_console(self, placement: Placement, instance_id: str) -> tuple[str, ...]:
        """See ``Cloud.read_console``."""
        about = About("read_console", placement.key, object_id=instance_id)
        return self._api.perform(about, lambda call: metrics.console(call, instance_id))

    def read_signals(self, placement: Placement, instance_id: str, since: datetime) -> Signals:
        """See ``Cloud.read_signals``."""
        about = About("read_signals", placement.key, object_id=instance_id)
        return self._api.perform(about, lambda call: metrics.signals(call, instance_id, since))

    def list_others(self) -> list[BillableObject]:
        """See ``Cloud.list_others``: machines that somebody made here without our tags."""
        return self._api.perform(About("list_others"), inventory.list_others)


def _image(placement: Placement, moment: datetime) -> str:
    day = moment.strftime("%Y%m%d")
    if placement.cloud == "gcp":
        return f"projects/gpuprov-sandbox/global/images/gpu-base-{day}"
    digest = hashlib.sha256(f"{placement.region}/{day}".encode()).hexdigest()
    return f"ami-0{digest[:16]}"
