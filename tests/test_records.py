"""Records behave as frozen dataclasses do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import dataclass, field
from functools import cached_property

import pytest

from provisioner.records import record


@record(frozen=True, slots=True, order=True)
class Point:
    """Two numbers and a name."""

    x: int
    y: float = 0.5
    name: str = field(default="p", compare=False)


@dataclass(frozen=True, slots=True, order=True)
class Plain:
    """The same, made by the standard library."""

    x: int
    y: float = 0.5
    name: str = field(default="p", compare=False)


@record(frozen=True, slots=True)
class Bag:
    """A value made for each object."""

    items: list[int] = field(default_factory=list)


@record(frozen=True)
class Circle:
    """Has a cached property, and so no slots."""

    radius: float

    @cached_property
    def doubled(self) -> float:
        """Twice the radius."""
        return 2 * self.radius


@record(frozen=True)
class Ring(Circle):
    """Adds a field to an inherited one."""

    hole: float = 0.1


@record(frozen=True, slots=True, kw_only=True)
class Named:
    """Arguments are named, so that a default may come first."""

    first: int = 1
    second: str


@record(frozen=True, slots=True, eq=False)
class Token:
    """Told apart by identity."""

    text: str


def test_arguments_are_those_of_a_dataclass() -> None:
    made, wanted = inspect.signature(Point), inspect.signature(Plain)
    assert list(made.parameters) == list(wanted.parameters)
    assert [each.default for each in made.parameters.values()] == [each.default for each in wanted.parameters.values()]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        Point()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'z'"):
        Point(1, z=2)  # type: ignore[call-arg]


def test_arguments_may_have_to_be_named() -> None:
    assert Named(second="a") == Named(first=1, second="a")
    with pytest.raises(TypeError, match="positional"):
        Named(1, "a")  # type: ignore[misc]


def test_text_fields_and_copies_are_those_of_a_dataclass() -> None:
    assert repr(Point(1)) == repr(Plain(1)).replace("Plain", "Point")
    assert [each.name for each in dataclasses.fields(Point)] == ["x", "y", "name"]
    assert dataclasses.replace(Point(1), y=2.0) == Point(1, 2.0)
    assert dataclasses.asdict(Point(1)) == dataclasses.asdict(Plain(1))
    assert copy.deepcopy(Point(1)) == Point(1) == copy.copy(Point(1))
    assert pickle.loads(pickle.dumps(Point(3, 1.0))) == Point(3, 1.0)  # noqa: S301 - bytes of our own


def test_equal_fields_are_equal_records_of_one_class() -> None:
    assert Point(1, 0.5, "a") == Point(1, 0.5, "b")
    assert hash(Point(1, 0.5, "a")) == hash(Point(1, 0.5, "b"))
    assert Point(1) != Plain(1)
    assert Point(1) != Point(2)
    assert Bag([1]) == Bag([1])
    assert Circle(1) == Circle(1.0)
    assert Token("a") != Token("a")
    assert len({Token("a"), Token("a")}) == 2


def test_order_is_by_fields() -> None:
    assert Point(1, 2.0) < Point(2, 1.0) < Point(2, 1.5)
    assert sorted([Point(2), Point(1)]) == [Point(1), Point(2)]
    with pytest.raises(TypeError):
        _ = Bag() < Bag()  # type: ignore[operator]


def test_nothing_changes() -> None:
    for one in (Point(1), Circle(1.0)):
        name = dataclasses.fields(one)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            setattr(one, name, 5)
        with pytest.raises(dataclasses.FrozenInstanceError, match=name):
            delattr(one, name)
    assert not hasattr(Point(1), "__dict__")
    with pytest.raises(TypeError, match="frozen"):
        record(frozen=False, slots=True)


def test_factories_make_a_value_for_each_object() -> None:
    first, second = Bag(), Bag()
    assert first.items == []
    assert first.items is not second.items


def test_inherited_fields_and_cached_properties() -> None:
    ring = Ring(2.0, hole=0.5)
    assert (ring.radius, ring.hole, ring.doubled, ring.doubled) == (2.0, 0.5, 4.0, 4.0)
    assert repr(ring) == "Ring(radius=2.0, hole=0.5)"
