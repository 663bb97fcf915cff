"""The codec that carries errors through the engine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner import errors
from stacks.failures import Attempt, decode, decode_attempts, encode, encode_attempt, strip

CLASSES = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.GpuprovError)]
KINDS_OF_THEIR_OWN = [c for c in CLASSES if "kind" in vars(c)]


@pytest.mark.parametrize("error_class", KINDS_OF_THEIR_OWN, ids=lambda c: c.__name__)
def test_every_class_comes_back_as_itself(error_class):
    error = error_class("it broke", where="aws/us-east-1", remedy="mend it")
    failure = decode(f"<{{%reset%}}>sandbox: {encode(error)}<{{%reset%}}>\n")
    assert failure is not None
    assert type(failure.error) is error_class
    assert (failure.error.message, failure.error.where, failure.error.remedy) == (
        "it broke",
        "aws/us-east-1",
        "mend it",
    )


def test_kinds_are_unique():
    kinds = [c.kind for c in KINDS_OF_THEIR_OWN]
    assert len(kinds) == len(set(kinds))


@given(
    message=st.text(min_size=1),
    offers=st.lists(st.tuples(st.text(), st.sampled_from(["capacity", "quota", "created"]), st.text()), max_size=4),
    before=st.text(alphabet=st.characters(blacklist_characters="[")),
    after=st.text(alphabet=st.characters(blacklist_characters="[")),
)
def test_message_and_attempts_survive_whatever_stands_around(message, offers, before, after):
    attempts = tuple(Attempt(*offer) for offer in offers)
    mark = encode(errors.CapacityError(message), attempts).removeprefix(message)
    failure = decode(before + mark + after)
    assert failure is not None
    assert failure.attempts == attempts
    assert failure.error.message == message


def test_people_never_see_a_mark():
    error = errors.QuotaError("the quota is 0", remedy="ask for more")
    assert strip(encode(error)) == "the quota is 0; ask for more"
    assert (
        strip(encode_attempt(Attempt("aws/r/z/t/spot", "capacity", "none left")))
        == "aws/r/z/t/spot: capacity: none left"
    )


def test_a_masked_payload_still_gives_its_kind():
    for payload in ("eyJt[secret]XNz", "eyJtXNz"):
        failure = decode(f"no capacity at all [gpuprov:capacity:{payload}]")
        assert failure is not None
        assert isinstance(failure.error, errors.CapacityError)
        assert failure.error.message == "no capacity at all"


def test_a_short_mark_is_enough():
    failure = decode("login expired [gpuprov:credentials]")
    assert failure is not None
    assert failure.error.exit_code == 3
    assert failure.error.message == "login expired"


def test_an_unknown_kind_is_unclassified():
    failure = decode("odd [gpuprov:from-the-future]")
    assert failure is not None
    assert failure.error.exit_code == 1


def test_plain_text_carries_nothing():
    assert decode("error: update failed") is None
    assert decode_attempts("error: update failed") == ()


def test_attempts_of_progress_lines():
    first, second = Attempt("a", "capacity", "x"), Attempt("b", "created")
    assert decode_attempts(f"{encode_attempt(first)}\n{encode_attempt(second)}") == (first, second)
    assert decode(encode_attempt(first)) is None
