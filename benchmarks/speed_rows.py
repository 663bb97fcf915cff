"""Predictions for measured rows of serving speed: decoding, prompts, batched load.

A row becomes a :class:`Case`: the physical work of its passes, which no constant shapes, and a formula of its metric. The same
case is answered under any constants, which is how they are fitted (``fit_speeds``).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from benchmarks.rows import Models, Row, accelerator_of, weight_word
from provisioner.errors import UsageError
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import ServingDemand
from provisioner.sizing.layout import Layout
from provisioner.sizing.serving import cache_pool
from provisioner.sizing.shapes import ModelShape
from provisioner.sizing.speed_profile import SpeedProfile, speed_profile
from provisioner.sizing.step_time import Machine, StepTime, step_time
from provisioner.sizing.step_work import Split, StepWork, prompt_pieces, round_work
from provisioner.sizing.weights import total_weight_bytes
from provisioner.vocabulary import Engine, Interconnect, KvDtype

ENGINES: Mapping[str, str] = MappingProxyType(
    {
        "autoawq": "vllm",
        "gpt-fast": "tensorrt-llm",
        "qserve": "tensorrt-llm",
        "quarot": "tensorrt-llm",
        "atom": "tensorrt-llm",
    }
)
"""Engines without constants of their own -> the one they are most like."""
PREFILL = "prefill_tok_s"
PROMPT_METRICS = (PREFILL, "ttft_ms")
MOST_SEQUENCES = 2048
MOST_TENSOR = 8
"""A copy that states no layout and does not fit one GPU is split within one machine."""
CHAT_TOKENS = 256
"""Prompt and answer of a request in the usual chat data sets, near enough."""
MACHINE_GPUS = 8
RACK_GPUS = 72
RACKS = ("GB200", "GB300")
"""Parts whose NVLink spans a rack; the others' ends at the machine."""
UNITS = ((r"w8a8|w4a8", "int8"), (r"w4a4", "fp4"))
"""Formats that state activations too -> matrix units. Cards before Blackwell run 4-bit products at the next rate they have."""


@dataclass(frozen=True, slots=True)
class SpeedPrediction:
    """Answer to one row, in the row's metric."""

    status: str
    value: float | None = None
    low: float | None = None
    high: float | None = None
    bound_by: str | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Load:
    """A serving row's setting."""

    model: ModelShape
    word: str
    unit: str | None
    engine: str
    accelerator: Accelerator
    interconnect: Interconnect
    split: Split
    kv_width: float
    prompt: int
    output: int
    batch: int
    """Running requests of one copy; of one rank where ranks share experts."""
    is_alone: bool
    """The row states one request at a time."""
    copies: int
    """Copies, or ranks that share experts, of the whole job."""
    gpus: int


