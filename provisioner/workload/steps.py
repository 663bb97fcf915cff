"""Dotted keys as paths: ``placement.gpus[0]``."""

from __future__ import annotations

import re

from provisioner.workload.tree import Path

_STEP = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


def steps_of(dotted_key: str) -> Path:
    """Keys and list indices of a dotted key, from the top."""
    return tuple(int(step[1]) if step[1] else step[2] for step in _STEP.finditer(dotted_key))
