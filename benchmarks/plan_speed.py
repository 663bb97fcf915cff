"""``python -m benchmarks.plan_speed``: whole-process ``gpuprov plan`` and ``check`` against the imports that no such tool can avoid."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.pairs import environment, measure, timed

FLOOR = "import click, yaml; from pydantic import BaseModel"
LIMITS = {"plan": 2.5, "check": 2.5}
"""Most times the floor that each command may take."""
SPEC = Path(__file__).parent.parent / "examples" / "llama-3.1-8b-chat" / "workload.yaml"


def main() -> int:
    """0 where both commands keep their limits, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--spec", type=Path, default=SPEC)
    arguments = parser.parse_args()
    gpuprov = str(Path(sys.executable).parent / "gpuprov")
    variables = environment()
    kept = True
    for command, limit in LIMITS.items():
        pairs = measure(
            lambda command=command: timed([gpuprov, command, str(arguments.spec), "--format", "json"], variables),  # type: ignore[misc]
            lambda: timed([sys.executable, "-c", FLOOR], variables),
            arguments.pairs,
        )
        print(f"{pairs.line(f'gpuprov {command}')}, limit {limit}")
        kept = kept and pairs.ratio <= limit
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
