"""The create loop over many offers, by way of whole creates."""

from __future__ import annotations

from pathlib import Path
from time import process_time

import pytest

from provisioner.clouds.cloud import InstanceState, Placement
from provisioner.errors import (
    Ambiguous,
    CapacityError,
    CloudError,
    CredentialsError,
    QuotaError,
    Rejected,
    TokenMismatch,
    TokenSpent,
)
from provisioner.vocabulary import CapacityType
from stacks.provider import node
from stacks.provider.failover import ROUNDS_MAX
from stacks.provider.machine import VISIBILITY
from stacks.provider.offers import access, catalog_quota_family, ordered, pool
from stacks.provider.patience import TRIES
from stacks.provider.session import ProviderFailure
from tests.fakes.mini_engine import MiniEngine, engine, offer, program

MANY = [offer(f"z{number}", f"r{number % 5}", "g6.xlarge" if number % 2 else "p5.48xlarge") for number in range(25)]


def key(entry: dict[str, str]) -> str:
    return Placement(
        entry["cloud"], entry["region"], entry["zone"], entry["instanceType"], CapacityType(entry["capacityType"])
    ).key


def failing(mini: MiniEngine, offers: list[dict[str, str]] = MANY) -> ProviderFailure:
    with pytest.raises(ProviderFailure) as failure:
        mini.up(program(offers=offers))
    return failure.value


@pytest.mark.parametrize("full", range(25))
def test_e8_k_refusals_cost_k_calls_and_no_waiting(home: Path, full: int) -> None:
    mini = engine(home)
    mini.cloud.no_capacity = {key(entry) for entry in MANY[:full]}
    begin = mini.cloud.clock.now
    mini.up(program(offers=MANY, wait="created"))
    assert mini.cloud.offers_asked() == [key(entry) for entry in MANY[: full + 1]]
    assert mini.cloud.clock.now == begin
    assert len(mini.cloud.groups) == min(full + 1, 5)


OWN_S_MAX = 0.1
"""Our own time for an offer that is refused, as promised; CPU seconds, so that a busy host does not count."""


def test_an_offer_that_is_refused_costs_little_time_of_our_own(home: Path) -> None:
    spent: dict[int, float] = {}
    for full in (0, 24):
        mini = engine(home / str(full))
        mini.cloud.no_capacity = {key(entry) for entry in MANY[:full]}
        begin = process_time()
        mini.up(program(offers=MANY, wait="created"))
        spent[full] = process_time() - begin
    assert (spent[24] - spent[0]) / 24 < OWN_S_MAX


def test_no_capacity_anywhere_names_every_offer_and_makes_nothing(home: Path) -> None:
    mini = engine(home)
    mini.cloud.no_capacity = {key(entry) for entry in MANY}
    failure = failing(mini)
    assert isinstance(failure.cause, CapacityError)
    assert "25 offers: 25 capacity" in str(failure.cause)
    assert [attempt.offer for attempt in failure.attempts] == [key(entry) for entry in MANY]
    assert mini.cloud.machines == {}
    mini.destroy()
    assert mini.cloud.leftovers == []


def test_a_quota_refusal_takes_its_family_in_its_region_along(home: Path) -> None:
    offers = [
        offer("a", kind="p5.48xlarge"),
        offer("b", kind="p5.48xlarge"),  # same quota: not asked
        offer("b", kind="p4d.24xlarge"),  # by the fake's rule another quota
        offer("a", kind="p5.48xlarge", capacity="spot"),  # another quota
        offer("a", "us-west-2", "p5.48xlarge"),  # another region
    ]
    mini = engine(home)
    mini.cloud.no_quota = {key(entry) for entry in offers[:3]}
    mini.cloud.no_capacity = {key(offers[3])}
    mini.up(program(offers=offers))
    assert mini.cloud.offers_asked() == [key(offers[number]) for number in (0, 2, 3, 4)]
    outcomes = [attempt["outcome"] for attempt in mini.outputs("gpu")["attempts"]]
    assert outcomes == ["quota", "skipped", "quota", "capacity", "created"]


def test_e15_a_quota_of_the_whole_project_takes_all_offers_of_its_cloud_along(home: Path) -> None:
    everywhere = [
        {**offer(f"z{number}", f"r{number}", kind), "cloud": "gcp"}
        for number, kind in enumerate(("g2-standard-4", "a2-highgpu-1g", "a3-highgpu-8g"))
    ]
    refusal = QuotaError("QUOTA_EXCEEDED: quota GPUS_ALL_REGIONS in * is too small: need 1, have 0, used 0")
    refusal.scope = "account"
    mini = engine(home)
    mini.cloud.errors["create_instance"].append((False, refusal))
    mini.up(program(offers=[*everywhere, offer("use1-az1")]))
    attempts = mini.outputs("gpu")["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["quota", "skipped", "skipped", "created"]
    assert mini.cloud.count("create_instance") == 2
    other = engine(home / "other")
    other.cloud.errors["create_instance"].append((False, refusal))
    failure = failing(other, everywhere)
    assert isinstance(failure.cause, QuotaError)
    assert "GPUS_ALL_REGIONS" in str(failure.cause)
    assert other.cloud.count("create_instance") == 1


def test_only_quota_is_a_quota_error_and_mixed_is_capacity(home: Path) -> None:
    mini = engine(home)
    mini.cloud.no_quota = {key(entry) for entry in MANY}
    assert isinstance(failing(mini).cause, QuotaError)
    mini.cloud.no_quota.discard(key(MANY[3]))
    mini.cloud.no_capacity = {key(MANY[3])}
    assert isinstance(failing(mini, MANY[3:5]).cause, CapacityError)


@pytest.mark.parametrize("error", [Rejected("no such image"), CredentialsError("expired"), CloudError("odd code")])
def test_other_refusals_stop_at_once(home: Path, error: CloudError) -> None:
    mini = engine(home)
    mini.cloud.errors["create_instance"].append((False, error))
    failure = failing(mini)
    assert failure.cause is error
    assert len(mini.cloud.offers_asked()) == 1
    assert [attempt.outcome for attempt in failure.attempts] == [error.kind]


def test_an_offer_without_an_image_is_told_and_passed_over(home: Path) -> None:
    mini = engine(home)
    mini.cloud.no_image = {key(MANY[0])}
    mini.up(program(offers=MANY))
    assert [attempt["outcome"] for attempt in mini.outputs("gpu")["attempts"]] == ["no-image", "created"]
    mini.destroy()
    mini.cloud.no_image = {key(entry) for entry in MANY}
    failure = failing(mini)
    assert isinstance(failure.cause, Rejected)
    assert "pin one" in str(failure.cause)


def test_e4_machines_that_die_at_boot_use_new_tokens_and_come_to_an_end(home: Path) -> None:
    offers = MANY[:2]
    mini = engine(home)
    mini.cloud.dies_at_boot = {key(entry): InstanceState.TERMINATED for entry in offers}
    failure = failing(mini, offers)
    assert isinstance(failure.cause, TokenSpent)
    assert len(mini.cloud.machines) == 2 * ROUNDS_MAX
    tokens = [call.token for call in mini.cloud.calls if call.operation == "create_instance"]
    assert len(set(tokens)) == len(tokens)
    assert mini.cloud.living == []


def test_an_edit_between_a_lost_answer_and_the_next_run_is_no_second_machine(home: Path) -> None:
    mini = engine(home)
    mini.up(program())
    (machine,) = mini.cloud.living
    del mini.state["gpu"]
    mini.restart()
    edited = program(workload={"name": "chat", "task": "serve", "tags": {"owner": "bo"}})
    mini.up(edited)
    assert [entry.id for entry in mini.cloud.living] == [machine.id]
    assert mini.cloud.living[0].tags["gpuprov:owner"] == "bo"


def test_a_token_with_other_bytes_whose_machine_never_shows_counts_as_spent(home: Path) -> None:
    """Its call is older than this one: a machine that does not show for the whole window since is gone."""
    mini = engine(home)
    begin = mini.cloud.clock.now
    mini.cloud.errors["create_instance"].append((False, TokenMismatch("other parameters")))
    mini.up(program())
    attempts = mini.outputs("gpu")["attempts"]
    assert [attempt["outcome"] for attempt in attempts] == ["token-spent", "created"]
    assert mini.cloud.clock.now - begin >= VISIBILITY
    assert len(mini.cloud.living) == 1


def test_a_refusal_after_a_lost_answer_is_no_reason_to_go_elsewhere(home: Path) -> None:
    """The first call made the machine, and its capacity is what the second one lacks."""
    mini = engine(home)
    mini.cloud.errors["create_instance"].extend([(True, Ambiguous("lost")), (False, CapacityError("full"))])
    mini.up(program())
    (machine,) = mini.cloud.living
    assert mini.outputs("gpu")["instanceId"] == machine.id
    assert len(set(mini.cloud.offers_asked())) == 1


def test_a_refusal_after_a_lost_answer_goes_elsewhere_once_nothing_shows(home: Path) -> None:
    mini = engine(home)
    mini.cloud.errors["create_instance"].extend([(False, Ambiguous("lost")), (False, CapacityError("full"))])
    mini.up(program())
    assert [a["outcome"] for a in mini.outputs("gpu")["attempts"]] == ["capacity", "created"]
    assert len(mini.cloud.living) == 1


def test_pools_that_lost_a_machine_are_tried_last_the_oldest_loss_first() -> None:
    places = [Placement("aws", region, None, "g6.xlarge", CapacityType.SPOT) for region in ("r1", "r2", "r3", "r4")]
    avoid = [pool(places[2]), pool(places[0])]
    assert [place.region for place in ordered(places, avoid)] == ["r2", "r4", "r3", "r1"]


def test_what_the_spec_opens_and_how_it_shuts_down() -> None:
    spot = Placement("aws", "r1", None, "g6.xlarge", CapacityType.SPOT)
    owned = Placement("aws", "r1", None, "g6.xlarge", CapacityType.ON_DEMAND)
    stop = {"lifecycle": {"idle": {"then": "stop"}}}
    assert access({}) == ((), ())
    assert access({"access": {"cidrs": ["203.0.113.7/32"]}, "run": {"ports": [8000]}}) == (("203.0.113.7/32",), (8000,))
    assert access({"run": "auto"}) == ((), ())
    assert node.stops(stop, {}, owned)
    assert node.stops(stop, {}, spot), "the request is persistent then"
    assert not node.stops({}, {}, spot)
    assert node.stops({}, {}, owned)
    assert not node.stops({"lifecycle": {"idle": {"then": "terminate"}}}, {}, owned)


def test_quota_families_come_from_the_catalog() -> None:
    def family(kind: str, capacity: CapacityType, cloud: str = "aws") -> str:
        return catalog_quota_family(Placement(cloud, "r1", None, kind, capacity))

    assert family("g6.xlarge", CapacityType.ON_DEMAND) == family("g5.xlarge", CapacityType.ON_DEMAND)
    assert family("g6.xlarge", CapacityType.ON_DEMAND) != family("p5.48xlarge", CapacityType.ON_DEMAND)
    assert family("g6.xlarge", CapacityType.ON_DEMAND) != family("g6.xlarge", CapacityType.SPOT)
    assert family("x99.huge", CapacityType.ON_DEMAND) == "x99"
    assert family("z9-standard-4", CapacityType.SPOT, "gcp") == "z9"


def test_an_offer_that_is_refused_when_its_lost_call_is_made_again_is_not_asked_a_third_time(home: Path) -> None:
    mini = engine(home)
    lost = Ambiguous("no answer")
    mini.cloud.errors["create_instance"].extend([(False, lost)] * TRIES)
    with pytest.raises(ProviderFailure):
        mini.up(program())
    first, second = (place["zone"] for place in program()["offers"])
    mini.cloud.no_capacity = {f"aws/us-east-1/{zone}/g6.xlarge/on-demand" for zone in (first, second)}
    asked = len(mini.cloud.offers_asked())
    with pytest.raises(ProviderFailure) as failure:
        mini.up(program())
    assert [key.split("/")[2] for key in mini.cloud.offers_asked()[asked:]] == [first, second]
    assert type(failure.value.cause) is CapacityError
