"""The create loop: offers in rank order, tokens that a replay repeats, one machine at most.

What the loop keeps: the call journal names the one call that may have taken effect unseen; that call is settled (the same call
again, then by tag) before any other offer is asked. A refusal moves on, a quota refusal takes its whole family along, and
everything else stops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from provisioner import tags
from provisioner.clouds.cloud import Cloud, Instance, InstanceRequest, Placement
from provisioner.errors import (
    Ambiguous,
    CapacityError,
    CloudError,
    CredentialsError,
    GpuprovError,
    QuotaError,
    Rejected,
    Throttled,
    TokenMismatch,
    TokenSpent,
)
from stacks.failures import Attempt
from stacks.provider import node, shutdown
from stacks.provider.identity import Slot, object_tags
from stacks.provider.inputs import SPEED_CLOUDS, InstanceInputs, Wait
from stacks.provider.journal import Journal, Note, Stage
from stacks.provider.lifeline import Lifeline
from stacks.provider.machine import VISIBILITY, Watch, is_loss, is_over
from stacks.provider.offers import access, image_of, price_limit
from stacks.provider.unavailable import Unavailable

PERMIT = timedelta(minutes=30)
"""How long after a launch its create calls may start (docs/decisions/0004)."""
ROUNDS_MAX = 8
"""New tokens for offers whose machine is gone already; more than that in one create means that something kills them."""
_REFUSALS = (CapacityError, QuotaError, TokenSpent)
"""Answers after which another call would be made: the next offer, or the next round."""
_SUBNET = "subnet"
"""Scope of a refusal for want of a network, which no waiting mends."""
_IMAGE = "image"
"""Scope of a refusal for want of the image in a region."""
_FIND_AFTER_LOSS = timedelta(seconds=10)
"""How long to look for a machine after the cloud did not answer six times; the next run looks again."""

WHOLE_ACCOUNT = "account"
"""Scope of a quota that counts over all regions. Source: reference report gcloudrig/gcloudrig#8 (GPUS_ALL_REGIONS)."""
CREATED = "created"
ADOPTED = "adopted"
SKIPPED = "skipped"
NO_IMAGE = "no-image"


class Failed(Exception):
    """No machine was made; why, and what was tried."""

    def __init__(self, cause: GpuprovError, attempts: Sequence[Attempt]) -> None:
        super().__init__(str(cause))
        self.cause = cause
        self.attempts = tuple(attempts)


class Unfinished(Exception):
    """A machine exists, and something after its creation failed."""

    def __init__(self, instance: Instance, cause: GpuprovError) -> None:
        super().__init__(str(cause))
        self.instance = instance
        self.cause = cause


