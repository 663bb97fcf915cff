"""All rules, in the order of the documentation."""

from __future__ import annotations

from policies.rule import Rule
from policies.rules import (
    access,
    availability,
    capacity,
    commands,
    cost,
    hardware,
    hygiene,
    lifecycle,
    secrecy,
    sizing,
    supply,
    waived,
)

RULES: tuple[Rule, ...] = (
    *sizing.RULES,
    *commands.RULES,
    *hardware.RULES,
    *cost.RULES,
    *capacity.RULES,
    *availability.RULES,
    *lifecycle.RULES,
    *access.RULES,
    *secrecy.RULES,
    *supply.RULES,
    *hygiene.RULES,
    *waived.RULES,
)
BY_ID = {rule.id: rule for rule in RULES}
