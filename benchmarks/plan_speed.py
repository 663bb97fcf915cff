"""``python -m benchmarks.plan_speed``: whole-process ``gpuprov plan`` against the imports that no such tool can avoid."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.pairs import environment, measure, timed

FLOOR = "import click, yaml; from pydantic import BaseModel"
LIMIT = 3.0
SPEC = Path(__file__).parent.parent / "examples" / "llama-3.1-8b-chat" / "workload.yaml"


def main() -> int:
    """0 where the ratio keeps its limit, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--spec", type=Path, default=SPEC)
    arguments = parser.parse_args()
    gpuprov = str(Path(sys.executable).parent / "gpuprov")
    variables = environment()
    worst = 0.0
    for command in ("plan", "check"):
        pairs = measure(
            lambda command=command: timed([gpuprov, command, str(arguments.spec), "--format", "json"], variables),  # type: ignore[misc]
            lambda: timed([sys.executable, "-c", FLOOR], variables),
            arguments.pairs,
        )
        print(pairs.line(f"gpuprov {command}"))
        if command == "plan":
            worst = pairs.ratio
    print(f"limit for plan: {LIMIT}")
    return 0 if worst <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
