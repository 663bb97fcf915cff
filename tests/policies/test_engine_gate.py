"""The gate inside an engine: deferral in previews, configuration, and the same verdicts as everywhere else."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from policies.day import today_utc
from policies.engine import EngineGate
from policies.gate import judge
from policies.placement import Placer
from policies.registry import BY_ID, RULES
from policies.rule import Level
from policies.selection import Policy
from policies.sources import read_file
from provisioner.errors import UsageError
from tests.policies.builders import catalog, document
from tests.policies.test_pulumi import AWS_TYPE, LATER, MACHINE, OFFER, OWN, OWN_TYPE, state

LARGE = document({"model.id": "meta-llama/Llama-3.1-70B-Instruct"})
PLANS = int(os.environ.get("GPUPROV_PARITY", "12"))


@pytest.fixture
def gate(tmp_path: Path) -> EngineGate:
    found = EngineGate.of_project(tmp_path)
    found._placer = Placer(catalog())
    return found


def mandatory(gate: EngineGate, inputs: dict[str, Any], token: str = OWN_TYPE) -> set[str]:
    return {diagnostic.rule.id for diagnostic in gate.analyze(token, "m", inputs) if diagnostic.mandatory}


def test_a_sound_resource_passes_and_others_are_left_alone(gate: EngineGate) -> None:
    assert not mandatory(gate, OWN)
    assert gate.analyze("random:index:RandomId", "r", {"byteLength": 8}) == []


def test_every_offer_must_hold_the_workload(gate: EngineGate) -> None:
    assert mandatory(gate, OWN | {"workload": LARGE}) == {"under-sized", "disk-size"}
    assert "under-sized" in mandatory(
        gate, OWN | {"offers": [OFFER, OFFER | {"instanceType": "g6.xlarge"}], "workload": LARGE}
    )


@pytest.mark.parametrize(
    "inputs",
    [
        OWN | {"offers": LATER},
        OWN | {"offers": [OFFER | {"instanceType": LATER}]},
        OWN | {"workload": LATER},
        OWN | {"workload": document({"model.id": LATER})},
        OWN | {"workload": document({"inference.context_tokens": LATER})},
    ],
)
def test_what_is_computed_waits_in_a_preview_and_fails_before_the_create(
    gate: EngineGate, inputs: dict[str, Any]
) -> None:
    gate.preview = True
    found = gate.analyze(OWN_TYPE, "m", inputs)
    assert not any(diagnostic.mandatory for diagnostic in found)
    assert any("before the resource is made" in diagnostic.message for diagnostic in found)
    gate.preview = False
    assert "under-sized" in mandatory(gate, inputs)


def test_what_nobody_will_tell_fails_in_the_preview_already(gate: EngineGate) -> None:
    gate.preview = True
    silent = {key: value for key, value in MACHINE.items() if key != "metadataOptions"}
    assert mandatory(gate, silent, AWS_TYPE) == {"imdsv2"}
    assert not mandatory(gate, MACHINE | {"metadataOptions": {"httpTokens": LATER}}, AWS_TYPE)


def test_what_the_catalog_does_not_know_fails_in_the_preview_already(gate: EngineGate) -> None:
    """Nothing that the program computes later will tell a price or a size that the catalog lacks."""
    gate.preview = True
    unheard = OWN | {"offers": [OFFER | {"instanceType": "p9.unheard"}]}
    assert mandatory(gate, unheard) >= {"under-sized", "price-over-limit"}
    unsold = OWN | {"offers": [OFFER | {"region": "af-south-1", "zone": None}]}
    assert mandatory(gate, unsold) == {"price-over-limit", "region-support"}


def test_a_known_fault_fails_a_preview_whatever_else_is_unknown(gate: EngineGate) -> None:
    gate.preview = True
    inputs = OWN | {"workload": document({"access": {"cidrs": ["0.0.0.0/0"]}, "model.id": LATER})}
    assert mandatory(gate, inputs) == {"open-cidr"}


def test_an_invalid_workload_fails(gate: EngineGate) -> None:
    (found,) = gate.analyze(OWN_TYPE, "m", OWN | {"workload": document({"inferense": {}})})
    assert found.mandatory
    assert "inferense" in found.message


def test_the_tag_is_relative_to_the_project(gate: EngineGate, tmp_path: Path) -> None:
    (tmp_path / "chat.yaml").write_text(json.dumps(LARGE))
    found = mandatory(gate, MACHINE | {"tags": {"gpuprov:workload": "chat.yaml"}}, AWS_TYPE)
    assert "under-sized" in found


def test_the_engine_configures_levels_and_parameters(gate: EngineGate) -> None:
    inputs = OWN | {"workload": document({"access": {"cidrs": ["198.51.0.0/16"]}})}
    assert not mandatory(gate, inputs)
    gate.configure({"open-cidr": ("mandatory", {"widest_ipv4_prefix": 24.0})})
    assert mandatory(gate, inputs) == {"open-cidr"}
    gate.configure({"open-cidr": ("disabled", {})})
    assert not mandatory(gate, inputs)
    gate.configure({"price-limit": ("remediate", {}), "open-cidr": (None, {})})
    assert gate.policy.levels()["price-limit"] is Level.MANDATORY


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"open-cidrs": ("mandatory", {})}, "open-cidr"),
        ({"open-cidr": ("strict", {})}, "mandatory"),
        ({"open-cidr": (None, {"widest": 8})}, "widest_ipv4_prefix"),
        ({"open-cidr": (None, {"widest_ipv4_prefix": "eight"})}, "whole number"),
        ({rule.id: ("disabled", {}) for rule in RULES}, "every rule"),
    ],
)
def test_a_wrong_configuration_is_refused(gate: EngineGate, config: Any, words: str) -> None:
    with pytest.raises(UsageError) as found:
        gate.configure(config)
    assert words in str(found.value)


def test_the_policy_file_of_the_project_applies(tmp_path: Path) -> None:
    (tmp_path / "gpuprov-policy.yaml").write_text("version: 1\npolicy: {rules: {open-cidr: advisory}}\n")
    found = EngineGate.of_project(tmp_path)
    found._placer = Placer(catalog())
    assert not mandatory(found, OWN | {"workload": document({"access": {"cidrs": ["0.0.0.0/0"]}})})


def test_secrets_stay_out_of_diagnostics(gate: EngineGate) -> None:
    secret = "hf_" + "a1B2" * 8
    inputs = OWN | {"workload": document({"run": {"image": "x", "env": {"HF_TOKEN": secret}}})}
    found = gate.analyze(OWN_TYPE, "m", inputs)
    assert "secret-in-env" in {diagnostic.rule.id for diagnostic in found if diagnostic.mandatory}
    assert all(secret not in diagnostic.message for diagnostic in found)


def plans(count: int) -> list[dict[str, Any]]:
    """Random inputs of our own resource: workloads and offers, sound and faulty."""
    dice = random.Random(23)
    types = [
        "g6.xlarge",
        "g6.2xlarge",
        "g5.xlarge",
        "g4dn.xlarge",
        "g6e.xlarge",
        "p5.48xlarge",
        "g6.12xlarge",
        "p9.unheard",
        "inf2.xlarge",
    ]
    made = []
    for _ in range(count):
        if dice.random() < 0.35:
            sound = document(
                {"inference.context_tokens": dice.choice([1024, 4096, 8192]), "name": dice.choice(["a", "chat"])}
            )
            kind = dice.choice(["g6.2xlarge", "g6e.xlarge", "g6.4xlarge"])
            made.append(OWN | {"workload": sound, "offers": [OFFER | {"instanceType": kind, "zone": None}]})
            continue
        changes = {
            "model.id": dice.choice(
                ["meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.1-70B-Instruct", "mistralai/Mistral-7B-v0.1"]
            ),
            "model.weights": dice.choice(["auto", "bf16", "fp8", "int4-awq"]),
            "inference.context_tokens": dice.choice([2048, 8192, 32768]),
            "inference.concurrency": dice.choice([1, 8, 64]),
            "access": dice.choice([{}, {"cidrs": ["0.0.0.0/0"]}, {"cidrs": ["10.0.0.0/8"]}]),
            "lifecycle.idle.after": dice.choice(["30m", "off"]),
            "lifecycle.max_lifetime": dice.choice(["12h", "12h", "off"]),
            "placement.max_gpus": dice.choice([1, 8]),
            "placement.max_price": dice.choice(["1 USD/h", "5 USD/h", "200 USD/h"]),
            "placement.capacity": dice.choice(["on-demand", "auto"]),
        }
        offers = [
            OFFER
            | {
                "instanceType": dice.choice(types),
                "zone": None,
                "capacityType": dice.choice(["on-demand", "on-demand", "spot"]),
            }
            for _ in range(dice.randrange(1, 4))
        ]
        made.append(
            OWN | {"workload": document(changes), "offers": offers, "rootVolume": dice.choice(["100GiB", "500GiB"])}
        )
    return made


@pytest.mark.parametrize("number", range(PLANS))
def test_the_engine_and_a_state_give_the_same_verdict(gate: EngineGate, tmp_path: Path, number: int) -> None:
    inputs = plans(PLANS)[number]
    path = tmp_path / "state.json"
    path.write_text(json.dumps(state((OWN_TYPE, inputs))))
    subjects, _ = read_file(path, Placer(catalog()))
    verdict = judge(subjects, Policy(), today_utc())
    assert mandatory(gate, inputs) == {finding.rule.id for finding in verdict.violations}


def test_parity_covers_passes_and_failures(gate: EngineGate) -> None:
    verdicts = [frozenset(mandatory(gate, inputs)) for inputs in plans(60)]
    assert frozenset() in verdicts
    assert {"under-sized", "open-cidr", "spot-endpoint", "idle-rule"} <= frozenset().union(*verdicts)
    assert BY_ID["under-sized"].level is Level.MANDATORY
