"""Formats of weights and caches against engines and training methods."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from provisioner.errors import Position, SpecError
from provisioner.vocabulary import Engine, WeightFormat
from provisioner.workload.formats import FP8_CACHES, GGUF_READERS, REFUSED_WEIGHTS
from provisioner.workload.load import Loaded

Read = Callable[[str | bytes], Loaded]
Refused = Callable[[str | bytes], SpecError]

SERVE = """\
version: 1
name: case
task: serve
model: {{id: a/b, weights: {weights}}}
inference:
  engine: {engine}
  kv_cache: {cache}
"""
TRAIN = """\
version: 1
name: case
task: finetune
model: {{id: a/b, weights: {weights}}}
training: {{method: {method}}}
"""
LANGUAGE_ENGINES = (Engine.VLLM, Engine.SGLANG, Engine.TENSORRT_LLM, Engine.TRANSFORMERS, Engine.LLAMA_CPP)
ALL = (*(str(word) for word in WeightFormat), "gguf-Q4_K_M")
FLOATS = {"auto", "fp32", "bf16", "fp16", "fp8"}
TRAINABLE = {"full": FLOATS, "lora": {*ALL} - {"gguf-Q4_K_M"}, "qlora": {*FLOATS, "nf4"}}


def serve(weights: str = "auto", engine: str = "vllm", cache: str = "auto") -> str:
    return SERVE.format(weights=weights, engine=engine, cache=cache)


@pytest.mark.parametrize("engine", LANGUAGE_ENGINES)
@pytest.mark.parametrize("weights", ALL)
def test_an_engine_gets_only_weights_that_it_can_load(
    weights: str, engine: Engine, read: Read, refused: Refused
) -> None:
    is_packed = weights.startswith("gguf-")
    near = REFUSED_WEIGHTS.get(engine, {}).get(weights)
    if near is None and (not is_packed or engine in GGUF_READERS):
        assert read(serve(weights, engine)).workload.model.weights == weights
        return
    error = refused(serve(weights, engine))
    assert isinstance(error.where, Position)
    assert (error.where.line, error.where.column) == (4, 27)
    assert f"model.weights {weights} does not go with engine {engine}" in error.message
    assert (near or "llama.cpp") in (error.remedy or "")


@pytest.mark.parametrize("near", [near for row in REFUSED_WEIGHTS.items() for near in row[1].values()])
def test_the_formats_that_are_named_instead_are_accepted(near: str, read: Read) -> None:
    engines = [engine for engine, row in REFUSED_WEIGHTS.items() if near in row.values()]
    for engine in engines:
        assert read(serve(near, engine)).workload.model.weights == near


@pytest.mark.parametrize("engine", LANGUAGE_ENGINES)
def test_an_8_bit_cache_is_for_engines_that_have_one(engine: Engine, read: Read, refused: Refused) -> None:
    if engine in FP8_CACHES:
        assert read(serve(engine=engine, cache="fp8")).workload.inference is not None
        return
    error = refused(serve(engine=engine, cache="fp8"))
    assert isinstance(error.where, Position)
    assert (error.where.line, error.where.column) == (7, 13)
    assert "vllm" in (error.remedy or "")


def test_without_an_engine_nothing_is_refused(read: Read) -> None:
    text = "".join(line for line in serve("gguf-Q4_K_M").splitlines(keepends=True) if "engine" not in line)
    assert read(text).workload.model.weights == "gguf-Q4_K_M"


@pytest.mark.parametrize("method", TRAINABLE)
@pytest.mark.parametrize("weights", ALL)
def test_a_method_gets_only_weights_that_it_can_train(weights: str, method: str, read: Read, refused: Refused) -> None:
    text = TRAIN.format(weights=weights, method=method)
    if weights in TRAINABLE[method]:
        kept = "nf4" if method == "qlora" else weights
        assert read(text).workload.model.weights == kept
        return
    error = refused(text)
    assert isinstance(error.where, Position)
    assert (error.where.line, error.where.column) == (4, 27)
    assert "write auto" in (error.remedy or "")


def test_qlora_says_what_it_takes_a_published_format_for(read: Read) -> None:
    warnings = read(TRAIN.format(weights="bf16", method="qlora")).warnings
    assert warnings == ("model.weights bf16 is taken for what was published: method qlora keeps the base in nf4",)
    for quiet in ("auto", "nf4"):
        assert read(TRAIN.format(weights=quiet, method="qlora")).warnings == ()
    assert read(TRAIN.format(weights="bf16", method="lora")).warnings == ()
