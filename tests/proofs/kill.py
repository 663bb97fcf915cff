"""``python -m tests.proofs.kill --count 50 --out docs/proofs/kill.md``: the whole count of kills, with its result in a page."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime
from pathlib import Path

from tests.proofs.spread import commit, scratch
from tests.stacks.kill import CREATE_S, MODES, Wound, blows, strike, undisturbed_s

SEED = 20261130
_AT_ONCE_BEYOND_CORES = 1
"""An `up` waits for a part of its time: one more than there are cores keeps all of them busy."""


def main(arguments: list[str] | None = None) -> int:
    """Kill as often as asked, write the page, and give 1 where one kill did not heal, or too few fell where things are made."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--at-once", type=int, default=(os.cpu_count() or 2) + _AT_ONCE_BEYOND_CORES)
    parser.add_argument("--out", type=Path, default=Path("docs/proofs/kill.md"))
    options = parser.parse_args(arguments)
    wounds: list[Wound] = []
    options.out.parent.mkdir(parents=True, exist_ok=True)
    tried = commit()
    with scratch("gpuprov-kill-") as folder, ThreadPoolExecutor(options.at_once) as pool:
        # As many at once as later: the moments of the kills are shares of a time under the same load.
        homes = [folder / f"whole-{number}" for number in range(options.at_once)]
        whole_s = min(pool.map(lambda home: undisturbed_s(home, runs=1), homes))
        begin = time.monotonic()
        going = [
            pool.submit(strike, folder / f"{blow.number:03}", blow, whole_s)
            for blow in blows(options.count, options.seed)
        ]
        for done in as_completed(going):
            wounds.append(done.result())
            left_s = (time.monotonic() - begin) / len(wounds) * (options.count - len(wounds))
            print(f"{_line(wounds[-1])}; {len(wounds)} of {options.count}, {left_s / 60:.1f} min left", flush=True)
            if not wounds[-1].is_healed:
                print(wounds[-1].messages, file=sys.stderr)
            # Written each time: a proof that is interrupted still says what it has seen, and how much.
            wounds.sort(key=lambda wound: wound.blow.number)
            options.out.write_text(page(wounds, whole_s, options.seed, tried), encoding="utf-8")
    is_aimed = sum(wound.is_in_changes for wound in wounds) * 2 >= len(wounds)
    if not is_aimed:
        print(
            "less than half of the kills fell after the first change; run it again on a quieter host", file=sys.stderr
        )
    return 0 if is_aimed and all(wound.is_healed for wound in wounds) else 1


def page(wounds: list[Wound], whole_s: float, seed: int, tried: str) -> str:
    """The result for people, dated, with the commit that it was made from."""
    bad = [wound for wound in wounds if not wound.is_healed]
    phases = Counter(wound.phase for wound in wounds)
    rows = "\n".join(f"| {phase} | {count} |" for phase, count in phases.most_common())
    modes = "\n".join(
        f"| {mode} | {sum(w.blow.mode == mode for w in wounds)} | {max((w.machines_at_once for w in wounds if w.blow.mode == mode), default=0)}"
        f" | {sum(len(w.bills_after_down) for w in wounds if w.blow.mode == mode)} |"
        for mode in MODES
    )
    failures = "\n".join(f"- {_line(wound)}" for wound in bad) or "None."
    return f"""\
# Killed at any moment

{len(wounds)} SIGKILLs of `gpuprov up` on the sandbox cloud, each followed by `up` and `down`. Half of them come at seeded random
moments between its start and a little after its end ({whole_s:.1f} s undisturbed, {CREATE_S:.0f} s of it inside the create call), half are
counted from the first change that the engine writes down, so that they fall where machines and disks are made:
{sum(wound.is_in_changes for wound in wounds)} of {len(wounds)} fell after that change.
The sandbox's own bill is the judge: the most machines that ever existed at once, and what bills at the end.

{datetime.now(UTC):%Y-%m-%d} · commit {tried} · seed {seed} · `make proof-kill`

| killed | times | most machines at once | objects that bill after `down` |
|---|---|---|---|
{modes}

`caller` is the command's process alone, `group` its process group, `everything` also the engine and a part of its plugins.

| how far the `up` was | times |
|---|---|
{rows}

## Not healed
{failures}
"""


def _line(wound: Wound) -> str:
    verdict = "healed" if wound.is_healed else "NOT HEALED"
    return (
        f"{wound.blow.number:3} {wound.blow.mode:<10} at {wound.at_s:5.2f} s ({wound.phase}): {verdict}, up {wound.up_code}, "
        f"down {wound.down_code}, {wound.machines_at_once} at once, {len(wound.bills_after_down)} left"
    )


if __name__ == "__main__":
    sys.exit(main())
