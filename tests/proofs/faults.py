"""``python -m tests.proofs.faults --out docs/proofs/faults.md``: the whole fault matrix, with its counts in a page."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tests.faults import matrix, race
from tests.faults.codes import CODES
from tests.faults.kill import Killer, blows
from tests.faults.matrix import Case
from tests.faults.world import journal_steps

SEED = 20261130
SCHEDULES, KILLS = 50_000, 200
WORKERS = 2
PARTS = ("singles", "pairs", "schedules", "kills")
_CHUNK = 50


@dataclass
class Count:
    """What a part of the matrix came to."""

    name: str
    played: int = 0
    failures: list[str] = field(default_factory=list)
    passes: Counter[int] = field(default_factory=Counter)
    kills: int = 0
    most_at_once: int = 1
    worst_leak_usd: float = 0.0
    took_s: float = 0.0
    commit: str = ""

    def add(self, other: Count) -> None:
        """Take another part of the same name in."""
        self.played += other.played
        self.failures += other.failures
        self.passes += other.passes
        self.kills += other.kills
        self.most_at_once = max(self.most_at_once, other.most_at_once)
        self.worst_leak_usd = max(self.worst_leak_usd, other.worst_leak_usd)


def main(arguments: list[str] | None = None) -> int:
    """Play everything, write the page, and give 1 where one case did not heal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=SCHEDULES)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--out", type=Path, default=Path("docs/proofs/faults.md"))
    parser.add_argument("--stride", type=int, default=1, help="Play every n-th single fault; the table says so.")
    parser.add_argument("--kept", type=Path, help="Folder of parts that are done: they are not played again.")
    parser.add_argument(
        "--only", nargs="*", default=list(PARTS), choices=PARTS, help="Parts to play; the page needs all."
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="gpuprov-faults-") as folder, journal_steps():
        place = Path(folder)
        parts = [_part(name, options, place) for name in PARTS if name in options.only]
        steps = {name: len(matrix.steps_of(name, place)) for name in matrix.SCENES}
    if len(parts) == len(PARTS):
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(page(parts, steps, options.seed), encoding="utf-8")
    return 1 if any(part.failures for part in parts) else 0


def _part(name: str, options: argparse.Namespace, place: Path) -> Count:
    """One part, played now or kept from an earlier run of the same commit."""
    file = options.kept / f"{name}.json" if options.kept is not None else None
    if file is not None and file.exists():
        kept = json.loads(file.read_text(encoding="utf-8"))
        if kept["commit"] == _commit():
            kept["passes"] = Counter({int(runs): count for runs, count in kept["passes"].items()})
            return Count(**kept)
    seeds = range(options.seed, options.seed + options.schedules)
    if name == "kills":
        count = _kill(options.kills, options.seed, place)
    elif name == "schedules":
        count = _spread("random schedules, two controllers", _play_seeds, seeds, place, options.workers)
    elif name == "pairs":
        count = _spread("ordered pairs of crashes", _play_cases, list(matrix.pairs(place)), place, options.workers)
    else:
        cases = list(matrix.singles(place))
        share = "" if options.stride == 1 else f" (every {options.stride}th of {len(cases):,})"
        count = _spread(f"single faults{share}", _play_cases, cases[:: options.stride], place, options.workers)
    count.commit = _commit()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(vars(count)), encoding="utf-8")
    return count


def _spread(
    name: str,
    play: Callable[[Path, Sequence[Case | int]], Count],
    items: Sequence[Case | int],
    place: Path,
    workers: int,
) -> Count:
    """Play items in several processes."""
    begin, total = time.monotonic(), Count(name)
    chunks = [items[start : start + _CHUNK] for start in range(0, len(items), _CHUNK)]
    with multiprocessing.get_context("fork").Pool(workers) as pool:
        for number, count in enumerate(pool.imap_unordered(partial(play, place), chunks)):
            total.add(count)
            for failure in count.failures:
                print(failure, file=sys.stderr, flush=True)
            if number % 40 == 0:
                print(f"{name}: {total.played} of {len(items)}, {len(total.failures)} not healed", flush=True)
    total.took_s = time.monotonic() - begin
    return total


