"""A made-up machine for the real watcher: files under a folder, fake tools, a fake metadata service, an injected clock."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from provisioner.node.bundle import packed_watcher

SMI = """#!/bin/sh
case "$*" in *query-compute-apps*) cat "$RIG/compute" 2>/dev/null; exit 0;; esac
[ -e "$RIG/smi-fails" ] && { echo "NVIDIA-SMI has failed" >&2; exit 9; }
cat "$RIG/smi"
"""
TOOL = """#!/bin/sh
echo "$(basename "$0") $*" >> "$RIG/calls"
case "$(basename "$0") $1" in
"systemctl show") cat "$RIG/unit" 2>/dev/null || exit 1;;
"systemctl poweroff") touch "$RIG/off";;
"journalctl -u") echo "last line of the workload";;
esac
exit 0
"""


class Metadata:
    """The metadata service of EC2: a token, tags, a spot notice, the host's time."""

    def __init__(self) -> None:
        self.tags: dict[str, str] = {}
        self.action: str | None = None
        self.pages: dict[str, str] = {}
        self.now_s = 1_800_000_000.0
        self.is_up = True
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *arguments: Any) -> None:
                pass

            def date_time_string(self, timestamp: float | None = None) -> str:
                return formatdate(outer.now_s, usegmt=True)

            def do_PUT(self) -> None:
                self.answer("token")

            def do_GET(self) -> None:
                key = self.path.removeprefix("/latest/meta-data/tags/instance/")
                if self.path.endswith("/spot/instance-action"):
                    self.answer(json.dumps({"action": outer.action}) if outer.action else None)
                else:
                    self.answer(outer.pages.get(self.path, outer.tags.get(key)))

            def answer(self, text: str | None) -> None:
                if not outer.is_up:
                    self.send_response(500)
                else:
                    self.send_response(404 if text is None else 200)
                self.end_headers()
                self.wfile.write((text or "").encode())

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self.server.server_address[1])

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class Rig:
    """One machine; ``tick`` and ``watch`` run the real watcher as it is packed, as a process."""

    def __init__(self, folder: Path, metadata: Metadata, *, real_time: bool = False, **config: Any) -> None:
        self.folder = folder
        self.real_time = real_time
        self.metadata = metadata
        self.now_s, self.wall_s = 30.0, 1_800_000_000.0
        self.tools = folder / "tools"
        for path in ("etc/gpuprov", "dev/pts", "proc/net", "proc/sys/kernel/random", "sys/fs/cgroup", "run", "var/lib"):
            (folder / path).mkdir(parents=True)
        self.tools.mkdir()
        self.write("watcher.py", packed_watcher())
        self.config = {"period_s": 30, "idle_after_s": 600, "then": "terminate", "gpus": 1} | config
        self.write("etc/gpuprov/node.json", json.dumps(self.config))
        self.tool("nvidia-smi", SMI)
        for name in ("systemctl", "shutdown", "journalctl", "iptables", "sync"):
            self.tool(name, TOOL)
        self.gpu(0)
        self.boot()
        (folder / "dev/ttyS0").touch()
        (folder / "run/utmp").touch()
        self.network_bytes = self.disk_bytes = self.cpu_us = 0
        self.flow()

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def tool(self, name: str, text: str) -> None:
        self.write(f"tools/{name}", text)
        (self.tools / name).chmod(0o755)

    def gpu(self, *used: float | str, watts: float = 68.0, traffic: float = 0, mig: str = "Disabled") -> None:
        rows = [f"{index}, {value}, {traffic}, {watts}, 700.00, {mig}" for index, value in enumerate(used)]
        self.write("smi", "\n".join(rows) + "\n")

    def boot(self, name: str = "boot-1") -> None:
        self.write("proc/sys/kernel/random/boot_id", f"{name}\n")
        self.now_s = 30.0

    def flow(
        self, *, network: int = 0, disk: int = 0, cpu_us: int = 0, connections: tuple[tuple[int, str], ...] = ()
    ) -> None:
        """What has moved since the last call, and who is connected (port, remote address as the kernel writes it)."""
        self.network_bytes, self.disk_bytes, self.cpu_us = (
            self.network_bytes + network,
            self.disk_bytes + disk,
            self.cpu_us + cpu_us,
        )
        row = f"  eth0: {self.network_bytes} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0"
        self.write("proc/net/dev", f"Inter-|\n face |\n    lo: 9 0 0 0 0 0 0 0 9 0 0 0 0 0 0 0\n{row}\n")
        self.write("proc/diskstats", f" 259 0 nvme0n1 0 0 {self.disk_bytes // 512} 0 0 0 0 0 0 0 0\n")
        lines = [
            f"  {number}: 0100000A:{port:04X} {remote}:C350 01 00000000:00000000 00:00000000 0 0 0"
            for number, (port, remote) in enumerate(connections)
        ]
        self.write("proc/net/tcp", "\n".join(["  sl  local_address rem_address   st", *lines]) + "\n")
        self.write("sys/fs/cgroup/cgroup.controllers", "cpu io memory\n")
        self.write("sys/fs/cgroup/user.slice/cpu.stat", f"usage_usec {self.cpu_us}\nuser_usec 0\n")

    def pass_time(self, seconds: float, *, step_s: float = 0.0) -> None:
        """Let time pass; ``step_s`` moves the guest's wall clock only."""
        self.now_s += seconds
        self.wall_s += seconds + step_s
        self.metadata.now_s += seconds

    def environment(self) -> dict[str, str]:
        self.write("clock", f"{self.now_s} {self.wall_s}")
        clock = {} if self.real_time else {"GPUPROV_NODE_CLOCK": str(self.folder / "clock")}
        return clock | {
            "PATH": f"{self.tools}:/usr/bin:/bin",
            "RIG": str(self.folder),
            "GPUPROV_NODE_ROOT": str(self.folder),
            "GPUPROV_NODE_METADATA": f"http://127.0.0.1:{self.metadata.port}",
            "LD_LIBRARY_PATH": str(self.folder / "lib"),
        }

    def start(self, word: str) -> subprocess.Popen[bytes]:
        with (self.folder / "stderr").open("ab") as errors:
            return subprocess.Popen(
                [sys.executable, "-S", "-E", str(self.folder / "watcher.py"), word],
                env=self.environment(),
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )

    def tick(self) -> bool:
        """One look of the dead man's switch; whether the machine is off now."""
        assert self.start("tick").wait(timeout=30) == 0, (self.folder / "stderr").read_text()
        return self.is_off

    @property
    def is_off(self) -> bool:
        return (self.folder / "off").exists()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """What the watcher said on the serial console."""
        return [json.loads(line) for line in (self.folder / "dev/ttyS0").read_text().splitlines()]

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []


def forget_proxies() -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            del os.environ[name]
