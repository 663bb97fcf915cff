"""What the adapters of a spec mean: layers that served ones sit on, and the rank of a training that starts from one."""

from __future__ import annotations

from collections.abc import Sequence

from provisioner.planner.requirements import KeyedSpecError
from provisioner.workload.adapters import Adapter
from provisioner.workload.spec import Lora, Training, Workload


def common_targets(adapters: Sequence[Adapter]) -> tuple[str, ...] | None:
    """Layers that any adapter sits on; ``None`` (all linear ones) where one does not say, or sits on all."""
    names: set[str] = set()
    for each in adapters:
        if each.targets is None or "all-linear" in each.targets:
            return None
        names.update(each.targets)
    return tuple(sorted(names)) or None


def started_rank(workload: Workload, training: Training) -> int:
    """Rank of the adapters that are trained; the default is that of the adapter the training starts from.

    Raises:
        KeyedSpecError: several adapters to start from, or one of another rank than asked.
    """
    adapters = workload.model.adapters
    if len(adapters) > 1:
        raise KeyedSpecError(
            f"a training starts from one adapter, not {len(adapters)}",
            key="model.adapters[1]",
            remedy="keep one, or merge them into the base first",
        )
    known = adapters[0].rank if adapters else None
    rank = (training.lora or Lora()).rank
    if known is not None and known != rank:
        raise KeyedSpecError(
            f"training.lora.rank {rank} is not the rank {known} of the adapter that the training starts from",
            key="training.lora.rank",
            remedy=f"write rank: {known}, or start without the adapter",
        )
    return rank
