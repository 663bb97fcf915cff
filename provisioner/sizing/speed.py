"""Predicted speed of serving copies at the load of a demand."""

from __future__ import annotations

from provisioner.records import record
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import ServingDemand
from provisioner.sizing.layout import Layout
from provisioner.sizing.serving import kv_bytes_per_element
from provisioner.sizing.speed_profile import speed_profile
from provisioner.sizing.step_time import Machine, StepTime, mean_step, prompt_time, step_time
from provisioner.sizing.step_work import Split, prompt_pieces, round_work
from provisioner.sizing.throughput import Throughput
from provisioner.vocabulary import Interconnect


@record(frozen=True, slots=True)
class Pace:
    """Steady state of so many running requests, each followed by another when it ends."""

    requests: int
    token_s: float
    """Mean time between two tokens of a request."""
    round_s: float
    """Mean time in which every running request gets a token and the prompts of those that follow are read."""
    step: StepTime
    """Causes of ``round_s``."""


class ServingSpeed:
    """Speed of one serving copy at any number of running requests."""

    def __init__(
        self, demand: ServingDemand, layout: Layout, accelerator: Accelerator, interconnect: Interconnect
    ) -> None:
        self.demand = demand
        self.machine = Machine(accelerator, speed_profile(), demand.engine.value, interconnect)
        self.split = Split(layout.tensor_parallel, layout.pipeline_parallel)
        self.kv_width = kv_bytes_per_element(demand)

    @property
    def unknown(self) -> str | None:
        """Why nothing can be predicted, ``None`` where it can."""
        return self.machine.unknown

    def prompt_s(self) -> float | None:
        """Seconds to read one prompt on idle GPUs."""
        demand = self.demand
        time = prompt_time(demand.model, demand.weights, self.split, self.machine, max(1, demand.input_tokens))
        return None if time is None else time.total_s

    def _round(self, requests: int, prompt_tokens: float) -> StepTime | None:
        demand = self.demand
        work = round_work(
            demand.model,
            demand.weights,
            self.split,
            sequences=requests,
            context=demand.input_tokens + demand.output_tokens // 2,
            kv_width=self.kv_width,
            prompt_tokens=prompt_tokens,
            prompt=demand.input_tokens,
        )
        return step_time(work, self.machine)

    def pace(self, requests: int) -> Pace | None:
        """Steady state of so many requests; ``None`` where ``unknown`` says why.

        One request alone has its prompt before its tokens; among many, prompts are read in the rounds of the others.
        """
        demand, speed = self.demand, self.machine.speed
        alone = self._round(requests, 0.0)
        if alone is None or speed is None:
            return None
        outputs = max(1, demand.output_tokens)
        if requests == 1:
            prompt = self.prompt_s() or 0.0
            return Pace(1, alone.total_s, alone.total_s + prompt / outputs, alone)
        tokens, share = prompt_pieces(requests, demand.input_tokens, outputs, speed.chunk_tokens)
        full = self._round(requests, tokens)
        if full is None:
            return None
        mean = mean_step(alone, full, share)
        without, total = alone.total_s, mean.total_s
        return Pace(requests, without + speed.interleave * (total - without), total, mean)


def serving_throughput(
    demand: ServingDemand, layout: Layout, accelerator: Accelerator, interconnect: Interconnect
) -> Throughput:
    """Decode and prefill rates of one serving copy at its concurrency, in steady state.

    A request's own tokens come every step; between them the engine also processes the prompts of the requests that follow.
    """
    speed = ServingSpeed(demand, layout, accelerator, interconnect)
    pace, prompt = speed.pace(demand.concurrency), speed.prompt_s()
    if pace is None or prompt is None:
        return Throughput(unknown=speed.unknown)
    rate = pace.requests / pace.round_s
    kind = "single" if pace.requests == 1 else "batched-experts" if demand.model.is_moe else "batched"
    band = speed.machine.profile.bands[kind]
    return Throughput(
        decode_tokens_per_s_per_replica=rate,
        tokens_per_s_per_request=1 / pace.token_s,
        time_to_first_token_s=prompt + pace.token_s / 2,
        requests_per_s=rate / max(1, demand.output_tokens),
        low=rate / band,
        high=rate * band,
        bound_by=pace.step.bound_by,
    )
