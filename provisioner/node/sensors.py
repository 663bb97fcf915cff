"""Readings of the machine that this runs on: GPUs, engines, control groups, disks, network, logins, metadata.

Python 3.9 and its standard library only. Every path and address can be put elsewhere, so that tests read a made-up machine.
A source that does not exist is left out of a reading; one that exists and cannot be read is ``None``.
"""

from __future__ import annotations

import ctypes
import json
import re
import struct
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

QUERY = "index,utilization.gpu,utilization.memory,power.draw,power.limit,mig.mode.current"
TOOL_TIMEOUT_S = 10.0
HTTP_TIMEOUT_S = 2.0
LOGIN_FORGOTTEN_S = 4 * 3600.0
"""A login without a keystroke or a line of output for so long is taken for forgotten: a debugger at a stop, or a person who
reads, is not."""
SSH_PORT = 22
RATE_OVER_S = 1.0
"""Two looks closer together (the last one before an end) share a rate, and what has moved between them counts as a second's."""
_ESTABLISHED = "01"
_LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")
_UTMP_BYTES, _UTMP_USER = 384, 7
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
    host: str = "127.0.0.1"
    units: tuple[str, ...] = ("gpuprov-workload",)
    before: dict[str, tuple[float, float, float | None]] = field(default_factory=dict)
    """Counter -> time, value and rate of the last reading."""
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
        """Each GPU by NVML, else by nvidia-smi; ``None`` where neither answers."""
        try:
            return nvml_gpus(self.nvml)
        except (OSError, AttributeError, ValueError):
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
        """CPU seconds of what people and workloads run; the system's own daemons are no evidence."""
        top = self.path("/sys/fs/cgroup")
        if not (top / "cgroup.controllers").exists():
            return self._whole_cpu_s()
        patterns = ["user.slice", "machine.slice", "docker", "system.slice/docker-*.scope", "kubepods*"]
        patterns += [f"system.slice/{unit}.service" for unit in self.units]
        found = [group for pattern in patterns for group in sorted(top.glob(f"{pattern}/cpu.stat"))]
        used_us = [_field(group, "usage_usec") for group in found]
        return None if None in used_us else sum(value for value in used_us if value is not None) / 1e6

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
        """Established connections to ports, from elsewhere: probes of this machine's own do not count."""
        wanted, count, is_read = set(ports), 0, False
        for name in ("tcp", "tcp6"):
            try:
                lines = self.path(f"/proc/net/{name}").read_text().splitlines()[1:]
            except OSError:
                continue
            is_read = True
            for line in lines:
                _, local, remote, state = line.split()[:4]
                if state == _ESTABLISHED and int(local.rpartition(":")[2], 16) in wanted:
                    count += remote.rpartition(":")[0] not in _LOOPBACK
        return count if is_read else None

    def engines(self, workload: str | None) -> tuple[dict[str, Any], list[int]]:
        """Counters of each engine that answers, and the ports behind which nothing tells of its requests."""
        found: dict[str, Any] = {}
        bare: list[int] = []
        for port in self.ports:
            try:
                counters = self._counters(port)
            except ConnectionRefusedError:
                # Nothing listens. An engine that was there and should be is unknown; else there is no engine.
                if port in self.engines_seen and workload == "active":
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
            queue = json.loads(body)
            if isinstance(queue, dict) and "queue_running" in queue:
                return {"running": len(queue["queue_running"]), "waiting": len(queue.get("queue_pending") or ())}
        return None

    def logins(self, at_s: float) -> int | None:
        """People who are there: terminals that moved in the last hours, SSH connections without a terminal, SSM shells."""
        try:
            lines = self._terminals()
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
        connected = self.connections((SSH_PORT,))
        if connected is None:
            return None
        return live + max(0, connected - len(lines)) + self._ssm_shells()

    def _terminals(self) -> list[str]:
        """Lines of the logins by utmp; without one, every pseudo-terminal."""
        utmp = self.path("/run/utmp")
        if not utmp.exists():
            folder = self.path("/dev/pts")
            return (
                [f"pts/{entry.name}" for entry in folder.iterdir() if entry.name.isdigit()] if folder.is_dir() else []
            )
        data = utmp.read_bytes()
        records = (data[at : at + _UTMP_BYTES] for at in range(0, len(data) - _UTMP_BYTES + 1, _UTMP_BYTES))
        lines = [r[8:40].split(b"\0")[0].decode("ascii", "replace") for r in records if _utmp_kind(r) == _UTMP_USER]
        return [line for line in lines if line.startswith("pts/")]

    def _ssm_shells(self) -> int:
        count = 0
        for comm in self.path("/proc").glob("[0-9]*/comm"):
            try:
                count += comm.read_text().startswith("ssm-session-wor")
            except OSError:
                continue
        return count

    def workload(self) -> str | None:
        """What the workload's unit does: ``starting``, ``active``, ``finished``, ``failed``; ``None`` where systemd does not say."""
        shown = run_tool(
            [
                "systemctl",
                "show",
                self.units[0],
                "-p",
                "ActiveState",
                "-p",
                "SubState",
                "-p",
                "Result",
                "-p",
                "ExecMainCode",
            ]
        )
        if shown is None:
            return None
        facts = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
        active, sub = facts.get("ActiveState"), facts.get("SubState")
        if active in ("activating", "reloading", "deactivating"):
            return "starting" if sub != "auto-restart" else "restarting"
        if active == "active":
            return "finished" if sub == "exited" else "active"
        if active == "failed":
            return "failed"
        if active == "inactive":
            return "finished" if facts.get("ExecMainCode") == "1" and facts.get("Result") == "success" else "starting"
        return None

    def tags(self, keys: Iterable[str]) -> tuple[dict[str, str], float | None]:
        """Instance tags by the metadata service, and the host's time: the guest's own clock may step.

        A tag that is not there is left out; where the service does not answer, nothing is changed.

        Raises:
            OSError: the service does not answer.
        """
        token = _metadata(self.metadata, "/latest/api/token", put=True)[0]
        found: dict[str, str] = {}
        now = None
        for key in keys:
            value, date = _metadata(self.metadata, f"/latest/meta-data/tags/instance/{key}", token=token)
            now = date or now
            if value is not None:
                found[key] = value.strip()
        return found, now

    def interruption(self) -> str | None:
        """The spot notice, ``terminate`` or ``stop``; ``None`` while there is none. Raises ``OSError`` without an answer."""
        token = _metadata(self.metadata, "/latest/api/token", put=True)[0]
        notice, _ = _metadata(self.metadata, "/latest/meta-data/spot/instance-action", token=token)
        return None if notice is None else str(json.loads(notice).get("action", "terminate"))

    def user_data(self) -> bytes:
        """The user data as it is now, packed or not. Raises ``OSError`` without an answer."""
        token = _metadata(self.metadata, "/latest/api/token", put=True)[0]
        headers = {"X-aws-ec2-metadata-token": token or ""}
        request = urllib.request.Request(self.metadata + "/latest/user-data", headers=headers)  # noqa: S310 - fixed scheme
        with _OPENER.open(request, timeout=HTTP_TIMEOUT_S) as answer:
            return bytes(answer.read())


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


