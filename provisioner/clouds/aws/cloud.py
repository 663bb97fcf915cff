"""An AWS account as a cloud: each call of the interface goes to the file that owns its concern."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from provisioner.clouds.aws.health import read_health
from provisioner.clouds.aws.images import Images
from provisioner.clouds.aws.instances import Instances
from provisioner.clouds.aws.inventory import Inventory
from provisioner.clouds.aws.metrics import Metrics
from provisioner.clouds.aws.network import Network
from provisioner.clouds.aws.places import Places
from provisioner.clouds.aws.power import Power
from provisioner.clouds.aws.preflight import Preflight
from provisioner.clouds.aws.quota import Quotas
from provisioner.clouds.aws.rates import Rates
from provisioner.clouds.aws.session import AwsApi
from provisioner.clouds.aws.settings import AwsSettings
from provisioner.clouds.aws.shell import Shell, asked, open_shell
from provisioner.clouds.aws.storage import Storage
from provisioner.clouds.aws.strays import Strays
from provisioner.clouds.aws.terms import Inspector
from provisioner.clouds.aws.views import CLOUD
from provisioner.clouds.cloud import (
    BillableObject,
    Health,
    Inspection,
    Instance,
    InstanceRequest,
    Placement,
    Readiness,
    Signals,
    Survey,
    Terms,
    Volume,
    VolumeRequest,
)
from provisioner.units import DiskSpeed

if TYPE_CHECKING:  # most calls need no catalog
    from provisioner.catalog.snapshot import Catalog


class AwsCloud:
    """EC2 in all regions of an account. Nothing is imported from boto3 or asked of AWS before the first call.

    Safe to share between threads.
    """

    def __init__(self, settings: AwsSettings | None = None, *, catalog: Callable[[], Catalog] | None = None) -> None:
        """Name the account; nothing is asked yet.

        Args:
            settings: the user's own objects; the account's defaults where there are none.
            catalog: gives instance types, quotas, image selectors and prices; the bundled ones by default.
        """
        own = settings or AwsSettings()
        once = _Once(catalog or _bundled_catalog)
        self._settings = own
        self._api = AwsApi(own)
        places = Places(self._api)
        self._images = Images(self._api, places, once)
        self._network = Network(self._api, places, own)
        quotas = Quotas(self._api, once, own.profile)
        self._instances = Instances(self._api, places, self._images, self._network, quotas, own)
        self._power = Power(self._instances)
        self._storage = Storage(self._instances)
        rates = Rates(once)
        self._inventory = Inventory(self._instances, rates)
        self._strays = Strays(self._instances, rates)
        self._inspector = Inspector(self._instances)
        self._metrics = Metrics(self._instances, once)
        self._places = places
        self._preflight = Preflight(self._instances)

    @property
    def provider(self) -> str:
        """``aws``."""
        return CLOUD

    def identity(self) -> str:
        """Who the credentials are and what they reach, for people: ``arn:… in account …, 17 regions``.

        Raises:
            CredentialsError: they are missing, expired or not valid; the remedy is the line that mends it.
        """
        who = self._api.call("sts", "GetCallerIdentity", self._api.home_region)
        return f"{who['Arn']} in account {who['Account']}, {len(self._places.regions())} regions enabled"

    def account(self) -> str:
        """Number of the account that the credentials belong to.

        Raises:
            CredentialsError: there are none, or they have expired.
        """
        return self._api.account()

    def now(self) -> datetime:
        """This host's time: the SDK refuses to sign where it is more than minutes off."""
        return datetime.now(UTC)

    def resolve_image(self, placement: Placement) -> str:
        """The newest Deep Learning AMI that drives the placement's GPUs."""
        return self._images.resolve(placement)

    def create_instance(self, request: InstanceRequest) -> Instance:
        """See ``Cloud.create_instance``."""
        return self._instances.create(request)

    def check_room(self, placement: Placement, ending: str | None = None) -> None:
        """See ``Cloud.check_room``: EC2 tells quotas and what was bought ahead, and of other capacity nothing."""
        self._instances.quotas.check(placement, None, ending)
        self._instances.check_ahead(placement, ending)

    def get_instance(self, placement: Placement, instance_id: str) -> Instance | None:
        """See ``Cloud.get_instance``."""
        return self._instances.get(placement, instance_id)

    def find_instances(self, tags: Mapping[str, str], placements: Sequence[Placement]) -> list[Instance]:
        """See ``Cloud.find_instances``."""
        return self._instances.find(tags, placements)

    def start_instance(self, placement: Placement, instance_id: str) -> Instance:
        """See ``Cloud.start_instance``."""
        return self._power.start(placement, instance_id)

    def stop_instance(self, placement: Placement, instance_id: str) -> Instance:
        """See ``Cloud.stop_instance``."""
        return self._power.stop(placement, instance_id)

    def stop_refusal(self, placement: Placement, instance_id: str) -> str | None:
        """See ``Cloud.stop_refusal``."""
        return self._power.stop_refusal(placement, instance_id)

    def set_user_data(self, placement: Placement, instance_id: str, user_data: str) -> None:
        """See ``Cloud.set_user_data``."""
        self._power.set_user_data(placement, instance_id, user_data)

    def set_shutdown(self, placement: Placement, instance_id: str, *, stops: bool) -> None:
        """See ``Cloud.set_shutdown``."""
        self._power.set_shutdown(placement, instance_id, stops=stops)

    def terminate_instance(self, placement: Placement, instance_id: str) -> None:
        """See ``Cloud.terminate_instance``."""
        self._power.terminate(placement, instance_id)

    def set_tags(self, placement: Placement, object_id: str, tags: Mapping[str, str]) -> None:
        """See ``Cloud.set_tags``."""
        self._inventory.set_tags(placement, object_id, tags)

    def create_volume(self, request: VolumeRequest) -> Volume:
        """See ``Cloud.create_volume``."""
        return self._storage.create(request)

    def find_volumes(self, tags: Mapping[str, str], placements: Sequence[Placement]) -> list[Volume]:
        """See ``Cloud.find_volumes``."""
        return self._storage.find(tags, placements)

    def get_volume(self, placement: Placement, volume_id: str) -> Volume | None:
        """See ``Cloud.get_volume``."""
        return self._storage.get(placement, volume_id)

    def attach_volume(self, placement: Placement, instance_id: str, volume_id: str) -> None:
        """See ``Cloud.attach_volume``."""
        self._storage.attach(placement, instance_id, volume_id)

    def grow_volume(
        self, placement: Placement, volume_id: str, size_bytes: int, speed: DiskSpeed | None = None
    ) -> Volume:
        """See ``Cloud.grow_volume``."""
        return self._storage.grow(placement, volume_id, size_bytes, speed)

    def set_root_speed(self, placement: Placement, instance_id: str, speed: DiskSpeed) -> None:
        """See ``Cloud.set_root_speed``."""
        self._storage.set_root_speed(placement, instance_id, speed)

    def delete_volume(self, placement: Placement, volume_id: str) -> None:
        """See ``Cloud.delete_volume``."""
        self._storage.delete(placement, volume_id)

    def ensure_security_group(
        self, placement: Placement, tags: Mapping[str, str], cidrs: Sequence[str], ports: Sequence[int]
    ) -> str:
        """See ``Cloud.ensure_security_group``."""
        return self._network.ensure_group(placement, tags, cidrs, ports)

    def foreign_rules(
        self, placement: Placement, group_id: str, cidrs: Sequence[str], ports: Sequence[int]
    ) -> tuple[str, ...]:
        """Rules of a group that are other than the spec's, as somebody has left them."""
        return self._network.foreign_rules(placement, group_id, cidrs, ports)

    def delete_security_group(self, placement: Placement, group_id: str) -> None:
        """See ``Cloud.delete_security_group``."""
        self._network.delete_group(placement, group_id)

    def list_objects(self) -> list[BillableObject]:
        """See ``Cloud.list_objects``."""
        return self._inventory.list_objects()

    def preflight(self, offers: Sequence[Placement], root_volume_bytes: int) -> list[Readiness]:
        """What would refuse a launch of the offers, as far as it can be told before anything is made."""
        return self._preflight.check(offers, root_volume_bytes)

    def survey(self) -> Survey:
        """What the account lists, and the regions that do not answer."""
        return self._inventory.survey()

    def inspect(self, placement: Placement, instance_id: str, terms: Terms) -> Inspection:
        """What somebody has changed on a machine; what may not be read is unknown."""
        return self._inspector.inspect(placement, instance_id, terms)

    def put_right(self, placement: Placement, instance_id: str, terms: Terms) -> None:
        """Change back what can be changed back while the machine runs; its root disk's speed is set by itself."""
        self._inspector.put_right(placement, instance_id, terms)

    def read_health(self, placement: Placement, instance_id: str) -> Health:
        """Status checks and announced events of a running machine; what may not be read is unknown."""
        return read_health(self._api, placement, instance_id)

    def open_shell(
        self, placement: Placement, instance_id: str, port: int | None = None, local_port: int | None = None
    ) -> Shell:
        """A session with a machine, or one of its ports forwarded, without an open port (``shell``)."""
        return open_shell(self._api, self._settings, placement, asked(instance_id, port, local_port))

    def read_console(self, placement: Placement, instance_id: str) -> tuple[str, ...]:
        """See ``Cloud.read_console``."""
        return self._metrics.console(placement, instance_id)

    def read_signals(self, placement: Placement, instance_id: str, since: datetime) -> Signals:
        """See ``Cloud.read_signals``."""
        return self._metrics.signals(placement, instance_id, since)

    def list_others(self) -> list[BillableObject]:
        """See ``Cloud.list_others``."""
        found = self._metrics.survey_others()
        for error in found.unlisted.values():
            raise error
        return list(found.objects)

    def survey_with_strays(self) -> Survey:
        """What ``survey`` lists, and with it what only ``gc`` looks for (``strays``)."""
        return self._inventory.survey(self._strays.list_region)

    def end_stray(self, region: str, kind: str, object_id: str) -> None:
        """End one of the kinds that only ``gc`` looks for."""
        self._strays.end(region, kind, object_id)

    def survey_others(self) -> Survey:
        """What ``list_others`` lists, and the regions that do not answer."""
        return self._metrics.survey_others()


class _Once:
    """A catalog that is read at the first need and then kept, whichever thread needs it first."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._catalog: Any = None

    def __call__(self) -> Any:
        with self._lock:
            if self._catalog is None:
                self._catalog = self._load()
            return self._catalog


def _bundled_catalog() -> Catalog:
    from provisioner.catalog.snapshot import load_catalog

    return load_catalog()
