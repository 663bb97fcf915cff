"""Cases of the cost rules."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

from policies.facts import UNKNOWN
from provisioner.units import Money
from tests.policies.builders import candidate, offered, spec
from tests.policies.cases.common import NOT_KNOWN, Cases

LIMIT = {"placement.max_price": "1 USD/h"}
BUDGET = {"placement.max_price": ..., "placement.budget": "120 USD/month"}
ENDLESS = {"lifecycle": {"pattern": "steady", "hours_per_month": 730}}
COST = {
    "price-limit": Cases(
        passes=(
            spec(),
            spec({"placement.max_price": ..., "placement.budget": "10 USD/month"}),
            spec({"placement.budget": "10 USD/month"}),
        ),
        fails=(
            spec({"placement.max_price": ...}),
            spec({"placement": ...}),
            spec({"placement.max_price": ..., "placement.max_gpus": 8}),
        ),
        boundary=(spec({"placement.max_price": "0.01 USD/h"}), spec({"placement.max_price": ...})),
        unknowns=(
            spec(unknown=("placement.max_price", "placement.budget")),
            spec({"placement.max_price": ...}, unknown=("placement.budget",)),
            spec(workload=UNKNOWN),
        ),
    ),
    "price-over-limit": Cases(
        passes=(
            offered(changes=LIMIT),
            offered(candidate(price_usd_per_hour=Decimal("0.4"), instances=2), changes=LIMIT),
            offered(candidate(price_usd_per_hour=Decimal("0.01")), changes=LIMIT),
        ),
        fails=(
            offered(candidate(price_usd_per_hour=Decimal(2)), changes=LIMIT),
            offered(candidate(instances=2), changes=LIMIT),
            offered(candidate(), candidate(key="failover[1]", price_usd_per_hour=Decimal(9)), changes=LIMIT),
        ),
        boundary=(
            offered(candidate(price_usd_per_hour=Decimal(1)), changes=LIMIT),
            offered(candidate(price_usd_per_hour=Decimal("1.0001")), changes=LIMIT),
        ),
        unknowns=(
            offered(candidate(price_usd_per_hour=None), changes=LIMIT),
            offered(candidate(price_usd_per_hour=UNKNOWN), changes=LIMIT),
            offered(candidate(instances=UNKNOWN), changes=LIMIT),
            offered(candidates=UNKNOWN, changes=LIMIT),
            offered(workload=UNKNOWN),
        ),
    ),
    "budget-over": Cases(
        passes=(
            offered(changes=BUDGET),
            offered(candidate(price_usd_per_hour=Decimal("0.5"), instances=2), changes=BUDGET),
            offered(candidate(price_usd_per_hour=Decimal("0.1")), changes=BUDGET),
        ),
        fails=(
            offered(candidate(price_usd_per_hour=Decimal(2)), changes=BUDGET),
            offered(candidate(instances=2), changes=BUDGET),
            offered(changes=BUDGET | {"lifecycle.hours_per_month": 730}),
        ),
        boundary=(
            offered(candidate(price_usd_per_hour=Decimal(1)), changes=BUDGET),
            offered(candidate(price_usd_per_hour=Decimal("1.0001")), changes=BUDGET),
        ),
        unknowns=(
            offered(candidate(price_usd_per_hour=None), changes=BUDGET),
            offered(candidates=UNKNOWN, changes=BUDGET),
            offered(workload=UNKNOWN),
        ),
    ),
    "price-ceiling": Cases(
        passes=(
            offered(),
            offered(candidate(price_usd_per_hour=Decimal("0.01"))),
            offered(candidate(price_usd_per_hour=Decimal("0.5"), instances=2)),
        ),
        fails=(
            offered(candidate(price_usd_per_hour=Decimal(2))),
            offered(candidate(instances=2)),
            offered(candidate(), candidate(key="failover[1]", price_usd_per_hour=Decimal(98))),
        ),
        boundary=(
            offered(candidate(price_usd_per_hour=Decimal(1))),
            offered(candidate(price_usd_per_hour=Decimal("1.000001"))),
        ),
        unknowns=(offered(candidate(price_usd_per_hour=UNKNOWN)), offered(candidates=UNKNOWN)),
        parameters={"max_price": Money(Decimal(1), "h")},
    ),
    "gpu-ceiling": Cases(
        passes=(offered(), offered(candidate(instances=4)), offered(candidate(instance_type="g6.12xlarge"))),
        fails=(
            offered(candidate(instances=5)),
            offered(candidate(instance_type="g6.48xlarge")),
            offered(candidate(instance_type="g6.12xlarge", instances=2)),
        ),
        boundary=(offered(candidate(instances=4)), offered(candidate(instances=5))),
        unknowns=(
            offered(NOT_KNOWN),
            offered(candidate(instances=UNKNOWN)),
            offered(candidate(instance_type="p9.new", instance=None)),
            offered(candidates=UNKNOWN),
        ),
        parameters={"max_gpus": 4},
    ),
    "price-age": Cases(
        passes=(offered(), offered(candidate(price_as_of="2026-11-30")), offered(candidate(price_as_of="2026-10-31"))),
        fails=(
            offered(candidate(price_as_of="2024-07-01")),
            offered(candidate(price_as_of="2026-01-01")),
            offered(candidate(), candidate(key="failover[1]", price_as_of="2025-12-31")),
        ),
        boundary=(offered(candidate(price_as_of="2026-10-31")), offered(candidate(price_as_of="2026-10-30"))),
        unknowns=(
            offered(candidate(price_as_of=None)),
            offered(candidate(price_as_of=UNKNOWN)),
            offered(candidates=UNKNOWN),
        ),
        parameters={"max_age": timedelta(days=30)},
    ),
    "endless-cost": Cases(
        passes=(
            offered(),
            offered(changes={**ENDLESS, "lifecycle.max_lifetime": "30d"}),
            offered(changes={**ENDLESS, "lifecycle.max_spend": "200 USD"}),
            offered(changes={**ENDLESS, "lifecycle.lease": "2h"}),
            offered(changes={"lifecycle": {"pattern": "bursty", "max_lifetime": "off", "max_spend": "200 USD"}}),
            offered(candidate(price_usd_per_hour=Decimal("0.1")), changes=ENDLESS),
        ),
        fails=(
            offered(candidate(price_usd_per_hour=Decimal(98)), changes=ENDLESS),
            offered(candidate(instances=2), changes=ENDLESS),
            offered(changes={"lifecycle": {"pattern": "bursty", "idle": {"after": "off"}, "max_lifetime": "off"}}),
            offered(changes={"lifecycle": {"pattern": "bursty", "idle": {"after": "off"}, "lease": "2h"}}),
            offered(changes={"lifecycle": {"pattern": "bursty", "idle": {"after": "off"}, "max_lifetime": "12h"}}),
            offered(changes={"lifecycle": {"pattern": "bursty", "max_lifetime": "off"}}),
        ),
        boundary=(
            offered(candidate(price_usd_per_hour=Decimal("0.5")), changes=ENDLESS),
            offered(candidate(price_usd_per_hour=Decimal("0.50001")), changes=ENDLESS),
        ),
        unknowns=(
            offered(candidate(price_usd_per_hour=None), changes=ENDLESS),
            offered(candidates=UNKNOWN, changes=ENDLESS),
            offered(workload=UNKNOWN),
        ),
        parameters={"max_price_a_day": Money(Decimal(12))},
    ),
}
