"""A cloud that is asked again where its answer was none: throttled, or lost on the way.

Every call of the ``Cloud`` protocol may be repeated: creates carry a token, the others name their object. So the same call
goes out again, a bounded number of times; what still has no answer then stays ``Ambiguous``, never "nothing happened".
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from provisioner.clouds.cloud import (
    BillableObject,
    Cloud,
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
from provisioner.errors import (
    Ambiguous,
    CapacityError,
    CloudError,
    CredentialsError,
    GpuprovError,
    QuotaError,
    Throttled,
    TokenMismatch,
    TokenSpent,
)
from provisioner.units import DiskSpeed
from stacks import foreign, health
from stacks.clouds import Walled, list_within
from stacks.provider.lifeline import Lifeline

T = TypeVar("T")

TRIES = 6
PATIENCE_S = 60.0
"""How long a reading is asked again: the last try begins before that. With the longest time of one answer, which a cloud keeps
itself (60 s on AWS), a reading ends within two minutes, one that hangs from the start within one."""
_PAUSE_FIRST_S = 0.4
_PAUSE_LAST_S = 8.0


@dataclass(frozen=True, slots=True)
class PatientCloud(Cloud):
    """Passes calls on; makes nothing once the engine is gone."""

    cloud: Cloud
    lifeline: Lifeline
    jitter: random.Random = field(default_factory=random.SystemRandom)
    clock_s: Callable[[], float] = time.monotonic

    @property
    def provider(self) -> str:
        """The provider of the cloud behind."""
        return self.cloud.provider

    def now(self) -> datetime:
        """The cloud's clock."""
        return self.cloud.now()

    def resolve_image(self, placement: Placement) -> str:
        """As the protocol says."""
        return self._ask(lambda: self.cloud.resolve_image(placement))

    def create_instance(self, request: InstanceRequest) -> Instance:
        """As the protocol says; refused once the engine is gone."""
        return self._ask(lambda: self.cloud.create_instance(request), makes=True, bills=True)

    def check_room(self, placement: Placement, ending: str | None = None) -> None:
        """As the protocol says."""
        self._ask(lambda: self.cloud.check_room(placement, ending))

    def get_instance(self, placement: Placement, instance_id: str) -> Instance | None:
        """As the protocol says."""
        return self._read(lambda: self.cloud.get_instance(placement, instance_id))

    def find_instances(self, tags: Mapping[str, str], placements: Sequence[Placement]) -> list[Instance]:
        """As the protocol says."""
        return self._read(lambda: self.cloud.find_instances(tags, placements))

    def start_instance(self, placement: Placement, instance_id: str) -> Instance:
        """As the protocol says; refused once the engine is gone."""
        return self._ask(lambda: self.cloud.start_instance(placement, instance_id), makes=True)

    def stop_instance(self, placement: Placement, instance_id: str) -> Instance:
        """As the protocol says."""
        return self._ask(lambda: self.cloud.stop_instance(placement, instance_id))

    def stop_refusal(self, placement: Placement, instance_id: str) -> str | None:
        """As the protocol says."""
        return self._ask(lambda: self.cloud.stop_refusal(placement, instance_id))

    def set_user_data(self, placement: Placement, instance_id: str, user_data: str) -> None:
        """As the protocol says."""
        self._ask(lambda: self.cloud.set_user_data(placement, instance_id, user_data))

    def set_shutdown(self, placement: Placement, instance_id: str, *, stops: bool) -> None:
        """As the protocol says."""
        self._ask(lambda: self.cloud.set_shutdown(placement, instance_id, stops=stops))

    def terminate_instance(self, placement: Placement, instance_id: str) -> None:
        """As the protocol says."""
        self._ask(lambda: self.cloud.terminate_instance(placement, instance_id))

    def set_tags(self, placement: Placement, object_id: str, tags: Mapping[str, str]) -> None:
        """As the protocol says."""
        self._ask(lambda: self.cloud.set_tags(placement, object_id, tags))

    def create_volume(self, request: VolumeRequest) -> Volume:
        """As the protocol says; refused once the engine is gone."""
        return self._ask(lambda: self.cloud.create_volume(request), makes=True, bills=True)

    def find_volumes(self, tags: Mapping[str, str], placements: Sequence[Placement]) -> list[Volume]:
        """As the protocol says."""
        return self._read(lambda: self.cloud.find_volumes(tags, placements))

    def get_volume(self, placement: Placement, volume_id: str) -> Volume | None:
        """As the protocol says."""
        return self._read(lambda: self.cloud.get_volume(placement, volume_id))

    def attach_volume(self, placement: Placement, instance_id: str, volume_id: str) -> None:
        """As the protocol says."""
        self._ask(lambda: self.cloud.attach_volume(placement, instance_id, volume_id))

    def grow_volume(
        self, placement: Placement, volume_id: str, size_bytes: int, speed: DiskSpeed | None = None
    ) -> Volume:
        """As the protocol says; refused once the engine is gone."""
        return self._ask(lambda: self.cloud.grow_volume(placement, volume_id, size_bytes, speed), makes=True)

    def set_root_speed(self, placement: Placement, instance_id: str, speed: DiskSpeed) -> None:
        """See ``Cloud.set_root_speed``."""
        self._ask(lambda: self.cloud.set_root_speed(placement, instance_id, speed), makes=True)

    def delete_volume(self, placement: Placement, volume_id: str) -> None:
        """As the protocol says."""
        self._ask(lambda: self.cloud.delete_volume(placement, volume_id))

    def ensure_security_group(
        self, placement: Placement, tags: Mapping[str, str], cidrs: Sequence[str], ports: Sequence[int]
    ) -> str:
        """As the protocol says; refused once the engine is gone."""
        return self._ask(lambda: self.cloud.ensure_security_group(placement, tags, cidrs, ports), makes=True)

    def foreign_rules(
        self, placement: Placement, group_id: str, cidrs: Sequence[str], ports: Sequence[int]
    ) -> tuple[str, ...]:
        """See ``stacks.clouds.Walled``; none where the cloud cannot say."""
        cloud = self.cloud
        if not isinstance(cloud, Walled):
            return ()
        return self._ask(lambda: cloud.foreign_rules(placement, group_id, cidrs, ports))

    def delete_security_group(self, placement: Placement, group_id: str) -> None:
        """As the protocol says."""
        self._ask(lambda: self.cloud.delete_security_group(placement, group_id))

    def list_objects(self) -> list[BillableObject]:
        """As the protocol says."""
        return self._read(self.cloud.list_objects)

    def list_within(self, regions: Collection[str]) -> list[BillableObject]:
        """Everything of ours; see ``stacks.clouds.list_within``."""
        return self._read(lambda: list_within(self.cloud, regions))

    def read_health(self, placement: Placement, instance_id: str) -> Health | None:
        """How a running machine is; ``None`` where its cloud tells no such thing."""
        return self._ask(lambda: health.look(self.cloud, placement, instance_id))

    def inspect(self, placement: Placement, instance_id: str, terms: Terms) -> Inspection:
        """What somebody has changed on a machine; see ``stacks.foreign``."""
        return self._ask(lambda: foreign.inspect(self.cloud, placement, instance_id, terms))

    def put_right(self, placement: Placement, instance_id: str, terms: Terms) -> None:
        """Change back what can be; see ``stacks.foreign``."""
        self._ask(lambda: foreign.put_right(self.cloud, placement, instance_id, terms), makes=True)

    def read_console(self, placement: Placement, instance_id: str) -> tuple[str, ...]:
        """See ``Cloud.read_console``."""
        return self._ask(lambda: self.cloud.read_console(placement, instance_id))

    def read_signals(self, placement: Placement, instance_id: str, since: datetime) -> Signals:
        """See ``Cloud.read_signals``."""
        return self._ask(lambda: self.cloud.read_signals(placement, instance_id, since))

    def list_others(self) -> list[BillableObject]:
        """See ``Cloud.list_others``."""
        return self._ask(self.cloud.list_others)

    def _read(self, call: Callable[[], T]) -> T:
        """The answer of a call that shows what exists.

        Raises:
            CloudError: instead of a refusal, which would be taken for one of the offer that is tried at that moment: a reading
                has no room, quota or token of its own.
        """
        try:
            return self._ask(call)
        except (CapacityError, QuotaError, TokenSpent, TokenMismatch) as error:
            raise CloudError(error.message, where=error.where, remedy=error.remedy) from error

    def _ask(self, call: Callable[[], T], *, makes: bool = False, bills: bool = False) -> T:
        """The answer of a call, asked up to ``TRIES`` times; one that makes nothing at most for ``PATIENCE_S``.

        Args:
            call: one try.
            makes: refused once the engine is gone.
            bills: what it makes costs money: a refusal after a try without an answer is not the last word on that try.

        Raises:
            Ambiguous: one of the tries may have taken effect, and none after it said which; its cause is the refusal of a
                later try, where there was one.
            GpuprovError: the cloud's own answer.
        """
        lost: Ambiguous | None = None
        slow: Throttled | None = None
        begun_s = self.clock_s()
        for number in range(TRIES):
            if number:
                if not makes and self.clock_s() - begun_s >= PATIENCE_S:
                    break
                self.lifeline.sleep(self._pause_s(number))
            if makes:
                self.lifeline.check()
            try:
                return call()
            except Ambiguous as error:
                lost = error
            except Throttled as error:
                slow = error
            except GpuprovError as error:
                # Lost rights, or a capacity that the first try itself has used up, say nothing about that try.
                if lost is not None and (bills or (makes and isinstance(error, CredentialsError))):
                    raise lost from error
                raise
        raise lost or slow or AssertionError("unreachable: there is a first try")

    def _pause_s(self, number: int) -> float:
        """Full pauses double; a random half of each keeps many callers from coming back at once."""
        full_s = min(_PAUSE_FIRST_S * 2.0 ** (number - 1), _PAUSE_LAST_S)
        return full_s * (0.5 + 0.5 * self.jitter.random())
