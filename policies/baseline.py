"""Baselines: findings that were there before, by fingerprint, so that only new ones fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from policies.files import PolicyFileError, read_text, shown
from policies.finding import Verdict
from policies.json_source import read_json
from provisioner.errors import Position, UsageError

SCHEMA = "gpuprov.baseline/1"


def load_baseline(path: Path) -> frozenset[str]:
    """Fingerprints of a baseline: one that ``--write-baseline`` wrote, or a saved JSON, SARIF or GitLab report of ``check``.

    Raises:
        PolicyFileError: the file is none of these.
    """
    file = shown(path)
    try:
        document = read_json(file, read_text(path)).document
    except PolicyFileError:
        raise
    except UsageError as error:
        raise PolicyFileError(error.message, where=error.where, remedy=error.remedy) from None
    marks = _marks(document)
    if marks is None or not all(isinstance(mark, str) and mark for mark in marks):
        remedy = "write one with `gpuprov check PATH --baseline FILE --write-baseline`, or keep a JSON or SARIF report of `check`"
        raise PolicyFileError(f"{file} is no baseline", where=Position(file), remedy=remedy)
    return frozenset(marks)


def _marks(document: Any) -> list[Any] | None:
    """The fingerprints of a document, or ``None`` where it is of no known form."""
    try:
        if isinstance(document, list):
            return [item["fingerprint"] for item in document]
        if document.get("schema") in (SCHEMA, "gpuprov.check/1"):
            return [item["fingerprint"] for item in document["findings"]]
        if "runs" in document:
            return list(_sarif_marks(document))
    except (TypeError, KeyError, AttributeError):
        return None
    return None


def _sarif_marks(document: Any) -> Iterator[Any]:
    for run in document["runs"]:
        for result in run["results"]:
            yield result["partialFingerprints"]["gpuprov/v1"]


def write_baseline(path: Path, verdict: Verdict) -> None:
    """Keep what is found now, except what is waived, as the baseline."""
    findings = [
        {"fingerprint": finding.fingerprint, "rule": finding.rule.id, "subject": finding.subject}
        for finding in verdict.findings
        if finding.waiver is None
    ]
    findings.sort(key=lambda item: (item["rule"], item["subject"], item["fingerprint"]))
    path.write_text(
        json.dumps({"schema": SCHEMA, "findings": findings}, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )
