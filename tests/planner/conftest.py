"""Builders for planner tests: the bundled catalog once, specs from few words, stalls that sell chosen offers only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import pytest

from provisioner.catalog.offers import Lot, TypeMarket
from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.planner.decide import make_plan
from provisioner.planner.plan import Plan
from provisioner.planner.request import Request, request_for
from provisioner.vocabulary import CapacityType
from provisioner.workload.spec import Workload

CHANGE = re.compile(r"(?:lower|raise|set|extend|add|use|allow) (\S+)(?: (?:to|in) (\S[^,]*))?(?:, (?:or|if) .*)?$")
"""A change as plans word it: the key and its value, or the value and the list it joins."""
MODEL_8B = "meta-llama/Llama-3.1-8B-Instruct"


class Stall(Catalog):
    """The bundled facts with other offers."""

    def __init__(self, base: Catalog, stock: Sequence[Lot]) -> None:
        super().__init__(base._files)
        self._stock = tuple(stock)

    def type_market(self, cloud: str, instance_type: str) -> TypeMarket:
        own = (lot for lot in self._stock if (lot.cloud, lot.instance.name) == (cloud, instance_type))
        return TypeMarket(tuple(own))


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="session")
def stall(catalog: Catalog) -> Callable[..., Stall]:
    """A catalog that sells these offers and no others."""
    return lambda *offers: Stall(catalog, offers)


@pytest.fixture(scope="session")
def offer(catalog: Catalog) -> Callable[..., Lot]:
    """An offer of a real instance type at a made-up price and place."""

    def build(name: str, price: str | None = "1.00", **changes: Any) -> Lot:
        cloud = "gcp" if ("gcp", name) in catalog.instances else "aws"
        made = Lot(
            instance=catalog.instances[cloud, name],
            region="us-east-1" if cloud == "aws" else "us-central1",
            zones=("use1-az1" if cloud == "aws" else "us-central1-a",),
            capacity_type=CapacityType.ON_DEMAND,
            price_usd_per_hour=Decimal(price) if price is not None else None,
            price_as_of="2026-07-20",
            price_source="test",
        )
        return made._replace(**changes)

    return build


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    for key, value in changes.items():
        base[key] = (
            _merged(dict(base[key]), value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
        )
    return base


@pytest.fixture(scope="session")
def serve() -> Callable[..., Workload]:
    """A small serving workload, sections changed by keyword."""

    def build(**sections: Any) -> Workload:
        base: dict[str, Any] = {
            "version": 1,
            "name": "case",
            "task": "serve",
            "model": {"id": MODEL_8B, "weights": "bf16"},
            "inference": {"engine": "vllm", "context_tokens": 8192, "concurrency": 4},
        }
        return Workload.from_document(_merged(base, sections))

    return build


@pytest.fixture(scope="session")
def batch() -> Callable[..., Workload]:
    """A batch of prompts, sections changed by keyword."""

    def build(**sections: Any) -> Workload:
        base: dict[str, Any] = {
            "version": 1,
            "name": "case",
            "task": "batch",
            "model": {"id": MODEL_8B, "weights": "bf16"},
            "inference": {"engine": "vllm", "context_tokens": 4096, "concurrency": 32},
        }
        return Workload.from_document(_merged(base, sections))

    return build


@pytest.fixture(scope="session")
def finetune() -> Callable[..., Workload]:
    """A LoRA fine-tuning of known length, sections changed by keyword."""

    def build(**sections: Any) -> Workload:
        base: dict[str, Any] = {
            "version": 1,
            "name": "case",
            "task": "finetune",
            "model": {"id": MODEL_8B},
            "training": {"method": "lora", "sequence_tokens": 2048, "tokens": "200M"},
        }
        return Workload.from_document(_merged(base, sections))

    return build


@pytest.fixture(scope="session")
def made() -> Callable[[Workload, str], Workload]:
    """A workload with a change in words carried out, or with both of a pair."""

    def make(workload: Workload, changes: str) -> Workload:
        document = workload.to_document()
        for change in changes.split(" and "):
            _make(document, change)
        return Workload.from_document(document)

    return make


def _make(document: dict[str, Any], text: str) -> None:
    verb = text.split(maxsplit=1)[0]
    match = CHANGE.match(text)
    assert match, text
    key, value = (match[1], match[2]) if verb in ("lower", "raise", "set", "extend") else (match[2], match[1])
    *parents, last = key.split(".")
    node: Any = document
    for part in parents:
        node = node.setdefault(part, {})
    if verb in ("add", "allow", "use"):
        node[last] = [*([] if verb == "use" else node.get(last, [])), value]
    elif value == "true":
        node[last] = True
    else:
        node[last] = json.loads(value) if re.fullmatch(r"\d+(\.\d+)?", value) else value


@pytest.fixture(scope="session")
def plan_of(catalog: Catalog) -> Callable[..., Plan]:
    """The plan of a workload on the bundled catalog, or on another one."""
    return lambda workload, other=None, provider=None: make_plan(workload, other or catalog, provider=provider)


@pytest.fixture(scope="session")
def request_of(catalog: Catalog) -> Callable[..., Request]:
    """The request of a workload on the bundled catalog."""
    return lambda workload, provider=None: request_for(workload, catalog, provider)
