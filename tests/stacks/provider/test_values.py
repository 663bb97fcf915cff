from __future__ import annotations

import pytest
from google.protobuf import struct_pb2
from hypothesis import given
from hypothesis import strategies as st
from pulumi.provider.experimental.property_value import Computed, PropertyValue
from pulumi.runtime.rpc import UNKNOWN as MARKER

from stacks.provider.values import UNKNOWN, has_unknown, plain, plain_map, replaced, wrap, wrap_map

scalars = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)


@given(documents)
def test_values_come_back_as_they_went(value: object) -> None:
    assert plain(wrap(value)) == value
    assert plain(PropertyValue.unmarshal(wrap(value).marshal())) == value


def test_fractions_stay_fractions() -> None:
    assert plain(wrap(0.9)) == 0.9
    assert isinstance(plain(PropertyValue(3.0)), int)


def test_what_a_preview_does_not_know_survives_the_wire() -> None:
    sent = wrap_map({"id": UNKNOWN, "nested": {"list": [UNKNOWN, 1]}, "absent": None})
    received = PropertyValue.unmarshal_map(PropertyValue.marshal_map(sent))
    assert plain_map(received) == {"id": UNKNOWN, "nested": {"list": [UNKNOWN, 1]}}
    assert has_unknown(plain_map(received))
    assert plain(PropertyValue.computed()) is UNKNOWN
    assert repr(UNKNOWN) == "UNKNOWN"
    assert not has_unknown({"a": [1, {"b": "x"}]})


def test_the_gaps_of_the_sdk_are_still_there() -> None:
    """When this fails, the work-around in ``values`` can go."""
    with pytest.raises(ValueError, match="Unsupported value type"):
        PropertyValue.computed().marshal()
    assert not isinstance(PropertyValue.unmarshal(struct_pb2.Value(string_value=MARKER)).value, Computed)


def test_secrets_stay_sealed_at_any_depth() -> None:
    sealed = PropertyValue({"env": PropertyValue({"TOKEN": PropertyValue("x", is_secret=True)})})
    assert plain(sealed) == {"env": {"TOKEN": "x"}}
    assert replaced(sealed, {"env": "y"}).is_secret
    assert not replaced(wrap({"a": 1}), 2).is_secret
    assert not replaced(None, 2).is_secret
    assert PropertyValue.unmarshal(sealed.marshal()).contains_secret()
