"""User data of a machine: cloud-init writes the watcher, its units and the start of the workload, and arms the dead man first.

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
from provisioner.node.toolkit import TOOLKIT_KEY, TOOLKIT_VERSION

HOME = "/opt/gpuprov"
ETC = "/etc/gpuprov"
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
    files = [
        _file(f"{HOME}/watcher.py", packed_watcher(), "0644"),
        _file(
            f"{ETC}/node.json",
            json.dumps({key: config[key] for key in sorted(config) if config[key] not in (None, [])}),
            "0644",
        ),
        *(_file(f"/etc/systemd/system/{name}", text, "0644") for name, text in _units(config, start).items()),
    ]
    commands: list[list[str]] = [
        ["systemctl", "daemon-reload"],
        ["systemctl", "enable", "--now", "gpuprov-deadman.timer"],
        ["systemctl", "enable", "--now", "gpuprov-watcher.service"],
    ]
    if start is not None:
        files += _start_files(start)
        commands.append(["systemctl", "enable", "--now", "--no-block", "gpuprov-workload.service"])
        if config.get("hook"):
            commands.append(["systemctl", "enable", "--now", "--no-block", "gpuprov-leave.service"])
    document = {
        # On each boot before anything else; on the first one, the file is not there yet and runcmd arms the timer.
        "bootcmd": [
            f"test ! -e {HOME}/watcher.py || timeout {TICK_S} /usr/bin/python3 {HOME}/watcher.py {w}"
            for w in ("renew", "tick")
        ],
        "write_files": files,
        "runcmd": commands,
    }
    return "#cloud-config\n" + json.dumps(document, indent=0) + "\n"


def _start_files(start: Start) -> list[dict[str, Any]]:
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
    secrets = (f"{name} {store} {key}" for name, (store, _, key) in _split(start.secrets))
    # docker's env files take the rest of the line as it is.
    env = "".join(f"{name}={value}\n" for name, value in start.env.items())
    return [
        _file(f"{HOME}/boot.sh", _template("boot.sh"), "0755"),
        _file(f"{HOME}/run.sh", _template("run.sh"), "0755"),
        _file(f"{ETC}/run.env", "".join(f"{name}={_quoted(value)}\n" for name, value in facts.items()), "0600"),
        _file(f"{ETC}/workload.env", env, "0600"),
        _file(f"{ETC}/secrets", "".join(f"{line}\n" for line in secrets), "0600"),
        _file(f"{ETC}/argv", "".join(f"{word}\0" for word in start.argv), "0600"),
    ]


def _units(config: Mapping[str, Any], start: Start | None) -> dict[str, str]:
    python = f"/usr/bin/python3 {HOME}/watcher.py"
    units = {
        "gpuprov-deadman.service": _unit(
            "gpuprov dead man's switch",
            f"Type=oneshot\nExecStart={python} tick\nTimeoutStartSec={TICK_S}\n{_LAST_TO_DIE}",
        ),
        "gpuprov-deadman.timer": "[Unit]\nDescription=gpuprov dead man's switch\n[Timer]\nOnBootSec=20\n"
        "OnUnitInactiveSec=30\nAccuracySec=1\n[Install]\nWantedBy=timers.target\n",
        "gpuprov-watcher.service": _unit(
            "gpuprov watcher", f"ExecStart={python} watch\nRestart=always\nRestartSec=5\n{_LAST_TO_DIE}", wanted=True
        ),
    }
    if start is not None:
        restart = "on-failure" if config.get("once") else "always"
        units["gpuprov-workload.service"] = _unit(
            "gpuprov workload",
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
                "gpuprov checkpoint at shutdown",
                f"Type=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\nExecStop={python} leave\nTimeoutStopSec={LEAVE_S}",
                wanted=True,
                more="After=gpuprov-workload.service\n",
            )
    return units


def _unit(description: str, service: str, *, wanted: bool = False, more: str = "") -> str:
    install = "[Install]\nWantedBy=multi-user.target\n" if wanted else ""
    return f"[Unit]\nDescription={description}\n{more}[Service]\n{service}\n{install}"


def _file(path: str, content: str, mode: str) -> dict[str, Any]:
    return {"path": path, "permissions": mode, "content": content}


def _split(secrets: Mapping[str, str]) -> list[tuple[str, tuple[str, str, str]]]:
    return [(name, reference.partition(":")) for name, reference in secrets.items()]


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "'\\''") + "'"


@cache
def _template(name: str) -> str:
    """A script without its comments: they are for people, and user data is 16 KB."""
    text = (Path(__file__).parent / "templates" / name).read_text(encoding="utf-8")
    lines = text.splitlines()
    return "\n".join([lines[0], *(line for line in lines[1:] if not line.lstrip().startswith("# "))]) + "\n"
