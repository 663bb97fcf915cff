"""Predicted speed of serving copies and trainings at the load of a demand."""

from __future__ import annotations

from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import ServingDemand
from provisioner.sizing.layout import Layout
from provisioner.sizing.serving import kv_bytes_per_element
from provisioner.sizing.speed_profile import speed_profile
from provisioner.sizing.step_time import Machine, StepTime, decode_step, prefill_time
from provisioner.sizing.throughput import Throughput
from provisioner.vocabulary import Interconnect

BAND = 1.5
"""Factor of the band around a predicted rate, up and down: it holds most published figures of rows that shaped nothing."""


def serving_throughput(
    demand: ServingDemand, layout: Layout, accelerator: Accelerator, interconnect: Interconnect
) -> Throughput:
    """Decode and prefill rates of one serving copy at its concurrency, in steady state.

    A request's own tokens come every step; between them the engine also processes the prompts of the requests that follow.
    """
    machine = Machine(
        accelerator,
        speed_profile(),
        demand.engine.value,
        layout.tensor_parallel,
        layout.pipeline_parallel,
        interconnect,
    )
    batch = demand.concurrency
    context = demand.input_tokens + demand.output_tokens // 2
    step = decode_step(
        demand.model, demand.weights, machine, batch=batch, context=context, kv_width=kv_bytes_per_element(demand)
    )
    prompt = prefill_time(demand.model, demand.weights, machine, tokens=demand.input_tokens, prompt=demand.input_tokens)
    if step is None or prompt is None:
        return Throughput()
    per_token = token_time(step, prompt, batch, demand.output_tokens)
    rate = batch / per_token
    return Throughput(
        decode_tokens_per_s_per_replica=rate,
        tokens_per_s_per_request=1 / per_token,
        time_to_first_token_s=prompt.total_s + step.total_s / 2,
        low=rate / BAND,
        high=rate * BAND,
        bound_by=step.bound_by,
    )


def token_time(step: StepTime, prompt: StepTime, batch: int, output_tokens: int) -> float:
    """Mean time between tokens of one sequence: the step, and the share of other requests' prompts."""
    return step.total_s + (batch - 1) * prompt.total_s / max(1, output_tokens)
