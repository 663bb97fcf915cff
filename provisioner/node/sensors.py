"""Readings of the machine that this runs on: GPUs, engines, control groups, disks, network, logins, metadata.

Python 3.9 and its standard library only. Every path and address can be put elsewhere, so that tests read a made-up machine.
A source that does not exist is left out of a reading; one that exists and cannot be read is ``None``.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from provisioner.node.gpu_readings import GPU_TIMEOUT_S, smi_gpus
from provisioner.node.reach import fetch, metadata_bytes, metadata_text, run_bounded, run_tool
from provisioner.node.sockets import ESTABLISHED, from_beyond, is_own, sockets_of

LOGIN_FORGOTTEN_S = 4 * 3600.0
"""A login without a keystroke or a line of output for so long is taken for forgotten: a debugger at a stop, or a person who
reads, is not."""
SSH_PORT = 22
RATE_OVER_S = 1.0
"""Two looks closer together (the last one before an end) share a rate, and what has moved between them counts as a second's."""
_DAEMONS = re.compile(
    r"(systemd-|snap|unattended-|apt-|dnf|packagekit|fwupd|man-db|update-|nvidia-|dcgm|amazon-cloudwatch|gpuprov-[dw][ea]|"
    r"node_exp|telegraf|datadog|fluent|falcon)"
)
"""Units of an image that work for nobody and may take more than a tenth of a core. Everything else counts: a person's own units, cron, and what was started from an SSM
shell, which lives in the group of its agent."""
_SSH_TITLE = re.compile(rb"sshd(-session)?: ")
_SECTOR_BYTES = 512
_COUNTERS = {
    "running": (
        "vllm:num_requests_running",
        "sglang:num_running_reqs",
        "tgi_batch_current_size",
        "llamacpp:requests_processing",
    ),
    "waiting": (
        "vllm:num_requests_waiting",
        "sglang:num_queue_reqs",
        "tgi_queue_size",
        "llamacpp:requests_deferred",
        "nv_inference_pending_request_count",
    ),
    "tokens": (
        "vllm:generation_tokens_total",
        "sglang:generation_tokens_total",
        "tgi_request_generated_tokens_sum",
        "llamacpp:tokens_predicted_total",
    ),
    "requests": (
        "vllm:request_success_total",
        "sglang:num_requests_total",
        "tgi_request_count",
        "nv_inference_request_success",
    ),
}
"""What each engine calls its counters. Source: metrics pages of vLLM, SGLang, Text Generation Inference, llama.cpp, Triton."""
_LINE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{.*\})?\s+(\S+)(?:\s+-?\d+)?$")


