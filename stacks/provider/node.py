"""What the machine is told at its creation: limits, idle rule, workload. A function of the inputs alone, like every byte of the call."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from decimal import Decimal
from typing import Any

from provisioner import tags
from provisioner.clouds.cloud import Placement
from provisioner.errors import Rejected
from provisioner.node.boot import Start, user_data
from provisioner.reaper.ending import STOP, ending
from provisioner.reaper.machines import AUTO_IDLE
from provisioner.units import GIB, parse_duration, parse_money
from provisioner.vocabulary import CapacityType, Task
from stacks.provider import lifetime
from stacks.provider.inputs import WantedVolume
from stacks.provider.lifetime import AUTO, OFF, part

READY_FACTOR = 3
"""A machine that does not answer after this many times the predicted start is taken for failed (CONTRACTS section 4)."""
READY_LIMIT_MIN_S = 900.0
FETCHED = "/scratch/model"
"""Where the machine puts weights of a bucket before the start (``provisioner/node/templates/boot.sh``)."""
FETCHED_ADAPTERS = "/scratch/adapters"
_ADAPTER = re.compile(r"\A([A-Za-z0-9][\w.-]*)=((?:s3|gs)://[!-~]+)\Z", re.ASCII)
"""An adapter in the commands of vLLM and SGLang: ``--lora-modules NAME=ADDRESS``, ``--lora-paths NAME=ADDRESS``."""
ENGINE_PORT = 8000
ENGINE_PROBE = "/health"
"""Of vLLM, SGLang, TensorRT-LLM and llama.cpp alike."""


def stops(workload: Mapping[str, Any], node: Mapping[str, Any], offer: Placement) -> bool:
    """Whether a shutdown from inside stops the machine: where the market and the disks allow it and the spec does not say otherwise."""
    wanted = part(part(workload, "lifecycle"), "idle").get("then")
    disk = disk_of(node, offer)
    if offer.capacity_type is CapacityType.SPOT and wanted is None:
        return False  # a spot machine that is taken back and waits, stopped, for its pool is asked for, never assumed
    return ending(offer.cloud, offer.capacity_type, disk, wanted).how == STOP


def disk_of(node: Mapping[str, Any], offer: Placement) -> str:
    """The kind of disks that the machine itself brings, ``provisioner.reaper.ending.DISKS``; ``network`` where none is stated."""
    return str(_of_offer(node, offer).get("disk") or "network")


def boot_data(
    workload: Mapping[str, Any], node: Mapping[str, Any], offer: Placement, volumes: Sequence[WantedVolume]
) -> str:
    """User data of the machine.

    Args:
        workload: the spec.
        node: what the plan adds; empty where a program states none.
        offer: where the machine is asked for.
        volumes: its data disks.
    """
    return user_data(config(workload, node, offer), start(workload, node, volumes))


def config(workload: Mapping[str, Any], node: Mapping[str, Any], offer: Placement) -> dict[str, Any]:
    """What the watcher and the dead man's switch go by."""
    lifecycle, facts = part(workload, "lifecycle"), _of_offer(node, offer)
    lives = lifetime.max_lifetime(workload)
    ports = ports_of(workload)
    has_run = workload.get("run") is not None
    return {
        "idle_after_s": idle_after_s(workload, node),
        "gpu_only": bool(part(lifecycle, "idle").get("gpu_only")),
        "then": "stop" if stops(workload, node, offer) else "terminate",
        "lifetime_s": lives.total_seconds() if lives is not None else None,
        "lease_s": _seconds(lifecycle.get("lease")),
        "spend_s": _spend_s(lifecycle.get("max_spend"), facts.get("price")),
        "keep_failed": bool(lifecycle.get("keep_failed")),
        "run": has_run,
        "once": is_once(workload),
        "ports": ports,
        "ready": _probe(workload, ports),
        "ready_limit_s": ready_limit_s(workload, node),
        "hook": hook_of(workload),
        "gpus": facts.get("gpus"),
        "spot": offer.capacity_type is CapacityType.SPOT,
        "run_digest": run_digest(workload, node),
        "idle_tag": lifetime.idle_after(workload),
    }


def run_digest(workload: Mapping[str, Any], node: Mapping[str, Any]) -> str:
    """What the machine runs, as 32 hex digits: equal where a running machine need not be told anything new.

    Limits, prices and predictions are left out: they change with the day, and tags or the next boot carry them.

    Args:
        workload: the spec.
        node: what the plan adds.
    """
    begun = start(workload, node, ())
    if begun is None:
        return tags.NONE
    ports = ports_of(workload)
    facts = [asdict(begun), ports, _probe(workload, ports), hook_of(workload), is_once(workload)]
    if mounted := sorted(map(str, node.get("volumes") or ())):
        facts.append(mounted)  # their sizes are left out: a disk grows under a workload that goes on
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:32]


def is_once(workload: Mapping[str, Any]) -> bool:
    """Whether the workload is a job, which ends, and not a server."""
    return workload.get("run") is not None and workload.get("task") in (Task.BATCH, Task.FINETUNE, Task.PRETRAIN)


def hook_of(workload: Mapping[str, Any]) -> list[str]:
    """The checkpoint hook's words."""
    return list(part(part(workload, "training"), "checkpoint").get("hook") or ())


