"""SARIF as its standard and as GitHub take it: a schema of the objects that we write, and the rules of the ingestion.

Sources: OASIS, "Static Analysis Results Interchange Format (SARIF) Version 2.1.0", sections 3.13 to 3.35 and 3.49 to 3.54,
from which the schema below was written down for the objects in use, closed against any other property; GitHub, "SARIF support
for code scanning" (required properties and limits), read 2026-11.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import jsonschema


def _object(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(required), "properties": properties}


def _array(items: dict[str, Any], **facts: Any) -> dict[str, Any]:
    return {"type": "array", "items": items, **facts}


TEXT = {"type": "string", "minLength": 1}
MESSAGE = _object(("text",), text=TEXT)
LEVEL = {"enum": ["none", "note", "warning", "error"]}
PROPERTIES = {
    "type": "object",
    "properties": {
        "tags": _array(TEXT, uniqueItems=True),
        "security-severity": {"type": "string", "pattern": r"^\d+\.\d$"},
    },
}
RULE = _object(
    ("id",),
    id=TEXT,
    name=TEXT,
    shortDescription=MESSAGE,
    fullDescription=MESSAGE,
    help=MESSAGE,
    helpUri={"type": "string", "format": "uri"},
    defaultConfiguration=_object((), level=LEVEL, enabled={"type": "boolean"}),
    properties=PROPERTIES,
)
REGION = _object((), startLine={"type": "integer", "minimum": 1}, startColumn={"type": "integer", "minimum": 1})
LOCATION = _object(
    (),
    physicalLocation=_object(
        ("artifactLocation",),
        artifactLocation=_object((), uri={"type": "string", "format": "uri-reference"}),
        region=REGION,
    ),
    logicalLocations=_array(_object((), name={"type": "string"}, kind={"type": "string"}), uniqueItems=True),
)
SUPPRESSION = _object(
    ("kind",),
    kind={"enum": ["inSource", "external"]},
    status={"enum": ["accepted", "underReview", "rejected"]},
    justification=TEXT,
)
RESULT = _object(
    ("message",),
    ruleId=TEXT,
    ruleIndex={"type": "integer", "minimum": -1},
    level=LEVEL,
    kind={"enum": ["notApplicable", "pass", "fail", "review", "open", "informational"]},
    message=MESSAGE,
    locations=_array(LOCATION),
    partialFingerprints={"type": "object", "additionalProperties": {"type": "string"}},
    suppressions=_array(SUPPRESSION, uniqueItems=True),
)
RUN = _object(
    ("tool",),
    tool=_object(
        ("driver",), driver=_object(("name",), name=TEXT, semanticVersion=TEXT, rules=_array(RULE, uniqueItems=True))
    ),
    columnKind={"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    results=_array(RESULT),
)
SCHEMA = _object(
    ("version", "runs"),
    **{"$schema": {"type": "string", "format": "uri"}, "version": {"const": "2.1.0"}, "runs": _array(RUN)},
)
_VALIDATOR = jsonschema.Draft7Validator(SCHEMA)
RESULTS_MAX = 25_000
TAGS_MAX = 20


def schema_faults(document: Any) -> list[str]:
    """What breaks the standard."""
    return [f"{error.json_path}: {error.message}" for error in _VALIDATOR.iter_errors(document)]


def ingestion_faults(document: Any) -> list[str]:
    """What makes GitHub refuse the whole file, or drop or merge a part of it."""
    faults = []
    if len(document["runs"]) > 20:
        faults.append("more than 20 runs")
    for run in document["runs"]:
        rules, results = run["tool"]["driver"]["rules"], run["results"]
        ids = [rule["id"] for rule in rules]
        if len(ids) != len(set(ids)) or len(ids) > RESULTS_MAX:
            faults.append("rules repeat, or are too many")
        faults += [f"{rule['id']}: too many tags" for rule in rules if len(rule["properties"]["tags"]) > TAGS_MAX]
        faults += [f"{rule['id']}: no help" for rule in rules if not rule["help"]["text"]]
        if len(results) > RESULTS_MAX:
            faults.append("too many results")
        marks = [tuple(result["partialFingerprints"].items()) for result in results]
        if len(marks) != len(set(marks)) or () in marks:
            faults.append("two results have one fingerprint, or one has none")
        for result in results:
            faults += _result_faults(result, ids)
    return faults


def _result_faults(result: Any, ids: list[str]) -> list[str]:
    faults = []
    if ids[result["ruleIndex"]] != result["ruleId"]:
        faults.append(f"{result['ruleId']}: its index is that of another rule")
    if not result["locations"]:
        faults.append(f"{result['ruleId']}: no location")
    for location in result["locations"]:
        physical = location.get("physicalLocation", {})
        uri = physical.get("artifactLocation", {}).get("uri", "")
        parts = urlsplit(uri)
        if not uri or parts.scheme or parts.netloc or uri.startswith("/") or ".." in uri.split("/") or " " in uri:
            faults.append(f"{result['ruleId']}: {uri!r} is no path from the repository's root")
        if physical.get("region", {}).get("startLine", 0) < 1:
            faults.append(f"{result['ruleId']}: no line")
    faults += [
        f"{result['ruleId']}: unjustified" for each in result.get("suppressions", ()) if not each.get("justification")
    ]
    return faults
