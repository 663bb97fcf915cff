"""Frozen records: dataclasses that cost a third as much to define.

``dataclass(frozen=True, slots=True)`` generates and compiles six methods per class, 0.8 ms each time a process starts; with a
hundred classes that is the larger part of ``gpuprov plan``. ``record`` compiles the one method whose signature matters,
``__init__``, and shares the others. ``dataclasses.fields``, ``replace`` and ``asdict`` work as on any dataclass, and type
checkers are told that it is one.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:

    def record(
        *, frozen: bool, slots: bool = False, eq: bool = True, order: bool = False, kw_only: bool = False
    ) -> Callable[[type], type]:
        """Make a class a frozen dataclass.

        The arguments are those of ``dataclasses.dataclass``: no ``slots`` for a class with cached properties, no ``eq`` for one
        whose objects are told apart by identity, ``order`` for comparison by fields, ``kw_only`` for arguments that are named.

        Raises:
            TypeError: ``frozen`` is not true: the argument is there for the reader and for type checkers.
        """
        if not frozen:
            raise TypeError("a record is frozen")
        make = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
        return lambda cls: _finish(make(_described(cls)), slots=slots, eq=eq, order=order)


__all__ = ["record"]

_FACTORY = object()
"""Default of an argument whose value is made for each record."""


def _described(cls: type) -> type:
    """The class with a docstring: for one without, ``dataclass`` works its signature out, at 4 ms the first time."""
    if not cls.__doc__:
        cls.__doc__ = cls.__name__
    return cls


def _finish(cls: type, *, slots: bool, eq: bool, order: bool) -> type:
    """Give a plain dataclass its methods; what the class itself defines is kept."""
    fields = dataclasses.fields(cls)
    methods: dict[str, Any] = {
        "__init__": _init(cls, fields, slots=slots),
        "__repr__": _repr,
        "__setattr__": _refuse_set,
        "__delattr__": _refuse_delete,
    }
    if slots:
        methods |= {"__getstate__": _get_state, "__setstate__": _set_state}
    if eq:
        compared = [each.name for each in fields if each.compare]
        values: Callable[[Any], Any] = attrgetter(*compared) if compared else lambda _: ()
        methods |= {"__eq__": _comparison(values, operator.eq), "__hash__": lambda self: hash(values(self))}
        if order:
            for compare in (operator.lt, operator.le, operator.gt, operator.ge):
                methods[f"__{compare.__name__}__"] = _comparison(values, compare)
    for name, method in methods.items():
        if name not in cls.__dict__:
            setattr(cls, name, method)
    return cls


def _init(cls: type, fields: tuple[dataclasses.Field[Any], ...], *, slots: bool) -> Callable[..., None]:
    """``__init__`` with one argument a field; it writes past ``__setattr__``, which refuses."""
    space: dict[str, Any] = {"_factory": _FACTORY, "_write": object.__setattr__}
    arguments, body = ["self"], []
    for each in sorted(fields, key=lambda field: bool(field.kw_only)):
        name, value = each.name, each.name
        if each.kw_only and "*" not in arguments:
            arguments.append("*")
        if each.default is not dataclasses.MISSING:
            space[f"_default_{name}"] = each.default
            arguments.append(f"{name}=_default_{name}")
        elif each.default_factory is not dataclasses.MISSING:
            space[f"_make_{name}"] = each.default_factory
            arguments.append(f"{name}=_factory")
            value = f"_make_{name}() if {name} is _factory else {name}"
        else:
            arguments.append(name)
        if slots:
            space[f"_set_{name}"] = getattr(cls, name).__set__
            body.append(f" _set_{name}(self, {value})")
        else:
            body.append(f" _write(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append(" self.__post_init__()")
    source = f"def __init__({', '.join(arguments)}):\n" + "\n".join(body or [" pass"])
    exec(source, space)  # noqa: S102 - the names are those of the fields, as in dataclasses themselves
    made: Callable[..., None] = space["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _comparison(values: Callable[[Any], Any], judge: Callable[[Any, Any], Any]) -> Callable[[Any, object], Any]:
    def compare(self: Any, other: object) -> Any:
        return judge(values(self), values(other)) if other.__class__ is self.__class__ else NotImplemented

    return compare


def _repr(self: Any) -> str:
    shown = ", ".join(f"{each.name}={getattr(self, each.name)!r}" for each in dataclasses.fields(self) if each.repr)
    return f"{type(self).__qualname__}({shown})"


def _refuse_set(self: Any, name: str, value: object) -> NoReturn:
    del self, value
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_delete(self: Any, name: str) -> NoReturn:
    del self
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
