"""Workload x model x GPU to sizing's inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from provisioner.errors import UsageError
from provisioner.planner.request import accelerator_for, demand_for, interconnect_for, request_for, shape_for
from provisioner.planner.requirements import KeyedSpecError
from provisioner.sizing.demand import ServingDemand, TrainingDemand
from provisioner.sizing.layout import Layout
from provisioner.units import MIB
from provisioner.vocabulary import Engine, Interconnect, KvDtype, TrainingPrecision
from provisioner.workload.spec import Workload

L4_USABLE_MIB = 22559
G6F_LARGE_MIB = 2819


def test_context_defaults_to_the_model_limit_or_8192(serve):
    spec = serve(inference={"context_tokens": 4096}).to_document()
    del spec["inference"]["context_tokens"]
    workload = Workload.from_document(spec)
    assert demand_for(workload, shape_for(workload)).context_tokens == 8192
    short = replace(shape_for(workload), max_context_tokens=2048)
    assert demand_for(workload, short).context_tokens == 2048
    unknown = replace(shape_for(workload), max_context_tokens=None)
    assert demand_for(workload, unknown).context_tokens == 8192


@pytest.mark.parametrize(
    ("context", "wanted"),
    [(8192, (1024, 256)), (1000, (750, 250)), (400, (300, 100)), (1, (1, 1))],
)
def test_typical_request_is_three_quarters_and_one_quarter_capped(serve, context, wanted):
    workload = serve(inference={"context_tokens": context})
    demand = demand_for(workload, shape_for(workload))
    assert (demand.input_tokens, demand.output_tokens) == wanted


def test_named_input_and_output_are_kept(serve):
    workload = serve(inference={"input_tokens": 7168, "output_tokens": 1024})
    demand = demand_for(workload, shape_for(workload))
    assert (demand.input_tokens, demand.output_tokens) == (7168, 1024)


def test_engine_version_and_kv_width(serve):
    workload = serve(
        inference={"engine": "vllm@0.19", "kv_cache": "fp8", "gpu_memory_fraction": 0.8, "tensor_parallel": 2}
    )
    demand = demand_for(workload, shape_for(workload))
    assert isinstance(demand, ServingDemand)
    assert (demand.engine, demand.engine_version, demand.kv_dtype) == (Engine.VLLM, "0.19", KvDtype.FP8)
    assert (demand.gpu_memory_fraction, demand.tensor_parallel, demand.pipeline_parallel) == (0.8, 2, None)


def test_training_precision_follows_the_method(finetune):
    lora = demand_for(workload := finetune(), shape_for(workload))
    full = demand_for(workload := finetune(training={"method": "full"}), shape_for(workload))
    assert isinstance(lora, TrainingDemand)
    assert lora.precision is TrainingPrecision.BF16
    assert full.precision is TrainingPrecision.BF16_MIXED
    assert (lora.lora_rank, lora.lora_targets) == (16, "all-linear")


def test_unknown_model_names_its_key(serve, catalog):
    with pytest.raises(KeyedSpecError) as caught:
        request_for(serve(model={"id": "meta-llama/Llama-3.1-8C-Instruct"}), catalog)
    assert caught.value.key == "model.id"
    assert caught.value.exit_code == 2


def test_fraction_of_a_gpu_is_a_fraction_of_everything(catalog):
    whole = accelerator_for(catalog.gpus["L4"], catalog.instances["aws", "g6.xlarge"])
    eighth = accelerator_for(catalog.gpus["L4"], catalog.instances["aws", "g6f.large"])
    assert eighth.memory_usable_bytes == G6F_LARGE_MIB * MIB
    assert eighth.memory_bandwidth_bytes_per_s == whole.memory_bandwidth_bytes_per_s / 8
    assert eighth.flop_per_s["bf16"] == whole.flop_per_s["bf16"] / 8
    assert eighth.gpu == whole.gpu == "L4"


def test_memory_is_what_a_cuda_process_sees(catalog):
    accelerator = accelerator_for(catalog.gpus["L4"], catalog.instances["aws", "g6.xlarge"])
    assert accelerator.memory_usable_bytes == L4_USABLE_MIB * MIB


def test_links_are_those_of_the_instance(catalog):
    gpu = catalog.gpus["H100-SXM"]
    assert accelerator_for(gpu, catalog.instances["aws", "p5.4xlarge"]).nvlink_bytes_per_s == 0
    assert accelerator_for(gpu, catalog.instances["aws", "p5.48xlarge"]).nvlink_bytes_per_s == 900e9


def test_unknown_usable_memory_is_refused(catalog):
    gpu = replace(catalog.gpus["L4"], memory_usable_bytes=None)
    instance = replace(catalog.instances["aws", "g6.xlarge"], gpu_memory_usable_bytes=None)
    with pytest.raises(UsageError, match="usable memory of L4"):
        accelerator_for(gpu, instance)


@pytest.mark.parametrize(
    ("name", "layout", "link"),
    [
        ("p5.48xlarge", Layout(), Interconnect.NONE),
        ("p5.48xlarge", Layout(replicas=8), Interconnect.NONE),
        ("p5.48xlarge", Layout(tensor_parallel=8), Interconnect.NVLINK),
        ("g6.12xlarge", Layout(tensor_parallel=4), Interconnect.PCIE),
        ("g6.12xlarge", Layout(data_parallel=4), Interconnect.PCIE),
    ],
)
def test_interconnect_of_a_copy(catalog, name, layout, link):
    assert interconnect_for(catalog.instances["aws", name], layout) is link


def test_published_format_of_weights(serve, request_of):
    assert request_of(serve(model={"weights": "auto"})).weights == "bf16"
    assert request_of(serve(model={"id": "deepseek-ai/DeepSeek-V3", "weights": "auto"})).weights == "fp8"
    assert request_of(serve(model={"weights": "int4-awq"})).weights == "int4-awq"
