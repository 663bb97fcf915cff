"""``python -m benchmarks.up_overhead``: whole-process ``gpuprov up`` on the sandbox against a bare Automation API program.

Both run the same engine phases with as many resources; the bare one has a provider and a policy pack that do nothing. Each pair
starts from an empty home, so that the first ``up`` is a first one; the second follows in the same home.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks.pairs import Pairs, environment, timed
from stacks.engine.find import find_engine

LIMIT = 1.3
ROOT = Path(__file__).parent.parent
SPEC = ROOT / "examples" / "llama-3.1-8b-chat" / "workload.yaml"
SCRIPTS = {"pulumi-resource-bare": "provider.py", "bare-policy": "policy.py"}


def main() -> int:
    """0 where both ratios keep the limit, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7)
    arguments = parser.parse_args()
    engine = find_engine(lambda text: print(text, file=sys.stderr))
    runs = [_pair(engine.path) for _ in range(arguments.pairs + 1)][1:]
    worst = 0.0
    for index, name in enumerate(("first up", "second up")):
        pairs = Pairs(tuple(run[0][index] for run in runs), tuple(run[1][index] for run in runs))
        print(pairs.line(name))
        worst = max(worst, pairs.ratio)
    print(f"limit for both: {LIMIT}")
    return 0 if worst <= LIMIT else 1


def _pair(engine: Path) -> tuple[tuple[float, float], tuple[float, float]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _prepare(folder)
        ours = [str(Path(sys.executable).parent / "gpuprov"), "up", str(SPEC), "--yes", "--cloud", "sandbox"]
        bare = [sys.executable, "-m", "benchmarks.bare.program", str(engine), str(folder)]
        variables = {**environment(), "GPUPROV_HOME": str(folder / "home")}
        results = [
            (timed(ours, variables), timed(bare, environment(), cwd=str(ROOT)))
            for _ in ("first", "second")
        ]  # fmt: skip
        return (results[0][0], results[1][0]), (results[0][1], results[1][1])


def _prepare(folder: Path) -> None:
    (folder / "bin").mkdir()
    (folder / "state").mkdir()
    for script, source in SCRIPTS.items():
        path = folder / "bin" / script
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).parent / "bare" / source}" "$@"\n')
        path.chmod(0o755)


if __name__ == "__main__":
    sys.exit(main())
