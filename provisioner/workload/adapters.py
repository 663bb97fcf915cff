"""LoRA adapters of a spec: an address, or an address with the rank and the layers that nobody can look up offline."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from provisioner.errors import Position, SpecError
from provisioner.records import record
from provisioner.workload.kinds import Kind, Listing, Misfit, Text, Whole, suggest
from provisioner.workload.tree import Branch, Items, Node, Scalar, from_python, node_at, show

ADDRESS = Text(
    "an address",
    "s3://bucket/lora-a or hf://my-org/lora-a",
    r"(?:(?:hf|s3|gs)://[A-Za-z0-9]|\.{1,2}/|/)[!-~]*",
    1024,
    rule="it starts with hf://, s3:// or gs://, or is a path of a folder: ./lora-a",
)
RANK = Whole(1, 16_384)
TARGETS = Listing(Text("the name of a layer", "q_proj", r"[!-~]+", 256))
KEYS = ("source", "rank", "targets")
CONFIG = "adapter_config.json"
CONFIG_BYTES_MAX = 2**20


@record(frozen=True, slots=True)
class Adapter:
    """One adapter; rank and targets are ``None`` where the spec does not say them."""

    source: str
    rank: int | None = None
    targets: tuple[str, ...] | None = None
    """Names of the layers it sits on; ``("all-linear",)`` for all."""

    @property
    def name(self) -> str:
        """What requests call it: the last part of its address."""
        return self.source.partition("@")[0].rstrip("/").rpartition("/")[2]


class AdapterEntry(Kind):
    """An address, or ``{source: s3://bucket/lora-a, rank: 32, targets: [q_proj, v_proj]}``."""

    __slots__ = ()

    def read(self, node: Node) -> Adapter:
        """The adapter."""
        if not isinstance(node, Branch):
            return Adapter(ADDRESS.read(node))
        unknown = next((key for key in node.values if key not in KEYS), None)
        if unknown is not None:
            remedy = suggest(unknown, KEYS, f"its keys are {', '.join(KEYS)}")
            raise Misfit(f"unknown key {show(unknown)}", remedy, (unknown,), at_key=True)
        if "source" not in node.values:
            raise Misfit("an adapter needs the key source", "write {source: s3://bucket/lora-a, rank: 32}")
        kinds: tuple[tuple[str, Kind], ...] = (("source", ADDRESS), ("rank", RANK), ("targets", TARGETS))
        found: dict[str, Any] = {}
        for key, kind in kinds:
            if key in node.values:
                try:
                    found[key] = kind.read(node.values[key])
                except Misfit as misfit:
                    raise misfit.below(key) from None
        return Adapter(**found)

    def write(self, value: Adapter) -> Any:
        """The address, or the mapping."""
        if value.rank is None and value.targets is None:
            return value.source
        written: dict[str, Any] = {"source": value.source}
        if value.rank is not None:
            written["rank"] = value.rank
        if value.targets is not None:
            written["targets"] = list(value.targets)
        return written

    def schema(self) -> dict[str, Any]:
        """Either."""
        properties = {"source": ADDRESS.schema(), "rank": RANK.schema(), "targets": TARGETS.schema()}
        mapping = {
            "type": "object",
            "properties": properties,
            "required": ["source"],
            "additionalProperties": False,
        }
        return {"anyOf": [ADDRESS.schema(), mapping]}


ADAPTER = AdapterEntry()


def with_local_adapters(root: Node, spec_path: Path) -> Node:
    """The nodes with rank and targets of adapters that are folders on this machine, read from their ``adapter_config.json``.

    Raises:
        SpecError: such a folder has none, or it states no rank.
    """
    model, listed = node_at(root, ("model",)), node_at(root, ("model", "adapters"))
    if not isinstance(root, Branch) or not isinstance(model, Branch) or not isinstance(listed, Items):
        return root
    items = tuple(_filled(item, spec_path) for item in listed.items)
    if items == listed.items:
        return root
    changed = replace(model, values={**model.values, "adapters": replace(listed, items=items)})
    return replace(root, values={**root.values, "model": changed})


def _filled(item: Node, spec_path: Path) -> Node:
    source = node_at(item, ("source",)) if isinstance(item, Branch) else item
    if not isinstance(source, Scalar) or not isinstance(source.value, str) or not source.value.startswith((".", "/")):
        return item
    if isinstance(item, Branch) and "rank" in item.values:
        return item
    where = Position(str(spec_path), *(source.mark or (1, 1)))
    found = {"source": source.value, **_config_facts(spec_path.parent / source.value / CONFIG, where)}
    made = from_python(found)
    if not isinstance(made, Branch):
        return item
    stated = item if isinstance(item, Branch) else Branch()
    return replace(made, keys={**made.keys, **stated.keys}, values={**made.values, **stated.values}, mark=source.mark)


def _config_facts(path: Path, where: Position) -> dict[str, Any]:
    """Rank and targets of an adapter as PEFT saves them; the largest of several ranks counts."""
    remedy = "name an adapter's folder as PEFT saves it, or write {source: ..., rank: ...}"
    try:
        with path.open("rb") as stream:
            document = json.loads(stream.read(CONFIG_BYTES_MAX))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SpecError(f"model.adapters: {path} cannot be read: {reason}", where=where, remedy=remedy) from None
    pattern = document.get("rank_pattern") if isinstance(document, dict) else None
    ranks = [document.get("r") if isinstance(document, dict) else None]
    ranks += list(pattern.values()) if isinstance(pattern, dict) else []
    known = [rank for rank in ranks if isinstance(rank, int) and not isinstance(rank, bool)]
    if not known:
        raise SpecError(f"model.adapters: {path} states no rank r", where=where, remedy=remedy)
    targets = document.get("target_modules")
    if isinstance(targets, str):
        targets = [targets] if targets == "all-linear" else None
    names = sorted({str(name).rpartition(".")[2] for name in targets}) if isinstance(targets, list) else None
    return {"rank": max(known), **({"targets": names} if names else {})}
