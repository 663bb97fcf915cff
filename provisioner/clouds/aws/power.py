"""Stop, start and end: what a machine's market and state allow, and in which order.

Source: EC2 user guide, "Stop and start your instance" and "Spot Instance requests" (a persistent request starts a new machine
when its machine ends, so it is cancelled first).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from provisioner.clouds.aws import views
from provisioner.clouds.aws.errors import code_of
from provisioner.clouds.aws.instances import Instances
from provisioner.clouds.aws.views import Described
from provisioner.clouds.cloud import Instance, InstanceState, Placement
from provisioner.errors import CapacityError, CredentialsError, NotFound, QuotaError, Rejected, Throttled
from provisioner.node.packing import packed_user_data
from provisioner.vocabulary import CapacityType

_ALIVE = (InstanceState.PENDING, InstanceState.RUNNING)
SPOT_REQUEST_ID = "sir-"
"""A persistent request that lost its machine ends in the same way: it would start another one."""
_TAKEN_BACK = "IncorrectSpotRequestState"
"""Source: EC2 user guide, "Behavior of Spot Instance interruptions": only EC2 starts a machine that it has stopped."""
_TRIES = 4
_PAUSE_S = 0.5


@dataclass(frozen=True, slots=True)
class Power:
    """Power of the machines of one account."""

    instances: Instances
    sleep: Callable[[float], None] = time.sleep

    def start(self, placement: Placement, instance_id: str) -> Instance:
        """See ``Cloud.start_instance``."""
        described = self.instances.existing(placement, instance_id)
        seen = self._view(described, placement)
        if seen.state in _ALIVE:
            return seen
        if seen.state is not InstanceState.STOPPED:
            raise Rejected(f"{instance_id} is {seen.state}; only a stopped one can be started")
        try:
            self._once_more_if_throttled("StartInstances", placement, instance_id)
        except QuotaError as error:
            raise self.instances.quotas.explain(seen.placement, error) from error
        except Rejected as error:
            if code_of(error) != _TAKEN_BACK:
                raise
            raise CapacityError(
                f"{instance_id} was taken back, and EC2 itself starts it again when its pool has room",
                where=error.where,
                remedy="wait for it (`gpuprov status`), or end it: `gpuprov down`",
            ) from error
        return replace(seen, state=InstanceState.PENDING)

    def stop(self, placement: Placement, instance_id: str) -> Instance:
        """See ``Cloud.stop_instance``."""
        described = self.instances.existing(placement, instance_id)
        seen = self._view(described, placement)
        if seen.state in {InstanceState.STOPPING, InstanceState.STOPPED}:
            return seen
        refusal = self._stop_refusal(described, placement)
        if refusal is not None:
            raise Rejected(f"{instance_id}: {refusal}", remedy="terminate it instead: `gpuprov down`")
        self.instances.api.call("ec2", "StopInstances", placement.region, InstanceIds=[instance_id])
        return replace(seen, state=InstanceState.STOPPING, public_ip=None)

    def stop_refusal(self, placement: Placement, instance_id: str) -> str | None:
        """See ``Cloud.stop_refusal``."""
        return self._stop_refusal(self.instances.existing(placement, instance_id), placement)

    def set_user_data(self, placement: Placement, instance_id: str, user_data: str) -> None:
        """See ``Cloud.set_user_data``.

        Source: EC2 user guide, "Run commands when you launch" (user data can be changed while the instance is stopped).
        """
        described = self.instances.existing(placement, instance_id)
        state = views.state(described)
        if state is not InstanceState.STOPPED:
            raise Rejected(f"{instance_id} is {state}; its user data can be changed while it is stopped")
        self.instances.api.call(
            "ec2",
            "ModifyInstanceAttribute",
            placement.region,
            InstanceId=instance_id,
            UserData={"Value": packed_user_data(user_data, views.CLOUD)},
        )

    def set_shutdown(self, placement: Placement, instance_id: str, *, stops: bool) -> None:
        """See ``Cloud.set_shutdown``.

        Source: EC2 user guide, "Change instance initiated shutdown behavior" (while the instance is running or stopped).
        """
        if views.capacity_type(self.instances.existing(placement, instance_id)) is CapacityType.SPOT:
            # One that ends by itself under a persistent request is started anew, and under a one-time request cannot stop.
            raise Rejected(
                f"{instance_id}: what a shutdown does to a spot machine was settled with its request",
                remedy="make another machine: `gpuprov down --keep-data`, then `up`",
            )
        self.instances.api.call(
            "ec2",
            "ModifyInstanceAttribute",
            placement.region,
            InstanceId=instance_id,
            InstanceInitiatedShutdownBehavior={"Value": "stop" if stops else "terminate"},
        )

    def terminate(self, placement: Placement, instance_id: str) -> None:
        """See ``Cloud.terminate_instance``."""
        if instance_id.startswith(SPOT_REQUEST_ID):
            self._end_request(placement, instance_id)
            return
        described = self.instances.describe(placement.region, instance_id)
        request_id = self._request_of(placement, instance_id, described)
        if request_id is not None:
            self._end_request(placement, request_id, but=instance_id)
        if described is not None:
            state = views.state(described)
            if state.is_gone or state is InstanceState.TERMINATING:
                return
            self._let_root_end(placement, described)
        self._terminate(placement, instance_id)

    def _let_root_end(self, placement: Placement, described: Described) -> None:
        """Let the root disk end with its machine where somebody has changed that: it would bill on, held by no state."""
        stays = [
            {"DeviceName": mapping["DeviceName"], "Ebs": {"DeleteOnTermination": True}}
            for mapping in described.get("BlockDeviceMappings") or ()
            if mapping["DeviceName"] == described.get("RootDeviceName")
            and (mapping.get("Ebs") or {}).get("DeleteOnTermination") is False
        ]
        if stays:
            self.instances.api.call(
                "ec2",
                "ModifyInstanceAttribute",
                placement.region,
                InstanceId=described["InstanceId"],
                BlockDeviceMappings=stays,
            )

    def _view(self, described: Described, placement: Placement) -> Instance:
        return views.view(described, placement.region, self.instances.places)

    def _stop_refusal(self, described: Described, placement: Placement) -> str | None:
        """Why a machine cannot be stopped, or ``None``."""
        capacity_type = views.capacity_type(described)
        if capacity_type is CapacityType.CAPACITY_BLOCK:
            return "a capacity-block instance cannot be stopped"
        if capacity_type is not CapacityType.SPOT:
            return None
        request_id = described.get("SpotInstanceRequestId")
        request = self._spot_request(str(request_id), placement) if request_id else None
        if request is None or request.get("Type") != "persistent":
            return "a one-time spot instance cannot be stopped"
        if request.get("State") in views.CLOSED_REQUESTS:
            return f"its spot request is {request['State']}, so it can only be ended"
        return None

    def _terminate(self, placement: Placement, instance_id: str) -> None:
        try:
            self.instances.api.call("ec2", "TerminateInstances", placement.region, InstanceIds=[instance_id])
        except NotFound:
            return
        finally:
            self.instances.quotas.forget_use(placement.region)

    def _request_of(self, placement: Placement, instance_id: str, described: Described | None) -> str | None:
        """The spot request of a machine; one that does not show yet may have one all the same."""
        if described is not None:
            return described.get("SpotInstanceRequestId") or None
        asked = [{"Name": "instance-id", "Values": [instance_id]}]
        found = self.instances.api.pages(
            "ec2", "DescribeSpotInstanceRequests", placement.region, "SpotInstanceRequests", Filters=asked
        )
        return next((str(request["SpotInstanceRequestId"]) for request in found), None)

    def _end_request(self, placement: Placement, request_id: str, but: str | None = None) -> None:
        """Cancel a request, and end the machine that it has started since the one that it was made with ended.

        Such a machine carries none of the tags, so nothing else would find it. Source: EC2 user guide, "Tag your Spot
        Instance requests".
        """
        self._cancel(placement, request_id)
        request = self._spot_request(request_id, placement)
        started = request.get("InstanceId") if request is not None else None
        if not started or started == but:
            return
        try:
            self._terminate(placement, str(started))
        except CredentialsError as error:
            raise CredentialsError(
                f"{error.message}; {started}, which spot request {request_id} has started and which carries no tags, bills",
                where=error.where,
                remedy=f"end it: `aws ec2 terminate-instances --region {placement.region} --instance-ids {started}`",
            ) from error

    def _spot_request(self, request_id: str, placement: Placement) -> dict[str, Any] | None:
        try:
            answer = self.instances.api.call(
                "ec2", "DescribeSpotInstanceRequests", placement.region, SpotInstanceRequestIds=[request_id]
            )
        except NotFound:
            return None
        return next(iter(answer["SpotInstanceRequests"]), None)

    def _cancel(self, placement: Placement, request_id: str) -> None:
        try:
            self.instances.api.call(
                "ec2", "CancelSpotInstanceRequests", placement.region, SpotInstanceRequestIds=[request_id]
            )
        except NotFound:
            return

    def _once_more_if_throttled(self, operation: str, placement: Placement, instance_id: str) -> None:
        """One try, so that a want of capacity is not repeated by the SDK; a throttled one a few times, with jitter."""
        for number in range(1, _TRIES + 1):
            try:
                self.instances.api.call("ec2", operation, placement.region, once=True, InstanceIds=[instance_id])
            except Throttled:
                if number == _TRIES:
                    raise
                self.sleep(_PAUSE_S * 2**number * (0.5 + random.random() / 2))  # noqa: S311 - jitter, not a secret
            else:
                return
