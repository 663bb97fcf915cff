"""Prices that are not believed are kept apart with the reason; what the catalog had before stays, with its own date.

A price is held against the catalog's own prices, which a broken fetch cannot move: its GPU's median for the same capacity type
in the same cloud, and its instance type's. The limits and the exemption of honest spot discounts are those of
``catalog.outliers``; where the catalog knows fewer than three prices, the fetched ones are the measure.

Source: public trackers: prices of 0.00 and 0.01 USD (skypilot-org/skypilot#2496, #3615, PR 9156), spot above on-demand
(skypilot-org/skypilot#4914).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from provisioner.catalog.fetched import COMMIT_1Y, COMMIT_3Y, FLEX_START, ON_DEMAND, SPOT, PriceQuote
from provisioner.catalog.instances import InstanceType
from provisioner.catalog.outliers import FACTOR, SPOT_FLOOR

COLUMNS = (
    *("cloud", "region", "zone", "instance_type", "purchase_model", "price_usd_per_hour"),
    *("reason", "detail", "source", "seen_at"),
)
_GROUP_MIN = 3
ROUNDING_USD = Decimal("0.0001")
"""Spot history has four decimals and the price list ten: prices this near are equal, as spot at its cap is."""

_DISCOUNTS = frozenset({SPOT, FLEX_START, COMMIT_1Y, COMMIT_3Y})
"""Bought for less than on-demand, or not at all. A block or a reservation may cost more: it buys that the machine is there."""

NOT_A_NUMBER = "not_a_number"
NOT_POSITIVE = "not_positive"
TOO_LOW = "far_below_median"
TOO_HIGH = "far_above_median"
SPOT_ABOVE = "spot_above_on_demand"
UNKNOWN_TYPE = "unknown_instance_type"
REASONS: Mapping[str, str] = {
    NOT_A_NUMBER: "the price is no number",
    NOT_POSITIVE: "a price is more than 0",
    TOO_LOW: f"more than {FACTOR} times below the median per GPU, or below {SPOT_FLOOR:.0%} of on-demand",
    TOO_HIGH: f"more than {FACTOR} times above the median of its kind",
    SPOT_ABOVE: "spot, flex-start or a contract costs more than on-demand in the same region",
    UNKNOWN_TYPE: "the catalog does not know this instance type with GPUs: a newer gpuprov may",
}


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A price that was kept out."""

    cloud: str
    region: str
    zone: str
    instance_type: str
    """The GPU model with ``(attached)`` after it for an attached GPU."""
    purchase_model: str
    price_usd_per_hour: str
    reason: str
    detail: str
    source: str
    seen_at: str

    @property
    def cells(self) -> list[str]:
        """The cells of its line in quarantine.csv."""
        return [getattr(self, column) for column in COLUMNS]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a price is taken: ``amount`` where it is, else the reason and its numbers."""

    amount: Decimal | None
    reason: str = ""
    detail: str = ""


@dataclass(slots=True)
class _Group:
    """Prices of one kind: those the catalog has, and those fetched."""

    known: list[Decimal] = field(default_factory=list)
    fetched: list[Decimal] = field(default_factory=list)

    def median(self) -> Decimal | None:
        """The middle price of the known ones, of the fetched ones where few are known, or ``None`` for too few."""
        return _middle(self.known) or _middle(self.fetched)


class Judge:
    """Judges the fetched prices of one cloud. Give it all known and all fetched prices first, then ask."""

    def __init__(self, cloud: str, instances: Mapping[tuple[str, str], InstanceType]) -> None:
        self._cloud = cloud
        self._instances = instances
        self._per_gpu: dict[tuple[str, str], _Group] = {}
        self._per_type: dict[tuple[str, str], _Group] = {}
        self._attached: dict[tuple[str, str], _Group] = {}

    def learn(self, instance_type: str, purchase_model: str, price: str, *, fetched: bool) -> None:
        """Take a price of an instance type into the measure; what is no price is left out."""
        instance, amount = self._instances.get((self._cloud, instance_type)), number(price)
        if instance is None or amount is None or amount <= 0:
            return
        _add(self._per_type, (instance_type, purchase_model), amount, fetched=fetched)
        if instance.gpu_model is not None:
            _add(self._per_gpu, (instance.gpu_model, purchase_model), amount / gpus_of(instance), fetched=fetched)

    def learn_attached(self, gpu_model: str, purchase_model: str, price: str, *, fetched: bool) -> None:
        """Take the price of an attached GPU into the measure."""
        amount = number(price)
        if amount is not None and amount > 0:
            _add(self._attached, (gpu_model, purchase_model), amount, fetched=fetched)

    def judge(self, quote: PriceQuote, purchase_model: str, on_demand: Decimal | None) -> Verdict:
        """Whether a price is believed; ``on_demand`` is what the type costs on demand in the region."""
        amount = number(quote.price_usd_per_hour)
        instance = self._instances.get((self._cloud, quote.instance_type))
        if instance is None:
            return Verdict(None, UNKNOWN_TYPE)
        if amount is None:
            return Verdict(None, NOT_A_NUMBER)
        if amount <= 0:
            return Verdict(None, NOT_POSITIVE)
        if purchase_model in _DISCOUNTS and on_demand is not None and amount > on_demand + ROUNDING_USD:
            return Verdict(None, SPOT_ABOVE, f"on-demand costs {on_demand} USD/h")
        return self._against_medians(amount, instance, purchase_model, on_demand)

    def judge_attached(self, gpu_model: str, purchase_model: str, price: str, on_demand: Decimal | None) -> Verdict:
        """Whether the price of an attached GPU is believed; ``on_demand`` is what it costs on demand in the region."""
        amount, median = number(price), _median(self._attached, (gpu_model, purchase_model))
        if amount is None:
            return Verdict(None, NOT_A_NUMBER)
        if amount <= 0:
            return Verdict(None, NOT_POSITIVE)
        if purchase_model != ON_DEMAND and on_demand is not None and amount > on_demand + ROUNDING_USD:
            return Verdict(None, SPOT_ABOVE, f"on-demand costs {on_demand} USD per GPU-hour")
        if median is not None and amount * FACTOR < median and not _is_discount(amount, purchase_model, on_demand):
            return Verdict(None, TOO_LOW, _median_words(median, "GPU-hour"))
        if median is not None and amount > median * FACTOR:
            return Verdict(None, TOO_HIGH, _median_words(median, "GPU-hour"))
        return Verdict(amount)

    def _against_medians(
        self, amount: Decimal, instance: InstanceType, purchase_model: str, on_demand: Decimal | None
    ) -> Verdict:
        if instance.gpu_model is None:
            group = self._per_type.get((instance.name, purchase_model), _Group())
            scaled = _Scaled(amount, group.median(), _middle(group.known), "hour")
        else:
            group = self._per_gpu.get((instance.gpu_model, purchase_model), _Group())
            measure = group.median() or self._cheapest(purchase_model)
            scaled = _Scaled(amount / gpus_of(instance), measure, _middle(group.known), "GPU-hour")
        if purchase_model != ON_DEMAND:
            return _judge_discount(amount, on_demand or _median(self._per_type, (instance.name, ON_DEMAND)), scaled)
        if scaled.is_low:
            return Verdict(None, TOO_LOW, scaled.words)
        # A large host makes a high price per GPU an honest one, so too high is judged by the type alone.
        of_type = _median(self._per_type, (instance.name, ON_DEMAND))
        if of_type is not None and amount > of_type * FACTOR:
            return Verdict(None, TOO_HIGH, _median_words(of_type, "hour"))
        return Verdict(amount)

    def _cheapest(self, purchase_model: str) -> Decimal | None:
        """The lowest known price per GPU of the cloud: what a GPU is held against that nothing is known of."""
        known = [
            min(group.known) for (_, model), group in self._per_gpu.items() if model == purchase_model and group.known
        ]
        return min(known, default=None)


def judge_disk(price: str, known: Iterable[str]) -> Verdict:
    """Whether a price per GiB-month is believed, by what the catalog has for the same service in any region."""
    amount = number(price)
    if amount is None:
        return Verdict(None, NOT_A_NUMBER)
    if amount <= 0:
        return Verdict(None, NOT_POSITIVE)
    prices = sorted(found for found in map(number, known) if found is not None)
    if not prices:
        return Verdict(amount)
    middle = prices[(len(prices) - 1) // 2]
    if amount * FACTOR < middle:
        return Verdict(None, TOO_LOW, _median_words(middle, "GiB-month"))
    if amount > middle * FACTOR:
        return Verdict(None, TOO_HIGH, _median_words(middle, "GiB-month"))
    return Verdict(amount)


class _Scaled(NamedTuple):
    """A price per GPU (or of a whole host), what it is held against, and the median that the catalog had before."""

    price: Decimal
    measure: Decimal | None
    known: Decimal | None
    unit: str

    @property
    def is_low(self) -> bool:
        """More than five times below its measure."""
        return self.measure is not None and self.price * FACTOR < self.measure

    @property
    def words(self) -> str:
        """The measure for people."""
        return _median_words(self.measure or Decimal(0), self.unit)


def _judge_discount(amount: Decimal, listed: Decimal | None, scaled: _Scaled) -> Verdict:
    """A spot or flex-start price: on-demand says what discount is honest, unless the catalog knows deeper ones of this GPU."""
    if listed is None:
        if scaled.is_low:
            return Verdict(None, TOO_LOW, scaled.words)
        if scaled.measure is not None and scaled.price > scaled.measure * FACTOR:
            return Verdict(None, TOO_HIGH, scaled.words)
        return Verdict(amount)
    if amount > listed * FACTOR:
        return Verdict(None, TOO_HIGH, f"on-demand costs about {listed} USD/h")
    is_deep = amount < listed * SPOT_FLOOR
    if is_deep and (scaled.known is None or scaled.price * FACTOR < scaled.known):
        return Verdict(None, TOO_LOW, f"it is {amount / listed:.1%} of what on-demand costs")
    return Verdict(amount)


def number(text: str) -> Decimal | None:
    """A finite decimal number, or ``None``."""
    try:
        found = Decimal(text)
    except InvalidOperation:
        return None
    return found if found.is_finite() else None


def gpus_of(instance: InstanceType) -> Decimal:
    """GPUs of an instance, a share for a fractional type."""
    return Decimal(instance.gpu_count) * Decimal(str(instance.gpu_fraction))


def counted(quarantined: Iterable[Quarantined]) -> dict[str, int]:
    """How many rows each reason kept out, in the order of ``REASONS``."""
    counts = dict.fromkeys(REASONS, 0)
    for one in quarantined:
        counts[one.reason] = counts.get(one.reason, 0) + 1
    return {reason: count for reason, count in counts.items() if count}


def _add(table: dict[tuple[str, str], _Group], key: tuple[str, str], amount: Decimal, *, fetched: bool) -> None:
    group = table.setdefault(key, _Group())
    (group.fetched if fetched else group.known).append(amount)


def _median(table: Mapping[tuple[str, str], _Group], key: tuple[str, str]) -> Decimal | None:
    group = table.get(key)
    return group.median() if group else None


def _is_discount(amount: Decimal, purchase_model: str, on_demand: Decimal | None) -> bool:
    """Whether a low price is within the discounts that the clouds give on spot and flex-start."""
    return purchase_model != ON_DEMAND and on_demand is not None and amount >= on_demand * SPOT_FLOOR


def _middle(prices: list[Decimal]) -> Decimal | None:
    """The middle price, the lower of two; ``None`` of too few."""
    return sorted(prices)[(len(prices) - 1) // 2] if len(prices) >= _GROUP_MIN else None


def _median_words(median: Decimal, unit: str) -> str:
    return f"the median is {median:.4g} USD per {unit}"
