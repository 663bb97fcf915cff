from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from provisioner.errors import UsageError
from stacks.provider import lifetime

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("workload", "end"),
    [
        ({"task": "serve"}, "none"),
        ({"task": "serve", "lifecycle": {"pattern": "bursty"}}, "2026-12-01T12:00:00Z"),
        ({"task": "finetune"}, "2026-12-01T12:00:00Z"),
        ({"task": "finetune", "lifecycle": {"pattern": "steady"}}, "none"),
        ({"task": "serve", "lifecycle": {"max_lifetime": "90m"}}, "2026-11-30T13:30:00Z"),
        ({"task": "batch", "lifecycle": {"max_lifetime": "off"}}, "none"),
    ],
)
def test_the_end_follows_the_contract(workload: dict[str, object], end: str) -> None:
    assert lifetime.expires_at(workload, NOW) == end


@pytest.mark.parametrize("stated", [12, "12", "soon", "0s", True, {"h": 1}])
def test_what_is_no_duration_is_refused(stated: object) -> None:
    with pytest.raises(UsageError, match=r"lifecycle\.max_lifetime"):
        lifetime.max_lifetime({"lifecycle": {"max_lifetime": stated}})


def test_an_unknown_pattern_is_refused() -> None:
    with pytest.raises(UsageError, match="steady or bursty"):
        lifetime.pattern({"lifecycle": {"pattern": "often"}})


def test_idle_and_stopped_limits() -> None:
    assert lifetime.idle_after({"task": "serve"}) == "none"
    assert lifetime.idle_after({"task": "batch"}) == "auto"
    assert lifetime.idle_after({"lifecycle": {"idle": {"after": "45m"}}}) == "45m"
    assert lifetime.idle_after({"task": "batch", "lifecycle": {"idle": {"after": "off"}}}) == "none"
    assert lifetime.terminate_after({}) == "7d"
    assert lifetime.terminate_after({"lifecycle": {"stopped": {"terminate_after": "2d"}}}) == "2d"
    assert lifetime.max_lifetime({"task": "batch"}) == timedelta(hours=24)
