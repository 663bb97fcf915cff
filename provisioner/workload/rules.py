"""Rules between keys: what goes with which task, and what contradicts what."""

from __future__ import annotations

from collections.abc import Iterator

from provisioner.added_models import ADDED_KEYS
from provisioner.vocabulary import Task, TrainingMethod
from provisioner.workload.faults import REQUIRED_KEYS, Fault
from provisioner.workload.formats import format_faults
from provisioner.workload.spec import Run, Workload
from provisioner.workload.tree import Branch, Node, Path, Scalar, dotted, node_at

TASKS_OF_KEYS: dict[Path, tuple[Task, ...]] = {
    ("inference",): (Task.SERVE, Task.BATCH),
    ("training",): (Task.FINETUNE, Task.PRETRAIN),
    ("inference", "total"): (Task.BATCH,),
    ("inference", "duration"): (Task.BATCH,),
    ("placement", "deadline"): (Task.BATCH, Task.FINETUNE, Task.PRETRAIN),
}
"""Keys that go with certain tasks only."""


def task_faults(root: Node) -> list[Fault]:
    """Keys that do not go with the task. Needs no valid spec: a key out of place explains most of what else is wrong below it."""
    written = node_at(root, ("task",))
    if not isinstance(written, Scalar) or written.value not in tuple(Task):
        return []
    task = Task(str(written.value))
    faults: list[Fault] = []
    for path, tasks in TASKS_OF_KEYS.items():
        covered = any(fault.path == path[: len(fault.path)] for fault in faults)
        if task in tasks or covered or node_at(root, path) is None:
            continue
        goes_with = " and ".join([", ".join(tasks[:-1]), tasks[-1]] if len(tasks) > 1 else tasks)
        instead = "training" if task.is_training else "inference"
        remedy = f"write {instead}: instead, or another task" if len(path) == 1 else "remove it, or write another task"
        faults.append(
            Fault(path, f"{dotted(path)} does not go with task {task}: it goes with {goes_with}", remedy, at_key=True)
        )
    return faults


def rule_faults(root: Node, workload: Workload) -> list[Fault]:
    """What the keys of a spec with valid values contradict each other in."""
    return [
        *_model_faults(root),
        *_source_faults(root, workload),
        *_inference_faults(workload),
        *_training_faults(root, workload),
        *format_faults(workload),
        *_placement_faults(workload),
        *_run_faults(root),
    ]


def _model_faults(root: Node) -> Iterator[Fault]:
    ways = ("id", "config", "shape")
    model = node_at(root, ("model",))
    named = [key for key in model.keys if key in ways] if isinstance(model, Branch) else []
    if not named:
        yield Fault(
            ("model",),
            "the required key model.id (or model.config, or model.shape) is missing",
            REQUIRED_KEYS["model"],
            missing=("model", "id"),
        )
    if len(named) > 1 and not _is_added(root, named):
        yield Fault(
            ("model", named[1]),
            f"model.{named[1]} and model.{named[0]} exclude each other",
            "keep one of them",
            at_key=True,
        )


def _is_added(root: Node, named: list[str]) -> bool:
    """Whether the config is the one that ``gpuprov models add`` fetched for the id beside it."""
    is_pair = sorted(named) == ["config", "id"]
    return is_pair and any(node_at(root, ("model", "config", key)) is not None for key in ADDED_KEYS)


def _exclusive(workload: Workload, part: str, keys: tuple[str, ...]) -> Iterator[Fault]:
    values = getattr(workload, part)
    named = [key for key in keys if getattr(values, key) is not None]
    if len(named) > 1:
        yield Fault(
            (part, named[1]),
            f"{part}.{named[1]} and {part}.{named[0]} exclude each other",
            "keep one of them",
            at_key=True,
        )


def _inference_faults(workload: Workload) -> Iterator[Fault]:
    inference = workload.inference
    if inference is None:
        return
    yield from _exclusive(workload, "inference", ("total", "duration"))
    yield from _exclusive(workload, "inference", ("image", "video", "audio"))
    context = inference.context_tokens
    for key in ("input_tokens", "output_tokens"):
        tokens = getattr(inference, key)
        if context is not None and tokens is not None and tokens > context:
            yield Fault(
                ("inference", key),
                f"inference.{key} {tokens} is more than context_tokens {context}",
                "context_tokens counts input and output of one request: raise it, or lower this",
            )
            return
    if context is not None and (inference.input_tokens or 0) + (inference.output_tokens or 0) > context:
        message = f"inference.input_tokens and output_tokens add up to more than context_tokens {context}"
        yield Fault(
            ("inference", "output_tokens"),
            message,
            "context_tokens counts input and output of one request: raise it, or lower these",
        )


def _training_faults(root: Node, workload: Workload) -> Iterator[Fault]:
    training = workload.training
    if training is None:
        if workload.task.is_training:
            yield Fault(
                (),
                f"the required key training.method is missing: task {workload.task} needs it",
                "add training: and below it method: full, lora or qlora",
                missing=("training",),
            )
        return
    yield from _exclusive(workload, "training", ("tokens", "duration"))
    yield from _exclusive(workload, "training", ("image", "video", "audio"))
    if training.method is TrainingMethod.FULL and training.lora is not None:
        yield Fault(
            ("training", "lora"),
            "training.lora does not go with method full",
            "remove it, or write method: lora or qlora",
            at_key=True,
        )
    if training.method is TrainingMethod.FULL and node_at(root, ("model", "adapters")) is not None:
        yield Fault(
            ("model", "adapters"),
            "model.adapters does not go with method full",
            "remove it, or write method: lora or qlora",
            at_key=True,
        )


def _source_faults(root: Node, workload: Workload) -> Iterator[Fault]:
    if node_at(root, ("model", "source_region")) is None:
        return
    source = workload.model.source
    if source is None or source.startswith("hf://"):
        yield Fault(
            ("model", "source_region"),
            "model.source_region is the region of a bucket, and model.source names none",
            "remove it, or write model.source: s3://... or gs://...",
            at_key=True,
        )


def _placement_faults(workload: Workload) -> Iterator[Fault]:
    placement = workload.placement
    for index, gpu in enumerate(placement.exclude_gpus):
        if gpu in placement.gpus:
            yield Fault(
                ("placement", "exclude_gpus", index),
                f"placement.exclude_gpus names {gpu}, which placement.gpus asks for",
                "remove it from one of the two",
            )
    if workload.task is Task.SERVE and placement.budget is not None and placement.budget.per == "run":
        yield Fault(
            ("placement", "budget"),
            "placement.budget per run does not go with task serve, which has no end",
            "write it per month, such as 3000 USD/month",
        )


def _run_faults(root: Node) -> Iterator[Fault]:
    run = node_at(root, ("run",))
    if isinstance(run, Branch) and not run.values:
        keys = ", ".join(Run.model_fields)
        yield Fault(("run",), "run has no keys", f"write keys below it ({keys}), write run: auto, or remove it")
