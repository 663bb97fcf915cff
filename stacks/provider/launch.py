"""``gpuprov:index:Launch``: the permit for one machine, committed before anything that bills (docs/decisions/0004)."""

from __future__ import annotations

import getpass
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from provisioner import tags
from provisioner.clouds.cloud import BillableObject, Instance, InstanceState, Placement
from provisioner.errors import NotFound, Rejected, UsageError
from provisioner.vocabulary import CapacityType
from stacks.provider import journal, lifetime
from stacks.provider.asked import placement_asked
from stacks.provider.failover import PERMIT
from stacks.provider.gpu_instance import checked_root_volume
from stacks.provider.identity import Slot, owner_of
from stacks.provider.inputs import (
    UNKNOWN_OWNER,
    LaunchFacts,
    at,
    read_launch,
    read_mapping,
    read_offers,
    read_size,
    root_volume,
)
from stacks.provider.inputs import failures as wrong_inputs
from stacks.provider.journal import Note, Stage
from stacks.provider.machine import (
    LOOKS,
    VISIBILITY,
    Wanted,
    generation_of,
    is_over,
    live,
    pinned_image,
    reasons_for_new,
    regions,
)
from stacks.provider.node import run_digest
from stacks.provider.offers import image_of, pool
from stacks.provider.recovery import KIND, places_of
from stacks.provider.session import Checked, Created, Difference, Found, Session, cloud_settings, echo, settings_output
from stacks.provider.values import UNKNOWN, Properties, has_unknown, plain_map, wrap_map

_READERS = {"workload": read_mapping, "offers": read_offers, "rootVolume": read_size, "node": read_mapping}
_ECHOED = ("rootVolume",)
_POOLS_MAX = 20
_LOOK_AGAIN_S = 0.2
_GONE = (InstanceState.TERMINATED.value, InstanceState.INTERRUPTED.value)


