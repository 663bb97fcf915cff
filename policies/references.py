"""References between the resources of a Terraform document: what one resource's attribute says of another one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from policies.json_value import Value
from policies.resources import Resource

Configuration: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Configuration blocks of resources by address without instance keys."""
_INDEX = re.compile(r'\[(?:"(?:[^"\\]|\\.)*"|[^\]]*)\]')


def bare(address: str) -> str:
    """An address without instance keys: ``module.a[0].aws_instance.b["x"]`` is ``module.a.aws_instance.b``."""
    return _INDEX.sub("", address)


def configuration_index(document: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Configuration blocks of all resources by address without instance keys; empty where the document holds none."""
    index: dict[str, Mapping[str, Any]] = {}
    configuration = document.get("configuration")
    waiting = [("", configuration.get("root_module"))] if isinstance(configuration, Mapping) else []
    while waiting:
        prefix, module = waiting.pop()
        if not isinstance(module, Mapping):
            continue
        resources, calls = module.get("resources"), module.get("module_calls")
        for resource in resources if isinstance(resources, list) else ():
            if isinstance(resource, Mapping) and isinstance(resource.get("expressions", {}), Mapping):
                index[f"{prefix}{resource.get('address')}"] = resource
        for name, call in calls.items() if isinstance(calls, Mapping) else ():
            if isinstance(call, Mapping):
                waiting.append((f"{prefix}module.{name}.", call.get("module")))
    return index


def references(value: Any) -> Iterator[str]:
    """All references below a configuration expression."""
    if isinstance(value, list):
        for item in value:
            yield from references(item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key == "references" and isinstance(item, list):
                yield from (reference for reference in item if isinstance(reference, str))
            else:
                yield from references(item)


def find_in_terraform(
    resources: Sequence[Resource], configuration: Configuration
) -> Callable[[Resource, str, Value], Resource | None]:
    """A function that gives the resource that an attribute of another one refers to: by its id, else by the configuration.

    Of several instances of one resource it is the one with the same instance key; where there is none, nobody can tell.
    """
    by_id = {link: each for each in resources for link in _links(each)}
    by_address: dict[str, list[Resource]] = {}
    for each in resources:
        by_address.setdefault(bare(each.address), []).append(each)

    def find(resource: Resource, attribute: str, value: Value) -> Resource | None:
        if isinstance(value.value, str):
            return by_id.get(value.value)
        address = bare(resource.address)
        prefix = address.removesuffix(f"{resource.type}.{address.rpartition('.')[2]}")
        for reference in references(_expression(configuration.get(address), attribute, value)):
            found = by_address.get(prefix + ".".join(bare(reference).split(".")[:2]), [])
            key = resource.address.removeprefix(_unkeyed(resource.address))
            same = [each for each in found if each.address.endswith(key)] if key else found
            if len(same) == 1 or len(found) == 1:
                return same[0] if len(same) == 1 else found[0]
        return None

    return find


def _links(resource: Resource) -> Iterator[str]:
    """What other resources may write to name this one."""
    for name in ("id", "self_link"):
        link = resource.attributes.child(name).value
        if isinstance(link, str):
            yield link


def _unkeyed(address: str) -> str:
    """An address without the instance key at its end; keys of its modules stay."""
    keys = list(_INDEX.finditer(address))
    return address[: keys[-1].start()] if keys and keys[-1].end() == len(address) else address


def _expression(configured: Mapping[str, Any] | None, attribute: str, value: Value) -> Any:
    """The configuration expression of an attribute; of a block the one of the same place in the list."""
    expression = (configured or {}).get("expressions", {}).get(attribute)
    index = next((step for step in reversed(value.path) if isinstance(step, int)), 0)
    return expression[index] if isinstance(expression, list) and index < len(expression) else expression
