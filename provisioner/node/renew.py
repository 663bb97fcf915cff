"""What the machine runs, as its user data says at this boot: cloud-init writes files once, and user data may change while it is stopped.

Cloud-init writes one file, the packed watcher; all others lie in it. ``watcher.py install`` writes them at the first boot, from the
file itself; ``watcher.py renew`` at each boot, started by ``bootcmd`` before the workload's unit, from what the metadata service
says then. Where that does not answer, the machine keeps what it has, and its ready line names the old start. Python 3.9 and its
standard library only.

Source: EC2 user guide, "Run commands when you launch" (user data of a stopped instance can be changed); cloud-init reference,
"Module frequency" (``bootcmd`` runs at each boot, ``write_files`` and ``runcmd`` once an instance).
"""

from __future__ import annotations

import base64
import gzip
import json
import lzma
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

UNITS = "etc/systemd/system"
PROGRAM = "opt/gpuprov/watcher.py"
RENEWING = "etc/gpuprov/renewing"
FETCHED_FOR = ("SOURCE", "ADAPTERS")
"""Facts of the start whose files are fetched to one folder: what was fetched for others must not lie beside it."""
TOOL_S = 60.0
"""Longest wait for systemctl: all else of the machine comes up as well."""


def program_of(user_data: bytes) -> bytes:
    """The packed watcher of a cloud-config as ``provisioner.node.boot`` writes it.

    Raises:
        ValueError: it is not ours.
    """
    try:
        raw = gzip.decompress(user_data) if user_data[:2] == b"\x1f\x8b" else user_data
        program = json.loads(raw.split(b"\n", 2)[2])["write_files"][0]["content"].encode()
        wanted_files(program)
    except Exception:  # noqa: BLE001 - somebody else's may be anything
        raise ValueError("the user data is no cloud-config of gpuprov") from None
    return bytes(program)


def wanted_files(program: bytes) -> dict[str, tuple[bytes, int]]:
    """Files that a packed watcher brings along, itself included: path -> content and mode.

    What may hold settings of the workload is readable by root alone.
    """
    text = lzma.decompress(base64.b64decode(program.split(b"#")[-1])).decode()
    words = text.split(text[0])
    files = {PROGRAM: (program, 0o600)}
    for name, content in zip(words[1:-1:2], words[2::2]):  # noqa: B905 - Python 3.9
        mode = 0o755 if name.endswith(".sh") else 0o644 if name.startswith(UNITS) else 0o600
        files[name] = (content.encode(), mode)
    return files


def renew(root: Path, program: bytes, run: Callable[[list[str], float], Any]) -> list[str]:
    """Write what differs from what the machine has, and let systemd start it; the files that changed.

    Nothing here waits for a unit to start: this runs while the system comes up, before the units that they wait for. All is
    written beside the old files before the first of them is replaced, and a mark stays until the units are enabled as well: a
    full disk changes nothing, and what was cut half-way is done again at the next boot.

    Raises:
        OSError: a file cannot be written.
    """
    files = wanted_files(program)
    old = [path for path in root.joinpath(UNITS).glob("gpuprov-*") if f"{UNITS}/{path.name}" not in files]
    changed = [name for name, (content, _) in files.items() if _content(root / name) != content]
    mark = root / RENEWING
    if not changed and not old and not mark.exists():
        return []
    fresh = [_beside(root / name, *files[name]) for name in changed]
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.touch()
    run(
        ["sync"], TOOL_S
    )  # a rename may reach the disk before what it renames: a watcher without content would arm nothing
    _forget_fetched(root, files.get("etc/gpuprov/run.env", (b"", 0))[0])
    for path in fresh:
        path.replace(path.with_suffix(""))
    commands = [["disable", path.name] for path in old]
    commands.append(["daemon-reload"])
    for name, (content, _) in files.items():
        if b"\n[Install]" in content and name.startswith(UNITS):
            commands += [["enable", Path(name).name], ["start", "--no-block", Path(name).name]]
    done = [run(["systemctl", *words], TOOL_S) for words in commands]
    for path in old:
        path.unlink()
    if None not in done:
        mark.unlink()
    return [*changed, *(path.name for path in old)]


def install(root: Path, program: bytes, run: Callable[[list[str], float], Any]) -> bool:
    """The first boot, with or without an answer of the metadata service; whether all units are enabled."""
    for _ in range(5):
        renew(root, program, run)
        if not (root / RENEWING).exists():
            return True
    return False


def _beside(path: Path, content: bytes, mode: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.touch(0o600)
    fresh.write_bytes(content)
    fresh.chmod(mode)
    return fresh


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _forget_fetched(root: Path, facts: bytes) -> None:
    """Other weights in the same folder would be mixed with those that are fetched now."""
    before, now = (
        {line.partition("=")[0]: line for line in text.decode().splitlines()}
        for text in (_content(root / "etc/gpuprov/run.env") or b"", facts)
    )
    if before and any(before.get(name) != now.get(name) for name in FETCHED_FOR):
        for folder in ("model", "adapters"):
            shutil.rmtree(root / "scratch" / folder, ignore_errors=True)