@dataclass(frozen=True, slots=True)
class Observed:
    """Machines of the stack as the cloud shows them."""

    live: Sequence[Instance] = ()
    gone: Sequence[Instance] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What an update of the launch does."""

    reasons: Mapping[str, str] = field(default_factory=dict)
    """Input (or output) -> why; empty: nothing."""
    raises_generation: bool = False


@dataclass(frozen=True, slots=True)
class Launches:
    """Operations on launches."""

    session: Session

    def check(self, urn: str, olds: Properties, news: Properties) -> Checked:
        """The inputs with the root disk in bytes, or what is wrong with them."""
        del urn
        values = plain_map(news)
        wrong = wrong_inputs(values, ("workload", "offers"), _READERS)
        if "workload" not in wrong and not has_unknown(values.get("workload")):
            try:
                lifetime.max_lifetime(values["workload"])
            except UsageError as error:
                wrong["workload"] = str(error)
        if wrong:
            return Checked(news, wrong)
        return Checked({**news, "rootVolume": checked_root_volume(olds, news)})

    def diff(self, olds: Properties, news: Properties) -> Difference:
        """Whether an update has anything to do; asks the cloud only where an input could force a new machine."""
        decision = self._decide(plain_map(olds), plain_map(news))
        return Difference(dict.fromkeys(decision.reasons, False), stable=("stackId", "owner", "provider"))

    def preview_create(self, news: Properties) -> Properties:
        """What is known of a launch before it is made."""
        unknown = dict.fromkeys(("stackId", "createdAt", "expiresAt", "image", "owner"), UNKNOWN)
        known = {"generation": 1, "avoid": [], "provider": self.session.provider}
        return {**echo(news, _ECHOED), **wrap_map({**unknown, **known})}

    def create(self, urn: str, news: Properties) -> Created:
        """A new identity, with everything that later calls are made of; written down before anything can carry it."""
        values = plain_map(news)
        stack_id = secrets.token_hex(16)
        self.session.note_made(stack_id, Slot.of(urn, stack_id).stack)
        workload = at("workload", values, read_mapping)
        facts = self._issue(stack_id, 1, values, owner_of(workload) or _user(), ())
        return Created(stack_id, self._outputs(facts, news))

    def preview_update(self, olds: Properties, news: Properties) -> Properties:
        """What an update would leave: times and images of a new generation are not known yet."""
        before, values = plain_map(olds), plain_map(news)
        outputs = {**olds, **echo(news, _ECHOED)}
        outputs.pop("spent", None)
        if self._decide(before, values).raises_generation:
            unknown = dict.fromkeys(("createdAt", "expiresAt", "image"), UNKNOWN)
            outputs |= wrap_map({**unknown, "generation": int(before["generation"]) + 1})
        return outputs

    def update(self, olds: Properties, news: Properties) -> Properties:
        """Raise the generation, or add images of new offers, as ``_decide`` says now."""
        before, values = plain_map(olds), plain_map(news)
        facts = read_launch(before)
        is_raised = self._decide(before, values).raises_generation
        # Only where none was seen: a live one that has to go is the very machine of this generation.
        if is_raised and not (before.get("spent") and self._has_unseen(facts, values)):
            avoid = self._avoid(facts, self._observe(facts, values))
            raised = self._issue(facts.stack_id, facts.generation + 1, values, facts.owner, avoid)
            return self._outputs(raised, news)
        return self._outputs(replace(facts, image=self._images(values, facts)), news)

    def read(self, resource_id: str, olds: Properties, inputs: Properties) -> Found:
        """The launch, with ``spent`` where its generation can make no machine any more."""
        before = plain_map(olds)
        facts = read_launch(before)
        asked_at = self.session.cloud.now()  # before the look: an answer may be long on its way
        reason = self._spent(facts, self._observe(facts, plain_map(inputs)), asked_at)
        outputs = {key: value for key, value in olds.items() if key != "spent"}
        return Found(resource_id, {**outputs, **wrap_map({"spent": reason})}, inputs)

    def delete(self, olds: Properties) -> None:
        """End every machine and group that still carries the stack-id: what a cut create left behind.

        Data disks are not touched: their own resource deletes them.

        Raises:
            GpuprovError: something is left.
        """
        facts = read_launch(plain_map(olds))
        self._wait_for_unseen(facts)
        for path in journal.paths(self.session.home, facts.stack_id):
            with journal.hold(path, self.session.lifeline) as calls:
                self._sweep_call(facts, calls.read())
                calls.forget()
        regions_of_offers = {place.region for place in places_of(tuple(facts.image))}
        listed = self.session.cloud.list_within(regions_of_offers)
        own = [entry for entry in listed if entry.tags.get(tags.STACK_ID) == facts.stack_id]
        for entry in own:
            if entry.kind == "spot-request":
                self.session.cloud.terminate_instance(_place(entry), entry.id)
            elif entry.kind == KIND and entry.state not in _GONE:
                self.session.watch.end(_place(entry), entry.id)
        for entry in own:
            if entry.kind == "security-group":
                self.session.watch.drop_group(_place(entry), entry.id)
        journal.forget_stack(self.session.home, facts.stack_id)

    def _decide(self, before: Mapping[str, Any], values: Mapping[str, Any]) -> Decision:
        """What an update does; a launch a generation ahead of the machine waits for its replacement."""
        facts = read_launch(before)
        if before.get("spent"):
            return Decision({"spent": str(before["spent"])}, raises_generation=True)
        known = {key: value for key, value in values.items() if not has_unknown(value)}
        if "offers" not in known or "workload" not in known:
            return Decision()
        moved = (
            {"workload": "other settings of the cloud"} if self._settings(known) != before.get("cloudSettings") else {}
        )
        stale, run = self._stale(facts, before, known), _run(values)
        if run is not None and before.get("runDigest") not in (None, run):
            stale["runDigest"] = "what the machine runs has changed"
        is_lost = set(facts.image) - {offer.key for offer in at("offers", known, read_offers)}
        if not stale and not is_lost:
            return Decision(moved)
        seen = self._observe_surely(facts, known)
        if not seen.live:
            return Decision(moved | stale)
        current = seen.live[0]
        forced = self._forced(facts, before, known, current, run=run if "runDigest" in stale else None)
        if not forced:
            return Decision(moved)
        is_fresh = self.session.cloud.now() - facts.created_at <= PERMIT
        is_ahead = facts.generation > generation_of(current) and is_fresh and not stale.get("offers")
        # What the launch was last given is written down in either case: the next difference is told from it.
        return Decision(moved | stale) if is_ahead else Decision(forced, raises_generation=True)

    def _settings(self, values: Mapping[str, Any]) -> dict[str, Any] | None:
        return cloud_settings(self.session.provider, values.get("workload"))

    def _stale(self, facts: LaunchFacts, before: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, str]:
        """Inputs that the launch does not reflect: input -> what it lacks."""
        offers = at("offers", known, read_offers)
        workload = at("workload", known, read_mapping)
        stale = {}
        if any(image_of(facts, offer) is None for offer in offers):
            stale["offers"] = "an offer has no image yet"
        pins = {cloud: pinned_image(workload, cloud) for cloud in {offer.cloud for offer in offers}}
        if any(pins[offer.cloud] not in (None, image_of(facts, offer)) for offer in offers):
            stale["workload"] = "another image is pinned"
        if before.get("rootVolume") is not None and root_volume(known) != root_volume(before):
            stale["rootVolume"] = "the root disk has another size"
        return stale

    def _forced(
        self,
        facts: LaunchFacts,
        before: Mapping[str, Any],
        known: Mapping[str, Any],
        current: Instance,
        *,
        run: str | None,
    ) -> dict[str, str]:
        """Why the live machine cannot stay."""
        wanted = Wanted(at("offers", known, read_offers), at("workload", known, read_mapping), root_volume(known))
        root_bytes = root_volume(before) if before.get("rootVolume") is not None else None
        reasons = reasons_for_new(wanted, current.placement, current.image, root_bytes)
        if reasons and (asked := self._asked(facts, wanted, current)) is not None:
            # A machine that somebody has changed by hand is not ended for it: as it was asked for it could stay.
            reasons = reasons_for_new(wanted, asked, image_of(facts, asked), root_bytes)
        if run is not None:
            told = current.tags.get(tags.RUN_DIGEST, run)
            if told != run and self.session.cloud.stop_refusal(current.placement, current.id) is not None:
                reasons["runDigest"] = "the machine has to run something else, and cannot be told so"
        return reasons

    def _asked(self, facts: LaunchFacts, wanted: Wanted, current: Instance) -> Placement | None:
        """The place that the live machine was asked for, where this launch asked for it."""
        if generation_of(current) != facts.generation:
            return None
        slot = Slot(facts.stack_id, "", current.tags.get(tags.RESOURCE, ""))
        offers = (*wanted.offers, *places_of(tuple(facts.image)))
        return placement_asked(current, slot, facts.generation, offers)

    def _observe_surely(self, facts: LaunchFacts, values: Mapping[str, Any]) -> Observed:
        """As ``_observe``; that no machine lives counts only where several readings in a row say so."""
        seen = self._observe(facts, values)
        for _ in range(LOOKS - 1):
            if seen.live:
                break
            self.session.lifeline.sleep(_LOOK_AGAIN_S)
            seen = self._observe(facts, values)
        return seen

    def _observe(self, facts: LaunchFacts, values: Mapping[str, Any]) -> Observed:
        """Machines of the stack in all regions in which they may be."""
        offers = at("offers", values, read_offers) if not has_unknown(values.get("offers")) else ()
        places = regions([*offers, *places_of(tuple(facts.image))])
        found = self.session.cloud.find_instances({tags.STACK_ID: facts.stack_id}, places)
        over = [instance for instance in found if is_over(instance.state)]
        return Observed([instance for instance in live(found) if instance not in over], over)

    def _spent(self, facts: LaunchFacts, seen: Observed, asked_at: datetime) -> str | None:
        """Why the generation can make no machine any more; ``None`` while it may have one, or may make one."""
        notes = self._notes(facts)
        if seen.live or any(_is_open(note, asked_at) for note in notes):
            return None
        for instance in seen.gone:
            if generation_of(instance) == facts.generation:
                return f"machine {instance.id} of generation {facts.generation} is {instance.state}"
        for note in notes:
            if self._is_gone(note):
                return f"machine {note.object_id} of generation {facts.generation} is not there any more"
        if asked_at - facts.created_at > PERMIT + VISIBILITY * 5:
            return f"generation {facts.generation} has no machine, and its permit has ended"
        return None

    def _notes(self, facts: LaunchFacts) -> list[Note]:
        """This host's last create calls of machines of this generation."""
        notes = [journal.peek(path) for path in journal.paths(self.session.home, facts.stack_id)]
        return [n for n in notes if n is not None and n.kind == KIND and n.generation == facts.generation]

    def _has_unseen(self, facts: LaunchFacts, values: Mapping[str, Any]) -> bool:
        """Whether another host has made a machine of this generation that was not visible at the refresh.

        Only where one can have tried: its permit was good a moment ago, and this host knows nothing of its calls.
        """
        begun_at = asked_at = self.session.cloud.now()
        age = begun_at - facts.created_at
        if not self.session.is_shared or age > PERMIT + VISIBILITY or self._notes(facts):
            return False
        seen = self._observe(facts, values)
        while not seen.live and asked_at - begun_at <= VISIBILITY:
            self.session.lifeline.sleep(1.0)
            asked_at = self.session.cloud.now()
            seen = self._observe(facts, values)
        return bool(seen.live) and generation_of(seen.live[0]) >= facts.generation

    def _is_gone(self, note: Note) -> bool:
        """Whether the machine of a call was there and is not any more."""
        if note.object_id is None:
            return False
        instance = self.session.watch.look_again(note.placement, note.object_id)
        return instance is None or is_over(instance.state)

    def _sweep_call(self, facts: LaunchFacts, note: Note | None) -> None:
        """End the machine of the last create call of a slot, visible or not."""
        if note is None or note.kind != KIND:
            return
        watch = self.session.watch
        if note.object_id is not None:
            unseen_since = note.at if note.stage is Stage.MADE else None
            watch.end(note.placement, note.object_id, maybe_unseen_since=unseen_since)
        elif note.stage is Stage.CALLING:
            for instance in self._until_found(facts, note):
                watch.end(instance.placement, instance.id)

    def _wait_for_unseen(self, facts: LaunchFacts) -> None:
        """Return once a machine that another host may have made shows, or is known not to exist.

        Only where one can have tried a moment ago: this host has no journal of the stack, the permit is good or just over, and
        no machine of the generation shows, not even an ended one.
        """
        begun_at = asked_at = self.session.cloud.now()
        if not self.session.is_shared or begun_at - facts.created_at > PERMIT + VISIBILITY:
            return
        if (
            journal.paths(self.session.home, facts.stack_id)
            or (facts.stack_id, facts.generation) in self.session.issued
        ):
            return
        places = regions(places_of(tuple(facts.image)))
        while places and asked_at - begun_at <= VISIBILITY:
            asked_at = self.session.cloud.now()
            found = self.session.cloud.find_instances({tags.STACK_ID: facts.stack_id}, places)
            if any(generation_of(instance) == facts.generation for instance in found):
                return
            self.session.lifeline.sleep(1.0)

    def _until_found(self, facts: LaunchFacts, note: Note) -> list[Instance]:
        """Machines that a cut call made, as soon as one shows; none after the visibility window.

        The note says when the call was about to go out, not when it did: a process may have slept in between.
        """
        wanted = {tags.STACK_ID: facts.stack_id}
        begun_at = self.session.cloud.now()
        while True:
            asked_at = self.session.cloud.now()
            found = live(self.session.cloud.find_instances(wanted, [note.placement]))
            if found or asked_at - max(note.at, begun_at) > VISIBILITY:
                return found
            self.session.lifeline.sleep(0.5)

    def _issue(
        self, stack_id: str, generation: int, values: Mapping[str, Any], owner: str, avoid: Sequence[str]
    ) -> LaunchFacts:
        """A fresh permit: new times, images looked up now."""
        now: datetime = self.session.cloud.now()
        workload = at("workload", values, read_mapping)
        images = self._images(values, None)
        facts = LaunchFacts(stack_id, generation, now, lifetime.expires_at(workload, now), images, owner, tuple(avoid))
        self.session.issued.add((stack_id, generation))
        return facts

    def _images(self, values: Mapping[str, Any], kept: LaunchFacts | None) -> dict[str, str]:
        """Image of each offer: kept, pinned or looked up; offers without one are left out.

        Raises:
            GpuprovError: the cloud cannot be asked.
        """
        workload = at("workload", values, read_mapping)
        images = dict(kept.image) if kept is not None else {}
        for offer in at("offers", values, read_offers):
            pin = pinned_image(workload, offer.cloud)
            if pin is not None:
                images[offer.key] = pin
            elif offer.key not in images:
                try:
                    images[offer.key] = self.session.cloud.resolve_image(offer)
                except (Rejected, NotFound):
                    continue  # the create tells that this offer has no image, and takes the next
        return images

    def _avoid(self, facts: LaunchFacts, seen: Observed) -> tuple[str, ...]:
        """Pools that took a machine back, the longest ago first; the next machine starts elsewhere."""
        lost = [
            pool(instance.placement)
            for instance in seen.gone
            if instance.state is InstanceState.INTERRUPTED and generation_of(instance) == facts.generation
        ]
        return tuple([key for key in facts.avoid if key not in lost] + lost)[-_POOLS_MAX:] if lost else ()

    def _outputs(self, facts: LaunchFacts, news: Properties) -> Properties:
        return {
            **echo(news, _ECHOED),
            **settings_output(self.session.provider, news),
            **wrap_map(
                {
                    "stackId": facts.stack_id,
                    "generation": facts.generation,
                    "createdAt": tags.format_time(facts.created_at),
                    "expiresAt": facts.expires_at,
                    "image": dict(facts.image),
                    "owner": facts.owner,
                    "avoid": list(facts.avoid),
                    "provider": self.session.provider,
                    "runDigest": _run(plain_map(news)),
                }
            ),
        }


def _run(values: Mapping[str, Any]) -> str | None:
    """What the inputs start; ``None`` while they are not known."""
    workload, facts = values.get("workload"), values.get("node")
    if has_unknown(workload) or has_unknown(facts) or not isinstance(workload, Mapping):
        return None
    return run_digest(workload, facts if isinstance(facts, Mapping) else {})


def _place(entry: BillableObject) -> Placement:
    """The place of an object, for calls that name one; instance and capacity type say nothing there."""
    return Placement(entry.cloud, entry.region, entry.zone, "", CapacityType.ON_DEMAND)


def _is_open(note: Note, at_time: datetime) -> bool:
    """Whether a call may have made a machine that did not show at a moment."""
    return at_time - note.at <= VISIBILITY and note.stage in (Stage.CALLING, Stage.MADE)


def _user() -> str:
    """Who runs the engine, for people who look at the account later."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return UNKNOWN_OWNER
