"""Each filter alone: what it keeps, what it refuses, its boundary, and what it does with unknown."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from provisioner.planner import capabilities, filters
from provisioner.planner.account import Terms
from provisioner.planner.candidates import Arrangement, Sizer
from provisioner.planner.plan import Cost
from provisioner.units import GIB
from provisioner.vocabulary import Fit, WeightFormat

EMPTY_COST = Cost(None, None, None, None, None, None, None, None)
TERMS = Terms(
    compute=Decimal(1),
    on_demand=Decimal(1),
    address=Decimal(0),
    storage=Decimal(0),
    lasting=Decimal(0),
    egress=Decimal(0),
    run_hours=None,
    month_hours=120.0,
    tokens_per_hour=None,
    is_endpoint=False,
    can_stop=True,
    risk=None,
    stretch=1.0,
    stand_ins=(),
)


@pytest.fixture
def on(request_of, catalog):
    """Calls an instance filter for a workload and an instance type."""

    def call(check, workload, name, **changes: Any):
        cloud = "gcp" if ("gcp", name) in catalog.instances else "aws"
        instance = replace(catalog.instances[cloud, name], **changes)
        return check(request_of(workload), instance, catalog.gpus[instance.gpu_model])

    return call


@pytest.fixture
def arranged(request_of, catalog):
    """The smallest fitting arrangement of a workload on an instance type, with its request."""

    def build(workload, name) -> tuple[Any, Arrangement]:
        request = request_of(workload)
        instance = catalog.instances["gcp" if ("gcp", name) in catalog.instances else "aws", name]
        return request, next(Sizer(request).arrangements(instance, catalog.gpus[instance.gpu_model], (Fit.FITS,)))

    return build


def test_cloud(on, serve):
    assert on(filters.cloud, serve(placement={"clouds": ["aws"]}), "g6.xlarge") is None
    refusal = on(filters.cloud, serve(placement={"clouds": ["aws"]}), "g2-standard-4")
    assert (refusal.filter, refusal.needed, refusal.available) == ("cloud", "aws", "gcp")


def test_instance_type_is_a_pin(on, serve):
    pinned = serve(placement={"instance_types": ["g6.xlarge"]})
    assert on(filters.instance_type, pinned, "g6.xlarge") is None
    assert on(filters.instance_type, pinned, "g6.2xlarge").filter == "instance-type"
    assert on(filters.instance_type, serve(), "g6.2xlarge") is None


def test_gpu_asked_and_excluded(on, serve):
    wanted = serve(placement={"gpus": ["H100"]})
    assert on(filters.gpu_asked, wanted, "p5.48xlarge") is None
    assert on(filters.gpu_asked, wanted, "g5.xlarge").filter == "gpu"
    unwanted = serve(placement={"exclude_gpus": ["L4"]})
    assert on(filters.gpu_asked, unwanted, "p5.48xlarge") is None
    assert on(filters.gpu_asked, unwanted, "g6.xlarge").filter == "excluded-gpu"


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("g6.xlarge", True),
        ("trn1.2xlarge", False),
        ("dl1.24xlarge", False),
        ("g4ad.xlarge", False),
        ("g5g.xlarge", True),
    ],
)
def test_runtime_needs_cuda_or_a_supported_rocm(on, serve, name, kept):
    refusal = on(filters.runtime, serve(), name)
    assert (refusal is None) is kept
    if refusal:
        assert refusal.filter == "runtime"


def test_runtime_takes_rocm_where_the_engine_has_it(request_of, serve, catalog):
    instance, gpu = catalog.instances["aws", "p5.48xlarge"], catalog.gpus["MI300X"]
    assert filters.runtime(request_of(serve()), instance, gpu) is None
    tensorrt = serve(inference={"engine": "tensorrt-llm"})
    assert filters.runtime(request_of(tensorrt), instance, gpu).reason == "tensorrt-llm has no build for it"


@pytest.mark.parametrize(
    ("status", "kept"), [("current", True), ("not_listed", False), ("restricted", False), ("reservation_only", False)]
)
def test_status(on, serve, status, kept):
    assert (on(filters.status, serve(), "g6.xlarge", status=status) is None) is kept


def test_memory_unknown(on, serve, request_of, catalog):
    assert on(filters.memory_known, serve(), "g6.xlarge") is None
    gpu = replace(catalog.gpus["L4"], memory_usable_bytes=None)
    assert (
        filters.memory_known(request_of(serve()), catalog.instances["aws", "g6.xlarge"], gpu).filter == "memory-unknown"
    )
    assert filters.memory_known(request_of(serve()), catalog.instances["aws", "g6f.large"], gpu) is None


@pytest.mark.parametrize(
    ("model", "name", "kept"),
    [
        ({"weights": "bf16"}, "g4dn.xlarge", False),  # M17: no bf16 below 8.0
        ({"weights": "bf16"}, "p3dn.24xlarge", False),
        ({"weights": "fp16"}, "g4dn.xlarge", True),
        ({"weights": "bf16"}, "g5.xlarge", True),
        ({"weights": "fp8"}, "p4d.24xlarge", True),  # M10: dense fp8 runs weight-only on Ampere
        ({"weights": "fp8"}, "g4dn.xlarge", False),
        ({"weights": "int4-awq"}, "g4dn.xlarge", True),
        ({"weights": "int4-awq"}, "p3dn.24xlarge", False),
        ({"weights": "int4-gptq"}, "p3dn.24xlarge", True),
        ({"id": "deepseek-ai/DeepSeek-V3", "weights": "auto"}, "p4de.24xlarge", False),  # M10: fp8 experts on Ampere
        ({"id": "deepseek-ai/DeepSeek-V3", "weights": "auto"}, "p5en.48xlarge", True),
    ],
)
def test_precision_of_weights(on, serve, model, name, kept):
    refusal = on(filters.precision, serve(model=model), name)
    assert (refusal is None) is kept
    if refusal:
        assert refusal.filter == "precision"
        assert refusal.needed.startswith("compute capability")


@pytest.mark.parametrize(
    ("precision", "name", "kept"),
    [
        ("bf16", "p3dn.24xlarge", False),
        ("fp16-mixed", "p3dn.24xlarge", True),
        ("fp8", "p4d.24xlarge", False),
        ("fp8", "p5.4xlarge", True),
    ],
)
def test_precision_of_training(on, finetune, precision, name, kept):
    assert (on(filters.precision, finetune(training={"precision": precision}), name) is None) is kept


def test_precision_of_unknown_capability_is_not_refused(request_of, serve, catalog):
    gpu = replace(catalog.gpus["L4"], compute_capability=None)
    assert filters.precision(request_of(serve()), catalog.instances["aws", "g6.xlarge"], gpu) is None


@pytest.mark.parametrize(("limit", "kept"), [(3, False), (4, True)])
def test_gpu_limit_counts_the_instance(on, serve, limit, kept):
    refusal = on(filters.gpu_limit, serve(placement={"max_gpus": limit}), "g6.12xlarge")
    assert (refusal is None) is kept


def test_total_gpus_counts_all_instances(arranged, serve):
    request, arrangement = arranged(serve(inference={"replicas": 3}, placement={"max_gpus": 3}), "g6e.xlarge")
    assert arrangement.gpus_billed == 3
    assert filters.total_gpus(request, arrangement) is None
    request, arrangement = arranged(serve(inference={"replicas": 3}, placement={"max_gpus": 2}), "g6e.xlarge")
    assert filters.total_gpus(request, arrangement).available == "3 GPUs"


def test_host_memory_at_its_boundary(arranged, serve):
    request, arrangement = arranged(serve(), "g6e.xlarge")
    needed = filters.loading_bytes(arrangement)
    assert 8 * GIB < needed < 9 * GIB  # 2 GiB system, 1.5 GiB process, one 5 GB shard
    enough = replace(arrangement, instance=replace(arrangement.instance, ram_bytes=needed))
    short = replace(arrangement, instance=replace(arrangement.instance, ram_bytes=needed - 1))
    assert filters.host_memory(request, enough) is None
    assert filters.host_memory(request, short).filter == "host-ram"


@pytest.mark.parametrize(
    ("check", "targets", "field", "name"),
    [
        (filters.time_to_first_token, {"time_to_first_token": "500ms"}, "time_to_first_token_s", "time-to-first-token"),
        (filters.request_speed, {"tokens_per_second_per_request": 30}, "tokens_per_s_per_request", "tokens-per-second"),
    ],
)
def test_targets_at_their_boundary(arranged, serve, check, targets, field, name):  # noqa: PLR0917 - fixtures and parameters
    request, arrangement = arranged(serve(inference={"targets": targets}), "g6e.xlarge")
    limit = 0.5 if field == "time_to_first_token_s" else 30.0
    worse = limit * 1.01 if field == "time_to_first_token_s" else limit * 0.99

    def at(value):
        return replace(arrangement, throughput=replace(arrangement.throughput, **{field: value}))

    assert check(request, at(limit)) is None
    assert check(request, at(worse)).filter == name
    assert check(request, at(None)).reason == "its speed cannot be predicted"
    free, _ = arranged(serve(), "g6e.xlarge")
    assert check(free, at(None)) is None


def test_request_rate_of_all_copies(arranged, serve):
    spec = serve(inference={"targets": {"requests_per_second": 4}, "replicas": 2, "output_tokens": 100})
    request, arrangement = arranged(spec, "g6e.xlarge")

    def at(rate):
        return replace(arrangement, requests_per_s=rate)

    assert filters.request_rate(request, at(2.0)) is None
    assert filters.request_rate(request, at(1.99)).filter == "requests-per-second"
    assert filters.request_rate(request, at(None)).available is None


def test_every_weight_format_has_a_capability_or_none():
    assert set(capabilities.WEIGHT_CAPABILITIES) <= set(WeightFormat)
    assert all(capability >= (7, 0) for capability in capabilities.WEIGHT_CAPABILITIES.values())
