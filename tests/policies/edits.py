"""Edits of a spec that change no finding: comments, blank lines, order, quotes, line ends, unrelated values."""

from __future__ import annotations

import json
import random
from typing import Any

import yaml

from tests.policies.builders import document

FAULTY = document(
    {
        "access": {"cidrs": ["0.0.0.0/0", "8.0.0.0/8"]},
        "placement.max_price": ...,
        "placement.capacity": "spot",
        "lifecycle.keep_failed": True,
        "run": {"image": "vllm/vllm-openai", "env": {"HF_TOKEN": "hunter2-hunter2"}, "command": ["serve"]},
    }
)
"""A spec with findings of several rules, two of one rule among them."""


def shuffled(value: Any, dice: random.Random) -> Any:
    """The value with the keys of all its mappings in another order."""
    if not isinstance(value, dict):
        return value
    items = list(value.items())
    dice.shuffle(items)
    return {key: shuffled(item, dice) for key, item in items}


def edited(seed: int) -> str:
    """The faulty spec as another hand would have written it."""
    dice = random.Random(seed)
    spec = json.loads(json.dumps(FAULTY))
    spec["tags"]["note"] = f"edit {seed}"
    spec["lifecycle"]["hours_per_month"] = dice.randrange(50, 200)
    if dice.random() < 0.5:
        spec["access"]["cidrs"].reverse()
    spec = shuffled(spec, dice)
    if dice.random() < 0.15:
        return json.dumps(spec, indent=dice.choice([None, 2]))
    text = yaml.safe_dump(
        spec, sort_keys=False, indent=dice.choice([2, 4]), default_flow_style=dice.choice([False, None])
    )
    lines: list[str] = []
    for line in text.splitlines():
        if dice.random() < 0.2:
            lines += dice.choice([["# a remark"], [""], ["", "   # another"], ["#" * 40]])
        lines.append(line + dice.choice(["", "", "   ", "  # why"]))
    return dice.choice(["\n", "\r\n"]).join(lines) + "\n"