@dataclass(slots=True)
class Failover:
    """One walk over the offers of one slot, under the lock of its journal."""

    cloud: Cloud
    lifeline: Lifeline
    journal: Journal
    slot: Slot
    inputs: InstanceInputs
    quota_family: Callable[[Placement], str]
    tell: Callable[[Attempt], None]
    unavailable: Unavailable | None = None
    """What this host knows to be refused just now; ``None``: nothing is kept (the sandbox)."""
    attempts: list[Attempt] = field(default_factory=list)
    groups: dict[tuple[str, str], str] = field(default_factory=dict)
    """Security group by cloud and region."""
    _out_of_quota: set[tuple[str, str, str, str]] = field(default_factory=set)
    _refusals: list[GpuprovError] = field(default_factory=list)

    @property
    def watch(self) -> Watch:
        """Waits on this cloud."""
        return Watch(self.cloud, self.lifeline)

    @property
    def waits(self) -> bool:
        """Whether a machine must run before it counts: asked for, or needed to attach disks."""
        return self.inputs.wait is Wait.READY or bool(self.inputs.volumes)

    def run(self, offers: Sequence[Placement], unsettled: Note | None = None) -> Instance:
        """A machine on the first offer that has one.

        Args:
            offers: in the order in which they are tried.
            unsettled: the call of an earlier run whose outcome this host does not know; made again before any other.

        Raises:
            Failed: no machine was made.
            Unfinished: a machine was made, and did not come to life.
        """
        try:
            if unsettled is not None:
                instance, is_spent = self._try(unsettled.placement, unsettled.round_number, is_repeat=True)
                if instance is not None:
                    return instance
                if unsettled.round_number == 0 and not is_spent:  # the same call would get the same answer
                    offers = [offer for offer in offers if offer != unsettled.placement]
            offers = self._worth_asking(offers)
            spent: list[Placement] = []
            for round_number in range(ROUNDS_MAX):
                spent = []
                for offer in offers:
                    instance, is_spent = self._try(offer, round_number)
                    if instance is not None:
                        return instance
                    if is_spent:
                        spent.append(offer)
                if not spent:
                    break
                offers = spent
        except GpuprovError as error:
            raise Failed(error, self.attempts) from error
        raise Failed(self._nothing_left(spent), self.attempts)

    def _worth_asking(self, offers: Sequence[Placement]) -> Sequence[Placement]:
        """The offers without those that were refused a short while ago; all of them where that would leave none.

        A person who asks again while everything was refused just now gets an answer, not a reminder.
        """
        if self.unavailable is None:
            return offers
        now = self.cloud.now()
        blocks = {offer.key: self.unavailable.block(offer, now) for offer in offers}
        open_ones = [offer for offer in offers if blocks[offer.key] is None]
        if not open_ones:
            return offers
        for offer in offers:
            if (block := blocks[offer.key]) is not None:
                until = f"{block.until:%H:%M} UTC"
                self.note(
                    offer, SKIPPED, f"refused a short while ago, and not asked again before {until}: {block.reason}"
                )
        return open_ones

    def note(self, offer: Placement, outcome: str, message: str = "") -> None:
        """Remember an attempt and tell it."""
        attempt = Attempt(offer.key, outcome, message)
        self.attempts.append(attempt)
        self.tell(attempt)

    def group(self, offer: Placement) -> str:
        """The closed security group of the offer's region, made or found by its tags."""
        key = (offer.cloud, offer.region)
        if key not in self.groups:
            self.groups[key] = self.cloud.ensure_security_group(offer, self.slot.tags, *access(self.inputs.workload))
        return self.groups[key]

    def _try(self, offer: Placement, round_number: int, *, is_repeat: bool = False) -> tuple[Instance | None, bool]:
        """The machine of one offer, if it has one, and whether the offer's token is spent."""
        if self._is_out_of_quota(offer):
            self.note(offer, SKIPPED, "the same quota refused an offer before it")
            return None, False
        if image_of(self.inputs.launch, offer) is None:
            self.note(offer, NO_IMAGE, "the launch found no image for it")
            return None, False
        try:
            if not is_repeat:
                self._check_permit()
            instance = self._settled(offer, round_number, is_repeat=is_repeat)
        except TokenSpent as error:
            self.note(offer, error.kind, error.message)
            return None, True
        except QuotaError as error:
            # Where nothing at all is left of a quota of the whole account, no region of the cloud has room.
            everywhere = (offer.cloud, "*", "*", "*")
            self._out_of_quota.add(everywhere if error.scope == WHOLE_ACCOUNT else self._quota(offer))
            self._refuse(offer, error)
            return None, False
        except CapacityError as error:
            if self.unavailable is not None:
                self.unavailable.note(offer, error, self.cloud.now())
            self._refuse(offer, error)
            return None, False
        except GpuprovError as error:
            self.note(offer, error.kind, error.message)
            raise
        if self.unavailable is not None:
            self.unavailable.forget(offer, self.cloud.now())
        return self.alive(offer, instance)

    def _refuse(self, offer: Placement, error: GpuprovError) -> None:
        self._refusals.append(error)
        self.note(offer, error.kind, error.message)

    def _settled(self, offer: Placement, round_number: int, *, is_repeat: bool) -> Instance:
        """The machine of one create call; the journal knows at each moment whether it may exist.

        A refusal of a call that is made again says nothing about the first time, so the journal does not forget that one.
        """
        try:
            request = self._request(offer, round_number)
        except _REFUSALS as error:
            if is_repeat:  # it is not the call itself that was refused, so it is as open as before
                raise CloudError(error.message, where=error.where, remedy=error.remedy) from error
            raise
        self.lifeline.check()  # before the note: a call that never went out needs no settling
        note = Note("instance", Stage.CALLING, offer, self.inputs.launch.generation, round_number, self.cloud.now())
        self.journal.write(note)
        try:
            instance = self.cloud.create_instance(request)
        except _REFUSALS as refusal:
            if is_repeat:
                instance = self._found_or_refused(offer, note, refusal)
            else:
                self.journal.amend(note.moved(Stage.REFUSED, self.cloud.now()))
                raise
        except (Rejected, CredentialsError, Throttled):
            if not is_repeat:
                self.journal.amend(note.moved(Stage.REFUSED, self.cloud.now()))
            raise
        except Ambiguous as error:
            if isinstance(error.__cause__, _REFUSALS):
                instance = self._found_or_refused(offer, note, error.__cause__)
            else:
                instance = self._found(offer, error)
        except TokenMismatch as error:
            # The call of an earlier run took effect, and its inputs were edited since: the tags tell which machine. One that
            # does not show in all that time is gone, since the call that made it is older than this one.
            gone = TokenSpent(
                f"{error.message}; its machine does not show any more", where=error.where, remedy=error.remedy
            )
            instance = self._found_or_refused(offer, note, gone)
        self.journal.amend(note.moved(Stage.MADE, self.cloud.now(), instance.id))
        return instance

    def _found_or_refused(self, offer: Placement, note: Note, refusal: GpuprovError) -> Instance:
        """The machine that an earlier call with this token made; the refusal of the last one where none shows.

        After a lost answer the machine itself may be what the call had no room for when it was made again.
        """
        found = self.watch.until_found(self.slot, [offer, *self.inputs.offers], VISIBILITY)
        if found:
            return found[0]
        self.journal.amend(note.moved(Stage.REFUSED, self.cloud.now()))
        raise refusal

    def _found(self, offer: Placement, error: CloudError) -> Instance:
        """The machine that an unanswered call made, by tag."""
        found = self.watch.until_found(self.slot, [offer, *self.inputs.offers], _FIND_AFTER_LOSS)
        if found:
            return found[0]
        remedy = "run the command again: it makes the same call with the same token, and finds what it made"
        raise type(error)(error.message, where=error.where, remedy=error.remedy or remedy) from error

    def alive(self, offer: Placement, instance: Instance, outcome: str = CREATED) -> tuple[Instance | None, bool]:
        """The machine once it runs, or none and that its token is spent: one that ended while it started makes room.

        Raises:
            Unfinished: it does neither.
            Rejected: it ended for a reason that lies in the request.
        """
        if not self.waits:
            self.note(offer, outcome, instance.id)
            return instance, False
        try:
            now = self.watch.until_running(instance)
            self.mark_seen(now)
            if is_over(now.state):
                self.watch.end(now.placement, now.id)
        except GpuprovError as error:
            self.note(offer, error.kind, error.message)
            raise Unfinished(instance, error) from error
        if is_over(now.state):
            reason = f": {now.console[-1]}" if now.console else ""
            if now.failure is not None:  # the next offer would make another machine that ends in the same way
                refusal = Rejected(f"{now.id} ended while it started ({now.state}{reason})", remedy=now.failure)
                self.note(offer, refusal.kind, refusal.message)
                raise refusal
            if self.unavailable is not None and is_loss(instance.state, now):
                self.unavailable.note_loss(offer, self.cloud.now())
            self._refuse(offer, CapacityError(f"{now.id} was taken back while it started ({now.state}{reason})"))
            return None, True
        self.note(offer, outcome, now.id)
        return now, False

    def mark_seen(self, instance: Instance) -> None:
        """Note that the machine was visible."""
        note = self.journal.read()
        if note is not None and note.object_id == instance.id:
            self.journal.amend(note.moved(Stage.SEEN, self.cloud.now()))

    def _request(self, offer: Placement, round_number: int) -> InstanceRequest:
        launch = self.inputs.launch
        image = image_of(launch, offer)
        if image is None:
            raise Rejected(f"the launch found no image for {offer.key}")
        return InstanceRequest(
            token=self.slot.token(launch.generation, round_number, offer.key),
            name=self.slot.name(launch.generation, round_number, offer.key),
            placement=offer,
            image=image,
            root_volume_bytes=self.inputs.root_volume_bytes,
            root_speed=self.inputs.root_speed if offer.cloud in SPEED_CLOUDS else None,
            tags=object_tags(
                self.slot,
                self.inputs.workload,
                generation=launch.generation,
                expires_at=launch.expires_at,
                owner=launch.owner,
                stated=self.inputs.tags,
            )
            | shutdown.wanted(self.inputs.workload, self.inputs.node, offer, {})
            | {tags.RUN_DIGEST: node.run_digest(self.inputs.workload, self.inputs.node)},
            security_group=self.group(offer),
            user_data=node.boot_data(self.inputs.workload, self.inputs.node, offer, self.inputs.volumes),
            stop_on_shutdown=node.stops(self.inputs.workload, self.inputs.node, offer),
            spot_usd_per_hour_max=price_limit(self.inputs.workload, offer),
        )

    def _check_permit(self) -> None:
        launch = self.inputs.launch
        age = self.cloud.now() - launch.created_at
        if age > PERMIT:
            raise CloudError(
                f"the launch of generation {launch.generation} is {age.total_seconds() / 60:.0f} min old; "
                f"its create calls start within {PERMIT.total_seconds() / 60:.0f} min",
                remedy="run the command again with a refresh, which renews the launch (5 min after its permit ended)",
            )

    def _is_out_of_quota(self, offer: Placement) -> bool:
        refused = self._out_of_quota
        return bool(refused) and ((offer.cloud, "*", "*", "*") in refused or self._quota(offer) in refused)

    def _quota(self, offer: Placement) -> tuple[str, str, str, str]:
        return offer.cloud, offer.region, self.quota_family(offer), offer.capacity_type.value

    def _nothing_left(self, spent: Sequence[Placement]) -> GpuprovError:
        """Why no offer gave a machine: quota only if quota was every refusal."""
        if spent:
            return TokenSpent(
                f"machines of this launch ended {ROUNDS_MAX} times in {', '.join(offer.key for offer in spent)}",
                remedy="find out what ends them; a refresh then renews the launch",
            )
        count = len({attempt.offer for attempt in self.attempts})
        tried = f"{count} offer{'s' if count != 1 else ''}"
        if self._refusals and all(isinstance(error, QuotaError) for error in self._refusals):
            first = self._refusals[0]
            return QuotaError(f"the quota refused all of {tried}: {first.message}", remedy=first.remedy)
        if self._refusals and all(error.scope == _SUBNET for error in self._refusals):
            first = self._refusals[0]
            return CapacityError(f"no subnet for any of {tried}: {first.message}", remedy=first.remedy)
        if self._refusals and all(error.scope == _IMAGE for error in self._refusals):
            first = self._refusals[0]
            return Rejected(f"no image for any of {tried}: {first.message}", remedy=first.remedy)
        if not self._refusals and self.attempts and all(a.outcome == NO_IMAGE for a in self.attempts):
            return Rejected(f"there is no machine image for any of {tried}", remedy="pin one: aws.image or gcp.image")
        return CapacityError(
            f"no capacity now in {tried}: {_summary(self.attempts)}",
            remedy="try again later, or allow more regions, GPUs or capacity types in `placement`; nothing was made",
        )


def _summary(attempts: Sequence[Attempt]) -> str:
    counts: dict[str, int] = {}
    for attempt in attempts:
        counts[attempt.outcome] = counts.get(attempt.outcome, 0) + 1
    return ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
