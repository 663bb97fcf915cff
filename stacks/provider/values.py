"""Property values of the engine and plain Python values; what is unknown or secret stays so.

Two gaps of pulumi 3.272.0 are closed here and nowhere else (``tests/stacks/provider/test_values.py`` notices when they
are mended): ``PropertyValue.unmarshal`` gives an unknown value as the engine's marker text instead of ``Computed``, and
``PropertyValue.marshal`` refuses ``Computed``. So unknown values travel as that marker text, which the engine reads back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from pulumi.provider.experimental.property_value import Computed, PropertyValue
from pulumi.runtime.rpc import UNKNOWN as _MARKER

Properties = dict[str, PropertyValue]
"""Inputs or outputs of a resource as the engine sends and takes them."""


class Unknown:
    """A value that a preview does not know yet; there is one, ``UNKNOWN``."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN: Final = Unknown()


def plain(value: PropertyValue) -> Any:
    """The Python value, secrets opened; whole numbers are ``int``, what is not known yet is ``UNKNOWN``."""
    content = value.value
    if isinstance(content, str):  # most are
        return UNKNOWN if content == _MARKER else content
    if isinstance(content, float):
        return int(content) if content.is_integer() else content
    # What mappings and sequences become inside is named first: the abstract classes are slow to ask.
    if isinstance(content, (MappingProxyType, Mapping)):
        return {key: plain(entry) for key, entry in content.items()}
    if isinstance(content, (tuple, Sequence)) and not isinstance(content, str):
        return [plain(entry) for entry in content]
    if isinstance(content, Computed):
        return UNKNOWN
    return content


def plain_map(properties: Mapping[str, PropertyValue]) -> dict[str, Any]:
    """All properties as Python values; ``null`` ones are left out."""
    return {key: plain(value) for key, value in properties.items() if value.value is not None}


def wrap(value: Any, *, secret: bool = False) -> PropertyValue:
    """A Python value for the engine; ``None`` is ``null``.

    Args:
        value: made of mappings with text keys, sequences, texts, numbers, booleans, ``None`` and ``UNKNOWN``.
        secret: whether the engine must keep it sealed.
    """
    if value is UNKNOWN:
        return PropertyValue(_MARKER, is_secret=secret)
    if isinstance(value, str):
        return PropertyValue(str(value), is_secret=secret)
    if isinstance(value, bool) or value is None:
        return PropertyValue(value, is_secret=secret)
    if isinstance(value, int):
        return PropertyValue(float(value), is_secret=secret)
    if isinstance(value, (dict, Mapping)):
        return PropertyValue({str(key): wrap(entry) for key, entry in value.items()}, is_secret=secret)
    if isinstance(value, (list, tuple)):
        return PropertyValue([wrap(entry) for entry in value], is_secret=secret)
    return PropertyValue(value, is_secret=secret)


def wrap_map(values: Mapping[str, Any]) -> Properties:
    """All values for the engine; ``None`` ones are left out, since an absent output is an unknown one."""
    return {key: wrap(value) for key, value in values.items() if value is not None}


def replaced(original: PropertyValue | None, value: Any) -> PropertyValue:
    """A new value in the place of an original: secret if any part of the original was."""
    return wrap(value, secret=original is not None and original.contains_secret())


def has_unknown(value: Any) -> bool:
    """Whether a Python value from ``plain`` is, or holds, something unknown."""
    if value is UNKNOWN or isinstance(value, (str, int, float)):
        return value is UNKNOWN
    if isinstance(value, (dict, Mapping)):
        return any(has_unknown(entry) for entry in value.values())
    if isinstance(value, (list, tuple)):
        return any(has_unknown(entry) for entry in value)
    return False
