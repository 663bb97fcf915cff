"""Command rules: the user's own command runs the engine as it was planned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from policies.engine_flags import Asked, EngineSetting, as_length, as_share, read_settings, spelling
from policies.facts import UNKNOWN, Candidate, PlacementFacts, Unknown
from policies.rule import Level, Outcome, Rule, Setting, Severity, failed, passed, unknown
from policies.rules.candidates import engine_of, machines_of
from provisioner.planner.judge import OfferFit
from provisioner.planner.launch import LOADED_AS
from provisioner.sizing.quantisation import bits_of
from provisioner.vocabulary import Engine, KvDtype

KEY = "run.command"
DEGREES = (EngineSetting.TENSOR_PARALLEL, EngineSetting.PIPELINE_PARALLEL)
COUNTS = (
    EngineSetting.ADAPTERS,
    EngineSetting.ADAPTER_RANK,
    EngineSetting.MICRO_BATCH,
    EngineSetting.SEQUENCE,
)
SHARE_TOLERANCE = 0.005
"""Half of the last digit that plans print of a share."""
_BITS = {
    "fp8": 8,
    "fbgemm_fp8": 8,
    "awq": 4,
    "awq_marlin": 4,
    "gptq": 4,
    "gptq_marlin": 4,
    "bitsandbytes": 4,
    "modelopt_fp4": 4,
    "mxfp4": 4,
    "w8a8_int8": 8,
    "w8a8_fp8": 8,
    "int8": 8,
}
"""Bits of a weight under a quantisation that an engine makes or reads. Source: quantisation pages of vLLM and SGLang, 2026-11."""

_CACHE_BITS = {
    "auto": 16,
    "bf": 16,
    "f16": 16,
    "fp16": 16,
    "half": 16,
    "float16": 16,
    "bfloat16": 16,
    "f32": 32,
    "fp32": 32,
    "fp8": 8,
    "int8": 8,
    "q8": 8,
    "q5": 5,
    "q4": 4,
    "iq4": 4,
    "nvfp4": 4,
    "fp4": 4,
    "int4": 4,
}
"""Bits of a number in the KV cache, by the beginning of its word; ``auto`` is the model's own type. Sources: as of the flags."""


class Gap:
    """How a flag stands to the plan."""

    SAME = "same"
    LESS = "less"
    MORE = "more"
    """The engine needs more than was planned, or gets less: the fit no longer holds."""
    UNREADABLE = "unreadable"


