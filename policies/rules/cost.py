"""Cost rules: limits are stated, kept, and based on prices that are not too old."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from decimal import Decimal

from policies.facts import UNKNOWN, Candidate, Known, OfferedFacts, SpecFacts, Unknown
from policies.parameters import Parameter
from policies.rule import Level, Outcome, Rule, Setting, Severity, failed, passed, unknown
from policies.rules.candidates import candidates_of, machines_of, offers_of
from provisioner.units import Money, decimal_string, format_duration, format_usd
from provisioner.vocabulary import Pattern
from provisioner.workload.kinds import Whole
from provisioner.workload.quantities import DURATION, MoneyPer
from provisioner.workload.spec import Lifecycle

_PER_HOUR = MoneyPer("12 USD/h")


def price_limit(facts: SpecFacts, setting: Setting) -> Iterator[Outcome]:
    """A spec says what it may cost."""
    del setting
    limit, budget = facts.read("placement.max_price"), facts.read("placement.budget")
    remedy = "write placement.max_price: 5 USD/h, or placement.budget: 600 USD/month"
    if limit is UNKNOWN and budget is UNKNOWN:
        yield unknown("placement.max_price", "whether the cost is limited is not known yet", remedy)
    elif limit is None and budget is None:
        yield failed("placement", "nothing limits what this workload may cost", remedy)
    elif UNKNOWN in (limit, budget) and None in (limit, budget):
        yield unknown("placement.max_price", "whether the cost is limited is not known yet", remedy)
    else:
        yield passed("placement.max_price")


def hourly_usd(candidate: Candidate) -> Known[Decimal | None]:
    """Compute price of all instances of an offer, USD per hour."""
    if isinstance(candidate.price_usd_per_hour, Unknown) or isinstance(candidate.instances, Unknown):
        return UNKNOWN
    if candidate.price_usd_per_hour is None:
        return None
    return candidate.price_usd_per_hour * candidate.instances


def price_over_limit(facts: OfferedFacts, setting: Setting) -> Iterator[Outcome]:
    """No offer that may be taken costs more an hour than the spec allows."""
    del setting
    if isinstance(facts.workload, Unknown):
        yield unknown("workload", f"the price limit of {facts.name} is not known yet", "write it as a constant")
        return
    limit = facts.workload.placement.max_price
    if limit is not None:
        yield from _over(facts, limit.amount_usd, "placement.max_price")


def price_ceiling(facts: OfferedFacts, setting: Setting) -> Iterator[Outcome]:
    """No workload costs more an hour than the organisation allows."""
    ceiling: Money | None = setting.parameters["max_price"]
    if ceiling is not None:
        yield from _over(facts, ceiling.amount_usd, "the organisation's ceiling")


def _over(facts: OfferedFacts, limit_usd: Decimal, what: str) -> Iterator[Outcome]:
    candidates, outcome = offers_of(facts)
    if outcome is not None:
        yield outcome
    for candidate in candidates:
        price = hourly_usd(candidate)
        if isinstance(price, Unknown) or price is None:
            message = f"the price of {candidate.label} is not known, so whether it keeps {what} is not either"
            yield unknown(
                candidate.key,
                message,
                "name an offer that `gpuprov offers` lists with a price",
                identity=candidate.label,
                stays=price is None,
            )
        elif price <= limit_usd:
            yield passed(candidate.key)
        else:
            message = f"{candidate.label} costs {format_usd(price, 4)}/h, over {what} of {format_usd(limit_usd)}/h"
            yield failed(
                candidate.key,
                message,
                f"raise the limit to {decimal_string(price)} USD/h, or take a cheaper offer",
                identity=candidate.label,
            )


def budget_over(facts: OfferedFacts, setting: Setting) -> Iterator[Outcome]:
    """The compute of a month alone does not use up the budget."""
    del setting
    if isinstance(facts.workload, Unknown):
        yield unknown("workload", f"the budget of {facts.name} is not known yet", "write it as a constant")
        return
    budget, hours = facts.workload.placement.budget, facts.workload.lifecycle.hours_per_month
    if budget is None or budget.per != "month" or hours is None:
        return
    candidates, outcome = offers_of(facts)
    if outcome is not None:
        yield outcome
    for candidate in candidates:
        price = hourly_usd(candidate)
        if isinstance(price, Unknown) or price is None:
            message = f"the price of {candidate.label} is not known, so whether it keeps the budget is not either"
            yield unknown(
                candidate.key,
                message,
                "name an offer that `gpuprov offers` lists with a price",
                identity=candidate.label,
                stays=price is None,
            )
            continue
        month = price * Decimal(str(hours))
        if month <= budget.amount_usd:
            yield passed(candidate.key)
        else:
            message = f"{hours:g} hours of {candidate.label} cost {format_usd(month)} a month, over the budget of {format_usd(budget.amount_usd)}"
            yield failed(
                candidate.key,
                message,
                f"at most {int(budget.amount_usd / price)} hours fit the budget",
                identity=candidate.label,
            )


def price_age(facts: OfferedFacts, setting: Setting) -> Iterator[Outcome]:
    """Prices that decide are not too old; the oldest one speaks for all."""
    oldest: timedelta = setting.parameters["max_age"]
    candidates, outcome = candidates_of(facts)
    if outcome is not None:
        yield unknown("candidates", f"the prices of {facts.name} are not known yet", "write its offers as constants")
    undated = [candidate for candidate in candidates if not isinstance(candidate.price_as_of, str)]
    dated = [(candidate.price_as_of, candidate) for candidate in candidates if isinstance(candidate.price_as_of, str)]
    if undated:
        message = f"the date of the price of {undated[0].label} is not known"
        stays = undated[0].price_as_of is None
        yield unknown(undated[0].key, message, "run `gpuprov prices refresh`", identity="undated", stays=stays)
    if not dated:
        return
    as_of, candidate = min(dated, key=lambda pair: pair[0])
    age = setting.today - date.fromisoformat(as_of)
    if age <= oldest:
        yield passed(candidate.key)
    else:
        message = f"the price of {candidate.label} is {age.days} days old, more than {format_duration(oldest)}"
        yield failed(candidate.key, message, "run `gpuprov prices refresh`", identity="age")


def gpu_ceiling(facts: OfferedFacts, setting: Setting) -> Iterator[Outcome]:
    """No workload takes more GPUs than the organisation allows."""
    ceiling: int | None = setting.parameters["max_gpus"]
    if ceiling is None:
        return
    candidates, outcome = machines_of(facts)
    if outcome is not None:
        yield outcome
    for candidate in candidates:
        instance, count = candidate.instance, candidate.instances
        if isinstance(instance, Unknown) or instance is None or isinstance(count, Unknown):
            message = f"how many GPUs {candidate.label} has is not known"
            yield unknown(
                candidate.key,
                message,
                "name an instance type that `gpuprov offers` lists",
                identity=candidate.label,
                stays=instance is None,
            )
        elif instance.gpu_count * count <= ceiling:
            yield passed(candidate.key)
        else:
            message = f"{candidate.label} takes {instance.gpu_count * count} GPUs, more than {ceiling}"
            yield failed(candidate.key, message, f"write placement.max_gpus: {ceiling}", identity=candidate.label)


def endless_cost(facts: OfferedFacts, setting: Setting) -> Iterator[Outcome]:
    """A machine that nothing ends is at least shown with its price a day."""
    most: Money | None = setting.parameters["max_price_a_day"]
    if isinstance(facts.workload, Unknown):
        yield unknown("lifecycle", f"what ends {facts.name} is not known yet", "write its lifecycle as constants")
        return
    missing = missing_end(facts.workload.lifecycle)
    if missing is None:
        yield passed("lifecycle")
        return
    key, when, remedy = missing
    candidates, outcome = candidates_of(facts)
    if outcome is not None:
        yield outcome
    for candidate in candidates[:1]:
        price = hourly_usd(candidate)
        if isinstance(price, Unknown) or price is None:
            message = f"nothing ends {facts.name}{when}, and what it costs a day is not known"
            yield unknown(key, message, remedy, stays=price is None)
        elif most is not None and price * 24 <= most.amount_usd:
            yield passed(key)
        else:
            message = f"nothing ends {facts.name}{when}: it costs {format_usd(price * 24)} a day until something does"
            yield failed(key, message, remedy)


def missing_end(lifecycle: Lifecycle) -> tuple[str, str, str] | None:
    """The end that a machine lacks: its key, when it is missed, and the remedy; ``None`` where it lacks none."""
    idle, lifetime = lifecycle.idle.after != "off", lifecycle.max_lifetime != "off"
    limited = bool(lifecycle.max_spend or lifecycle.lease)
    if not idle and not lifetime and not limited:
        return "lifecycle", "", "write lifecycle.idle.after, max_lifetime, max_spend or lease"
    if lifecycle.pattern == Pattern.STEADY:
        return None
    if not idle:
        return (
            "lifecycle.idle.after",
            " while it is idle",
            "write lifecycle.idle.after: 30m, or auto",
        )
    if not lifetime and not limited:
        return "lifecycle.max_lifetime", " while something keeps it busy", "write lifecycle.max_lifetime: 24h"
    return None


RULES = (
    Rule(
        "price-limit",
        "cost",
        "Specs state what they may cost",
        "A limit in the spec stops a price rise or a larger choice in review, not on the bill.",
        Severity.LOW,
        (SpecFacts,),
        price_limit,
        level=Level.ADVISORY,
    ),
    Rule(
        "price-over-limit",
        "cost",
        "Offers keep the spec's price limit",
        "A saved plan or a program can name an offer that the spec's own limit forbids.",
        Severity.HIGH,
        (OfferedFacts,),
        price_over_limit,
    ),
    Rule(
        "budget-over",
        "cost",
        "Compute keeps the monthly budget",
        "Compute is the largest part of a GPU bill: if it alone is over, the bill is.",
        Severity.HIGH,
        (OfferedFacts,),
        budget_over,
    ),
    Rule(
        "price-ceiling",
        "cost",
        "Workloads keep the organisation's price ceiling",
        "Some machines need a second pair of eyes, whatever the spec's author allows.",
        Severity.HIGH,
        (OfferedFacts,),
        price_ceiling,
        parameters=(
            Parameter(
                "max_price", _PER_HOUR, None, "most that compute of one workload may cost an hour; none = no ceiling"
            ),
        ),
    ),
    Rule(
        "gpu-ceiling",
        "cost",
        "Workloads keep the organisation's GPU ceiling",
        "Quota is shared: one workload should not take all of it unseen.",
        Severity.MEDIUM,
        (OfferedFacts,),
        gpu_ceiling,
        parameters=(Parameter("max_gpus", Whole(1, 100_000), None, "most GPUs of one workload; none = no ceiling"),),
    ),
    Rule(
        "price-age",
        "cost",
        "Prices are recent",
        "Spot prices move weekly and list prices yearly: an old price makes an old choice.",
        Severity.LOW,
        (OfferedFacts,),
        price_age,
        level=Level.ADVISORY,
        parameters=(Parameter("max_age", DURATION, timedelta(days=180), "oldest price that passes"),),
    ),
    Rule(
        "endless-cost",
        "cost",
        "Something ends each machine",
        "A machine may run without an end on purpose; its price a day should be a known one.",
        Severity.LOW,
        (OfferedFacts,),
        endless_cost,
        level=Level.ADVISORY,
        parameters=(
            Parameter(
                "max_price_a_day",
                MoneyPer("100 USD"),
                None,
                "price a day that passes without an end; none = nothing passes",
            ),
        ),
    ),
)
