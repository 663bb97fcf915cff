"""``python -m tests.proofs.faults --out docs/proofs/faults.md``: the whole fault matrix, with its counts in a page."""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from multiprocessing.util import Finalize
from pathlib import Path

from tests.faults import matrix, race
from tests.faults.codes import CODES
from tests.faults.kill import Blow, Killer, blows
from tests.faults.world import journal_steps
from tests.proofs.spread import Count, Ledger, Part, Progress, commit, play, scratch

SEED = 20261130
SCHEDULES, KILLS = 50_000, 200
PARTS = ("singles", "pairs", "schedules", "kills")
_KILLERS_A_CORE = 2
"""A kill waits for most of its time: for what the product waits for, and for the moment of the kill."""


def main(arguments: list[str] | None = None) -> int:
    """Play everything, write the page, and give 1 where one case did not heal."""
    options = _options(arguments)
    with scratch("gpuprov-faults-") as place, journal_steps():
        parts = _parts(options, place)
        progress = Progress(parts)
        tried = commit()
        about = {"commit": tried, "seed": options.seed}
        # What differs from its commit has no name to be known by again.
        kept = options.kept if not tried.endswith("with changes") else None
        counts = [play(part, Ledger(kept, part, about), progress) for part in parts]
        steps = {name: len(matrix.steps_of(name, place / "steps")) for name in matrix.SCENES}
    if len(counts) == len(PARTS):
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(page(counts, steps, options.seed, tried), encoding="utf-8")
    return 1 if any(count.failures for count in counts) else 0


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=SCHEDULES)
    parser.add_argument("--kills", type=int, default=KILLS)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2, help="Processes that play; one a core.")
    parser.add_argument("--out", type=Path, default=Path("docs/proofs/faults.md"))
    parser.add_argument("--stride", type=int, default=1, help="Play every n-th single fault; the table says so.")
    parser.add_argument(
        "--kept", type=Path, help="Folder of results; those of the same commit and cases are not played again."
    )
    parser.add_argument(
        "--only", nargs="*", default=list(PARTS), choices=PARTS, help="Parts to play; the page needs all."
    )
    return parser.parse_args(arguments)


def _parts(options: argparse.Namespace, place: Path) -> list[Part]:
    """What is asked for, with its cases."""
    made: dict[str, Callable[[], Part]] = {
        "singles": lambda: _singles(options, place),
        "pairs": lambda: Part(
            "pairs",
            "ordered pairs of crashes",
            list(matrix.pairs(place / "pairs")),
            partial(play_cases, place),
            case_s=0.006,
            workers=options.workers,
        ),
        "schedules": lambda: Part(
            "schedules",
            "random schedules, two controllers",
            range(options.seed, options.seed + options.schedules),
            partial(play_seeds, place),
            case_s=0.007,
            workers=options.workers,
        ),
        "kills": lambda: Part(
            "kills",
            "SIGKILLs over HTTP",
            list(blows(options.kills * 2, options.seed)),
            partial(play_kills, place),
            case_s=1.0,
            workers=options.workers * _KILLERS_A_CORE,
            chunk=1,
            kills_wanted=options.kills,
        ),
    }
    return [made[name]() for name in PARTS if name in options.only]


def _singles(options: argparse.Namespace, place: Path) -> Part:
    cases = list(matrix.singles(place / "singles"))
    share = "" if options.stride == 1 else f" (every {options.stride}th of {len(cases):,})"
    return Part(
        "singles",
        f"single faults{share}",
        cases[:: options.stride],
        partial(play_cases, place),
        case_s=0.005,
        workers=options.workers,
    )


def play_cases(place: Path, cases: Iterable[matrix.Case]) -> Count:
    """Play faults of the matrix in this process."""
    count, home = Count(), _own(place)
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


def play_seeds(place: Path, seeds: Iterable[int]) -> Count:
    """Play seeded schedules in this process."""
    count, home = Count(), _own(place)
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


def play_kills(place: Path, strikes: Iterable[Blow]) -> Count:
    """Kill real processes that work for this one's own account."""
    count, killer = Count(), _killer(_own(place))
    for blow in strikes:
        count.played += 1
        try:
            wound = killer.strike(blow)
        except Exception as error:  # noqa: BLE001 - whatever it is, the kill has failed and is named
            count.failures.append(f"kill {blow}: {type(error).__name__}: {error}")
            continue
        count.kills += wound.at != "after its end"
        count.passes[1] += wound.is_healed
        count.most_at_once = max(count.most_at_once, wound.most_at_once)
        if not wound.is_healed:
            count.failures.append(f"kill {wound}")
    return count


@functools.cache
def _killer(folder: Path) -> Killer:
    """An account and a parent of processes that live as long as this worker."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    killer = Killer(folder)
    Finalize(None, killer.close, exitpriority=1)
    return killer


def _own(place: Path) -> Path:
    return place / f"worker-{os.getpid()}"


def page(parts: Sequence[Count], steps: dict[str, int], seed: int, tried: str) -> str:
    """The result for people, dated, with the commit that it was made from."""
    rows = "\n".join(_row(part) for part in parts)
    scenes = ", ".join(f"{name} {count}" for name, count in steps.items())
    failures = "\n".join(f"- {failure}" for part in parts for failure in part.failures) or "None."
    return f"""\
# The fault matrix

Every step of what makes, replaces, adopts and ends a machine, gone wrong in every way, with the product's own create, replace,
adopt and delete code; docs/reliability.md says what a step and a way are.

{datetime.now(UTC):%Y-%m-%d} · commit {tried} · seed {seed} · `make proof-faults`

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
        f"| {part.title} | {part.played:,} | {len(part.failures)} | {passes} | {part.kills or ''} | {part.most_at_once} | "
        f"{part.worst_leak_usd:.4f} | {part.took_s / 60:.1f} min |"
    )


if __name__ == "__main__":
    sys.exit(main())
