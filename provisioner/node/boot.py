"""User data of a machine: cloud-init writes one file, the watcher, which brings its units and the start of the workload along.

``watcher.py install`` unpacks them and arms the dead man first; it needs nothing but the file.

Source: cloud-init reference, modules ``write_files``, ``bootcmd`` and ``runcmd``; systemd.unit(5), systemd.timer(5).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from provisioner.node.bundle import packed_watcher
from provisioner.node.renew import UNITS
from provisioner.node.tighten import tight_script
from provisioner.node.toolkit import TOOLKIT_KEY, TOOLKIT_VERSION

HOME = "/opt/gpuprov"
ETC = "/etc/gpuprov"
HEAD = "#cloud-config\n#2\n"
"""The second line is the form of what follows: a watcher of another form, which would misread it, keeps its start."""
STOP_S = 300
"""Longest wait of a stop for requests in flight, or for a checkpoint."""
LEAVE_S = 120
"""Longest run of the checkpoint hook at a shutdown, before that."""
RESTARTS, RESTARTS_IN_S = 5, 1800
TICK_S = 300
"""Longest look of the dead man's switch, hook and shutdown included: one that hangs must not keep the next from coming."""


_LAST_TO_DIE = "OOMScoreAdjust=-1000"
"""A workload that runs out of memory must not take along what ends the machine."""


@dataclass(frozen=True, slots=True)
class Start:
    """What is started on the machine."""

    argv: Sequence[str] = ()
    image: str = ""
    entrypoint: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Variable -> ``store:name``."""
    data: str = ""
    source: str = ""
    adapters: Mapping[str, str] = field(default_factory=dict)
    """Name -> bucket of what is served beside the model."""
    volumes: Mapping[str, int] = field(default_factory=dict)
    """Data disk -> bytes; each is mounted under its name."""
    resumable: bool = False
    """Whether it can go on from what lies in ``/checkpoints``; it is told so by ``GPUPROV_RESUME``."""


def user_data(config: Mapping[str, Any], start: Start | None = None) -> str:
    """The cloud-config: equal arguments give equal bytes.

    Args:
        config: the watcher's own, see ``provisioner.node.watcher``.
        start: the workload; ``None`` for a bare machine, which is watched all the same.
    """
    kept = {key: config[key] for key in sorted(config) if config[key] not in (None, [])}
    files = {f"{UNITS}/{name}": text for name, text in _units(config, start).items()}
    files[f"{ETC}/node.json".lstrip("/")] = json.dumps(kept, separators=(",", ":"))
    if start is not None:
        files |= {path.lstrip("/"): text for path, text in _start_files(start).items()}
    program = f"/usr/bin/python3 {HOME}/watcher.py"
    document = {
        # On each boot before anything else; on the first one, the file is not there yet and runcmd arms the timer.
        "bootcmd": [f"test ! -e {HOME}/watcher.py || timeout {TICK_S} {program} {w}" for w in ("renew", "tick")],
        "runcmd": [f"{program} install"],
        # Readable by root alone: the workload's settings are in it.
        "write_files": [{"path": f"{HOME}/watcher.py", "permissions": "0600", "content": packed_watcher(files)}],
    }
    return f"{HEAD}{json.dumps(document, separators=(',', ':'))}\n"


def _start_files(start: Start) -> dict[str, str]:
    facts = {
        "VOLUMES": " ".join(f"{name}={size}" for name, size in start.volumes.items()),
        "DATA": start.data,
        "SOURCE": start.source,
        "ADAPTERS": " ".join(f"{name}={address}" for name, address in start.adapters.items()),
        "IMAGE": start.image,
        "ENTRY": start.entrypoint,
        "TOOLKIT": TOOLKIT_VERSION if start.image else "",
        "TOOLKIT_KEY": TOOLKIT_KEY if start.image else "",
        "RESUME": "1" if start.resumable else "",
    }
    references = {name: reference.partition(":") for name, reference in start.secrets.items()}
    secrets = (f"{name} {store} {key}" for name, (store, _, key) in references.items())
    addresses = (start.data, start.source, *start.adapters.values())
    needs = {*(a.partition("://")[0] for a in addresses), *(store for store, _, _ in references.values())}
    needs.add("image" if start.image else "host")
    # docker's env files take the rest of the line as it is.
    env = "".join(f"{name}={value}\n" for name, value in start.env.items())
    return {
        f"{HOME}/boot.sh": _template("boot.sh", frozenset(needs)),
        f"{HOME}/run.sh": _template("run.sh", frozenset(needs)),
        f"{ETC}/run.env": "".join(f"{name}={_quoted(value)}\n" for name, value in facts.items()),
        f"{ETC}/workload.env": env,
        f"{ETC}/secrets": "".join(f"{line}\n" for line in secrets),
        f"{ETC}/argv": "".join(f"{word}\0" for word in start.argv),
    }


def _units(config: Mapping[str, Any], start: Start | None) -> dict[str, str]:
    python = f"/usr/bin/python3 {HOME}/watcher.py"
    units = {
        "gpuprov-deadman.timer": "[Timer]\nOnBootSec=20\nOnUnitInactiveSec=30\nAccuracySec=1\n"
        "[Install]\nWantedBy=timers.target\n",
        "gpuprov-deadman.service": _unit(
            f"Type=oneshot\nExecStart={python} tick\nTimeoutStartSec={TICK_S}\n{_LAST_TO_DIE}"
        ),
        "gpuprov-watcher.service": _unit(
            f"ExecStart={python} watch\nRestart=always\nRestartSec=5\n{_LAST_TO_DIE}", wanted=True
        ),
    }
    if start is not None:
        restart = "on-failure" if config.get("once") else "always"
        units["gpuprov-workload.service"] = _unit(
            f"ExecStartPre={HOME}/boot.sh\nExecStart={HOME}/run.sh\nRestart={restart}\nRestartSec=10\n"
            f"TimeoutStartSec=infinity\nTimeoutStopSec={STOP_S}\nKillMode=mixed",
            wanted=True,
            # Behind docker, so that a shutdown stops the workload first: the daemon gives its containers seconds.
            more=f"After=network-online.target docker.service gpuprov-deadman.timer\nWants=network-online.target\n"
            f"StartLimitIntervalSec={RESTARTS_IN_S}\nStartLimitBurst={RESTARTS}\n",
        )
        if config.get("hook"):
            # Started after the workload, so stopped before it: the hook finds it at work.
            units["gpuprov-leave.service"] = _unit(
                f"Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\nExecStop={python} leave\nTimeoutStopSec={LEAVE_S}",
                wanted=True,
                more="After=gpuprov-workload.service\n",
            )
    return units


def _unit(service: str, *, wanted: bool = False, more: str = "") -> str:
    """A unit that is called by its file's name."""
    head = f"[Unit]\n{more}" if more else ""
    install = "[Install]\nWantedBy=multi-user.target\n" if wanted else ""
    return f"{head}[Service]\n{service}\n{install}"


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


@cache
def _template(name: str, needs: frozenset[str]) -> str:
    """A script as small as it can be: its comments are for people, and user data is 16 KB."""
    return tight_script((Path(__file__).parent / "templates" / name).read_text(encoding="utf-8"), needs)