def _play_cases(place: Path, cases: Iterable[Case]) -> Count:
    count, home = Count(""), _own(place)
    for case in cases:
        count.played += 1
        try:
            healed = matrix.play(case, home)
        except Exception as error:  # noqa: BLE001 - whatever it is, the case has failed and is named
            count.failures.append(f"{case}: {type(error).__name__}: {error}")
            continue
        count.passes[healed.passes] += 1
        count.worst_leak_usd = max(count.worst_leak_usd, healed.leaked_usd)
    return count


def _play_seeds(place: Path, seeds: Iterable[int]) -> Count:
    count, home = Count(""), _own(place)
    for seed in seeds:
        count.played += 1
        try:
            outcome = race.play(seed, home)
        except Exception as error:  # noqa: BLE001 - whatever it is, the seed has failed and is named
            count.failures.append(f"seed {seed}: {type(error).__name__}: {error}")
            continue
        count.kills += outcome.kills
        count.passes[outcome.passes] += 1
        count.most_at_once = max(count.most_at_once, outcome.most_at_once)
        count.worst_leak_usd = max(count.worst_leak_usd, outcome.leaked_usd)
    return count


def _own(place: Path) -> Path:
    return place / f"worker-{multiprocessing.current_process().pid}"


def _kill(times: int, seed: int, place: Path) -> Count:
    """Kill real processes over HTTP until enough of them died in the middle."""
    begin, total = time.monotonic(), Count("SIGKILLs over HTTP")
    folder = place / "kills"
    folder.mkdir()
    killer = Killer(folder)
    try:
        for blow in blows(times * 2, seed):
            if total.kills >= times:
                break
            wound = killer.strike(blow)
            total.played += 1
            total.kills += wound.at != "after its end"
            total.passes[1] += wound.is_healed
            total.most_at_once = max(total.most_at_once, wound.most_at_once)
            if not wound.is_healed:
                total.failures.append(f"kill {wound}")
            if total.played % 20 == 0:
                print(f"{total.name}: {total.kills} of {times}, {len(total.failures)} not healed", flush=True)
    finally:
        killer.close()
    total.took_s = time.monotonic() - begin
    return total


def page(parts: Sequence[Count], steps: dict[str, int], seed: int) -> str:
    """The result for people, dated, with the commit that it was made from."""
    rows = "\n".join(_row(part) for part in parts)
    scenes = ", ".join(f"{name} {count}" for name, count in steps.items())
    failures = "\n".join(f"- {failure}" for part in parts for failure in part.failures) or "None."
    return f"""\
# The fault matrix

Every step of what makes, replaces, adopts and ends a machine, gone wrong in every way, with the product's own create, replace,
adopt and delete code; docs/reliability.md says what a step and a way are.

{datetime.now(UTC):%Y-%m-%d} · commit {_commit()} · seed {seed} · `make proof-faults`

| part | played | not healed | healed in runs | kills | most machines at once | worst leak, USD | took |
|---|---|---|---|---|---|---|---|
{rows}

"Healed in runs" is how many runs of the same command it took, three being the limit: `1: 900` means that 900 cases needed one.
The worst leak is what one machine beside the one that stays has cost from the first healing run on; the limit is five minutes of
its price, {matrix.LEAK_MAX_S / 3600 * 0.8048:.4f} USD.

Steps of a scene that nothing disturbs: {scenes}. Answers of a call: {len(CODES)} ({", ".join(f"`{code}`" for code in CODES)}).

## Not healed
{failures}
"""


def _row(part: Count) -> str:
    passes = ", ".join(f"{runs}: {count}" for runs, count in sorted(part.passes.items()))
    return (
        f"| {part.name} | {part.played:,} | {len(part.failures)} | {passes} | {part.kills or ''} | {part.most_at_once} | "
        f"{part.worst_leak_usd:.4f} | {part.took_s / 60:.1f} min |"
    )


def _commit() -> str:
    answer = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
