"""The two questions of sizing: how much memory on the fullest GPU, and how fast."""

from __future__ import annotations

from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import Demand, TrainingDemand
from provisioner.sizing.footprint import Footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.serving import serving_footprint
from provisioner.sizing.throughput import Throughput
from provisioner.sizing.training import training_footprint
from provisioner.vocabulary import Interconnect


def estimate_footprint(demand: Demand, layout: Layout, accelerator: Accelerator) -> Footprint:
    """Memory need of a layout on its fullest GPU.

    Raises:
        UsageError: the demand holds something that is not modelled; it is named.
    """
    if isinstance(demand, TrainingDemand):
        return training_footprint(demand, layout, accelerator)
    return serving_footprint(demand, layout, accelerator)


def estimate_throughput(
    demand: Demand, layout: Layout, accelerator: Accelerator, interconnect: Interconnect
) -> Throughput:
    """Predicted speed of a layout; rates that are unknown stay ``None``."""
    from provisioner.sizing.speed import serving_throughput, training_throughput

    if isinstance(demand, TrainingDemand):
        return training_throughput(demand, layout, accelerator, interconnect)
    return serving_throughput(demand, layout, accelerator, interconnect)
