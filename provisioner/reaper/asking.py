"""Asking machines to drain before they are ended from outside, since only the machine can see a request that arrives now.

The request is a tag, which the machine's watcher reads; its answer is a line on the serial console: ``drained``, with the door
closed and the checkpoint hook run, or ``cancelled``, since work arrived. One that has no watcher, or does not answer in time,
is ended as it is seen.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any

from provisioner import tags
from provisioner.errors import GpuprovError
from provisioner.node.drain import DRAIN_TAG
from provisioner.reaper.evidence import SILENT_AFTER, last_line
from provisioner.reaper.machines import Inventory, Machine

PATIENCE = timedelta(seconds=90)
"""Longest wait of one sweep for all answers: a look, requests in flight, and up to a minute of the hook."""
_POLL = timedelta(seconds=3)
DRAINED, CANCELLED, SILENT = "drained", "cancelled", "no answer"


def ask(inventory: Inventory, due: Iterable[Machine], pause: Callable[[float], Any]) -> dict[str, str]:
    """Ask each machine whose watcher is alive, and wait for their answers.

    Args:
        inventory: the account.
        due: machines that are about to be ended.
        pause: waits so many seconds.

    Returns:
        Id of each machine that was asked -> ``DRAINED``, ``CANCELLED`` or ``SILENT``.
    """
    request = tags.format_time(inventory.now())
    waiting: dict[str, Machine] = {}
    for machine in due:
        try:
            if machine.is_running and is_listening(inventory.console(machine), inventory.now()):
                inventory.write_tags(machine, {DRAIN_TAG: request})
                waiting[machine.id] = machine
        except GpuprovError:
            continue  # what is wrong with it is told when it is to be ended
    answers: dict[str, str] = {}
    for _ in range(PATIENCE // _POLL):
        for machine in list(waiting.values()):
            answer = _answer(inventory, machine, request)
            if answer is not None:
                answers[machine.id] = answer
                del waiting[machine.id]
        if not waiting:
            break
        pause(_POLL.total_seconds())
    return {**answers, **dict.fromkeys(waiting, SILENT)}


def take_back(inventory: Inventory, machine: Machine) -> None:
    """Let a machine that was asked, and is not ended, take work again; it does so by itself after some minutes too."""
    try:
        inventory.write_tags(machine, {DRAIN_TAG: tags.NONE})
    except GpuprovError:
        return


def is_listening(console: Sequence[str], now: datetime) -> bool:
    """Whether the machine's watcher has decided something lately."""
    line = last_line(console, decisions=True)
    try:
        said_at = tags.parse_time(str(line.get("at"))) if line is not None else None
    except ValueError:
        return False
    return said_at is not None and now - said_at <= SILENT_AFTER


def _answer(inventory: Inventory, machine: Machine, request: str) -> str | None:
    try:
        console = inventory.console(machine)
    except GpuprovError:
        return None
    for line in reversed(console):
        start = line.find('{"gpuprov"')
        if start < 0 or request not in line:
            continue
        try:
            said = json.loads(line[start:])
        except ValueError:
            continue  # cut by the console's buffer
        if said.get("request") == request:
            return DRAINED if said.get("state") == "drained" else CANCELLED
    return None
