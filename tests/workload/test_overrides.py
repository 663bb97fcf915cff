"""What-if changes: the same checks as in the file, and errors that name the flag."""

from __future__ import annotations

from pathlib import Path

import pytest

from provisioner.errors import Position, SpecError
from provisioner.workload.load import Loaded, parse

SPEC = b"""\
version: 1
name: chat
task: serve
model:
  id: meta-llama/Llama-3.1-8B-Instruct
inference:
  context_tokens: 8192
placement:
  gpus: [L4, L40S]
"""


def changed(*overrides: str) -> Loaded:
    return parse(SPEC, Path("chat.yaml"), overrides)


def fault(*overrides: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        changed(*overrides)
    return caught.value


def test_a_change_is_as_if_the_file_said_so() -> None:
    written = parse(SPEC.replace(b"8192", b"65536"), Path("chat.yaml"))
    assert changed("inference.context_tokens=65536").workload == written.workload
    assert changed("inference.context_tokens=65536").workload.digest == written.workload.digest


def test_the_last_change_of_a_key_counts() -> None:
    found = changed("inference.concurrency=2", "inference.concurrency=3").workload.inference
    assert found is not None
    assert found.concurrency == 3


def test_sections_are_made_and_lists_are_values() -> None:
    workload = changed("storage.egress=200GB/month", "placement.gpus=[H100]", "tags={team: search}").workload
    assert workload.storage.egress == 200 * 10**9
    assert workload.placement.gpus == ("H100",)
    assert changed("placement.gpus[1]=A10G").workload.placement.gpus == ("L4", "A10G")


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("inference.context_tokens=many", "context_tokens"),
        ("inference.contxt_tokens=1", "context_tokens"),
        ("inference.targets.time_to_first_token=500", "unit"),
        ("training.method=lora", "training"),
        ("model.config=missing.json", "cannot read"),
        ("placement.gpus[7]=L4", "no item 7"),
        ("name.first=a", "below a value"),
        ("inference.context_tokens", "sets no key"),
        ("=5", "sets no key"),
        ("a..b=5", "sets no key"),
        ("tags={", ""),
    ],
)
def test_an_error_names_the_flag(override: str, part: str) -> None:
    found = fault("inference.concurrency=2", override)
    assert found.where == f"--set {override}"
    assert part in str(found)


def test_an_error_of_the_file_keeps_its_place() -> None:
    with pytest.raises(SpecError) as caught:
        parse(SPEC.replace(b"8192", b"many"), Path("chat.yaml"), ("inference.concurrency=2",))
    assert caught.value.where == Position("chat.yaml", 7, 19)


def test_keys_know_who_wrote_them() -> None:
    loaded = changed("placement.gpus=[H100]")
    assert loaded.origin("placement.gpus[0]") == "--set placement.gpus=[H100]"
    assert loaded.origin("model.id") == Position("chat.yaml", 5, 7)
