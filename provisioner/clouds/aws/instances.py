"""Machines on EC2: one create call whose every byte follows from the request, and readings by id and by tag."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from provisioner.catalog.disk_kinds import GP3, KINDS
from provisioner.clouds.aws import tagging, views
from provisioner.clouds.aws.images import Images
from provisioner.clouds.aws.network import Network, has_room, no_subnet
from provisioner.clouds.aws.places import Places
from provisioner.clouds.aws.quota import Quotas
from provisioner.clouds.aws.reservations import Reservations, Target, is_full, target_parameters
from provisioner.clouds.aws.session import AwsApi, filters, in_parallel
from provisioner.clouds.aws.settings import AwsSettings
from provisioner.clouds.aws.views import Described
from provisioner.clouds.cloud import Instance, InstanceRequest, InstanceState, Placement
from provisioner.errors import CapacityError, GpuprovError, NotFound, QuotaError, Rejected, TokenMismatch, TokenSpent
from provisioner.node.packing import packed_user_data
from provisioner.units import GIB, DiskSpeed, format_gib
from provisioner.vocabulary import CapacityType

_AHEAD = (CapacityType.RESERVED, CapacityType.CAPACITY_BLOCK)
_KINDS = (CapacityType.ON_DEMAND, CapacityType.SPOT, *_AHEAD)
_NO_SUBNET = re.compile(r"No (default subnet for availability zone|subnets found for the default VPC)")
"""Comes with several codes. Source: terraform-aws-modules/terraform-aws-ec2-instance#50,
hashicorp/terraform-provider-aws#4869."""
NO_IMAGE = "image"
"""Scope of a refusal for want of the image in a region."""
DISK_KIND = "gp3"
"""Every disk of ours."""
HOPS = 1
"""The metadata service answers the machine itself, and nothing behind another bridge."""


