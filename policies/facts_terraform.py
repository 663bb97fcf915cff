"""Terraform documents as facts: plans (``terraform show -json PLAN``) and states (``terraform show -json``).

Source: Terraform, "JSON Output Format": ``resource_changes[].change`` holds ``actions``, ``after``, ``after_unknown`` (same shape,
``true`` where computed) and ``after_sensitive``; ``planned_values`` and ``values`` hold modules with resources. OpenTofu writes
the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from policies.facts import UNKNOWN, Known, Source, Subject
from policies.facts_links import ATTACHMENTS, attachments
from policies.facts_machines import READERS
from policies.facts_others import Project, resource_subjects
from policies.json_source import JsonSource, PathStep
from policies.json_value import Value
from policies.placement import Placer
from policies.references import Configuration, bare, configuration_index, find_in_terraform, references
from policies.resources import Resource
from provisioner.errors import Position, UsageError
from provisioner.records import record

_FORMS = ("0", "1")
"""Major versions of the form that are read."""
_GONE = (["delete"], ["forget"], ["read"])
"""Actions after which the resource is not, or no longer, this program's."""


def is_terraform(document: Any) -> bool:
    """Whether a document is a Terraform plan or state in JSON."""
    if not isinstance(document, Mapping):
        return False
    return (
        "resource_changes" in document
        or "planned_values" in document
        or ("format_version" in document and ("values" in document or "terraform_version" in document))
    )


def terraform_subjects(source: JsonSource, placer: Placer, project: Project) -> tuple[list[Subject], int]:
    """The subjects of a Terraform document, and how many managed resources it has in all.

    Raises:
        UsageError: the document holds no resources in any of the known places, or its parts are of another kind, or it is of a
            later form, or of a plan that ended with an error.
    """
    _refuse_incomplete(source)
    subjects: list[Subject] = []
    try:
        configuration = configuration_index(source.document)
        entries = list(_entries(source))
        known = READERS.keys() | ATTACHMENTS.keys()
        resources = [_resource(source, entry, configuration) for entry in entries if entry.type in known]
        templates = {bare(each.address): each for each in resources if each.type == "aws_launch_template"}
        for resource in resources:
            if resource.type in ATTACHMENTS:
                continue
            template = _template_of(resource, templates, configuration)
            subjects.extend(resource_subjects(resource, resource.type, placer, project, template))
        subjects.extend(attachments(resources, find_in_terraform(resources, configuration)))
    except (TypeError, AttributeError, KeyError) as error:
        missing = f": the key {error} is missing" if isinstance(error, KeyError) else ""
        raise UsageError(
            f"this Terraform document has an unexpected form{missing}",
            where=Position(source.file),
            remedy="write it again with `terraform show -json`",
        ) from None
    return subjects, len(entries)


def _refuse_incomplete(source: JsonSource) -> None:
    """Refuse what cannot be the whole truth: a form of a later major version, and a plan that ended with an error.

    Source: Terraform, "JSON Output Format": inputs of an unsupported major version are to be rejected; ``errored`` says that
    planning failed part of the way.
    """
    form = source.document.get("format_version")
    if form is not None and str(form).partition(".")[0] not in _FORMS:
        raise UsageError(
            f"format_version {form!r} of this Terraform document is not known",
            where=source.position(("format_version",)),
            remedy="use a release of gpuprov that knows it",
        )
    if source.document.get("errored") is True:
        raise UsageError(
            "this Terraform plan ended with an error: resources may be missing from it",
            where=source.position(("errored",)),
            remedy="mend the error and plan again",
        )


@record(frozen=True, slots=True)
class _Entry:
    """A managed resource of a document, as it will be."""

    address: str
    type: str
    attributes: Value
    sensitive: Any


def _entries(source: JsonSource) -> Iterator[_Entry]:
    document = source.document
    changes = document.get("resource_changes")
    deferred = document.get("deferred_changes") or ()
    for index, item in enumerate(deferred):
        yield from _changed(item["resource_change"], ("deferred_changes", index, "resource_change"))
    if isinstance(changes, list) and changes:
        for index, change in enumerate(changes):
            yield from _changed(change, ("resource_changes", index))
        return
    for key in ("planned_values", "values"):
        module = document.get(key)
        if isinstance(module, Mapping) and isinstance(module.get("root_module"), Mapping):
            yield from _module(module["root_module"], (key, "root_module"))
            return
    if isinstance(changes, list) or deferred:
        return
    raise UsageError(
        "this Terraform document holds neither resource_changes nor planned_values nor values",
        where=Position(source.file),
        remedy="write it with `terraform show -json PLANFILE`",
    )


