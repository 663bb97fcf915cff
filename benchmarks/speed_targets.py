"""What predictions of speed are held to: families of rows, their targets, simple baselines, and the order of GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from benchmarks.compute_rows import image_case, training_work
from benchmarks.rows import Models, Row
from benchmarks.speed_rows import PROMPT_METRICS, Case, case_of
from provisioner.errors import UsageError
from provisioner.sizing.diffusion_speed import forward_operations
from provisioner.sizing.training_speed import BACKWARD, LONG_SEQUENCE, operations

SHORT_PROMPT = 128
"""Tokens up to which a prompt does not show in the speed of one request."""
RANKED_APART = 1.15
"""Two GPUs whose measured speeds differ by less than this have no order to get right."""


@dataclass(frozen=True, slots=True)
class Family:
    """Rows of one kind, and the largest median and 90th percentile of left-out errors that are aimed at."""

    name: str
    median: float | None
    p90: float | None = None


DECODE = Family("decode, one request", 0.15, 0.80)
WHOLE = Family("one request end to end", 0.20)
PROMPT = Family("prompt", None)
BATCHED = Family("batched serving", 0.30)
DENSE = Family("training, dense", 0.12)
HARD = Family("training, experts or long", 0.18)
IMAGES = Family("images and video", 0.30)
FAMILIES = (DECODE, WHOLE, PROMPT, BATCHED, DENSE, HARD, IMAGES)


def family_of_row(row: Row, models: Models) -> Family | None:
    """The family of a measured row; ``None`` where it is not modelled."""
    metric = str(row.raw.get("metric"))
    try:
        if row.family == "serving":
            return _serving(case_of(row, metric, models))
        if row.family == "training":
            work, _ = training_work(row, models)
            return HARD if work.model.is_moe or work.sequence_tokens > LONG_SEQUENCE else DENSE
        image_case(row, metric)
    except UsageError:
        return None
    return IMAGES


def _serving(case: Case) -> Family:
    if case.metric in PROMPT_METRICS:
        return PROMPT
    if not case.load.is_alone:
        return BATCHED
    return WHOLE if case.load.prompt > SHORT_PROMPT and case.metric != "tpot_ms" else DECODE


@dataclass(frozen=True, slots=True)
class Baseline:
    """A simple predictor of one family, up to a constant that makes its median right on the rows themselves."""

    family: Family
    name: str
    value: Callable[[Row, Models], float | None]
    is_scaled: bool = True


LAYER_S = 160e-6
STREAMED = 0.90


def _seconds(case: Case, share: float, layer_s: float) -> float | None:
    peak = case.load.accelerator.memory_bandwidth_bytes_per_s
    if peak is None:
        return None
    work = case.alone
    return (work.weight_bytes + work.cache_bytes) / (share * peak) + layer_s * work.layers


def _in_metric(case: Case, seconds: float | None) -> float | None:
    """A step's seconds as the row counts: rates of one sequence or of all, or milliseconds."""
    if seconds is None:
        return None
    if case.metric == "tpot_ms":
        return seconds * 1e3
    rate = case.load.batch / seconds
    if case.metric == "decode_tok_s_per_seq":
        return 1 / seconds
    rate *= case.load.copies
    if case.metric == "total_tok_s":
        rate *= (case.load.prompt + case.load.output) / case.load.output
    return rate / case.load.gpus if case.metric == "output_tok_s_per_gpu" else rate


def _streaming(row: Row, models: Models) -> float | None:
    case = case_of(row, str(row.raw.get("metric")), models)
    return _in_metric(case, _seconds(case, 1.0, 0.0))


def _streaming_and_layers(row: Row, models: Models) -> float | None:
    case = case_of(row, str(row.raw.get("metric")), models)
    return _in_metric(case, _seconds(case, STREAMED, LAYER_S))


def _one_utilisation(row: Row, models: Models) -> float | None:
    work, accelerator = training_work(row, models)
    rate = accelerator.flop_per_s.get("bf16")
    if rate is None:
        return None
    return rate / (BACKWARD[work.method] * sum(operations(work.model, work.sequence_tokens)))


def _one_share(row: Row, models: Models) -> float | None:
    del models
    case = image_case(row, str(row.raw.get("metric")))
    demand, rate = case.demand, case.accelerator.flop_per_s.get("fp16")
    if rate is None:
        return None
    passes = demand.batch * (1 if demand.model.guidance == "none" else 2)
    step = passes * forward_operations(demand.model, demand.width, demand.height, demand.frames) / rate
    if case.metric == "e2e_s":
        return step * (demand.steps or 1)
    return 1 / step if case.metric == "it_s" else step


BASELINES = (
    Baseline(DECODE, "one share of bandwidth", _streaming),
    Baseline(DECODE, "bytes / (0.90 x bandwidth) + 160 us a layer", _streaming_and_layers, is_scaled=False),
    Baseline(BATCHED, "one share of bandwidth", _streaming),
    Baseline(DENSE, "one utilisation per GPU and precision", _one_utilisation),
    Baseline(HARD, "one utilisation per GPU and precision", _one_utilisation),
    Baseline(IMAGES, "one share of the matrix rate", _one_share),
)


def baseline_errors(baseline: Baseline, rows: Sequence[Row], models: Models) -> list[float]:
    """Errors of a baseline; a scaled one takes its constant from these very rows, per GPU and precision in training."""
    ratios: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        value = baseline.value(row, models)
        if value is not None:
            key = f"{row.text('gpu')}|{row.text('precision')}" if baseline.value is _one_utilisation else ""
            ratios[key].append(value / float(row.raw["value"]))
    errors = []
    for group in ratios.values():
        constant = median(group) if baseline.is_scaled else 1.0
        errors += [max(ratio / constant, constant / ratio) - 1 for ratio in group]
    return errors


LOWER_IS_FASTER = ("tpot_ms", "ttft_ms", "e2e_s", "s_per_it")


@dataclass(frozen=True, slots=True)
class Order:
    """Pairs of GPUs measured alike, and how many of them are predicted in the right order."""

    pairs: int
    right: int


def rank_agreement(rows: Iterable[Row], predictions: Mapping[str, float]) -> dict[str, Order]:
    """By metric: pairs of rows that differ in their GPU alone and in speed by over 15 %."""
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row.id in predictions:
            settings = sorted((k, str(v)) for k, v in row.inputs.items() if k not in ("gpu", "engine_version"))
            groups[str(row.raw.get("metric")), str(row.raw.get("source")), str(settings)].append(row)
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (metric, *_), members in groups.items():
        for one, other in combinations(members, 2):
            first, second = float(one.raw["value"]), float(other.raw["value"])
            if one.text("gpu") == other.text("gpu") or max(first / second, second / first) <= RANKED_APART:
                continue
            is_same = (first > second) == (predictions[one.id] > predictions[other.id])
            counts[metric][0] += 1
            counts[metric][1] += is_same
    return {metric: Order(*pair) for metric, pair in sorted(counts.items())}
