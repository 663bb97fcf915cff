"""Models of the idle rules that two peers publish, to count what they would do to the same traces.

Written from their documentation and described source (reference versions: SkyPilot 0.14.1, dstack 0.22.5); not their code.
"""

from __future__ import annotations

from collections.abc import Iterable

from tests.fakes.traces import THRESHOLD_S, Look

ANY_GPU_BELOW_PERCENT = 10.0


def queue_and_terminals(looks: Iterable[Look]) -> float | None:
    """When a rule ends the machine that asks: no job in the queue, and no terminal, for the whole window. GPUs are not looked at."""
    since_s: float | None = None
    for look in looks:
        if look.job or look.pty:
            since_s = None
            continue
        since_s = look.at_s if since_s is None else since_s
        if look.at_s - since_s >= THRESHOLD_S:
            return look.at_s
    return None


def any_gpu_below(looks: Iterable[Look]) -> float | None:
    """When a rule ends the machine that asks: was one GPU below a share in every sample of the window."""
    since_s: dict[int, float] = {}
    for look in looks:
        gpus = look.reading.get("gpus") or []
        for index, gpu in enumerate(gpus):
            used = gpu["utilization"]
            if used is not None and used < ANY_GPU_BELOW_PERCENT:
                since_s.setdefault(index, look.at_s)
            else:
                since_s.pop(index, None)
        if any(look.at_s - start >= THRESHOLD_S for start in since_s.values()):
            return look.at_s
    return None


RULES = {"job queue and terminals": queue_and_terminals, "any one GPU below 10 %": any_gpu_below}
