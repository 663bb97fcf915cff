"""Per rule: facts that pass, that fail, one step on either side of the limit, and facts that cannot be told."""

from __future__ import annotations

from tests.policies.cases.availability import AVAILABILITY
from tests.policies.cases.capacity import CAPACITY
from tests.policies.cases.commands import COMMANDS
from tests.policies.cases.common import Cases
from tests.policies.cases.cost import COST
from tests.policies.cases.hardware import HARDWARE
from tests.policies.cases.hygiene import HYGIENE
from tests.policies.cases.lifecycle import LIFECYCLE
from tests.policies.cases.security import SECURITY
from tests.policies.cases.sizing import SIZING

CASES: dict[str, Cases] = {
    **SIZING,
    **COMMANDS,
    **HARDWARE,
    **COST,
    **CAPACITY,
    **AVAILABILITY,
    **LIFECYCLE,
    **SECURITY,
    **HYGIENE,
}

__all__ = ["CASES", "Cases"]
