"""The outlook of a chosen or sized layout, as keys of ``throughput`` in plan and size documents, and read back from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from provisioner.planner.candidates import Arrangement
from provisioner.planner.request import Request
from provisioner.planner.work import request_targets
from provisioner.sizing.bottleneck import Diagnosis, Remedy
from provisioner.sizing.outlook import Circumstances, Outlook, SteadyFigures, outlook_of
from provisioner.sizing.start_up import Phase, StartUp
from provisioner.sizing.storage_demand import StorageDemand
from provisioner.sizing.throughput import Targets

Document = dict[str, Any]
KEYS = ("steady_state", "limits", "start_up", "storage_demand")


def circumstances_of(
    request: Request, *, weights_bytes: int, copies: int = 1, checkpoint_bytes: int | None = None
) -> Circumstances:
    """What the spec says about a layout's work; the asked rate is shared by ``copies``."""
    workload = request.workload
    inference, training = workload.inference, workload.training
    rate = inference.targets.requests_per_second if inference is not None and inference.targets else None
    every = training.checkpoint.every if training is not None and training.checkpoint is not None else None
    return Circumstances(
        engine=request.engine,
        weights_bytes=weights_bytes,
        targets=request_targets(request.workload) or Targets(),
        requests_per_s=rate / copies if rate is not None else None,
        checkpoint_bytes=checkpoint_bytes,
        checkpoint_interval_s=every.total_seconds() if every is not None else None,
    )


def arrangement_outlook(request: Request, arrangement: Arrangement) -> Outlook:
    """The outlook of what a plan chose."""
    from provisioner.planner.storage import checkpoint_bytes, checkpoint_file_bytes

    around = circumstances_of(
        request,
        weights_bytes=checkpoint_file_bytes(request, arrangement),
        copies=arrangement.layout.replicas,
        checkpoint_bytes=round(checkpoint_bytes(request, arrangement)),
    )
    outlook = outlook_of(
        request.demand,
        replace(arrangement.layout, replicas=1),
        arrangement.accelerator,
        arrangement.interconnect,
        throughput=arrangement.throughput,
        around=around,
    )
    # As documents hold it, so that a saved plan reads back the same.
    return read_outlook(outlook_document(outlook)) or Outlook()


def outlook_document(outlook: Outlook) -> Document:
    """The keys that an outlook adds to ``throughput``; numbers to four digits."""
    steady, start, diagnosis, storage = outlook.steady, outlook.start, outlook.diagnosis, outlook.storage
    return {
        "steady_state": {key: _short(value) for key, value in asdict(steady).items()} if steady else None,
        "limits": _diagnosis_document(diagnosis) if diagnosis else None,
        "start_up": _start_document(start) if start else None,
        "storage_demand": {key: _short(value) for key, value in asdict(storage).items()} if storage else None,
    }


def read_outlook(document: Mapping[str, Any]) -> Outlook | None:
    """The outlook in a ``throughput`` object; ``None`` where it has none (a plan saved before there were any)."""
    if not any(document.get(key) for key in KEYS):
        return None
    steady, limits, start, storage = (document.get(key) for key in KEYS)
    return Outlook(
        steady=SteadyFigures(**steady) if steady else None,
        diagnosis=Diagnosis(
            bound_by=limits["bound_by"],
            shares=tuple(limits["shares"].items()),
            remedies=tuple(Remedy(**remedy) for remedy in limits["remedies"]),
            of_predicted=limits["of_predicted"],
            reading=limits["reading"],
        )
        if limits
        else None,
        start=StartUp(tuple(Phase(**phase) for phase in start["phases"])) if start else None,
        storage=StorageDemand(**storage) if storage else None,
    )


def _diagnosis_document(diagnosis: Diagnosis) -> Document:
    return {
        "bound_by": diagnosis.bound_by,
        "shares": {name: _short(share) for name, share in diagnosis.shares},
        "remedies": [{**asdict(remedy), "gain": _short(remedy.gain)} for remedy in diagnosis.remedies],
        "of_predicted": _short(diagnosis.of_predicted),
        "reading": diagnosis.reading,
    }


def _start_document(start: StartUp) -> Document:
    return {
        "low_s": _short(start.low_s),
        "usual_s": _short(start.usual_s),
        "high_s": _short(start.high_s),
        "phases": [{key: _short(value) for key, value in asdict(phase).items()} for phase in start.phases],
    }


def _short(value: Any) -> Any:
    return float(f"{value:.4g}") if isinstance(value, float) else value