@dataclass
class Machine:
    """Where the machine's sources are; the defaults are a real one's."""

    root: Path = Path("/")
    metadata: str = "http://169.254.169.254"
    ports: tuple[int, ...] = ()
    gpus: int = 0
    """GPUs that the machine was made with; 0 where that is not known."""
    has_run: bool = False
    nvml: str = "libnvidia-ml.so.1"
    """Empty: nvidia-smi alone is asked."""
    host: str = "127.0.0.1"
    units: tuple[str, ...] = ("gpuprov-workload",)
    before: dict[str, tuple[float, float, float | None]] = field(default_factory=dict)
    """Counter -> time, value and rate of the last reading."""
    groups: dict[str, float] | None = None
    """Control group -> CPU seconds at the last reading."""
    grown_s: float = 0.0
    terminals: dict[str, tuple[tuple[float, float], float]] = field(default_factory=dict)
    engines_seen: set[int] = field(default_factory=set)
    tags_seen: dict[str, str] = field(default_factory=dict)

    def path(self, name: str) -> Path:
        """A file of the machine."""
        return self.root / name.lstrip("/")

    def read(self, at_s: float) -> dict[str, Any]:
        """All sources that exist, now."""
        workload = self.workload() if self.has_run else None
        reading: dict[str, Any] = {"gpus": self.gpus_now(), "gpus_expected": self.gpus}
        if workload is not None:
            reading["workload"] = workload
            reading["held"] = workload == "active" and not self.ports
        engines, bare = self.engines(workload)
        if engines:
            reading["engines"] = engines
        if bare:
            reading["connections"] = self.connections(bare)
        reading["cpu_cores"] = self.rate("cpu", self.cpu_s(), at_s)
        reading["disk_bytes_per_s"] = self.rate("disk", self.disk_bytes(), at_s)
        reading["network_bytes_per_s"] = self.rate("network", self.network_bytes(), at_s)
        reading["logins"] = self.logins(at_s)
        if not self.has_run and self.path("/run/cloud-init").is_dir():
            # Without a workload of ours, the end of cloud-init is the end of the set-up.
            reading["boot"] = "done" if self.path("/run/cloud-init/result.json").exists() else "starting"
        return reading

    def gpus_now(self) -> list[dict[str, Any]] | None:
        """Each GPU by NVML, else by nvidia-smi; ``None`` where neither answers.

        NVML is read by a process of its own: a driver that hangs takes it along, and not the watcher.
        """
        if self.nvml:
            code, shown = run_bounded([sys.executable, "-S", __file__, "gpus", self.nvml], GPU_TIMEOUT_S)
            if code is None:
                return None  # it hangs: nvidia-smi would too
            with suppress(ValueError):
                if code == 0:
                    return list(json.loads(shown))
        return smi_gpus()

    def rate(self, name: str, value: float | None, at_s: float) -> float | None:
        """A counter's growth per second; ``None`` at the first reading and where the counter cannot be read."""
        last = self.before.get(name)
        if value is None:
            self.before.pop(name, None)
            return None
        if last is not None and 0 <= at_s - last[0] < RATE_OVER_S:
            grown = max(0.0, value - last[1])
            return last[2] if grown == 0 else grown / max(at_s - last[0], RATE_OVER_S)
        # A control group that ended takes its time with it: less than before is nothing new.
        rate = None if last is None or at_s < last[0] else max(0.0, value - last[1]) / (at_s - last[0])
        self.before[name] = (at_s, value, rate)
        return rate

    def cpu_s(self) -> float | None:
        """CPU seconds, since the watcher began, of what people and workloads run; daemons of the system are no evidence.

        Each control group is counted by its own growth: one that ends takes its counter with it. Version 1 of control groups
        keeps no sums of this kind, and the whole machine is taken.
        """
        top = self.path("/sys/fs/cgroup")
        if not (top / "cgroup.controllers").exists():
            return self._whole_cpu_s()
        used: dict[str, float] = {}
        for group in (*top.glob("*/cpu.stat"), *top.glob("system.slice/*/cpu.stat")):
            name = group.parent.name
            if name in ("system.slice", "init.scope") or _DAEMONS.match(name):
                continue
            value = _field(group, "usage_usec")
            if value is not None:
                used[str(group)] = value / 1e6
            elif group.exists():
                return None
        if not used:
            return None
        if self.groups is not None:
            self.grown_s += sum(max(0.0, value - self.groups.get(name, 0.0)) for name, value in used.items())
        self.groups = used
        return self.grown_s

    def _whole_cpu_s(self) -> float | None:
        try:
            first = self.path("/proc/stat").read_text().split("\n", 1)[0].split()
            ticks = [int(number) for number in first[1:9]]
        except (OSError, ValueError):
            return None
        return (sum(ticks) - ticks[3] - ticks[4]) / 100

    def disk_bytes(self) -> float | None:
        """Bytes read and written on whole disks since boot."""
        try:
            lines = self.path("/proc/diskstats").read_text().splitlines()
        except OSError:
            return None
        total = 0
        for line in lines:
            fields = line.split()
            name = fields[2] if len(fields) > 9 else ""
            if re.fullmatch(r"nvme\d+n\d+|(?:xv|s|v)d[a-z]+", name):
                total += (int(fields[5]) + int(fields[9])) * _SECTOR_BYTES
        return float(total)

    def network_bytes(self) -> float | None:
        """Bytes received and sent on network cards since boot; bridges of containers would count them twice."""
        try:
            lines = self.path("/proc/net/dev").read_text().splitlines()[2:]
        except OSError:
            return None
        total = 0
        for line in lines:
            name, _, numbers = line.partition(":")
            if re.match(r"(lo|docker|veth|br-|virbr|cni|flannel)", name.strip()):
                continue
            values = numbers.split()
            total += int(values[0]) + int(values[8])
        return float(total)

    def connections(self, ports: Iterable[int]) -> int | None:
        """Established connections to ports, from elsewhere: probes of this machine's own do not count.

        A port that a container publishes shows in the container's network alone, under a number of its own: there, what comes
        from beyond its bridge to any port that listens counts.
        """
        sockets = sockets_of(self.path("/proc/net"))
        if sockets is None:
            return None
        wanted = set(ports)
        found = [s for s in sockets if s[3] == ESTABLISHED and s[1] in wanted and not is_own(s[0], s[2])]
        return len(found) + sum(map(from_beyond, self._other_networks()))

    def _other_networks(self) -> list[Path]:
        """Folder with the sockets of each network that is not the host's own."""
        try:
            seen = {str(self.path("/proc/self/ns/net").readlink())}
        except OSError:
            return []
        found = []
        for process in self.path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                name = str((process / "ns/net").readlink())
                if name not in seen:
                    seen.add(name)
                    found.append(process / "net")
        return found

    def engines(self, workload: str | None) -> tuple[dict[str, Any], list[int]]:
        """Counters of each engine that answers, and the ports behind which nothing tells of its requests."""
        found: dict[str, Any] = {}
        bare: list[int] = []
        for port in self.ports:
            try:
                counters = self._counters(port)
            except (ConnectionRefusedError, ConnectionResetError):
                # Nothing that speaks HTTP here. An engine that was there and should be is unknown; else there is none.
                if port not in self.engines_seen:
                    bare.append(port)
                elif workload == "active":
                    found[f":{port}"] = None
                continue
            except (OSError, ValueError):
                found[f":{port}"] = None
                continue
            if counters is None:
                bare.append(port)
            else:
                self.engines_seen.add(port)
                found[f":{port}"] = counters
        return found, bare

    def _counters(self, port: int) -> dict[str, float] | None:
        status, body = fetch(f"http://{self.host}:{port}/metrics")
        if status == 200:
            counters = parse_counters(body)
            if counters:
                return counters
        status, body = fetch(f"http://{self.host}:{port}/queue")
        if status == 200:
            # Servers of web pages answer any path with a page.
            with suppress(ValueError, TypeError, KeyError):
                queue = json.loads(body)
                return {"running": len(queue["queue_running"]), "waiting": len(queue.get("queue_pending") or ())}
        return None

    def logins(self, at_s: float) -> int | None:
        """People who are there: terminals that moved in the last hours, SSH connections without a terminal, SSM shells."""
        # Every terminal of the host: panes of tmux and screen, mosh and notebooks may be in no list of logins.
        folder = self.path("/dev/pts")
        try:
            lines = (
                [f"pts/{entry.name}" for entry in folder.iterdir() if entry.name.isdigit()] if folder.is_dir() else []
            )
        except OSError:
            return None
        live = 0
        for line in lines:
            try:
                stat = self.path(f"/dev/{line}").stat()
            except OSError:
                continue
            mark = (stat.st_mtime, stat.st_atime)
            known = self.terminals.get(line)
            # Compared with itself and not with the clock, which may step.
            since_s = known[1] if known is not None and known[0] == mark else at_s
            self.terminals[line] = (mark, since_s)
            live += at_s - since_s < LOGIN_FORGOTTEN_S
        shells, titles = self._sessions()
        if titles:  # whoever has not logged in yet, as scanners never do, has no "@"
            return live + shells + sum(title.endswith(b"@notty") for title in titles)
        sockets = sockets_of(self.path("/proc/net"))
        if sockets is None:
            return None
        connected = sum(s[3] == ESTABLISHED and s[1] == SSH_PORT and not is_own(s[0], s[2]) for s in sockets)
        return live + max(0, connected - len(lines)) + shells

    def _sessions(self) -> tuple[int, list[bytes]]:
        """Shells of SSM, and titles of the SSH daemon's processes: ``sshd: ana@pts/0``, ``ana@notty``, ``ana [priv]``."""
        shells, titles = 0, []
        for process in self.path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                title = (process / "cmdline").read_bytes().split(b"\0")[0].strip()
                shells += title.endswith(b"ssm-session-worker")
                if _SSH_TITLE.match(title):
                    titles.append(title)
        return shells, titles

    def workload(self) -> str | None:
        """What the workload's unit does: ``starting``, ``active``, ``finished``, ``failed``; ``None`` where systemd does not say."""
        properties = "ActiveState,SubState,Result,ExecMainCode"
        shown = run_tool(["systemctl", "show", self.units[0], "-p", properties])
        if shown is None:
            return None
        facts = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
        active, sub = facts.get("ActiveState"), facts.get("SubState")
        if active == "active":
            return "finished" if sub == "exited" else "active"
        if active == "inactive":
            return "finished" if facts.get("ExecMainCode") == "1" and facts.get("Result") == "success" else "starting"
        if active in ("activating", "reloading", "deactivating"):
            return "restarting" if sub == "auto-restart" else "starting"
        return "failed" if active == "failed" else None

    def tags(self, keys: Iterable[str]) -> tuple[dict[str, str], float | None]:
        """Instance tags by the metadata service, and the host's time: the guest's own clock may step.

        A tag that is not there is left out; where the service does not answer, nothing is changed.

        Raises:
            OSError: the service does not answer.
        """
        token = metadata_text(self.metadata, "/latest/api/token", put=True)[0]
        found: dict[str, str] = {}
        now = None
        for key in keys:
            value, date = metadata_text(self.metadata, f"/latest/meta-data/tags/instance/{key}", token=token)
            now = date or now
            if value is not None:
                found[key] = value.strip()
        return found, now

    def interruption(self) -> str | None:
        """The spot notice, ``terminate`` or ``stop``; ``None`` while there is none. Raises ``OSError`` without an answer."""
        token = metadata_text(self.metadata, "/latest/api/token", put=True)[0]
        notice, _ = metadata_text(self.metadata, "/latest/meta-data/spot/instance-action", token=token)
        return None if notice is None else str(json.loads(notice).get("action", "terminate"))

    def user_data(self) -> bytes:
        """The user data as it is now, packed or not. Raises ``OSError`` without an answer."""
        token = metadata_text(self.metadata, "/latest/api/token", put=True)[0]
        return metadata_bytes(self.metadata, "/latest/user-data", token=token)[0]


def parse_counters(text: str) -> dict[str, float]:
    """Running, waiting, tokens and requests of a Prometheus page, summed over labels; empty where it tells no requests.

    Raises:
        ValueError: a counter of an engine is no number.
    """
    names = {name: kind for kind, known in _COUNTERS.items() for name in known}
    sums: dict[str, float] = {}
    for line in text.splitlines():
        match = _LINE.match(line)
        kind = names.get(match[1]) if match is not None else None
        if match is not None and kind is not None:
            value = float(match[2])
            if value != value:  # noqa: PLR0124 - not a number is the one value that differs from itself
                raise ValueError(line)
            sums[kind] = sums.get(kind, 0.0) + value
    if "running" not in sums and "waiting" not in sums:
        return {}
    return {"running": 0.0, **sums}


def _field(path: Path, name: str) -> float | None:
    try:
        facts = dict(line.split() for line in path.read_text().splitlines() if line)
        return float(facts[name])
    except (OSError, ValueError, KeyError):
        return None