def command_over_plan(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """No flag of the user's own command makes the engine need more than was planned."""
    del setting
    yield from _judge(facts, (Gap.MORE,), "so that the fit does not hold")


def command_differs(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """The user's own command runs what was planned, no less."""
    del setting
    yield from _judge(facts, (Gap.LESS,), "so that something else runs than was planned")


def _judge(facts: PlacementFacts, wrong: tuple[str, ...], why: str) -> Iterator[Outcome]:
    if isinstance(facts.command, Unknown):
        yield unknown(KEY, f"the command of {facts.name} is not known yet", "write it in run.command")
        return
    engine = engine_of(facts)
    if isinstance(engine, Unknown):
        if facts.command:
            yield unknown(KEY, f"the engine of {facts.name} is not known yet", "write inference.engine")
        return
    asked = read_settings(engine, facts.command or (), facts.env)
    if not asked:
        return
    candidates, outcome = machines_of(facts)
    if outcome is not None:
        yield outcome
    for candidate in candidates:
        yield from _judge_candidate(engine, asked, candidate, wrong, why)


def _judge_candidate(
    engine: Engine | None, asked: Mapping[EngineSetting, Asked], candidate: Candidate, wrong: tuple[str, ...], why: str
) -> Iterator[Outcome]:
    if isinstance(candidate.planned, Unknown) or UNKNOWN in (candidate.fit, candidate.instance):
        message = f"what the command of {candidate.label} needs is not known yet"
        yield unknown(KEY, message, "write workload and instance type as constants", identity=candidate.label)
        return
    for setting, (flag, text) in asked.items():
        planned = candidate.planned.get(setting)
        identity = f"{candidate.label} {spelling(engine, setting)}"
        if isinstance(planned, Unknown):
            message = f"the {setting} planned for {candidate.label} is not known yet"
            yield unknown(KEY, message, f"leave {flag} out", identity=identity)
            continue
        gap = gap_of(setting, text, planned, candidate)
        if gap == Gap.UNREADABLE:
            message = f"the {setting} of the command, {text!r}, cannot be read before it runs"
            yield unknown(KEY, message, _remedy(engine, setting, flag, planned), identity=identity, stays=True)
        elif gap in wrong:
            message = (
                f"the command sets {_written(flag, text)}; planned for {candidate.label} is {planned or 'none'}, {why}"
            )
            yield failed(KEY, message, _remedy(engine, setting, flag, planned), identity=identity)
        else:
            yield passed(KEY)


def _remedy(engine: Engine | None, setting: EngineSetting, flag: str, planned: str | None) -> str:
    word = planned
    if setting is EngineSetting.QUANTISATION:  # the others are read from the checkpoint
        word = {str(key): value for key, value in LOADED_AS.items()}.get(planned or "")
    elif engine is Engine.LLAMA_CPP and setting in (EngineSetting.KV_CACHE, EngineSetting.KV_VALUES):
        word = "q8_0" if planned == KvDtype.FP8 else "f16"
    if word:
        return f"write {_written(flag, word)}, or leave {flag} out"
    return f"leave {flag} out" if planned else f"leave {flag} out, or say in the spec what it is to be"


def _written(flag: str, value: str) -> str:
    return f"{flag} {value}" if flag.startswith("-") else f"{flag}={value}"


def gap_of(setting: EngineSetting, text: str, planned: str | None, candidate: Candidate) -> str:
    """How a value of the command stands to the planned one on an offer."""
    if setting in DEGREES:
        return _degree(text, planned or "1", candidate)
    if setting in COUNTS:
        return _count(text, planned)
    if setting is EngineSetting.CONCURRENCY:
        # Engines let requests wait where the cache is full: more of them run, with less context than was asked for.
        return Gap.LESS if _count(text, planned) == Gap.MORE else _count(text, planned)
    if setting is EngineSetting.PROCESSES:
        # Words of torchrun, and NeMo's -1, for "one a GPU that is there".
        return Gap.SAME if planned is None or text in ("auto", "gpu", "-1") else _degree(text, planned, candidate)
    if setting is EngineSetting.CONTEXT:
        return _context(text, planned)
    if setting is EngineSetting.MEMORY_SHARE:
        return _share(text, planned, candidate)
    if setting is EngineSetting.QUANTISATION:
        return _quantisation(text, planned)
    if setting is EngineSetting.CACHE_SHARE:
        return _cache_share(text, planned)
    if setting is EngineSetting.GPU_LAYERS:
        return _layers(text, planned)
    return _cache(text, planned)


def _degree(text: str, planned: str, candidate: Candidate) -> str:
    """Fewer GPUs hold more each; more of them are another layout, or are not there."""
    if not text.isdecimal() or int(text) < 1:
        return Gap.UNREADABLE
    if int(text) == int(planned):
        return Gap.SAME
    instance = candidate.instance
    count = 0 if isinstance(instance, Unknown) or instance is None else instance.gpu_count
    return Gap.MORE if int(text) < int(planned) or int(text) > count else Gap.LESS


def _count(text: str, planned: str | None) -> str:
    """More of what memory is kept for do not fit into it."""
    if not text.isdecimal():
        return Gap.UNREADABLE
    if planned is None or int(text) == int(planned):
        return Gap.SAME
    return Gap.MORE if int(text) > int(planned) else Gap.LESS


def _context(text: str, planned: str | None) -> str:
    tokens = as_length(text)
    if not tokens:  # none, or 0: llama.cpp's word for what the model was trained with
        return Gap.UNREADABLE
    limit = int(planned) if planned else tokens
    return Gap.SAME if tokens == limit else Gap.MORE if tokens > limit else Gap.LESS


def _share(text: str, planned: str | None, candidate: Candidate) -> str:
    """A smaller share may not hold the need; a larger one takes memory that the plan left to others."""
    share, fit = as_share(text), candidate.fit
    if share is None:
        return Gap.UNREADABLE
    if planned is None or abs(share - float(planned)) <= SHARE_TOLERANCE:
        return Gap.SAME
    footprint = fit.footprint if isinstance(fit, OfferFit) else None
    if footprint is None or share > float(planned):
        return Gap.LESS
    return Gap.MORE if footprint.usable_bytes * share / float(planned) < footprint.per_gpu.total_bytes else Gap.LESS


def _quantisation(text: str, planned: str | None) -> str:
    bits = _BITS.get(text.lower())
    if bits is None or planned is None or planned == "auto":
        return Gap.SAME  # the checkpoint decides, and engines refuse a word that contradicts it
    wanted = int(bits_of(planned))
    return Gap.SAME if bits == wanted else Gap.MORE if bits > wanted else Gap.LESS


def _cache_share(text: str, planned: str | None) -> str:
    """The weights lie outside of it, so that they fit all the same; the cache has another size."""
    share = as_share(text)
    if share is None:
        return Gap.UNREADABLE
    return Gap.SAME if planned is None or abs(share - float(planned)) <= SHARE_TOLERANCE else Gap.LESS


def _layers(text: str, planned: str | None) -> str:
    """Planned are all of them; layers that stay with the CPU are slow."""
    if text in ("all", "auto", "-1", "-2"):
        return Gap.SAME
    if not text.isdecimal():
        return Gap.UNREADABLE
    return Gap.LESS if planned is not None and int(text) < int(planned) else Gap.SAME


def _cache(text: str, planned: str | None) -> str:
    bits = next((bits for start, bits in _CACHE_BITS.items() if text.lower().startswith(start)), None)
    if bits is None:
        return Gap.UNREADABLE
    wanted = _CACHE_BITS["fp8"] if planned == KvDtype.FP8 else _CACHE_BITS["auto"]
    return Gap.SAME if bits == wanted else Gap.LESS if bits < wanted else Gap.MORE


RULES = (
    Rule(
        "command-over-plan",
        "sizing",
        "The command needs no more than was planned",
        "A flag of one's own wins over the plan: a longer context or fewer GPUs a copy run out of the memory that was counted.",
        Severity.HIGH,
        (PlacementFacts,),
        command_over_plan,
    ),
    Rule(
        "command-differs",
        "sizing",
        "The command runs what was planned",
        "A shorter context or another quantisation serves less than was asked for, and the plan's figures are of something else.",
        Severity.LOW,
        (PlacementFacts,),
        command_differs,
        level=Level.ADVISORY,
    ),
)
