"""Warnings of a plan: what holds, but should be known before it is bought. Ages are not among them (a plan knows no clock)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from provisioner.planner.bill_notes import bill_notes
from provisioner.planner.capabilities import stored_only
from provisioner.planner.launch import launch_argv, why_not_auto
from provisioner.planner.node_credentials import remedy, unmet_needs, words
from provisioner.planner.ranking import Candidate
from provisioner.planner.request import Request
from provisioner.planner.search import Market
from provisioner.planner.storage import checkpoint_file_bytes
from provisioner.planner.suitability import unused_keys
from provisioner.planner.work import has_known_work
from provisioner.sizing.demand import ServingDemand, TrainingDemand
from provisioner.units import format_gib
from provisioner.vocabulary import Fit, Pattern, Task, WeightFormat
from provisioner.workload.quantities import ReplicaRange
from provisioner.workload.spec import Run

COMFORTABLE_LOADING = 1.2
"""Host memory per byte of weights below which loading swaps or drops its page cache. Source: aws/karpenter-provider-aws#6475,
a 16 GiB host that cannot keep a 15.5 GiB process."""
CHECKPOINT_FORMATS = frozenset({WeightFormat.INT4_AWQ, WeightFormat.INT4_GPTQ, WeightFormat.MXFP4, WeightFormat.NVFP4})
"""Formats that engines read and do not make."""
LONG_RUN_HOURS = 90 * 24
"""Predicted length from which a run without a deadline is worth a word: a quarter of a year on one choice of hardware. Source:
the longest public pre-training runs took about that (Llama 3.1 405B: 54 days, arXiv:2407.21783 section 3.3.4)."""
_CONTAINER = r"\b(?:docker|podman|nerdctl)(?:\s+(?:container\s+)?run\b|[\s-]compose\b.*\bup\b)"
_HOST_NETWORK = r"--net(?:work)?[=\s]+host\b"
GPUS_BEYOND_NEW_ACCOUNTS = 8
"""GPUs from which a quota that is not known is worth a word. Source: notes of quotas.csv (new accounts commonly have 0 of the
vCPU of P and G types); smaller needs are granted within minutes."""


def plan_warnings(request: Request, market: Market, candidate: Candidate, fit: Fit) -> tuple[str, ...]:
    """All warnings about a choice, in the order: memory, host, model, price, bill, work, start."""
    return (
        *_memory(candidate, fit),
        *_host(request, candidate),
        *_count(request, candidate),
        *model_warnings(request),
        *_format(request, candidate),
        *_price(market, candidate),
        *bill_notes(request, candidate),
        *_quota(market, candidate),
        *_work(request, candidate),
        *_bridge(request, candidate),
        *_start(request, candidate),
        *_credentials(request, candidate),
    )


def _memory(candidate: Candidate, fit: Fit) -> Iterator[str]:
    footprint = candidate.arrangement.footprint
    if fit is Fit.BORDERLINE:
        high, usable = footprint.per_gpu.high_bytes, footprint.usable_bytes
        yield f"borderline: the high end of the prediction, {format_gib(high)}, is over the {format_gib(usable)} usable per GPU"


def _host(request: Request, candidate: Candidate) -> Iterator[str]:
    instance = candidate.arrangement.instance
    weights = checkpoint_file_bytes(request, candidate.arrangement)
    if instance.ram_bytes < COMFORTABLE_LOADING * weights:
        yield (
            f"host memory of {instance.name}, {format_gib(instance.ram_bytes)}, is below 1.2 x the weights ({format_gib(weights)}): "
            "loading is slow, and loaders that read a whole checkpoint fail"
        )
    if instance.gpu_fraction < 1:
        yield f"{instance.name} has {instance.gpu_fraction:g} of a GPU: it needs the vendor's vGPU driver, and shares bandwidth and compute"


def _start(request: Request, candidate: Candidate) -> Iterator[str]:
    if request.workload.run != "auto":
        return
    if request.workload.task.is_training or not launch_argv(request, candidate.arrangement.layout, None):
        yield "{}: `up` refuses it; {}".format(*why_not_auto(request.workload))


def _count(request: Request, candidate: Candidate) -> Iterator[str]:
    arrangement = candidate.arrangement
    layout, idle = arrangement.layout, arrangement.gpus_billed - arrangement.layout.gpus
    if idle >= layout.gpus_per_replica and arrangement.instances == 1:
        copies = arrangement.instance.gpu_count // layout.gpus_per_replica
        key = "training.sharding: auto" if request.workload.task.is_training else f"inference.replicas: {copies}"
        yield f"{idle} of the {arrangement.gpus_billed} GPUs of {arrangement.instance.name} stay idle: {key} would use them at the same price"
    if arrangement.instances > 1:
        yield f"`up` makes one machine: these {arrangement.instances} x {arrangement.instance.name} are planned and priced, and `up` refuses them"


def model_warnings(request: Request) -> Iterator[str]:
    """What should be known of the model and of what is asked of it, on whatever GPU it runs."""
    demand = request.demand
    yield from request.shape.notes
    for key in unused_keys(request.workload, request.shape):
        yield f"{key} means nothing to {request.shape.id} and changes nothing"
    limit = request.shape.max_context_tokens
    if isinstance(demand, TrainingDemand) and limit is not None and demand.sequence_tokens > limit:
        yield f"sequence_tokens {demand.sequence_tokens} is over the {limit} positions that {request.shape.id} states: the training has to stretch its RoPE"
    if not isinstance(demand, ServingDemand):
        return
    if limit is not None and demand.context_tokens > limit:
        yield f"context_tokens {demand.context_tokens} is over the {limit} positions that {request.shape.id} states: the engine needs a RoPE override"
    if (
        demand.weights in CHECKPOINT_FORMATS
        and request.shape.quantisation is None
        and request.workload.model.source is None
    ):
        yield f"weights {demand.weights} come from a checkpoint in that format: name one in model.source, {request.shape.id} is published in {request.shape.weights_dtype}"


def _format(request: Request, candidate: Candidate) -> Iterator[str]:
    """Formats that the chosen GPU stores and does not compute in."""
    gpu = candidate.arrangement.gpu
    for text in stored_only(request, gpu.compute_capability):
        yield f"{gpu.gpu_class} {text}"


def _price(market: Market, candidate: Candidate) -> Iterator[str]:
    terms, offer = candidate.terms, candidate.offer
    for code in offer.suspect:
        yield f"price of {offer.key}: {market.catalog.explain_code(code)} ({code})"
    if offer.price_usd_per_hour is None:
        yield f"price unknown: no offer with a known price meets everything, so {offer.key} is chosen without one"
    elif terms.unknown:
        yield f"no price is known for {' and '.join(terms.unknown)} in {offer.region}: the total is unknown"
    if terms.stand_ins:
        yield f"no price is known for {' and '.join(terms.stand_ins)} in {offer.region}: that of the cloud's reference region was taken"
    if terms.risk is not None and terms.risk.interruption_rate is None:
        yield f"nobody publishes how often {offer.cloud} takes {offer.instance.name} back: ranked as if once a day; the total leaves rework out"


def _quota(market: Market, candidate: Candidate) -> Iterator[str]:
    """A big need of a quota that nobody has read: the usual first failure of an account."""
    catalog, offer, arrangement = market.catalog, candidate.offer, candidate.arrangement
    if arrangement.gpus_billed < GPUS_BEYOND_NEW_ACCOUNTS:
        return
    need = catalog.quota_need(offer.instance, offer.capacity_type)
    if need is not None and catalog.account_quota(offer.cloud, offer.region, need.quota.code) is None:
        units = f"{need.units * arrangement.instances:g} {need.quota.unit}"
        yield (
            f"takes {units} of the account's quota {need.quota.code} ({need.quota.name}) in {offer.region}, which is not known here: "
            "new accounts commonly have none"
        )


def _bridge(request: Request, candidate: Candidate) -> Iterator[str]:
    """Containers that the user's own command starts: the metadata service of EC2 answers one hop far, and a bridge is one more.

    Source: buildkite/elastic-ci-stack-for-aws#857. The container of ``run.image`` itself is on the machine's own network.
    """
    run = request.workload.run
    command = " ".join(run.command) if isinstance(run, Run) else ""
    if candidate.offer.cloud != "aws" or not command:
        return
    if re.search(_CONTAINER, command) and not re.search(_HOST_NETWORK, command):
        yield (
            "run.command starts a container on a bridge network, and the metadata service answers one hop far only: "
            "it gets no credentials of the instance profile there; add --network host, or name the container in run.image"
        )


def _credentials(request: Request, candidate: Candidate) -> Iterator[str]:
    """What the machine could not read for want of credentials."""
    cloud = candidate.offer.cloud
    if needs := unmet_needs(request.workload, cloud):
        yield f"{words(needs, cloud)}; {remedy(needs, cloud)}"


def _work(request: Request, candidate: Candidate) -> Iterator[str]:
    workload = request.workload
    replicas = workload.inference.replicas if workload.inference else None
    targets = workload.inference.targets if workload.inference else None
    if isinstance(replicas, ReplicaRange) and (targets is None or targets.requests_per_second is None):
        yield f"replicas {replicas}: planned and priced for {replicas.minimum}, since targets.requests_per_second is not given"
    if workload.task is Task.SERVE:
        return
    hours = candidate.terms.run_hours
    if hours is not None:
        if hours > LONG_RUN_HOURS and workload.placement.deadline is None:
            yield f"takes {hours / 24:,.0f} days there: placement.deadline plans as many machines as it needs"
        return
    if has_known_work(workload):
        yield "no speed is predicted for this work: the run has no predicted length, so it has no cost of its own"
        return
    is_batch = workload.task is Task.BATCH
    key = "inference.total or inference.duration" if is_batch else "training.tokens or training.duration"
    unchecked = " and the deadline is unchecked" if workload.placement.deadline else ""
    pattern = workload.lifecycle.pattern or Pattern.BURSTY
    yield f"{key} is not given: the run has no predicted length, so it has no cost of its own{unchecked}; the month is billed as {pattern}"