def fetch(url: str, timeout_s: float = HTTP_TIMEOUT_S) -> tuple[int, str]:
    """Status and text of a page.

    Raises:
        ConnectionRefusedError: nothing listens.
        OSError: no answer.
    """
    try:
        with _OPENER.open(url, timeout=timeout_s) as answer:
            return answer.status, answer.read(4_000_000).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        error.close()
        return error.code, ""
    except urllib.error.URLError as error:
        raise error.reason if isinstance(error.reason, OSError) else OSError(str(error)) from None


def smi_gpus(run: Callable[[list[str]], str | None] | None = None) -> list[dict[str, Any]] | None:
    """Each GPU by nvidia-smi; ``None`` where it fails."""
    run = run or run_tool
    shown = run(["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"])
    if not shown or not shown.strip():
        return None
    listed = run(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"])
    processes = None if listed is None else len([line for line in listed.splitlines() if line.strip().isdigit()])
    gpus = []
    for line in shown.strip().splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < 6:
            return None
        used, traffic, watts, limit = (_cell(cell) for cell in cells[1:5])
        gpus.append(
            {
                "utilization": used,
                "traffic": traffic,
                "watts": watts,
                "limit_watts": limit,
                "mig": cells[5] == "Enabled",
                "processes": processes,
            }
        )
    return gpus


class _Rates(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


def nvml_gpus(library: str) -> list[dict[str, Any]]:
    """Each GPU by NVML; a value that a GPU does not give is ``None``.

    Raises:
        OSError: there is no library, or it does not start.
    """
    nvml = ctypes.CDLL(library)
    count = ctypes.c_uint()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
        raise OSError("NVML does not start")
    try:
        return [_nvml_gpu(nvml, index) for index in range(count.value)]
    finally:
        nvml.nvmlShutdown()


def _nvml_gpu(nvml: Any, index: int) -> dict[str, Any]:
    handle, rates = ctypes.c_void_p(), _Rates()
    if nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
        return {"utilization": None, "traffic": None, "watts": None, "processes": None, "mig": False}
    is_read = not nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(rates))
    return {
        "utilization": rates.gpu if is_read else None,
        "traffic": rates.memory if is_read else None,
        "watts": _nvml_number(nvml, "nvmlDeviceGetPowerUsage", handle, 1000.0),
        "limit_watts": _nvml_number(nvml, "nvmlDeviceGetEnforcedPowerLimit", handle, 1000.0),
        "mig": bool(_nvml_mig(nvml, handle)),
        "processes": _nvml_processes(nvml, handle),
    }


def _nvml_number(nvml: Any, name: str, handle: Any, unit: float) -> float | None:
    value = ctypes.c_uint()
    call = getattr(nvml, name, None)
    return None if call is None or call(handle, ctypes.byref(value)) else value.value / unit


def _nvml_mig(nvml: Any, handle: Any) -> int:
    current, pending = ctypes.c_uint(), ctypes.c_uint()
    call = getattr(nvml, "nvmlDeviceGetMigMode", None)
    return 0 if call is None or call(handle, ctypes.byref(current), ctypes.byref(pending)) else current.value


def _nvml_processes(nvml: Any, handle: Any) -> int | None:
    """Processes on a GPU. With a size of 0 the call answers 7 (too small) and the number that there are."""
    count = ctypes.c_uint(0)
    call = getattr(nvml, "nvmlDeviceGetComputeRunningProcesses_v3", None)
    return None if call is None or call(handle, ctypes.byref(count), None) not in (0, 7) else count.value


def run_tool(arguments: list[str], timeout_s: float = TOOL_TIMEOUT_S) -> str | None:
    """What a tool prints; ``None`` where it is missing, fails or hangs."""
    try:
        done = subprocess.run(
            arguments, capture_output=True, text=True, timeout=timeout_s, check=False, errors="replace"
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Neither a local engine nor the metadata service is behind a proxy."""


def _metadata(base: str, path: str, *, token: str | None = None, put: bool = False) -> tuple[str | None, float | None]:
    """Text of a metadata path (``None`` for one that is not there) and the service's own time."""
    headers = {"X-aws-ec2-metadata-token-ttl-seconds": "300"} if put else {"X-aws-ec2-metadata-token": token or ""}
    request = urllib.request.Request(base + path, headers=headers, method="PUT" if put else "GET")  # noqa: S310 - fixed scheme
    try:
        with _OPENER.open(request, timeout=HTTP_TIMEOUT_S) as answer:
            return answer.read(65536).decode(), _date(answer.headers)
    except urllib.error.HTTPError as error:
        date = _date(error.headers)
        error.close()
        if error.code == 404:
            return None, date
        raise OSError(f"metadata service answers {error.code}") from None


def _date(headers: Any) -> float | None:
    try:
        return parsedate_to_datetime(headers.get("Date") or "").timestamp()
    except (TypeError, ValueError, IndexError):
        return None


def _field(path: Path, name: str) -> float | None:
    try:
        facts = dict(line.split() for line in path.read_text().splitlines() if line)
        return float(facts[name])
    except (OSError, ValueError, KeyError):
        return None


def _cell(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _utmp_kind(record: bytes) -> int:
    return int(struct.unpack_from("<h", record)[0])
