"""JSON Schema of ``workload.yaml`` for editors, made from the same models and kinds that read it."""

from __future__ import annotations

import ast
import inspect
import itertools
from typing import Any

from pydantic import BaseModel

from provisioner.vocabulary import Task
from provisioner.workload.keys import parts_and_kinds
from provisioner.workload.kinds import WordOrPart
from provisioner.workload.rules import TASKS_OF_KEYS
from provisioner.workload.spec import Workload

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TITLE = "gpuprov workload.yaml, version 1"


def json_schema() -> dict[str, Any]:
    """The schema: every key with its type, unit pattern and description, no others, and what goes with which task."""
    definitions: dict[str, Any] = {}
    top = _part_schema(Workload, definitions)
    definitions["Model"]["oneOf"] = [{"required": [way]} for way in ("id", "config", "shape")]
    return {
        "$schema": DIALECT,
        "schema": "gpuprov.schema/1",
        "title": TITLE,
        "description": "What gpuprov sizes, places, creates and ends. Sizes, durations and money carry a unit.",
        **top,
        "allOf": _task_rules(),
        "$defs": dict(sorted(definitions.items())),
    }


def _part_schema(part: type[BaseModel], definitions: dict[str, Any]) -> dict[str, Any]:
    """Schema of a part; the parts below it are added to ``definitions``."""
    texts = _descriptions(part)
    properties: dict[str, Any] = {}
    for key, (below, kind) in parts_and_kinds(part).items():
        if below is None:
            value = dict(kind.schema()) if kind is not None else {}
        else:
            if below.__name__ not in definitions:
                definitions[below.__name__] = {}
                definitions[below.__name__] = _part_schema(below, definitions)
            value = {"$ref": f"#/$defs/{below.__name__}"}
            if isinstance(kind, WordOrPart):
                value = {"anyOf": [{"enum": list(kind.words)}, {**value, "minProperties": 1}]}
        properties[key] = {"description": texts[key], **value}
    required = [key for key, info in part.model_fields.items() if info.is_required()]
    return {
        "type": "object",
        "properties": properties,
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _task_rules() -> list[dict[str, Any]]:
    """For each key that goes with certain tasks: with any other task it must be absent."""
    rules: list[dict[str, Any]] = []
    for path, tasks in TASKS_OF_KEYS.items():
        others = [str(task) for task in Task if task not in tasks]
        absent: dict[str, Any] = {"not": {"required": [path[-1]]}}
        for step in reversed(path[:-1]):
            absent = {"properties": {step: absent}}
        rules.append({"if": {"properties": {"task": {"enum": others}}, "required": ["task"]}, "then": absent})
    trainings = [str(task) for task in Task if task.is_training]
    needs = {"properties": {"task": {"enum": trainings}}, "required": ["task"]}
    rules.append({"if": needs, "then": {"required": ["training"]}})
    return rules


def _descriptions(part: type[BaseModel]) -> dict[str, str]:
    """Per key of a part: the text that follows the field in the source.

    Read from the source only when a schema is printed, so that loading a spec pays nothing for it.
    """
    body = ast.parse(inspect.getsource(part)).body[0]
    texts: dict[str, str] = {}
    fields = body.body if isinstance(body, ast.ClassDef) else []
    for field, after in itertools.pairwise(fields):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(after, ast.Expr)
            and isinstance(after.value, ast.Constant)
        ):
            texts[field.target.id] = str(after.value.value)
    return texts
