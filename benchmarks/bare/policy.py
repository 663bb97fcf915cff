"""A policy pack with one rule that never objects, for the floor of ``up_overhead``."""

from __future__ import annotations

from pulumi_policy import (
    EnforcementLevel,
    PolicyPack,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
)


def _never(args: ResourceValidationArgs, report: ReportViolation) -> None:
    del args, report


if __name__ == "__main__":
    PolicyPack(
        name="bare",
        enforcement_level=EnforcementLevel.MANDATORY,
        policies=[ResourceValidationPolicy(name="never", description="Never objects.", validate=_never)],
    )
