"""What is wrong with a rule, by its cases: the one judge that the tests of rules and the hunt for mutants share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from policies.facts import Subject
from policies.rule import Outcome, Result, Rule, Setting
from tests.policies.cases.common import Cases


def mistakes(rule: Rule, cases: Cases, setting: Setting) -> Iterator[str]:
    """Each case that a rule judges wrongly, and each outcome that does not say what and the change that passes."""
    last, first = cases.boundary if not cases.is_silent else ((), ())
    for subject in (*cases.passes, *_one(last)):
        if (found := _results(rule, subject, setting)) != {Result.PASS}:
            yield f"{found} where it passes: {subject}"
    for subject in (*cases.fails, *_one(first)):
        if Result.FAIL not in (found := _results(rule, subject, setting)):
            yield f"{found} where it fails: {subject}"
    for subject in cases.unknowns:
        found = _results(rule, subject, setting)
        if Result.UNKNOWN not in found or Result.FAIL in found:
            yield f"{found} where nobody can tell: {subject}"
    for subject in (*cases.fails, *cases.unknowns, *_one(first)):
        yield from (f"{outcome}" for outcome in rule.judge(subject, setting) if not _is_said(outcome))
    for subject in cases.silent:
        yield from (f"{outcome} where the rule does not apply" for outcome in rule.judge(subject, setting))
    for subject, words in cases.says:
        yield from _unsaid(tuple(rule.judge(subject, setting)), words)


def _one(subject: Subject | tuple[()]) -> tuple[Subject, ...]:
    return (subject,) if isinstance(subject, Subject) else ()


def _results(rule: Rule, subject: Subject, setting: Setting) -> set[Result]:
    return {outcome.result for outcome in rule.judge(subject, setting)}


def _is_said(outcome: Outcome) -> bool:
    if outcome.result is Result.PASS:
        return True
    text = f"{outcome.message} {outcome.remedy}"
    return bool(outcome.message and outcome.remedy) and "UNKNOWN" not in text and "None" not in outcome.message


def _unsaid(outcomes: Iterable[Outcome], words: tuple[str, ...]) -> Iterator[str]:
    text = "\n".join(f"{each.result}|{each.key}|{each.message}|{each.remedy}|{each.identity}" for each in outcomes)
    yield from (f"{word!r} is not said in {text}" for word in words if word not in text)
