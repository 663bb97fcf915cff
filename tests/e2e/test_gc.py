"""`gpuprov gc` with the real engine on the sandbox: what is held, lost, young, a colleague's, past its end, not listed."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.e2e.bench import Bench

pytestmark = [pytest.mark.engine, pytest.mark.slow]

EXTRA = "storage: {data: 50GiB}\nlifecycle: {max_lifetime: 12h, idle: {then: terminate}}\n"


def gc(bench, *arguments):
    return bench.run("gc", "--cloud", "sandbox", "--format", "json", *arguments)


def verdicts(answer):
    return {entry["verdict"] for entry in answer.document["objects"]}


def test_gc_tells_what_is_held_lost_young_and_a_colleagues(tmp_path):
    bench = Bench(tmp_path / "bench", extra=EXTRA)
    empty = gc(bench, "--yes")
    assert (empty.code, empty.document["schema"], empty.document["objects"]) == (0, "gpuprov.gc/1", [])
    assert bench.up().code == 0
    assert gc(bench, "--yes").document["objects"] == []  # a stack holds all of it

    other = f"file://{tmp_path}/colleague"
    foreign = gc(bench, "--yes", "--backend", other)
    assert (foreign.code, verdicts(foreign)) == (0, {"foreign"})
    assert {entry["kind"] for entry in foreign.document["objects"]} >= {"instance", "volume", "security-group"}
    stack_id = foreign.document["objects"][0]["tags"]["gpuprov:stack-id"]
    held = gc(bench, "--yes", "--stack-id", stack_id)
    assert held.code == 2
    assert f"gpuprov down {bench.name}" in held.err

    checkpoint = bench.home / "state" / ".pulumi" / "stacks" / "gpuprov" / f"{bench.name}.json"
    shutil.move(checkpoint, tmp_path / "kept.json")
    assert verdicts(gc(bench, "--yes")) == {"in-progress"}
    assert len(bench.machines()) == 1
    bench.sandbox("clock", "advance", "20m")
    assert verdicts(gc(bench)) == {"orphan"}
    assert len(bench.machines()) == 1  # only looked

    shutil.copy(tmp_path / "kept.json", checkpoint.with_name("broken.json"))
    checkpoint.with_name("broken.json").write_text("{")
    assert verdicts(gc(bench, "--yes")) == {"unknown"}
    checkpoint.with_name("broken.json").unlink()

    removed = gc(bench, "--yes")
    assert removed.code == 0, removed.err
    assert all(entry["removed"] for entry in removed.document["objects"])
    assert bench.cloud.list_objects() == []
    assert bench.running_bill() == []
    assert gc(bench).document["objects"] == []


def test_a_list_that_fails_removes_nothing(tmp_path):
    bench = Bench(tmp_path / "bench", extra=EXTRA)
    assert bench.up().code == 0
    other = f"file://{tmp_path}/colleague"
    bench.sandbox("clock", "advance", "14h")  # its timer has ended the machine; the disk stays
    (disk,) = [entry for entry in bench.cloud.list_objects() if entry.kind == "volume"]
    bench.sandbox("errors", "inject", "credentials", "--on", "list_objects")
    refused = gc(bench, "--yes", "--stack-id", disk.tags["gpuprov:stack-id"], "--backend", other)
    assert refused.code == 3
    assert json.loads(refused.out)["kind"] == "credentials"
    assert [entry.id for entry in bench.cloud.list_objects() if entry.kind == "volume"] == [disk.id]
    named = gc(bench, "--yes", "--stack-id", disk.tags["gpuprov:stack-id"], "--backend", other)
    assert named.code == 0, named.err
    assert verdicts(named) == {"named"}
    assert bench.cloud.list_objects() == []
