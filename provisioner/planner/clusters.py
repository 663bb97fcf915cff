"""Layouts over several instances: tensor parallelism stays inside one, data and pipeline parallelism cross the network.

One instance comes first. Several are looked at where a training finds no single instance, or wants to be faster and may take more
GPUs, and where a spec asks a serving copy for more pipeline stages than one machine holds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from provisioner.catalog.gpus import Gpu
from provisioner.catalog.instances import InstanceType
from provisioner.planner.candidates import Arrangement, Sizer
from provisioner.planner.filters import Refusal
from provisioner.planner.request import Request, interconnect_for
from provisioner.sizing.demand import Demand, DiffusionTrainingDemand, ServingDemand, TrainingDemand
from provisioner.sizing.layout import Layout
from provisioner.sizing.layouts import TRAINING_SHARDINGS, feasible_layouts, layout_objections
from provisioner.sizing.throughput import Throughput
from provisioner.vocabulary import Fit, Sharding, TrainingMethod

INSTANCE_COUNTS = (2, 4, 8, 16, 32, 64)
"""Instances that train together. Source: the sizes in which AWS sells Capacity Blocks (EC2 user guide, "Capacity Blocks for
ML": 1, 2, 4, 8, 16, 32 or 64 instances)."""
MOST_GPUS = 8 * INSTANCE_COUNTS[-1]
"""GPUs of the largest training that is looked at where no ``max_gpus`` is stated: the largest block of the usual machine."""
WHOLE_MACHINE_GPUS = 8
"""GPUs of a machine above which copies cross to another: with fewer, a larger machine of the kind is on sale."""
RDMA_SHARE = 0.8
"""Share of the network's rate that collectives reach where the network cards read GPU memory themselves. An assumption: published
nccl-tests of such machines reach 0.75 to 0.9 of the line rate at large messages."""
HOST_SHARE = 0.5
"""The same where every byte passes through host memory. An assumption."""
DOUBLING_SHARE = 0.98
"""Rate that each doubling of the instances keeps beside the network: stragglers and the wait for the slowest. An assumption, small
beside the band; it makes fewer instances the cheaper of two equal answers."""
GIGABIT = 1e9 / 8


def may_span(request: Request) -> bool:
    """Whether a workload can use several instances as one: a training that may be sharded or replicated over GPUs."""
    demand = request.demand
    return isinstance(demand, (TrainingDemand, DiffusionTrainingDemand)) and demand.sharding is not Sharding.NONE


def is_cluster(arrangement: Arrangement) -> bool:
    """Whether one copy, or the training, spans several instances."""
    return arrangement.layout.gpus_per_replica > arrangement.instance.gpu_count


def instance_counts(request: Request, instance: InstanceType) -> tuple[int, ...]:
    """Numbers of instances to look at, fewest first, within ``max_gpus``."""
    limit = request.requirements.max_gpus
    largest = INSTANCE_COUNTS[-1] if limit is None else limit // instance.gpu_count
    return tuple(count for count in INSTANCE_COUNTS if count <= largest)


def refuse_cluster(instance: InstanceType) -> Refusal | None:
    """Why instances of a type do not train together: no fabric, or not the whole machine."""
    if instance.gpu_count < WHOLE_MACHINE_GPUS and not instance.nvlink_bytes_per_s_per_gpu:
        return Refusal(
            "fabric",
            "several instances train together as whole machines only",
            f"{WHOLE_MACHINE_GPUS} GPUs an instance, or NVLink",
            f"{instance.gpu_count} over PCIe",
        )
    if not fabric_of(instance) or not instance.network_gbit_per_s:
        return Refusal(
            "fabric", "several instances train together over a fabric only", "EFA or GPUDirect", network_of(instance)
        )
    return None


def fabric_of(instance: InstanceType) -> str:
    """Name of the network that GPUs of several instances talk over, such as ``EFA`` or ``GPUDirect-TCPX``; empty for none."""
    name = instance.gpudirect.split(" (")[0].replace("_", " ")
    return "" if name in ("", "none", "unknown") else name


def network_of(instance: InstanceType) -> str:
    """The rate of an instance's network in words."""
    rate = instance.network_gbit_per_s
    return "a network of unknown rate" if rate is None else f"{rate:,.0f} Gbit/s"


def cluster_layouts(demand: Demand, gpus: int, instances: int) -> tuple[Layout, ...]:
    """Layouts of a training over all GPUs of ``instances`` machines of ``gpus`` each.

    Data parallelism crosses instances, replicated or sharded; ``tp`` keeps its tensor parallelism inside each and shards across
    them; ``pp`` gives each instance a stage.
    """
    if not isinstance(demand, (TrainingDemand, DiffusionTrainingDemand)):
        return ()
    if demand.sharding is Sharding.TP:
        layouts = [Layout(tensor_parallel=gpus, data_parallel=instances, sharding=Sharding.FSDP)]
    elif demand.sharding is Sharding.PP:
        layouts = [Layout(pipeline_parallel=instances, data_parallel=gpus, sharding=Sharding.ZERO1)]
    else:
        kinds = TRAINING_SHARDINGS.get(demand.sharding, ())
        layouts = [Layout(data_parallel=gpus * instances, sharding=kind) for kind in kinds]
    return tuple(layout for layout in layouts if not layout_objections(demand, layout))


def cluster_arrangements(
    sizer: Sizer, instance: InstanceType, gpu: Gpu, instances: int, fit: Fit
) -> Iterator[Arrangement]:
    """Every layout of a training over so many instances whose verdict is ``fit``."""
    accelerator = sizer.accelerator(gpu, instance)
    for layout in cluster_layouts(sizer.request.demand, instance.gpu_count, instances):
        footprint = sizer.footprint(accelerator, layout)
        if footprint.fit is fit:
            link = interconnect_for(instance, layout)
            inside = sizer.throughput(accelerator, layout, link)
            speed = across_network(sizer.request.demand, layout, instance, instances, inside)
            yield Arrangement(instance, gpu, accelerator, layout, instances, link, footprint, speed)


def across_network(
    demand: Demand, layout: Layout, instance: InstanceType, instances: int, inside: Throughput
) -> Throughput:
    """The rate of a training whose GPUs are on several instances, from the rate that their links alone allow."""
    rate = inside.train_tokens_per_s or inside.train_samples_per_s
    if rate is None or not isinstance(demand, (TrainingDemand, DiffusionTrainingDemand)):
        return inside
    sample = demand.sequence_tokens if isinstance(demand, TrainingDemand) else 1
    step = sample * demand.micro_batch * layout.data_parallel / rate
    network = network_seconds(demand, layout, instance, instances)
    kept = math.pow(DOUBLING_SHARE, math.log2(instances)) * step / max(step, network)
    return replace(
        inside,
        train_tokens_per_s=None if inside.train_tokens_per_s is None else inside.train_tokens_per_s * kept,
        train_samples_per_s=None if inside.train_samples_per_s is None else inside.train_samples_per_s * kept,
        low=None if inside.low is None else inside.low * kept,
        high=None if inside.high is None else inside.high * kept,
        bound_by=inside.bound_by if step >= network else "interconnect",
    )


def network_seconds(
    demand: TrainingDemand | DiffusionTrainingDemand, layout: Layout, instance: InstanceType, instances: int
) -> float:
    """Seconds per step that an instance's network needs for the collectives, when nothing hides them.

    What ranks of an instance share crosses the network once: (n - 1) / n of the weights gathered twice and of the gradients
    scattered once, or of the gradients added up.
    """
    rate = (instance.network_gbit_per_s or 0.0) * GIGABIT
    share = RDMA_SHARE if "GPUDirect" in instance.gpudirect else HOST_SHARE
    is_full = demand.method is TrainingMethod.FULL
    shards_weights = layout.sharding in (Sharding.FSDP, Sharding.ZERO3)
    passes = (2 if is_full else 0) + (1 if is_full else 2) * shards_weights
    stages = layout.pipeline_parallel
    size = 2.0 * demand.model.params_total * passes / stages if stages < instances else 0.0
    return size * (instances - 1) / instances / (rate * share) if rate else math.inf


def instances_per_copy(layout: Layout, gpus: int) -> int:
    """Machines of ``gpus`` GPUs that one copy takes; its tensor-parallel groups stay whole."""
    if layout.gpus_per_replica <= gpus:
        return 1
    groups = layout.pipeline_parallel * layout.data_parallel
    return math.ceil(groups / max(1, gpus // layout.tensor_parallel))


def copies_held(layout: Layout, gpus: int, instances: int) -> int:
    """Copies that so many machines hold."""
    if layout.gpus_per_replica <= gpus:
        return instances * (gpus // layout.gpus_per_replica)
    return instances // instances_per_copy(layout, gpus)


def spanning_layouts(demand: ServingDemand, gpus: int) -> tuple[tuple[Layout, int], ...]:
    """Layouts of a serving copy that is asked to span machines of ``gpus`` each, with the machines a copy takes.

    Only where the spec names more pipeline stages than a whole machine holds; each stage stays inside one.
    """
    stages = demand.pipeline_parallel or 1
    if gpus < WHOLE_MACHINE_GPUS or stages == 1:
        return ()
    return tuple(
        (layout, instances_per_copy(layout, gpus))
        for layout in feasible_layouts(demand, gpus * stages)
        if layout.tensor_parallel <= gpus < layout.gpus_per_replica
    )
