"""What the machine runs, as its user data says at this boot: cloud-init writes files once, and user data may change while it is stopped.

Started by ``bootcmd`` before the workload's unit. Where the metadata service does not answer, the machine keeps what it has,
and its ready line names the old start. Python 3.9 and its standard library only.

Source: EC2 user guide, "Run commands when you launch" (user data of a stopped instance can be changed); cloud-init reference,
"Module frequency" (``bootcmd`` runs at each boot, ``write_files`` and ``runcmd`` once an instance).
"""

from __future__ import annotations

import base64
import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

UNITS = "etc/systemd/system"
RENEWING = "etc/gpuprov/renewing"
FETCHED_FOR = ("SOURCE", "ADAPTERS")
"""Facts of the start whose files are fetched to one folder: what was fetched for others must not lie beside it."""


def wanted_files(user_data: bytes) -> tuple[dict[str, tuple[bytes, int]], list[str]]:
    """Files of a cloud-config as ``provisioner.node.boot`` writes it (path -> content and mode), and the units to enable.

    Raises:
        ValueError: it is not ours.
    """
    raw = gzip.decompress(user_data) if user_data[:2] == b"\x1f\x8b" else user_data
    head, _, body = raw.decode().partition("\n")
    if head != "#cloud-config":
        raise ValueError("the user data is no cloud-config of gpuprov")
    document = json.loads(body)
    files = {}
    for entry in document["write_files"]:
        content, encoding = entry["content"].encode(), entry.get("encoding", "")
        content = base64.b64decode(content) if "b" in encoding else content
        content = gzip.decompress(content) if "gz" in encoding else content
        files[entry["path"].lstrip("/")] = (content, int(entry["permissions"], 8))
    units = [command[-1] for command in document["runcmd"] if command[:2] == ["systemctl", "enable"]]
    return files, units


def renew(root: Path, user_data: bytes, run: Callable[[list[str]], Any]) -> list[str]:
    """Write what differs from what the machine has, and let systemd start it; the files that changed.

    Nothing here waits for a unit to start: this runs while the system comes up, before the units that they wait for. All is
    written beside the old files before the first of them is replaced, and a mark stays until the units are enabled as well: a
    full disk changes nothing, and what was cut half-way is done again at the next boot.

    Raises:
        ValueError: the user data is not ours.
        OSError: a file cannot be written.
    """
    files, units = wanted_files(user_data)
    old = [path for path in root.joinpath(UNITS).glob("gpuprov-*") if f"{UNITS}/{path.name}" not in files]
    changed = [name for name, (content, _) in files.items() if _content(root / name) != content]
    mark = root / RENEWING
    if not changed and not old and not mark.exists():
        return []
    fresh = [_beside(root / name, *files[name]) for name in changed]
    mark.touch()
    _forget_fetched(root, files.get("etc/gpuprov/run.env", (b"", 0))[0])
    for path in fresh:
        path.replace(path.with_suffix(""))
    commands = [["systemctl", "disable", path.name] for path in old]
    commands.append(["systemctl", "daemon-reload"])
    for name in units:
        commands += [["systemctl", "enable", name], ["systemctl", "start", "--no-block", name]]
    done = [run(words) for words in commands]
    for path in old:
        path.unlink()
    if None not in done:
        mark.unlink()
    return [*changed, *(path.name for path in old)]


def _beside(path: Path, content: bytes, mode: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(path.name + ".new")
    fresh.touch(0o600)
    fresh.write_bytes(content)
    fresh.chmod(mode)
    return fresh


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _forget_fetched(root: Path, facts: bytes) -> None:
    """Other weights in the same folder would be mixed with those that are fetched now."""
    before, now = (
        {line.partition("=")[0]: line for line in text.decode().splitlines()}
        for text in (_content(root / "etc/gpuprov/run.env"), facts)
    )
    if any(before.get(name) != now.get(name) for name in FETCHED_FOR):
        for folder in ("model", "adapters"):
            shutil.rmtree(root / "scratch" / folder, ignore_errors=True)