def start(workload: Mapping[str, Any], node: Mapping[str, Any], volumes: Sequence[WantedVolume]) -> Start | None:
    """The workload to start; ``None`` for a bare machine."""
    run = workload.get("run")
    if run is None:
        return None
    stated: Mapping[str, Any] = run if isinstance(run, Mapping) else {}
    env = dict(part(stated, "env"))
    plain = {str(name): str(value) for name, value in env.items() if not isinstance(value, Mapping)}
    secrets = {str(name): str(value["secret"]) for name, value in env.items() if isinstance(value, Mapping)}
    argv = [str(word) for word in node.get("argv") or stated.get("command") or ()]
    planned, source = run == AUTO and bool(argv), _source(workload)
    adapters: dict[str, str] = {}
    if planned:
        argv, adapters = _adapters_from_disk(argv)
        argv = _from_disk(argv, source, part(workload, "model").get("id")) if source else argv
    return Start(
        argv=argv[1:] if planned else argv,
        image=str(stated.get("image") or node.get("image") or ""),
        # An engine's image starts it with words of its own; the planned command is whole.
        entrypoint=argv[0] if planned else "",
        env={**{str(k): str(v) for k, v in part(node, "env").items()}, **plain},
        secrets=secrets,
        data=str(stated.get("data") or ""),
        source=source,
        adapters=adapters,
        resumable=bool(part(part(workload, "training"), "checkpoint").get("resumable")),
        volumes={volume.name: -(-volume.size_bytes // GIB) * GIB for volume in volumes},
    )


def idle_after_s(workload: Mapping[str, Any], node: Mapping[str, Any]) -> float | None:
    """Seconds of quiet that end the machine; ``None`` where the spec says off."""
    text = lifetime.idle_after(workload)
    if text == "none":
        return None
    if text != AUTO:
        return _seconds(text)
    if workload.get("run") is None:
        return AUTO_IDLE.total_seconds()
    return float(node.get("idleAfterS") or AUTO_IDLE.total_seconds())


def has_probe(workload: Mapping[str, Any]) -> bool:
    """Whether it can be seen that the workload answers."""
    return _probe(workload, ports_of(workload)) is not None


def ready_limit_s(workload: Mapping[str, Any], node: Mapping[str, Any]) -> float | None:
    """Seconds after which a machine that does not answer has failed; ``None`` where nothing is probed."""
    if not has_probe(workload):
        return None
    return max(READY_FACTOR * float(node.get("startS") or 0.0), READY_LIMIT_MIN_S)


def ports_of(workload: Mapping[str, Any]) -> list[int]:
    """Ports that the workload serves on."""
    run = workload.get("run")
    if run == AUTO:
        return [ENGINE_PORT] if workload.get("task") == Task.SERVE else []
    stated: Mapping[str, Any] = run if isinstance(run, Mapping) else {}
    probe = part(stated, "ready").get("port")
    return [int(port) for port in dict.fromkeys([*(stated.get("ports") or ()), *([probe] if probe else [])])]


def _probe(workload: Mapping[str, Any], ports: Sequence[int]) -> dict[str, Any] | None:
    run = workload.get("run")
    if run == AUTO:
        return {"path": ENGINE_PROBE, "port": ENGINE_PORT} if ports else None
    stated = part(run, "ready") if isinstance(run, Mapping) else {}
    if not ports and not stated:
        return None
    port = int(stated.get("port") or (ports[0] if ports else ENGINE_PORT))
    return {"port": port, **({"path": stated["path"]} if stated.get("path") else {})}


def _source(workload: Mapping[str, Any]) -> str:
    """Where the weights are fetched from before the start; an engine fetches ids of the hub by itself."""
    source = str(part(workload, "model").get("source") or "")
    return "" if source.startswith("hf://") else source


def _from_disk(argv: Sequence[str], source: str, model_id: Any) -> list[str]:
    """The planned command with weights that were fetched before the start; the model keeps the name that clients ask for.

    Source: ``--served-model-name`` of vLLM and SGLang, the engines with an image of ``run: auto``; else a path is the name.
    """
    words = [FETCHED if word == source else word for word in argv]
    return [*words, "--served-model-name", str(model_id)] if model_id and words != list(argv) else words


def _adapters_from_disk(argv: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The planned command with its adapters of buckets as folders, and what is to be fetched there, by name."""
    found = {match[1]: match[2] for word in argv if (match := _ADAPTER.fullmatch(word)) is not None}
    return [_ADAPTER.sub(rf"\1={FETCHED_ADAPTERS}/\1", word) for word in argv], found


def _of_offer(node: Mapping[str, Any], offer: Placement) -> Mapping[str, Any]:
    found = part(part(node, "offers"), offer.key)
    return found or part(
        part(node, "offers"), f"{offer.cloud}/{offer.region}/*/{offer.instance_type}/{offer.capacity_type}"
    )


def _spend_s(stated: Any, price: Any) -> float | None:
    """Seconds that the money lasts.

    Raises:
        Rejected: the price is not known, so nothing could keep the limit.
    """
    if not stated or stated == OFF:
        return None
    if not price:
        raise Rejected(
            "lifecycle.max_spend is a lifetime by money, and this offer has no known price",
            remedy="state lifecycle.max_lifetime instead, or refresh the prices: gpuprov prices refresh",
        )
    return float(parse_money(str(stated)).amount_usd / Decimal(str(price)) * 3600)


def _seconds(text: Any) -> float | None:
    return parse_duration(str(text)).total_seconds() if text else None
