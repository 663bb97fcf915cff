"""The two questions of sizing: how much memory on the fullest GPU, and how fast."""

from __future__ import annotations

from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import (
    AudioDemand,
    Demand,
    DiffusionDemand,
    DiffusionTrainingDemand,
    TrainingDemand,
)
from provisioner.sizing.footprint import Footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.throughput import Throughput
from provisioner.vocabulary import Interconnect


def estimate_footprint(demand: Demand, layout: Layout, accelerator: Accelerator) -> Footprint:
    """Memory need of a layout on its fullest GPU.

    Raises:
        UsageError: the demand holds something that is not modelled; it is named.
    """
    if isinstance(demand, TrainingDemand):
        from provisioner.sizing.training import training_footprint

        return training_footprint(demand, layout, accelerator)
    if isinstance(demand, DiffusionDemand):
        from provisioner.sizing.diffusion import diffusion_footprint

        return diffusion_footprint(demand, layout, accelerator)
    if isinstance(demand, AudioDemand):
        from provisioner.sizing.audio import audio_footprint

        return audio_footprint(demand, layout, accelerator)
    if isinstance(demand, DiffusionTrainingDemand):
        from provisioner.sizing.diffusion_training import diffusion_training_footprint

        return diffusion_training_footprint(demand, layout, accelerator)
    from provisioner.sizing.serving import serving_footprint

    return serving_footprint(demand, layout, accelerator)


def estimate_throughput(
    demand: Demand, layout: Layout, accelerator: Accelerator, interconnect: Interconnect
) -> Throughput:
    """Predicted speed of a layout; rates that are unknown stay ``None``."""
    if isinstance(demand, TrainingDemand):
        from provisioner.sizing.training_speed import training_throughput

        return training_throughput(demand, layout, accelerator, interconnect)
    if isinstance(demand, DiffusionDemand):
        from provisioner.sizing.diffusion_speed import diffusion_throughput

        return diffusion_throughput(demand, accelerator)
    if isinstance(demand, AudioDemand):
        from provisioner.sizing.audio_speed import audio_throughput

        return audio_throughput(demand, accelerator)
    if isinstance(demand, DiffusionTrainingDemand):
        from provisioner.sizing.diffusion_training_speed import diffusion_training_throughput

        return diffusion_training_throughput(demand, layout, accelerator, interconnect)
    from provisioner.sizing.speed import serving_throughput

    return serving_throughput(demand, layout, accelerator, interconnect)
