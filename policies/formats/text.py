"""The report for people: the lines of the file with a marker, why it matters, and the fix."""

from __future__ import annotations

from pathlib import Path

from policies.files import NO_FILE
from policies.finding import Finding
from policies.formats.report import Report, counts_line, message_of, one_line, remedy_of, state_of
from policies.rule import Result
from policies.secrets import REDACTED, redact

CONTEXT_LINES = 1
LINE_CHARACTERS_MAX = 160


def render(report: Report) -> str:
    """All findings, violations first, and the counts."""
    texts = _Texts(report.hidden)
    blocks = [_block(finding, texts) for finding in report.findings]
    return "\n".join([*blocks, counts_line(report)]) + "\n"


def _block(finding: Finding, texts: _Texts) -> str:
    word = "" if finding.result is Result.FAIL else ", not known"
    where = f"{finding.position}: " if finding.position.file != NO_FILE else f"{finding.subject}: "
    head = f"{where}{state_of(finding)}: {finding.rule.id} ({finding.rule.severity}{word}): {message_of(finding)}"
    lines = [head, *_excerpt(finding, texts)]
    lines.append(f"  why: {finding.rule.rationale}")
    if remedy := remedy_of(finding):
        lines.append(f"  fix: {remedy}")
    if waiver := finding.waiver:
        lines.append(f"  waived: by {one_line(waiver.owner)} until {waiver.expires}: {one_line(waiver.reason)}")
    lines.append(f"  more: {finding.rule.docs}")
    return "\n".join(lines) + "\n"


def _excerpt(finding: Finding, texts: _Texts) -> list[str]:
    """The offending line between its neighbours, with a caret below it; secrets are redacted over the whole file at once."""
    place = finding.position
    lines = texts.lines(place.file)
    if not 1 <= place.line <= len(lines):
        return []
    first, last = max(1, place.line - CONTEXT_LINES), min(len(lines), place.line + CONTEXT_LINES)
    width = len(str(last))
    shown = []
    for number in range(first, last + 1):
        text = lines[number - 1]
        cut = text if len(text) <= LINE_CHARACTERS_MAX else text[: LINE_CHARACTERS_MAX - 3] + "..."
        shown.append(f"  {number:>{width}} | {cut}")
        if number == place.line:
            shown.append(f"  {'':>{width}} | {' ' * min(place.column - 1, len(cut))}^")
    return shown


class _Texts:
    """Lines of the judged files without secrets, read once each."""

    def __init__(self, hidden: tuple[str, ...]) -> None:
        self._hidden = hidden
        self._lines: dict[str, list[str]] = {}

    def lines(self, file: str) -> list[str]:
        """Lines of a file; none where it cannot be read any more."""
        if file not in self._lines:
            try:
                text = Path(file).read_text(encoding="utf-8", errors="replace")
            except (OSError, ValueError):
                text = ""
            self._lines[file] = self._redacted(text)
        return self._lines[file]

    def _redacted(self, text: str) -> list[str]:
        """The lines without secrets, line by line so that their numbers stay; the lines of a private key are all hidden."""
        inside = False
        shown = []
        for line in text.split("\n"):
            begins = "-----BEGIN " in line and "PRIVATE KEY" in line
            safe = REDACTED if inside or begins else redact(line, self._hidden)
            shown.append("".join(character if character.isprintable() else " " for character in safe))
            inside = (inside or begins) and "-----END " not in line
        return shown