@dataclass(frozen=True, slots=True)
class Instances:
    """Machines of one account."""

    api: AwsApi
    places: Places
    images: Images
    network: Network
    quotas: Quotas
    settings: AwsSettings
    _asked: set[str] = field(default_factory=set)
    """Tokens whose call went out from this process: it may have taken effect, so it is made again whatever the quota says."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def create(self, request: InstanceRequest) -> Instance:
        """See ``Cloud.create_instance``."""
        region = request.placement.region
        self.places.require(region)
        parameters = self._parameters(request)
        if not self._is_asked(request.token):
            self._check_image(request)
            self._check_quota(request)
        self._note_asked(request.token)
        try:
            answer = self._run(region, parameters, self._targets(request))
        except TokenMismatch as error:
            raise _about_token(TokenMismatch, request.token, error) from error
        except TokenSpent as error:
            raise self._spent(request, error) from error
        except QuotaError as error:
            raise self.quotas.explain(request.placement, error) from error
        except (NotFound, Rejected) as error:
            if _NO_SUBNET.search(error.message):
                raise no_subnet(
                    error.message,
                    f"`aws ec2 create-default-subnet --region {region} --availability-zone ...`, or name aws.subnets",
                ) from error
            if not isinstance(error, NotFound):
                raise
            # The request names something that is not there; the machine itself cannot be missing yet.
            raise Rejected(error.message, where=error.where, remedy="correct the id, or leave it out") from error
        self.quotas.forget_use(region)
        made = views.view(answer["Instances"][0], region, self.places)
        if made.state.is_gone or made.state is InstanceState.TERMINATING:
            raise self._spent(request, None)
        return made

    def _run(self, region: str, common: Mapping[str, Any], targets: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The answer of the create call; a block that somebody has filled since it was read gives way to the next."""
        for target in targets[:-1]:
            try:
                return self.api.call("ec2", "RunInstances", region, once=True, **common, **target)
            except CapacityError as error:
                if not is_full(error):
                    raise
        return self.api.call("ec2", "RunInstances", region, once=True, **common, **targets[-1])

    @property
    def reservations(self) -> Reservations:
        """What the account has bought ahead."""
        return Reservations(self.api)

    def check_ahead(self, placement: Placement, ending: str | None = None) -> None:
        """Refuse an offer of capacity that is bought ahead where none of it has room; see ``Cloud.check_room``.

        Raises:
            CapacityError: none has; when the next one starts is said.
        """
        if placement.capacity_type in _AHEAD:
            described = None if ending is None else self.describe(placement.region, ending)
            holds = None if described is None else described.get("CapacityReservationId")
            self.reservations.targets(placement, holds)

    def rehearse(self, request: InstanceRequest) -> None:
        """Ask whether the create call would be allowed.

        Raises:
            GpuprovError: it would be refused, for want of rights or as invalid; of capacity EC2 says nothing.
        """
        parameters = self._parameters(request)
        del parameters["ClientToken"]
        target = self._targets(request)[0]
        self.api.rehearse("ec2", "RunInstances", request.placement.region, **parameters, **target)

    def get(self, placement: Placement, instance_id: str) -> Instance | None:
        """See ``Cloud.get_instance``."""
        described = self.describe(placement.region, instance_id)
        return None if described is None else views.view(described, placement.region, self.places)

    def find(self, tags: Mapping[str, str], placements: Sequence[Placement]) -> list[Instance]:
        """See ``Cloud.find_instances``. Regions that the account cannot start anything in hold nothing to find."""
        wanted = dict.fromkeys(place.region for place in placements if place.cloud == views.CLOUD)
        reachable = self.places.regions() if wanted else ()

        def look(region: str) -> Iterator[Instance]:
            for described in self._list(region, filters(tags)):
                instance = views.view(described, region, self.places)
                if tags.items() <= instance.tags.items():
                    yield instance

        found: list[Instance] = in_parallel(look, [region for region in wanted if region in reachable])
        return sorted(found, key=lambda instance: (instance.created_at, instance.id))

    def describe(self, region: str, instance_id: str) -> Described | None:
        """One machine as EC2 describes it, or ``None`` where nothing is visible under the id."""
        try:
            answer = self.api.call("ec2", "DescribeInstances", region, InstanceIds=[instance_id])
        except NotFound:
            return None
        return next((machine for one in answer["Reservations"] for machine in one["Instances"]), None)

    def existing(self, placement: Placement, instance_id: str) -> Described:
        """One machine that is there, in any state but gone or ending.

        Raises:
            NotFound: there is none.
        """
        described = self.describe(placement.region, instance_id)
        if described is not None:
            state = views.state(described)
            if not state.is_gone and state is not InstanceState.TERMINATING:
                return described
        raise NotFound(
            f"there is no instance {instance_id} in {placement.region}", remedy="`gpuprov refresh` shows what is"
        )

    def _list(self, region: str, asked: list[dict[str, Any]]) -> Iterator[Described]:
        for reservation in self.api.pages("ec2", "DescribeInstances", region, "Reservations", Filters=asked):
            yield from reservation["Instances"]

    def _is_asked(self, token: str) -> bool:
        with self._lock:
            return token in self._asked

    def _note_asked(self, token: str) -> None:
        with self._lock:
            self._asked.add(token)

    def _check_quota(self, request: InstanceRequest) -> None:
        try:
            self.quotas.check(request.placement, request.token)
        except QuotaError:
            # An earlier process may have made it a moment ago; a call that took effect is answered whatever the quota says.
            if not self._by_token(request):
                raise

    def _check_image(self, request: InstanceRequest) -> None:
        """Refuse an offer in a region that does not have the image, which belongs to one region; a call made before stays a call.

        Raises:
            CapacityError: the image is not there, and no machine was made from it with this token.
        """
        region = request.placement.region
        if self.images.exists(request.image, region) or self._by_token(request):
            return
        refusal = CapacityError(
            f"image {request.image} does not exist in {region}, or is not shared with this account",
            remedy=f"pin one of {region} (aws.image), or narrow placement.regions to where it is",
        )
        refusal.scope = NO_IMAGE
        raise refusal

    def _by_token(self, request: InstanceRequest) -> list[Described]:
        asked = [{"Name": "client-token", "Values": [request.token]}]
        return list(self._list(request.placement.region, asked))

    def _spent(self, request: InstanceRequest, error: TokenSpent | None) -> TokenSpent:
        """The refusal of a token whose machine has ended, with the machine's id where it still shows."""
        try:
            made = ", ".join(str(machine["InstanceId"]) for machine in self._by_token(request))
        except GpuprovError:
            made = ""
        cause = error or TokenSpent("the machine that it made has ended")
        return TokenSpent(
            f"{cause.message} (token {request.token} made {made or 'a machine that does not show any more'})",
            where=cause.where,
            remedy=cause.remedy,
        )

    def _parameters(self, request: InstanceRequest) -> dict[str, Any]:
        """Every byte of the create call."""
        placement = request.placement
        written = tagging.write(request.name, request.tags)
        kinds = ["instance", "volume", "network-interface"]
        parameters: dict[str, Any] = {
            "ClientToken": request.token,
            "ImageId": request.image,
            "InstanceType": placement.instance_type,
            "MinCount": 1,
            "MaxCount": 1,
            "BlockDeviceMappings": self._disks(request),
            "MetadataOptions": {
                "HttpTokens": "required",
                "HttpEndpoint": "enabled",
                "HttpPutResponseHopLimit": HOPS,
                "InstanceMetadataTags": "enabled" if tagging.fit_metadata(request.tags) else "disabled",
            },
            "InstanceInitiatedShutdownBehavior": "stop" if request.stop_on_shutdown else "terminate",
            **self._where(request),
            **self._market(request),
        }
        if placement.capacity_type is CapacityType.SPOT:
            kinds.append("spot-instances-request")
        parameters["TagSpecifications"] = tagging.specifications(kinds, written)
        if request.security_group is not None:
            parameters["SecurityGroupIds"] = [request.security_group]
        if request.user_data:
            parameters["UserData"] = packed_user_data(request.user_data, views.CLOUD)
        if self.settings.instance_profile:
            key = "Arn" if self.settings.instance_profile.startswith("arn:") else "Name"
            parameters["IamInstanceProfile"] = {key: self.settings.instance_profile}
        return parameters

    def _where(self, request: InstanceRequest) -> dict[str, Any]:
        """Subnet or zone; neither where the request leaves the zone to EC2."""
        placement = request.placement
        zone = None if placement.zone is None else self.places.zone_name(placement.region, placement.zone)
        subnets = self.network.own(placement)
        if not subnets:
            return {} if zone is None else {"Placement": {"AvailabilityZone": zone}}
        first = subnets[0]
        if len(subnets) == 1 or has_room(first):
            return {"SubnetId": str(first["SubnetId"])}
        # The machine of a repeated call may be what took the last address: it names that machine's own subnet again.
        if made := self._by_token(request):
            return {"SubnetId": str(made[0]["SubnetId"])}
        return {"SubnetId": str(next((one for one in subnets if has_room(one)), first)["SubnetId"])}

    def _market(self, request: InstanceRequest) -> dict[str, Any]:
        """How the capacity is bought; what was bought ahead is named apart, by ``_targets``.

        Source: EC2 API reference, SpotMarketOptions (a machine that may stop needs a persistent request); ansible/ansible#63246
        (spot and shutdown behaviour). ``MaxPrice`` is in USD an hour of one machine; without it, the on-demand price is the limit.
        """
        capacity_type = request.placement.capacity_type
        if capacity_type is CapacityType.SPOT:
            persistent = {"SpotInstanceType": "persistent", "InstanceInterruptionBehavior": "stop"}
            one_time = {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"}
            options = persistent if request.stop_on_shutdown else one_time
            if request.spot_usd_per_hour_max is not None:
                options["MaxPrice"] = request.spot_usd_per_hour_max
            return {"InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": options}}
        if capacity_type not in _KINDS:
            raise Rejected(f"EC2 has no {capacity_type} capacity", remedy="leave placement.capacity at auto")
        return {}

    def _targets(self, request: InstanceRequest) -> list[dict[str, Any]]:
        """What names the capacity of a create call, in the order in which it is tried; for most machines nothing does.

        A token that has made a machine names that machine's own again, so that a repeated call has the same bytes.

        Raises:
            CapacityError: what was bought ahead has no room.
        """
        placement = request.placement
        kind = placement.capacity_type
        if kind not in _AHEAD:
            return [{}]
        if (made := self._by_token(request)) and views.is_ahead(made[0]):
            return [target_parameters(Target(views.reservation_target(made[0])), kind)]
        return [target_parameters(target, kind) for target in self.reservations.targets(placement)]

    def root_refusal(self, request: InstanceRequest) -> Rejected | None:
        """Why the root disk cannot hold the image; ``None`` where it can, or where the image does not tell its size."""
        needed = self.images.describe(request.image, request.placement.region).disks[0].snapshot_bytes
        if needed is None or request.root_volume_bytes >= needed:
            return None
        return Rejected(
            f"the root disk of {format_gib(request.root_volume_bytes)} is smaller than image {request.image},"
            f" which needs {format_gib(needed)}",
            remedy="ask for a larger root disk, or pin a smaller image: aws.image",
        )

    def _disks(self, request: InstanceRequest) -> list[dict[str, Any]]:
        """The root disk in the wanted size, and the image's other disks; all encrypted, all ending with the machine."""
        root, *others = self.images.describe(request.image, request.placement.region).disks
        if (refusal := self.root_refusal(request)) is not None:
            raise refusal
        common: dict[str, Any] = {"Encrypted": True, "DeleteOnTermination": True}
        if self.settings.kms_key:
            common["KmsKeyId"] = self.settings.kms_key
        size = {
            "VolumeSize": -(-request.root_volume_bytes // GIB),
            "VolumeType": DISK_KIND,
            **speed_parameters(request.root_speed, request.root_volume_bytes),
        }
        return [
            {"DeviceName": root.device, "Ebs": {**size, **common}},
            *({"DeviceName": disk.device, "Ebs": common} for disk in others),
        ]


def speed_parameters(speed: DiskSpeed | None, size_bytes: int) -> dict[str, Any]:
    """What a call says about the speed of a gp3 disk of a size; nothing for what gp3 includes.

    Raises:
        Rejected: no disk of that size has this speed.
    """
    if speed is None:
        return {}
    refusal = KINDS[GP3].refusal(speed, size_bytes)
    if refusal is not None:
        raise Rejected(f"gp3: {refusal}", remedy="make the disk larger, or slower")
    return {"Iops": speed.iops, "Throughput": speed.mib_per_s}


def _about_token(kind: type[TokenMismatch], token: str, error: TokenMismatch) -> TokenMismatch:
    return kind(f"{error.message} (token {token})", where=error.where, remedy=error.remedy)
