"""Many cases played by several processes: how far they are, when they will be through, and results that outlive an interruption.

Cases go out in chunks, and what comes back is written down chunk by chunk; a later run of the same commit and the same cases
plays only those that are missing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

_TOLD_EVERY_S = 10.0
_MEMORY = Path("/dev/shm")
_MEMORY_MIN_BYTES = 256 * 2**20
_CODE = ("benchmarks", "policies", "provisioner", "stacks", "tests")
"""Folders whose changes make another result; a page of docs that a proof writes does not."""


@dataclass
class Count:
    """What some cases came to."""

    title: str = ""
    played: int = 0
    failures: list[str] = field(default_factory=list)
    passes: Counter[int] = field(default_factory=Counter)
    """How many cases were healed in one run, two, three."""
    kills: int = 0
    most_at_once: int = 1
    worst_leak_usd: float = 0.0
    took_s: float = 0.0
    """Wall-clock time, interruptions apart."""

    def add(self, other: Count) -> None:
        """Take the count of further cases in."""
        self.played += other.played
        self.failures += other.failures
        self.passes += other.passes
        self.kills += other.kills
        self.most_at_once = max(self.most_at_once, other.most_at_once)
        self.worst_leak_usd = max(self.worst_leak_usd, other.worst_leak_usd)
        self.took_s += other.took_s

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Count:
        """A count that was written down as its ``vars``."""
        passes = Counter({int(runs): count for runs, count in document["passes"].items()})
        return cls(**{**document, "passes": passes})


@dataclass(frozen=True)
class Part:
    """A part of a proof: its cases, and how one process plays some of them."""

    name: str
    title: str
    cases: Sequence[Any]
    play: Callable[[Sequence[Any]], Count]
    case_s: float
    """What one case takes on two idle cores, in seconds of wall-clock time; only the estimated end goes by it."""
    workers: int
    chunk: int = 50
    kills_wanted: int | None = None
    """No case goes out any more once so many kills have hit; ``None``: all cases are played."""

    @property
    def size(self) -> int:
        """Cases, or kills where those are counted."""
        return self.kills_wanted if self.kills_wanted is not None else len(self.cases)

    def done(self, total: Count) -> int:
        """How much of ``size`` a count has reached."""
        return min(self.size, total.kills if self.kills_wanted is not None else total.played)


@dataclass
class Progress:
    """Says every few seconds how far all parts are, and when the last one will be through."""

    parts: Sequence[Part]
    _since: float = field(default_factory=time.monotonic)
    _told_at: float = 0.0
    _played_s: float = 0.0
    """Work of this run in ``case_s``."""
    _totals: dict[str, Count] = field(default_factory=dict)

    def note(self, part: Part, total: Count, fresh: Count | None = None) -> None:
        """A part has come so far; ``fresh`` is what this run has just added."""
        self._totals[part.name] = total
        if fresh is not None:
            self._played_s += part.case_s * (fresh.kills if part.kills_wanted is not None else fresh.played)
        now = time.monotonic()
        if now - self._told_at >= _TOLD_EVERY_S or part.done(total) == part.size:
            self._told_at = now
            text = f"{part.title}: {part.done(total):,} of {part.size:,}, {len(total.failures)} not healed"
            print(f"{text}; {self.end}", flush=True)

    @property
    def end(self) -> str:
        """The estimated end of all parts, by the pace of this run."""
        left_s = sum(part.case_s * (part.size - part.done(self._totals.get(part.name, Count()))) for part in self.parts)
        pace = (time.monotonic() - self._since) / self._played_s if self._played_s else 1.0
        end = datetime.now().astimezone() + timedelta(seconds=left_s * pace)
        return f"all parts end at about {end:%H:%M:%S}, in {left_s * pace / 60:.1f} min"


class Ledger:
    """The results of a part, chunk by chunk, in a file of its own."""

    def __init__(self, folder: Path | None, part: Part, about: Mapping[str, Any]) -> None:
        self._file = folder / f"{part.name}.jsonl" if folder is not None else None
        self._head = json.dumps({"title": part.title, "size": part.size, "chunk": part.chunk, **about}, sort_keys=True)

    def read(self) -> dict[int, Count]:
        """First case of a chunk -> its count, of an earlier run of the same commit and cases; else a fresh file."""
        if self._file is None:
            return {}
        lines = self._file.read_text(encoding="utf-8").splitlines() if self._file.exists() else []
        if not lines or lines[0] != self._head:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._file.write_text(f"{self._head}\n", encoding="utf-8")
            return {}
        try:
            return {entry["start"]: Count.of(entry["count"]) for entry in map(json.loads, lines[1:])}
        except ValueError:
            raise SystemExit(f"{self._file} is cut off or changed: remove it to play its part again") from None

    def add(self, start: int, count: Count) -> None:
        """Keep the count of one chunk."""
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"start": start, "count": vars(count)}) + "\n")


def play(part: Part, ledger: Ledger, progress: Progress) -> Count:
    """Play what is not kept yet in ``workers`` processes, and give the count of all."""
    total, kept = Count(part.title), ledger.read()
    for count in kept.values():
        total.add(count)
    if kept:
        print(f"{part.title}: {total.played:,} cases are kept from an earlier run", flush=True)
    starts = deque(start for start in range(0, len(part.cases), part.chunk) if start not in kept)
    progress.note(part, total)
    if not _wants_more(part, total, 0) or not starts:
        return total
    running: dict[Future[Count], int] = {}
    since = time.monotonic()
    with ProcessPoolExecutor(part.workers, get_context("fork"), _leave_the_end_to_the_parent) as pool:
        while True:
            # Some more than there are workers, so that none waits for its next chunk; kills are sent one by one.
            ahead = part.workers * (2 if part.kills_wanted is None else 1)
            while starts and len(running) < ahead and _wants_more(part, total, len(running)):
                start = starts.popleft()
                running[pool.submit(part.play, part.cases[start : start + part.chunk])] = start
            if not running:
                return total
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                count, start = ended.result(), running.pop(ended)
                now = time.monotonic()
                count.took_s, since = now - since, now
                ledger.add(start, count)
                total.add(count)
                for failure in count.failures:
                    print(failure, file=sys.stderr, flush=True)
                progress.note(part, total, count)


def _wants_more(part: Part, total: Count, running: int) -> bool:
    return part.kills_wanted is None or total.kills + running < part.kills_wanted


def _leave_the_end_to_the_parent() -> None:
    """Ctrl-C reaches every process of the terminal; the workers end when the parent lets them."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def scratch(prefix: str) -> Iterator[Path]:
    """A temporary folder, in memory where there is room: thousands of small files that are synced and removed again."""
    parent = None
    if _MEMORY.is_dir() and os.access(_MEMORY, os.W_OK):
        room = os.statvfs(_MEMORY)
        parent = _MEMORY if room.f_bavail * room.f_frsize >= _MEMORY_MIN_BYTES else None
    with tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder:
        yield Path(folder)


def commit() -> str:
    """The commit that is tried, and whether code differs from it."""
    head = _git("rev-parse", "--short=12", "HEAD")
    changed = _git("status", "--porcelain", "--", *_CODE)
    return (head or "unknown") + (" with changes" if changed else "")


def _git(*words: str) -> str:
    answer = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    return answer.stdout.strip()
