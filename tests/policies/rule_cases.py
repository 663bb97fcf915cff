"""Per rule: facts that pass, that fail, one step on either side of the limit, facts that cannot be told, and what is said."""

from __future__ import annotations

from dataclasses import replace

from tests.policies.cases.availability import AVAILABILITY
from tests.policies.cases.capacity import CAPACITY
from tests.policies.cases.commands import COMMANDS
from tests.policies.cases.common import Cases
from tests.policies.cases.cost import COST
from tests.policies.cases.hardware import HARDWARE
from tests.policies.cases.hygiene import HYGIENE
from tests.policies.cases.lifecycle import LIFECYCLE
from tests.policies.cases.more import OTHER, SAYS, SILENT
from tests.policies.cases.security import SECURITY
from tests.policies.cases.sizing import SIZING

_FAMILIES = (SIZING, COMMANDS, HARDWARE, COST, CAPACITY, AVAILABILITY, LIFECYCLE, SECURITY, HYGIENE)
CASES: dict[str, Cases] = {
    rule_id: replace(cases, silent=SILENT.get(rule_id, ()), says=SAYS.get(rule_id, ()))
    for family in _FAMILIES
    for rule_id, cases in family.items()
}
ALL_CASES: tuple[tuple[str, Cases], ...] = (*CASES.items(), *OTHER)
"""The same, and the cases of rules that are judged with other parameters too."""

__all__ = ["ALL_CASES", "CASES", "Cases"]
