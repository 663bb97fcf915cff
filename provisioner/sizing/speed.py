"""Speed of a layout: decode and prefill of serving, tokens per second of training. Rooflines with measured efficiencies."""

from __future__ import annotations

from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import DiffusionDemand, ServingDemand, TrainingDemand
from provisioner.sizing.kv_cache import stack_cache_bytes
from provisioner.sizing.layout import Layout
from provisioner.sizing.serving import kv_bytes_per_element
from provisioner.sizing.throughput import Throughput
from provisioner.sizing.weights import shape_bytes, stage_weight_bytes
from provisioner.vocabulary import Interconnect, TrainingMethod

BANDWIDTH_EFFICIENCY = 0.75
COMPUTE_EFFICIENCY = 0.5
TRAINING_MFU = 0.38
LAYER_OVERHEAD_S = 20e-6


def serving_throughput(
    demand: ServingDemand, layout: Layout, accelerator: Accelerator, interconnect: Interconnect
) -> Throughput:
    """Decode and prefill rates of one serving copy at its concurrency."""
    del interconnect
    bandwidth = accelerator.memory_bandwidth_bytes_per_s
    rate = accelerator.flop_per_s.get("bf16") or accelerator.flop_per_s.get("fp16")
    if bandwidth is None or rate is None:
        return Throughput()
    model = demand.model
    tensor = layout.tensor_parallel
    rank = shape_bytes(model, demand.weights, tensor)
    weights = stage_weight_bytes(rank, model.counts, 0, 1) * model.params_active / model.params_total
    context = demand.input_tokens + demand.output_tokens // 2
    cache = demand.concurrency * stack_cache_bytes(model, model.counts, context, kv_bytes_per_element(demand), tensor)
    memory_s = (weights + cache) / (bandwidth * BANDWIDTH_EFFICIENCY)
    compute_s = 2 * model.params_active * demand.concurrency / (rate * tensor * COMPUTE_EFFICIENCY)
    step_s = max(memory_s, compute_s) + model.num_layers * LAYER_OVERHEAD_S
    decode = demand.concurrency / step_s
    prefill_s = 2 * model.params_active * demand.input_tokens / (rate * tensor * COMPUTE_EFFICIENCY) + step_s
    return Throughput(
        decode_tokens_per_s_per_replica=decode,
        tokens_per_s_per_request=1 / step_s,
        time_to_first_token_s=prefill_s,
        low=decode * 0.65,
        high=decode * 1.35,
        bound_by="memory-bandwidth" if memory_s >= compute_s else "compute",
    )


def diffusion_throughput(demand: DiffusionDemand, accelerator: Accelerator) -> Throughput:
    """Images (or clips) per second of one copy."""
    del demand, accelerator
    return Throughput()


def training_throughput(
    demand: TrainingDemand, layout: Layout, accelerator: Accelerator, interconnect: Interconnect
) -> Throughput:
    """Training tokens per second of the whole layout."""
    del interconnect
    rate = accelerator.flop_per_s.get("bf16") or accelerator.flop_per_s.get("fp16")
    if rate is None:
        return Throughput()
    passes = 6 if demand.method is TrainingMethod.FULL else 4
    passes += 2 if demand.gradient_checkpointing else 0
    tokens = layout.gpus_per_replica * rate * TRAINING_MFU / (passes * demand.model.params_active)
    return Throughput(train_tokens_per_s=tokens, low=tokens * 0.6, high=tokens * 1.4, bound_by="compute")
