"""``python -m tests.proofs.accuracy memory|speed --out PAGE``: predictions scored on all published rows, as a dated page.

The tables are what the scoring command prints; nothing is selected or rounded here.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

TRUTH = Path("tests") / "data" / "truth"
KINDS = {
    "memory": (
        "benchmarks.sizing_accuracy",
        TRUTH / "measured.jsonl",
        "Memory against published measurements",
        "proof-sizing",
    ),
    "speed": (
        "benchmarks.throughput_accuracy",
        TRUTH / "throughput.jsonl",
        "Speed against published measurements",
        "proof-throughput",
    ),
}


def main(arguments: list[str] | None = None) -> int:
    """Score, write the page, and give the scoring command's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    module, rows, title, target = KINDS[options.kind]
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            module,
            "--rows",
            str(rows),
            "--models",
            "tests",
            "--out",
            f"{folder}/pred.jsonl",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    sys.stderr.write(done.stderr)
    if done.returncode:
        return done.returncode
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(page(title, target, done.stdout), encoding="utf-8")
    sys.stdout.write(done.stdout)
    return 0


def page(title: str, target: str, table: str) -> str:
    """The result for people, dated, with the commit that it was made from."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    return f"""\
# {title}

{datetime.now(UTC):%Y-%m-%d} · commit {commit.strip()} · `make {target}`

Rows are those of `tests/data/truth`; its README says where they come from. [How it is predicted](../sizing.md) says which
sources shaped which constants: an error on those sources is no test of the prediction.

```text
{table.rstrip()}
```
"""


if __name__ == "__main__":
    sys.exit(main())
