"""Hard requirements of a spec, with every name looked up in the catalog: what filters compare with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from provisioner.catalog.snapshot import Catalog
from provisioner.errors import SpecError, UsageError
from provisioner.records import record
from provisioner.units import Money
from provisioner.workload.spec import Workload

CLOUDS = ("aws", "gcp")
"""Clouds that plans are made for; the sandbox plays offers of either."""

_NAMES_SHOWN = 6


class KeyedSpecError(SpecError):
    """A spec names something that the catalog or the model index does not hold.

    ``key`` is the dotted key (``placement.gpus[0]``); whoever loaded the file turns it into ``where``.
    """

    def __init__(self, message: str, *, key: str, remedy: str | None = None) -> None:
        super().__init__(message, remedy=remedy)
        self.key = key


@record(frozen=True, slots=True)
class Requirements:
    """What an offer must meet. ``None`` asks for nothing.

    ``gpu_models`` are exact catalog rows; ``clouds`` is what the spec and ``--cloud`` leave together.
    """

    clouds: tuple[str, ...] = CLOUDS
    regions: frozenset[str] | None = None
    gpu_models: frozenset[str] | None = None
    excluded_gpu_models: frozenset[str] = frozenset()
    instance_types: frozenset[str] | None = None
    max_gpus: int | None = None
    capacity: str = "auto"
    max_price_usd_per_hour: Decimal | None = None
    budget: Money | None = None
    deadline_hours: float | None = None
    keeps_quotas: bool = True
    """Whether quotas of the account that are known count; off to see what a larger quota would open."""

    @property
    def has_price_limit(self) -> bool:
        """Whether an unknown price cannot be accepted."""
        return self.max_price_usd_per_hour is not None or self.budget is not None


def resolve_requirements(workload: Workload, catalog: Catalog, provider: str | None) -> Requirements:
    """The requirements of ``workload.placement``, names checked.

    ``provider`` is ``--cloud``: ``aws`` and ``gcp`` narrow the clouds, ``sandbox`` plays any.

    Raises:
        KeyedSpecError: an unknown region, instance type or GPU, or no cloud or GPU is left.
    """
    placement = workload.placement
    clouds = _clouds(placement.clouds, provider)
    wanted = _gpu_models(placement.gpus, catalog, "placement.gpus")
    excluded = _gpu_models(placement.exclude_gpus, catalog, "placement.exclude_gpus") or frozenset()
    if wanted is not None and wanted <= excluded:
        raise KeyedSpecError(
            f"placement.exclude_gpus leaves nothing of placement.gpus ({', '.join(placement.gpus)})",
            key="placement.exclude_gpus",
            remedy="name other GPUs in one of the two",
        )
    return Requirements(
        clouds=clouds,
        regions=_regions(placement.regions, catalog, clouds),
        gpu_models=wanted,
        excluded_gpu_models=excluded,
        instance_types=_instance_types(placement.instance_types, catalog, clouds),
        max_gpus=placement.max_gpus,
        capacity=str(placement.capacity),
        max_price_usd_per_hour=placement.max_price.amount_usd if placement.max_price else None,
        budget=placement.budget,
        deadline_hours=placement.deadline.total_seconds() / 3600 if placement.deadline else None,
    )


def _clouds(asked: Sequence[str] | None, provider: str | None) -> tuple[str, ...]:
    clouds = tuple(cloud for cloud in CLOUDS if not asked or cloud in asked)
    if provider not in CLOUDS:
        return clouds
    if provider not in clouds:
        raise KeyedSpecError(
            f"--cloud {provider} leaves nothing of placement.clouds ({', '.join(clouds)})",
            key="placement.clouds",
            remedy=f"add {provider} to placement.clouds, or leave --cloud out",
        )
    return (provider,)


def _regions(asked: Sequence[str] | None, catalog: Catalog, clouds: tuple[str, ...]) -> frozenset[str] | None:
    if not asked:
        return None
    allowed = {region for cloud in clouds for region in catalog.regions(cloud)}
    everywhere = {region for cloud in CLOUDS for region in catalog.regions(cloud)}
    for index, region in enumerate(asked):
        if region not in everywhere:
            raise _unknown("region", region, f"placement.regions[{index}]", everywhere)
    if not allowed.intersection(asked):
        raise KeyedSpecError(
            f"no region of placement.regions ({', '.join(asked)}) belongs to {' or '.join(clouds)}",
            key="placement.regions",
            remedy="name a region of that cloud, or allow the other cloud",
        )
    return frozenset(asked)


def _instance_types(asked: Sequence[str] | None, catalog: Catalog, clouds: tuple[str, ...]) -> frozenset[str] | None:
    if not asked:
        return None
    everywhere = {name: cloud for cloud, name in catalog.instances if cloud in CLOUDS}
    for index, name in enumerate(asked):
        if name not in everywhere:
            raise _unknown("instance type", name, f"placement.instance_types[{index}]", everywhere)
    if not any(everywhere[name] in clouds for name in asked):
        raise KeyedSpecError(
            f"no instance type of placement.instance_types ({', '.join(asked)}) belongs to {' or '.join(clouds)}",
            key="placement.instance_types",
            remedy="name an instance type of that cloud, or allow the other cloud",
        )
    return frozenset(asked)


def _gpu_models(asked: Sequence[str] | None, catalog: Catalog, key: str) -> frozenset[str] | None:
    if not asked:
        return None
    models: set[str] = set()
    for index, name in enumerate(asked):
        try:
            models.update(catalog.resolve_gpu(name))
        except UsageError as error:
            raise KeyedSpecError(error.message, key=f"{key}[{index}]", remedy=error.remedy) from None
    return frozenset(models)


def _unknown(what: str, name: str, key: str, known: Iterable[str]) -> KeyedSpecError:
    from difflib import get_close_matches  # only where a name is wrong

    near = get_close_matches(name, sorted(known), n=3, cutoff=0.5)
    remedy = f"did you mean {' or '.join(near)}?" if near else "`gpuprov offers` lists what the catalog holds"
    return KeyedSpecError(f"unknown {what} {name!r}", key=key, remedy=remedy)


def name_some(names: Iterable[str]) -> str:
    """A few of many names for a person: ``a, b, c and 12 more``."""
    ordered = sorted(names)
    shown = ", ".join(ordered[:_NAMES_SHOWN])
    return shown if len(ordered) <= _NAMES_SHOWN else f"{shown} and {len(ordered) - _NAMES_SHOWN} more"
