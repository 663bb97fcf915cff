"""All rules, in the order of the documentation."""

from __future__ import annotations

from policies.rule import Rule
from policies.rules import capacity, cost, hardware, hygiene, lifecycle, security, sizing, waived

RULES: tuple[Rule, ...] = (
    *sizing.RULES,
    *hardware.RULES,
    *cost.RULES,
    *capacity.RULES,
    *lifecycle.RULES,
    *security.RULES,
    *hygiene.RULES,
    *waived.RULES,
)
BY_ID = {rule.id: rule for rule in RULES}
