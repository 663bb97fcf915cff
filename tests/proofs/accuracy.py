"""``python -m tests.proofs.accuracy speed --out PAGE``: predictions scored on all published rows, as a dated page.

The tables are what the scoring commands print; nothing is selected or rounded here. Speed is scored twice: by the bundled
constants, and by constants that never saw a row's source, which takes some minutes.
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
    "speed": (
        ("benchmarks.throughput_accuracy", "benchmarks.speed_report"),
        TRUTH / "throughput.jsonl",
        "Speed against published measurements",
        "proof-throughput",
    ),
}
NOTE = """[How it is predicted](../sizing.md) says what
shaped the constants. "Left out" are predictions by constants fitted without any row of the row's source; their bands too come
from the other sources."""


def main(arguments: list[str] | None = None) -> int:
    """Score, write the page, and give the scoring command's exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=sorted(KINDS))
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    modules, rows, title, target = KINDS[options.kind]
    tables = []
    for module in modules:
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", module, "--rows", str(rows), "--models", "tests"]
            command += ["--out", f"{folder}/pred.jsonl"] if module != "benchmarks.speed_report" else []
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        sys.stderr.write(done.stderr)
        if done.returncode:
            return done.returncode
        tables.append(done.stdout.rstrip())
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(page(title, target, tables), encoding="utf-8")
    sys.stdout.write("\n\n".join(tables) + "\n")
    return 0


def page(title: str, target: str, tables: list[str]) -> str:
    """The result for people, dated, with the commit that it was made from."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    shown = "\n".join(f"```text\n{table}\n```" for table in tables)
    return f"""\
# {title}

{datetime.now(UTC):%Y-%m-%d} · commit {commit.strip()} · `make {target}`

Rows are those of `tests/data/truth`; its README says where they come from. {NOTE}

{shown}
"""


if __name__ == "__main__":
    sys.exit(main())
