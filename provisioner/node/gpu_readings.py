"""Readings of each GPU, by NVML or by nvidia-smi. Python 3.9 and its standard library only."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from provisioner.node.reach import run_tool

QUERY = "index,utilization.gpu,utilization.memory,power.draw,power.limit,mig.mode.current"
GPU_TIMEOUT_S = 20.0
"""NVML starts the driver of each GPU where nothing else holds it."""


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


def _cell(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
