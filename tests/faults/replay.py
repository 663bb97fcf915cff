"""``python -m tests.faults.replay 20261130``: one seed, or one case by its name, played again with every step shown.

A proof names what did not heal: ``seed 20261130``, or a case such as ``replace, crash after  at 12, healed elsewhere``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.fakes.cloud import FakeCloud
from tests.faults import matrix, race
from tests.faults.world import journal_steps
from tests.proofs.spread import scratch


def main(arguments: list[str] | None = None) -> int:
    """Play it; 1 where an invariant does not hold, 2 for a name that no case has."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="A seed, or a case as the proof names it.")
    name = str(parser.parse_args(arguments).name).strip()
    with scratch("gpuprov-replay-") as place, journal_steps():
        seed = name.removeprefix("seed ")
        case = None if seed.isdecimal() else _case(name, place / "cases")
        if case is None and not seed.isdecimal():
            print(f"there is no case {name!r}: copy it from the proof, up to the colon", file=sys.stderr)
            return 2
        try:
            with _calls_shown():
                outcome: object = (
                    race.play(int(seed), place / "one") if case is None else matrix.play(case, place / "one")
                )
        except AssertionError as error:
            print(f"does not heal: {error}", file=sys.stderr)
            return 1
    print(outcome)
    return 0


def _case(name: str, place: Path) -> matrix.Case | None:
    wanted = name.split()  # however many blanks a page or a shell has left
    cases = matrix.pairs(place) if "then" in wanted else matrix.singles(place)
    return next((case for case in cases if str(case).split() == wanted), None)


@contextmanager
def _calls_shown() -> Iterator[None]:
    """Print each call of the cloud with the world's time, as it comes in."""
    call = FakeCloud._call

    def shown(self: FakeCloud, operation: str, place: str, act: Callable[[], Any], token: str | None = None) -> Any:
        print(f"{self.clock.now:%H:%M:%S.%f}"[:-3], operation, place, (token or "")[:8])
        return call(self, operation, place, act, token)

    FakeCloud._call = shown  # type: ignore[method-assign]
    try:
        yield
    finally:
        FakeCloud._call = call  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main())
