"""Values of every kind: what is read, what is written back, and that the two agree."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.units import GIB, Money
from provisioner.vocabulary import Engine
from provisioner.workload.kinds import Flag, Kind, Misfit, Number, Whole, WordOr
from provisioner.workload.patterns import CIDR, ENVIRONMENT_VALUE, GGUF_TYPES, TAG_VALUE, WEIGHTS, SecretReference
from provisioner.workload.quantities import (
    DURATION,
    DURATION_MAX,
    MONTHLY_SIZE,
    SIZE,
    SIZE_BYTES_MAX,
    Count,
    EngineChoice,
    EngineName,
    MoneyPer,
    ReplicaRange,
    Replicas,
    Work,
    WorkTotal,
)
from provisioner.workload.tree import from_python
from provisioner.workload.yaml_tree import read_yaml

HOURLY = MoneyPer("12 USD/h")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (SIZE, "500GiB", 500 * GIB),
        (SIZE, "1.5 TiB", 1536 * GIB),
        (SIZE, "200GB", 200 * 10**9),
        (MONTHLY_SIZE, "200GB/month", 200 * 10**9),
        (MONTHLY_SIZE, "1 GiB / month", GIB),
        (MONTHLY_SIZE, "0GB/month", 0),
        (DURATION, "500ms", timedelta(milliseconds=500)),
        (DURATION, "1.1h", timedelta(hours=1, minutes=6)),
        (DURATION, "7d", timedelta(days=7)),
        (HOURLY, "12.50 USD/h", Money(Decimal("12.50"), "h")),
        (HOURLY, "0.1usd / h", Money(Decimal("0.1"), "h")),
        (MoneyPer("200 USD"), "200 USD", Money(Decimal(200))),
        (Count(), "2B", 2 * 10**9),
        (Count(), "1.5M", 1_500_000),
        (Count(), "1200", 1200),
        (Work(), "5M tokens", WorkTotal(Decimal(5_000_000), "tokens")),
        (Work(), "2.5 audio hours", WorkTotal(Decimal("2.5"), "audio hours")),
        (Work(), "800k images", WorkTotal(Decimal(800_000), "images")),
        (EngineName(), "vllm", EngineChoice(Engine.VLLM)),
        (EngineName(), "vllm@0.19.1rc1", EngineChoice(Engine.VLLM, "0.19.1rc1")),
        (EngineName(), "llama.cpp@6500", EngineChoice(Engine.LLAMA_CPP, "6500")),
        (Replicas(), "auto", "auto"),
        (Replicas(), "3", 3),
        (Replicas(), "1..4", ReplicaRange(1, 4)),
        (Replicas(), "2..2", 2),
        (WEIGHTS, "int4-awq", "int4-awq"),
        (WEIGHTS, "gguf-q4_k_m", "gguf-Q4_K_M"),
        (WEIGHTS, "GGUF-Q8_0", "gguf-Q8_0"),
        (CIDR, "203.0.113.7/32", "203.0.113.7/32"),
        (CIDR, "2001:0db8::/32", "2001:db8::/32"),
        (ENVIRONMENT_VALUE, "{secret: aws-secretsmanager:hf}", SecretReference("aws-secretsmanager", "hf")),
        (ENVIRONMENT_VALUE, "'8'", "8"),
        (Number(1.0, "0.9"), "1", 1.0),
        (WordOr(("auto",), Whole(1, 8)), "auto", "auto"),
        (WordOr(("selective",), Flag()), "false", False),
    ],
)
def test_reading(kind: Kind, text: str, value: object) -> None:
    found = kind.read(read_yaml(text))
    assert found == value
    assert type(found) is type(value)
    assert kind.read(from_python(kind.write(found))) == found


@given(st.integers(1, SIZE_BYTES_MAX))
def test_a_size_survives_writing(size_bytes: int) -> None:
    assert SIZE.read(from_python(SIZE.write(size_bytes))) == size_bytes


@given(st.integers(1, DURATION_MAX // timedelta(milliseconds=1)))
def test_a_duration_survives_writing(milliseconds: int) -> None:
    duration = timedelta(milliseconds=milliseconds)
    assert DURATION.read(from_python(DURATION.write(duration))) == duration


@given(st.decimals("0.000001", 10**9, places=6))
def test_money_survives_writing(amount: Decimal) -> None:
    assert HOURLY.read(from_python(HOURLY.write(Money(amount, "h")))) == Money(amount, "h")


@given(st.integers(1, 10**9), st.sampled_from(["tokens", "images", "clips", "audio hours"]))
def test_work_survives_writing(amount: int, unit: str) -> None:
    total = WorkTotal(Decimal(amount), unit)
    assert Work().read(from_python(Work().write(total))) == total


@given(st.sampled_from([SIZE, MONTHLY_SIZE, DURATION, HOURLY, Work()]), st.integers() | st.floats())
def test_no_bare_number_is_a_quantity(kind: Kind, number: float) -> None:
    with pytest.raises(Misfit, match="has no unit"):
        kind.read(from_python(number))


@given(
    st.sampled_from([SIZE, DURATION, HOURLY, Count(), Work(), EngineName(), Replicas(), WEIGHTS, CIDR, TAG_VALUE]),
    st.text(max_size=60),
)
def test_any_text_is_read_or_refused(kind: Kind, text: str) -> None:
    try:
        value = kind.read(from_python(text))
    except Misfit:
        return
    else:
        assert kind.read(from_python(kind.write(value))) == value


@pytest.mark.parametrize("name", GGUF_TYPES)
def test_every_gguf_type_has_one_spelling(name: str) -> None:
    assert WEIGHTS.read(from_python(f"gguf-{name.lower()}")) == f"gguf-{name}"