def _changed(change: Mapping[str, Any], path: tuple[PathStep, ...]) -> Iterator[_Entry]:
    inner = change["change"]
    if change.get("mode", "managed") != "managed" or inner["actions"] in _GONE:
        return
    after = merged(inner.get("after"), inner.get("after_unknown"))
    value = Value(after, (*path, "change", "after"))
    yield _Entry(str(change["address"]), str(change["type"]), value, inner.get("after_sensitive"))


def _module(module: Mapping[str, Any], path: tuple[PathStep, ...]) -> Iterator[_Entry]:
    for index, resource in enumerate(module.get("resources", ())):
        if resource.get("mode", "managed") == "managed":
            values = Value(resource.get("values") or {}, (*path, "resources", index, "values"))
            yield _Entry(str(resource["address"]), str(resource["type"]), values, resource.get("sensitive_values"))
    for index, inner in enumerate(module.get("child_modules", ())):
        yield from _module(inner, (*path, "child_modules", index))


def _resource(source: JsonSource, entry: _Entry, configuration: Configuration) -> Resource:
    configured = configuration.get(bare(entry.address))
    return Resource(
        address=entry.address,
        type=entry.type,
        attributes=entry.attributes,
        json=source,
        source=Source.TERRAFORM,
        sensitive=_sensitive_names(entry.sensitive),
        region=_provider_region(source.document, configured),
        declared=frozenset(configured.get("expressions", {})) if configured is not None else None,
    )


def merged(value: Any, unknown: Any) -> Any:
    """``after`` with ``UNKNOWN`` wherever ``after_unknown`` says that the value is computed."""
    if unknown is True:
        return UNKNOWN
    if isinstance(unknown, Mapping):
        base = dict(value) if isinstance(value, Mapping) else {}
        base.update({key: merged(base.get(key), inner) for key, inner in unknown.items() if inner not in (False, None)})
        return base
    if isinstance(unknown, list):
        items = list(value) if isinstance(value, list) else []
        items += [None] * (len(unknown) - len(items))
        return [merged(item, unknown[index] if index < len(unknown) else None) for index, item in enumerate(items)]
    return value


def _sensitive_names(sensitive: Any) -> frozenset[str]:
    """Attributes that Terraform marks as sensitive, as a whole or in a part; of metadata, its keys."""
    if not isinstance(sensitive, Mapping):
        return frozenset()
    names = {str(key) for key, mark in sensitive.items() if mark is True}
    inner = sensitive.get("metadata")
    if isinstance(inner, Mapping):
        names |= {str(key) for key, mark in inner.items() if mark is True}
    return frozenset(names)


def _provider_region(document: Mapping[str, Any], configured: Mapping[str, Any] | None) -> Known[str | None]:
    """Region that a resource's provider is configured with; unknown where it is computed, ``None`` where nothing is said."""
    configuration = document.get("configuration")
    providers = configuration.get("provider_config") if isinstance(configuration, Mapping) else None
    key = configured.get("provider_config_key") if configured is not None else None
    provider = providers.get(key) if isinstance(providers, Mapping) and isinstance(key, str) else None
    expressions = provider.get("expressions") if isinstance(provider, Mapping) else None
    region = expressions.get("region") if isinstance(expressions, Mapping) else None
    if not isinstance(region, Mapping):
        return None
    constant = region.get("constant_value")
    return constant if isinstance(constant, str) else _variable(document, region)


def _variable(document: Mapping[str, Any], expression: Mapping[str, Any]) -> str | None:
    """The value of a root variable that an expression refers to; ``None`` where the document does not tell."""
    references, variables = expression.get("references"), document.get("variables")
    if not isinstance(references, list) or len(references) != 1 or not isinstance(variables, Mapping):
        return None
    entry = variables.get(str(references[0]).removeprefix("var."))
    value = entry.get("value") if isinstance(entry, Mapping) else None
    return value if isinstance(value, str) else None


def _template_of(
    resource: Resource, templates: Mapping[str, Resource], configuration: Configuration
) -> Resource | None:
    """The launch template of the same plan that an instance refers to."""
    address = bare(resource.address)
    configured = configuration.get(address)
    if resource.type != "aws_instance" or configured is None:
        return None
    prefix = address.rpartition("aws_instance.")[0]
    for reference in references(configured.get("expressions", {}).get("launch_template")):
        name = ".".join(reference.split(".")[:2])
        if found := templates.get(f"{prefix}{name}"):
            return found
    return None
