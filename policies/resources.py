"""One resource of another program's document: its attributes under Terraform's names, and where they stand.

Pulumi's classic providers are bridged from Terraform's: same attributes in camel case, single blocks as objects, some lists in
the plural. One reader per cloud therefore serves both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from policies.facts import UNKNOWN, Known, Source, Unknown, parents
from policies.json_source import JsonSource, PathStep
from policies.json_value import Value
from provisioner.catalog.instances import InstanceType
from provisioner.catalog.snapshot import Catalog
from provisioner.errors import Position
from provisioner.records import record
from provisioner.tags import WORKLOAD

Places = dict[str, tuple[PathStep, ...]]
"""Where facts stand in their document, by fact key."""
WORKLOAD_KEYS = (WORKLOAD, WORKLOAD.replace(":", "-"), WORKLOAD.replace(":", "_"))
"""The tag and its spellings as label or metadata key of Google Cloud, whose labels take no colon."""


@record(frozen=True, slots=True)
class Resource:
    """One resource of another program's document: its attributes, and where they stand."""

    address: str
    type: str
    attributes: Value
    json: JsonSource
    source: Source
    sensitive: frozenset[str] = frozenset()
    region: Known[str | None] = None
    """Region of the provider that makes it, where the document says."""
    declared: frozenset[str] | None = None
    """Attributes that the program itself sets, or ``None`` where the document does not say."""

    def child(self, name: str) -> Value:
        """An attribute by its Terraform name, whichever of the spellings is there."""
        return self.attributes.child(*spellings(name))

    def declared_child(self, name: str) -> Value:
        """A block that providers compute where the program has none: unknown and not declared means that there is none."""
        value = self.child(name)
        if value.is_unknown and self.declared is not None and not self.declared.intersection(spellings(name)):
            return Value(None, value.path)
        return value

    def locate(self, places: Mapping[str, tuple[PathStep, ...]]) -> Callable[[str], Position]:
        """A function from fact keys to places in the document; the resource itself where a fact is not written."""

        def place(key: str) -> Position:
            for above in parents(key):
                if above in places:
                    return self.json.position(places[above])
            return self.json.position(self.attributes.path)

        return place


def spellings(name: str) -> tuple[str, ...]:
    """A Terraform attribute's names: as it is, in camel case, and both in the plural."""
    head, *tail = name.split("_")
    camel = head + "".join(word.capitalize() for word in tail)
    return (name, camel, f"{name}s", f"{camel}s")


def child(value: Value, name: str) -> Value:
    """A member of a block by its Terraform name, whichever of the spellings is there."""
    return value.child(*spellings(name))


def read_tags(resource: Resource, template: Resource | None = None) -> Known[Mapping[str, Known[str]]]:
    """Tags of a resource with the provider's defaults, and those that its template gives to instances."""
    own, all_tags = resource.child("tags"), resource.child("tags_all")
    table = own.table()
    if isinstance(table, Unknown):
        return UNKNOWN
    everything = all_tags.table()
    given = dict(everything) if not isinstance(everything, Unknown) else {}
    for holder in (template, resource):
        specifications = holder.child("tag_specification").items() if holder is not None else ()
        for item in () if isinstance(specifications, Unknown) else specifications:
            inner = child(item, "tags").table()
            if child(item, "resource_type").value == "instance" and not isinstance(inner, Unknown):
                given |= inner
    return {**given, **table}


def workload_path(tags: Known[Mapping[str, Known[str]]]) -> Known[str | None]:
    """The path of the workload spec that the tags name; ``None`` where they name none."""
    if isinstance(tags, Unknown):
        return UNKNOWN
    return next((tags[key] for key in WORKLOAD_KEYS if key in tags), None)


def catalog_row(catalog: Catalog, cloud: str, instance_type: Known[str | None]) -> Known[InstanceType | None]:
    """The catalog's row of an instance type; ``None`` where it has none."""
    if isinstance(instance_type, Unknown):
        return UNKNOWN
    return catalog.instances.get((cloud, instance_type)) if instance_type is not None else None


def has_gpu(instance: Known[InstanceType | None], instance_type: Known[str | None]) -> Known[bool]:
    """Whether a machine has a GPU: by the catalog, else by the names that the clouds give to GPU families."""
    if isinstance(instance, Unknown):
        return UNKNOWN
    if instance is not None:
        return instance.gpu_model is not None and instance.gpu_count > 0
    return bool(re.match(r"(?:g|p)\d|a\d-|g\d-", str(instance_type))) if isinstance(instance_type, str) else False


def last_part(text: Known[str | None]) -> Known[str | None]:
    """The last part of a Google self link: ``zones/us-central1-a/machineTypes/g2-standard-4`` is ``g2-standard-4``."""
    return text.rpartition("/")[2] if isinstance(text, str) else text


def is_set(value: Value) -> Known[bool]:
    """Whether an attribute has a value that is not empty."""
    return UNKNOWN if value.is_unknown else not value.is_absent and value.value != ""
