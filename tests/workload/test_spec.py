"""The whole of version 1: every key is read, defaults are filled in, documents and digests agree."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import ValidationError

from provisioner.errors import SpecError
from provisioner.units import GIB, Money
from provisioner.vocabulary import KvDtype, Objective, Pattern, Task, TrainingPrecision
from provisioner.workload.keys import all_keys
from provisioner.workload.load import Loaded, load
from provisioner.workload.patterns import SecretReference
from provisioner.workload.quantities import ReplicaRange
from provisioner.workload.spec import Run, Workload
from provisioner.workload.tree import Branch, Node

Read = Callable[[str | bytes], Loaded]
SPECS = Path(__file__).parent / "specs"
SERVE = "version: 1\nname: case\ntask: serve\nmodel: {id: a/b}\n"
TUNE = "version: 1\nname: case\ntask: finetune\nmodel: {id: a/b}\ntraining: {method: lora}\n"


def written_keys(node: Node, path: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    """Keys of mappings, and of mappings below them."""
    if not isinstance(node, Branch):
        return set()
    below = (written_keys(value, (*path, key)) for key, value in node.values.items())
    return {(*path, key) for key in node.values}.union(*below)


def test_the_four_full_specs_hold_every_key() -> None:
    """A key that is added to the models must be added to a spec here, and so be read, written and digested."""
    written = set().union(*(written_keys(load(spec).root) for spec in SPECS.glob("*.yaml")))
    # model.config names a file, and has tests of its own.
    assert set(all_keys(Workload)) - written == {("model", "config"), ("inference", "duration"), ("inference", "audio"), ("inference", "audio", "seconds"), ("inference", "audio", "batch")} | {
        ("training", "video", key) for key in ("width", "height", "batch", "frames", "fps")
    } | {("training", "video")}  # fmt: skip


def test_a_full_spec_is_read(full_spec: Path) -> None:
    loaded = load(full_spec)
    assert loaded.workload.task == full_spec.stem
    assert loaded.workload.name


def test_values_have_exact_types() -> None:
    workload = load(SPECS / "serve.yaml").workload
    assert workload.inference is not None
    assert workload.inference.replicas == ReplicaRange(1, 4)
    assert workload.inference.targets is not None
    assert workload.inference.targets.time_to_first_token == timedelta(milliseconds=500)
    assert workload.storage.data == 500 * GIB
    assert workload.storage.egress == 200 * 10**9
    assert workload.placement.max_price == Money(workload.placement.max_price.amount_usd, "h")  # type: ignore[union-attr]
    assert isinstance(workload.run, Run)
    assert workload.run.env["HF_TOKEN"] == SecretReference("aws-secretsmanager", "hf")
    assert workload.optimize is Objective.COST


def test_a_document_reads_back_equal(full_spec: Path) -> None:
    workload = load(full_spec).workload
    document = json.loads(json.dumps(workload.to_document()))
    again = Workload.from_document(document)
    assert again == workload
    assert again.to_document() == workload.to_document()
    assert again.digest == workload.digest


def test_a_document_may_come_as_floats(full_spec: Path) -> None:
    """Protobuf, and so the engine, has no integers."""

    def floats(value: object) -> object:
        if isinstance(value, dict):
            return {key: floats(item) for key, item in value.items()}
        if isinstance(value, list):
            return [floats(item) for item in value]
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value

    workload = load(full_spec).workload
    document = floats(workload.to_document())
    assert isinstance(document, dict)
    assert Workload.from_document(document).digest == workload.digest


def test_a_document_is_itself_a_valid_spec_file(full_spec: Path, read: Read) -> None:
    workload = load(full_spec).workload
    assert read(json.dumps(workload.to_document())).workload == workload


def test_models_built_in_python_are_as_strict_as_files(full_spec: Path) -> None:
    document = load(full_spec).workload.to_document()
    assert Workload.model_validate(document).to_document() == document
    for key, value in (("name", "Case"), ("storage", {"data": 500}), ("foo", 1)):
        with pytest.raises(ValidationError):
            Workload.model_validate({**document, key: value})


def test_models_do_not_change(full_spec: Path) -> None:
    workload = load(full_spec).workload
    with pytest.raises(ValidationError):
        workload.name = "other"  # type: ignore[misc]


def test_a_wrong_document_is_refused_at_its_key() -> None:
    with pytest.raises(SpecError) as caught:
        Workload.from_document(
            {"version": 1, "name": "a", "task": "serve", "model": {"id": "x"}, "storage": {"data": 5}}
        )
    assert caught.value.where == "storage.data"
    assert caught.value.remedy
    env = {"image": "x", "env": {"A": "\ud800"}}
    good = {"version": 1, "name": "a", "task": "serve", "model": {"id": "x"}}
    for bad in ({}, {"version": object()}, {"a": {1: {2: 3}}}, {**good, "run": env}, {**good, "\udfff": 1}):
        with pytest.raises(SpecError) as caught:
            Workload.from_document(bad)
        assert caught.value.remedy
    deep: dict[str, object] = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(SpecError, match="deeper"):
        Workload.from_document(deep)


SAME = [
    (SERVE, "# a comment\n" + SERVE),
    (SERVE, "task: serve\nname: case\nmodel: {id: a/b}\nversion: 1\n"),
    (SERVE + "storage: {data: 1TiB}\n", SERVE + "storage: {data: 1024GiB}\n"),
    (SERVE + "lifecycle: {lease: 120m}\n", SERVE + "lifecycle: {lease: 2h}\n"),
    (SERVE + "placement: {max_price: 12.50 USD/h}\n", SERVE + "placement: {max_price: 12.5USD/h}\n"),
    (SERVE, SERVE + "placement: {clouds: [aws, gcp]}\n"),
    (SERVE, SERVE + "optimize: cost\nstorage: {shared: auto, egress: 0GB/month}\n"),
    (SERVE, SERVE + "inference: {concurrency: 1, kv_cache: auto, replicas: 1, tensor_parallel: auto}\n"),
    (SERVE, SERVE + "lifecycle: {pattern: steady, idle: {after: off}, max_lifetime: off, hours_per_month: 730}\n"),
    (SERVE, SERVE + "tags: {}\n"),
    (SERVE, SERVE + "inference: {}\nstorage: {}\nlifecycle: {idle: {}}\naws: {}\naccess: {}\n"),
    (SERVE, SERVE + "inference: {targets: {}, image: {}}\n"),
    (SERVE + "tags: {a: x, b: y}\n", SERVE + "tags: {b: y, a: x}\n"),
    (SERVE + "inference: {replicas: 2..2}\n", SERVE + "inference: {replicas: 2}\n"),
    (TUNE, TUNE.replace("method: lora", "method: lora, lora: {rank: 16, targets: all-linear}, precision: bf16, micro_batch: 1")),
    (TUNE.replace("lora", "qlora"), TUNE.replace("lora", "qlora").replace("a/b", "a/b, weights: nf4")),
    (TUNE, TUNE + "lifecycle: {max_lifetime: 24h, hours_per_month: 120}\n"),
    (TUNE.replace("method: lora", "method: lora, tokens: 2B"), TUNE.replace("method: lora", "method: lora, tokens: 2000000000")),
    (SERVE.replace("id: a/b", "id: a/b, weights: gguf-q4_0"), SERVE.replace("id: a/b", "id: a/b, weights: gguf-Q4_0")),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SAME)
def test_spellings_of_one_spec_have_one_digest(one: str, other: str, read: Read) -> None:
    first = read(one).workload
    second = read(other).workload
    assert first == second
    assert first.digest == second.digest
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", first.digest)


DIFFERENT = [
    SERVE,
    SERVE.replace("case", "other"),
    SERVE.replace("a/b", "a/c"),
    SERVE.replace("serve", "batch"),
    SERVE + "storage: {data: 1GiB}\n",
    SERVE + "storage: {data: 1GB}\n",
    SERVE + "placement: {gpus: [L4]}\n",
    SERVE + "tags: {a: x}\n",
    SERVE + "run: auto\n",
]


def test_other_specs_have_other_digests(read: Read) -> None:
    assert len({read(text).workload.digest for text in DIFFERENT}) == len(DIFFERENT)


def test_defaults_of_serve(read: Read) -> None:
    workload = read(SERVE).workload
    inference, placement, lifecycle, storage = (
        workload.inference,
        workload.placement,
        workload.lifecycle,
        workload.storage,
    )
    assert inference is not None
    assert workload.training is None
    assert (inference.concurrency, inference.kv_cache, inference.replicas) == (1, KvDtype.AUTO, 1)
    assert (inference.engine, inference.context_tokens, inference.input_tokens) == (None, None, None)
    assert (inference.tensor_parallel, inference.pipeline_parallel, inference.gpu_memory_fraction) == (
        "auto",
        "auto",
        "auto",
    )
    assert workload.model.weights == "auto"
    assert (storage.data, storage.checkpoints, storage.shared, storage.egress) == (None, None, "auto", 0)
    assert placement.clouds == ("aws", "gcp")
    assert (placement.regions, placement.gpus, placement.max_gpus, placement.max_price) == ((), (), None, None)
    assert placement.capacity == "auto"
    assert workload.optimize is Objective.COST
    assert (lifecycle.pattern, lifecycle.hours_per_month) == (Pattern.STEADY, 730)
    assert (lifecycle.idle.after, lifecycle.idle.then, lifecycle.max_lifetime) == ("off", None, "off")
    assert lifecycle.stopped.terminate_after == timedelta(days=7)
    assert workload.run is None
    assert workload.access.cidrs == ()


def test_l7_a_bursty_endpoint_has_a_lifetime(read: Read) -> None:
    lifecycle = read(SERVE + "lifecycle: {pattern: bursty}\n").workload.lifecycle
    assert (lifecycle.hours_per_month, lifecycle.idle.after, lifecycle.max_lifetime) == (
        120,
        "auto",
        timedelta(hours=24),
    )


def test_what_is_written_stays(read: Read) -> None:
    text = SERVE + "lifecycle: {pattern: bursty, hours_per_month: 30, idle: {after: off}, max_lifetime: off}\n"
    lifecycle = read(text).workload.lifecycle
    assert (lifecycle.hours_per_month, lifecycle.idle.after, lifecycle.max_lifetime) == (30, "off", "off")


def test_replicas_follow_a_rate(read: Read) -> None:
    text = SERVE + "inference: {targets: {requests_per_second: 5}}\n"
    inference = read(text).workload.inference
    assert inference is not None
    assert inference.replicas == "auto"
    inference = read(text.replace("}}", "}, replicas: 2}")).workload.inference
    assert inference is not None
    assert inference.replicas == 2


@pytest.mark.parametrize(
    ("task", "method", "precision", "weights"),
    [
        ("finetune", "lora", TrainingPrecision.BF16, "auto"),
        ("finetune", "qlora", TrainingPrecision.BF16, "nf4"),
        ("finetune", "full", TrainingPrecision.BF16_MIXED, "auto"),
        ("pretrain", "full", TrainingPrecision.BF16_MIXED, "auto"),
    ],
)
def test_defaults_of_training(task: str, method: str, precision: TrainingPrecision, weights: str, read: Read) -> None:
    workload = read(TUNE.replace("finetune", task).replace("lora", method)).workload
    training = workload.training
    assert training is not None
    assert workload.inference is None
    assert (training.precision, workload.model.weights) == (precision, weights)
    assert (training.optimizer, training.micro_batch, training.gradient_checkpointing) == ("adamw", 1, True)
    assert (training.sharding, training.attention) == ("auto", None)
    assert (training.lora is None) == (method == "full")
    assert workload.lifecycle.pattern is Pattern.BURSTY


def test_checkpoints_are_sized_where_a_training_asks_for_them(read: Read) -> None:
    assert read(TUNE).workload.storage.checkpoints is None
    asks = TUNE.replace("method: lora", "method: lora, checkpoint: {every: 30m}")
    assert read(asks).workload.storage.checkpoints == "auto"
    assert read(asks + "storage: {checkpoints: 50GiB}\n").workload.storage.checkpoints == 50 * GIB


@pytest.mark.parametrize("length", ["tokens: 2B", "duration: 20h"])
def test_a_work_of_known_length_leaves_its_hours_to_the_planner(length: str, read: Read) -> None:
    lifecycle = read(TUNE.replace("method: lora", f"method: lora, {length}")).workload.lifecycle
    assert (lifecycle.hours_per_month, lifecycle.max_lifetime) == (None, None)


def test_a_batch_without_inference_has_its_defaults(read: Read) -> None:
    workload = read(SERVE.replace("serve", "batch")).workload
    assert workload.task is Task.BATCH
    assert workload.inference is not None
    assert workload.lifecycle.max_lifetime == timedelta(hours=24)


def test_off_is_a_word_where_the_contract_has_it(read: Read) -> None:
    lifecycle = read(SERVE + 'lifecycle: {idle: {after: "off"}, max_lifetime: off}\n').workload.lifecycle
    assert (lifecycle.idle.after, lifecycle.max_lifetime) == ("off", "off")


def test_run_auto(read: Read) -> None:
    loaded = read(SERVE + "run: auto\n")
    assert loaded.workload.run == "auto"
    assert Workload.from_document(loaded.workload.to_document()).run == "auto"
