"""The renderer of each format, imported when it is asked for."""

from __future__ import annotations

import importlib
from pathlib import Path

from policies.formats.report import Report

MODULES = {
    "text": "text",
    "json": "json_document",
    "sarif": "sarif",
    "junit": "junit",
    "github": "github",
    "gitlab": "gitlab",
}
OF_SUFFIX = {".json": "json", ".sarif": "sarif", ".xml": "junit"}
"""Format that the suffix of an output file means."""


def render(report: Report, form: str) -> str:
    """The report in a format of ``MODULES``, with a final newline."""
    text: str = importlib.import_module(f"policies.formats.{MODULES[form]}").render(report)
    return text


def append_step_summary(report: Report, file: Path) -> None:
    """Add the run to GitHub's step summary."""
    from policies.formats.github import summary

    with file.open("a", encoding="utf-8") as stream:
        stream.write(summary(report))
