from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner import tags
from provisioner.errors import UsageError
from provisioner.workload.document import document_digest
from stacks.provider.identity import OVERRIDABLE, Slot, object_tags, owner_of, readable_name, spec_digest

SLOT = Slot("5ac1", "chat", "gpu")
texts = st.text(max_size=12)
slots = st.builds(Slot, texts, texts, texts)


def written(**changes: object) -> dict[str, str]:
    values = {"generation": 1, "expires_at": "none", "owner": "ana", **changes}
    return object_tags(SLOT, {"name": "chat", "task": "serve"}, **values)  # type: ignore[arg-type]


@given(slots, st.integers(1, 99), st.integers(0, 9), texts)
def test_a_token_is_a_function_of_its_parts_and_fits_ec2(slot: Slot, generation: int, number: int, offer: str) -> None:
    token = slot.token(generation, number, offer)
    assert token == Slot(slot.stack_id, "renamed stack", slot.resource).token(generation, number, offer)
    assert token.isascii()
    assert len(token) <= 64


@given(
    st.tuples(texts, texts, st.integers(1, 9), st.integers(0, 3), texts),
    st.tuples(texts, texts, st.integers(1, 9), st.integers(0, 3), texts),
)
def test_other_parts_give_another_token(one: tuple, other: tuple) -> None:
    tokens = [Slot(s, "x", r).token(g, n, o) for s, r, g, n, o in (one, other)]
    assert (tokens[0] == tokens[1]) == (one == other)


def test_machines_and_disks_of_one_name_have_different_tokens() -> None:
    assert SLOT.token(1, 0, "zone") != SLOT.volume_token(0, "zone")


def test_a_token_never_changes_between_versions() -> None:
    assert (
        SLOT.token(1, 0, "aws/us-east-1/use1-az1/g6.xlarge/spot") == "07b39a757286de7498123a3269432da3a563425142e3ad45"
    )


@given(slots, texts)
def test_names_are_good_on_every_cloud(slot: Slot, part: str) -> None:
    name = slot.name(part)
    assert re.fullmatch(r"[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?", name)
    assert name.endswith(slot.digest("name", part)[:10])


def test_a_long_name_keeps_its_hash() -> None:
    name = readable_name("s" * 80, "gpu", "0123456789")
    assert len(name) == 63
    assert name.endswith("-0123456789")


def test_a_slot_is_told_by_its_urn() -> None:
    assert Slot.of("urn:pulumi:dev::chat::gpuprov:index:GpuInstance::gpu", "id") == Slot("id", "dev", "gpu")
    nested = Slot.of("urn:pulumi:dev::chat::my:index:Pair$gpuprov:index:GpuInstance::gpu", "id")
    assert nested == Slot("id", "dev", "my:index:Pair::gpu")
    odd = Slot.of("urn:pulumi:dev::chat::gpuprov:index:GpuInstance::a::b", "id")
    assert odd.resource == "a::b"
    with pytest.raises(UsageError):
        Slot.of("gpu", "id")


def test_all_contracted_tags_are_there_and_only_some_may_be_stated() -> None:
    assert set(tags.REQUIRED) == written().keys()
    stated = dict.fromkeys((*tags.REQUIRED, "team"), "stated")
    assert {key for key, value in written(stated=stated).items() if value == "stated"} == {*OVERRIDABLE, "team"}


def test_long_values_are_cut_to_what_ec2_takes() -> None:
    assert len(written(stated={"note": "x" * 999})["note"]) == 256


def test_the_owner_is_the_specs_before_the_launchs() -> None:
    assert written()[tags.OWNER] == "ana"
    assert owner_of({"tags": {"team": "search"}}) == "search"
    assert owner_of({"tags": {"team": "search", "owner": "bo"}}) == "bo"
    assert owner_of({"tags": "x"}) is None


def test_the_digest_has_the_form_of_the_workloads() -> None:
    document = {"b": 1, "a": {"ä": [1, 2.5, None]}}
    assert spec_digest(document) == document_digest(document)