def load_of(row: Row, models: Models) -> Load:
    """The setting of a serving row.

    Raises:
        UsageError: something needed is not stated.
    """
    model = models.find(row)
    gpu = row.text("gpu")
    accelerator = accelerator_of(gpu, None)
    if accelerator is None or accelerator.memory_bandwidth_bytes_per_s is None:
        raise UsageError(f"GPU {gpu!r} is not known")
    engine = row.text("engine").lower()
    word = _word(row, model, engine)
    split, gpus = _split(row, model, word, accelerator)
    spread = split.tensor * split.stages if split.expert_ranks == 1 else 1
    copies = max(1, gpus // spread)
    kv_width = _kv_width(row, engine)
    prompt, output = _request(row)
    stated = row.number("concurrency", "batch")
    if stated is None or row.text("concurrency") == "max":
        demand = ServingDemand(
            model=model,
            weights=word,
            engine=Engine.TENSORRT_LLM,
            engine_version=None,
            context_tokens=prompt + output,
            concurrency=1,
            kv_dtype=KvDtype.FP8 if kv_width <= 1.0 else KvDtype.BF16,
        )
        batch = _most_requests(demand, split, accelerator)
    else:
        batch = max(1, math.ceil(stated / copies))
    unit = next((unit for pattern, unit in UNITS if re.search(pattern, row.text("weights_dtype").lower())), None)
    return Load(
        model=model,
        word=word,
        unit=unit,
        engine=ENGINES.get(engine, engine),
        accelerator=accelerator,
        interconnect=_interconnect(row, accelerator, split),
        split=split,
        kv_width=kv_width,
        prompt=prompt,
        output=output,
        batch=batch,
        is_alone=stated == 1,
        copies=copies,
        gpus=gpus,
    )


def _request(row: Row) -> tuple[int, int]:
    """Prompt and generated tokens; a load that states neither is of short chats."""
    if row.number("input_tokens") is None and row.number("output_tokens") is None:
        return CHAT_TOKENS, CHAT_TOKENS
    return int(row.number("input_tokens") or 0), int(row.number("output_tokens") or 128)


def _split(row: Row, model: ModelShape, word: str, accelerator: Accelerator) -> tuple[Split, int]:
    """How one copy is spread, and the GPUs of the job.

    Tables multiply the degrees of one set of GPUs: 8 tensor and 8 expert ranks of an 8-GPU machine appear as 64. More ranks
    than NVLink joins are therefore read as such a square. A tensor degree that does not divide the attention heads can be
    none: those GPUs keep attention to themselves and share the experts.
    """
    domain = RACK_GPUS if accelerator.gpu in RACKS else MACHINE_GPUS
    gpus = int(row.number("gpu_count") or 1)
    tensor, shared = int(row.number("tp") or 1), int(row.number("dp") or 1)
    if row.number("tp") is None and total_weight_bytes(model, word) > accelerator.memory_usable_bytes:
        tensor = min(gpus, MOST_TENSOR)
    stages = int(row.number("pp") or 1)
    if tensor > domain and not row.number("nodes"):
        tensor = gpus = math.isqrt(tensor)
    if shared > gpus:
        shared = gpus = shared if shared <= domain else math.isqrt(shared)
    if model.is_moe and tensor > 1 and any(heads % tensor for heads in model.attention_heads):
        return Split(1, 1, tensor), gpus
    if model.is_moe and tensor > 1 and stages == 1 and _is_offline(row):
        return Split(1, 1, tensor), gpus
    if tensor > 1 or not model.is_moe:
        shared = 1
    return Split(tensor, stages, shared), gpus


def _is_offline(row: Row) -> bool:
    """A run of TensorRT-LLM for most tokens: its guide turns attention data parallelism on for models with experts.

    Source: NVIDIA/TensorRT-LLM docs, performance overview, options of the mixture-of-experts models.
    """
    return row.text("engine").lower() == "tensorrt-llm" and row.text("concurrency") == "max"


def _interconnect(row: Row, accelerator: Accelerator, split: Split) -> Interconnect:
    """The link between a copy's GPUs as stated; unstated, NVLink where the part is on a switched board."""
    if max(split.tensor, split.expert_ranks) == 1:
        return Interconnect.NONE
    link = row.text("interconnect").lower()
    if "nvlink" in link or "xgmi" in link:
        return Interconnect.NVLINK
    is_board = "SXM" in accelerator.model or accelerator.gpu in RACKS
    return Interconnect.NVLINK if not link and is_board else Interconnect.PCIE


def _kv_width(row: Row, engine: str) -> float:
    """Bytes of a cached element; NVIDIA's FP8 and FP4 checkpoints ask TensorRT-LLM for an FP8 cache."""
    stated = row.text("kv_dtype").lower()
    if stated:
        return 1.0 if "8" in stated else 0.5 if "4" in stated else 2.0
    return 1.0 if engine == "tensorrt-llm" and row.text("weights_dtype").lower() in ("fp8", "fp4") else 2.0


def _word(row: Row, model: ModelShape, engine: str) -> str:
    text = row.text("weights_dtype").lower()
    if engine == "llama.cpp":
        return f"gguf-{text}" if text else "gguf-f16"
    if re.search(r"w4", text):
        return "int4-awq"
    if re.search(r"w8a8", text):
        return "int8"
    if text == "fp4":
        return "auto" if model.quantisation and any("fp4" in f for _, f in model.quantisation.formats) else "nvfp4"
    word = weight_word(text) or "auto"
    if word == "auto" or (
        model.quantisation and any(name.startswith(word[:3]) for _, name in model.quantisation.formats)
    ):
        return "auto"
    return word


@dataclass(frozen=True, slots=True)
class Case:
    """A row's passes as physical work, and what its metric makes of their times."""

    metric: str
    load: Load
    alone: StepWork
    """A round of the running requests without prompts."""
    between: StepWork
    """The same with prompts of the requests that follow."""
    prompt_share: float
    """Share of rounds that read prompts."""
    prompt: StepWork

    def machine(self, profile: SpeedProfile) -> Machine:
        """The row's GPUs under some constants.

        Raises:
            UsageError: a rate of the GPU or the engine's constants are unknown.
        """
        load = self.load
        machine = Machine(load.accelerator, profile, load.engine, load.interconnect)
        if machine.unknown:
            raise UsageError(machine.unknown)
        return machine

    def value(self, profile: SpeedProfile) -> float:
        """The prediction in the row's metric.

        Raises:
            UsageError: a rate of the GPU or the engine's constants are unknown.
        """
        return FORMULAS[self.metric](self, self.machine(profile))

    def bound_by(self, profile: SpeedProfile) -> str:
        """The largest cause of the pass that the metric is about.

        Raises:
            UsageError: a rate of the GPU or the engine's constants are unknown.
        """
        is_prompt = self.metric in PROMPT_METRICS
        work = self.prompt if is_prompt else self.between if self.load.batch > 1 else self.alone
        return _time(work, self.machine(profile)).bound_by


def _time(work: StepWork, machine: Machine) -> StepTime:
    time = step_time(work, machine)
    if time is None:
        raise UsageError(machine.unknown or f"the speed of {machine.accelerator.gpu} is not known")
    return time


def _first_s(case: Case, machine: Machine) -> float:
    """Seconds of a prompt alone, whose chunks follow each other through the stages of a pipeline."""
    speed, stages = machine.speed, case.load.split.stages
    if not case.load.prompt or speed is None:
        return 0.0
    chunks = max(1.0, case.load.prompt / speed.chunk_tokens)
    return _time(case.prompt, machine).total_s * (chunks + stages - 1) / chunks / stages


def _mean_s(case: Case, machine: Machine) -> float:
    """Mean seconds of a round, some of which read prompts."""
    alone = _time(case.alone, machine).total_s
    return alone + case.prompt_share * (_time(case.between, machine).total_s - alone)


def _round_s(case: Case, machine: Machine) -> float:
    """Seconds per token of each running request, all prompts counted; one request alone has its own prompt before."""
    if case.load.batch > 1:
        return _mean_s(case, machine)
    return _time(case.alone, machine).total_s + _first_s(case, machine) / case.load.output


def _token_s(case: Case, machine: Machine) -> float:
    """Seconds between two tokens of a request."""
    alone = _time(case.alone, machine).total_s
    if case.load.batch == 1 or machine.speed is None:
        return alone
    return alone + machine.speed.interleave * (_mean_s(case, machine) - alone)


def _job_rate(case: Case, machine: Machine) -> float:
    """Generated tokens per second of the whole job."""
    return case.load.copies * case.load.batch / _round_s(case, machine)


FORMULAS: Mapping[str, Callable[[Case, Machine], float]] = MappingProxyType(
    {
        "decode_tok_s_per_seq": lambda case, machine: 1 / _round_s(case, machine),
        "tpot_ms": lambda case, machine: _token_s(case, machine) * 1e3,
        "ttft_ms": lambda case, machine: _first_s(case, machine) * 1e3,
        "output_tok_s_total": _job_rate,
        "output_tok_s_per_gpu": lambda case, machine: _job_rate(case, machine) / case.load.gpus,
        "total_tok_s": lambda case, machine: (
            _job_rate(case, machine) * (case.load.prompt + case.load.output) / case.load.output
        ),
        PREFILL: lambda case, machine: case.load.prompt / _first_s(case, machine),
        "prompt_plus_gen_tok_s": lambda case, machine: (
            (case.load.prompt + case.load.output) / (_round_s(case, machine) * case.load.output)
        ),
    }
)
"""Metric -> its value. A sequence measured from outside has its own prompt inside its time; where none is stated there is none."""


def case_of(row: Row, metric: str, models: Models) -> Case:
    """A row as physical work.

    Raises:
        UsageError: the row's model, GPU or metric is not modelled.
    """
    if row.inputs.get("speculative"):
        raise UsageError("speculative decoding is not modelled")
    if metric not in FORMULAS:
        raise UsageError(f"metric {metric} is not modelled")
    load = load_of(row, models)
    if metric in PROMPT_METRICS and not load.prompt:
        raise UsageError("the length of the prompt is not stated")
    context = max(1, load.prompt + load.output // 2)
    speed = speed_profile().engines.get(load.engine)
    if speed is None:
        raise UsageError(f"no measured speeds of the engine {load.engine} are on file")
    prompts, share = prompt_pieces(load.batch, load.prompt, load.output, speed.chunk_tokens)

    def work(sequences: int, tokens: float) -> StepWork:
        return round_work(
            load.model,
            load.word,
            load.split,
            sequences=sequences,
            context=context,
            kv_width=load.kv_width,
            prompt_tokens=tokens,
            prompt=load.prompt,
            unit=load.unit,
        )

    return Case(metric, load, work(load.batch, 0.0), work(load.batch, prompts), share, work(0, float(load.prompt)))


def predict_serving_speed(row: Row, metric: str, models: Models) -> SpeedPrediction:
    """Prediction for a row of serving in its own metric.

    Raises:
        UsageError: the row's model, GPU or metric is not modelled.
    """
    case = case_of(row, metric, models)
    profile = speed_profile()
    value, band = case.value(profile), profile.bands[band_of(case)]
    return SpeedPrediction("predicted", value, value / band, value * band, case.bound_by(profile))


def band_of(case: Case) -> str:
    """Kind of prediction, which bands are kept by: one request, prompts, or many at once."""
    if case.metric in PROMPT_METRICS:
        return "prompt"
    if case.load.is_alone:
        return "single"
    return "batched-experts" if case.load.model.is_moe else "batched"


def _most_requests(demand: ServingDemand, split: Split, accelerator: Accelerator) -> int:
    pool = cache_pool(demand, Layout(split.tensor, split.stages, split.expert_ranks), accelerator)
    return max(1, min(MOST_SEQUENCES, int(pool.requests)))
