"""Time of one footprint and one prediction of speed, on average over the bundled language models.

Usage: ``python -m benchmarks.sizing_speed``. Every model is sized at several loads and layouts, as a plan does it: the first
of them includes what is computed once per model.
"""

from __future__ import annotations

import time
from itertools import product

from benchmarks.rows import accelerator_of
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import ServingDemand
from provisioner.sizing.estimate import estimate_footprint, estimate_throughput
from provisioner.sizing.layout import Layout
from provisioner.sizing.models import find_model, known_models
from provisioner.sizing.shapes import ModelShape
from provisioner.vocabulary import Engine, Interconnect

CARDS = ("L4", "A10G", "L40S", "A100-SXM-80GB", "H100-SXM-80GB", "H200")
LAYOUTS = (Layout(), Layout(2), Layout(4), Layout(8), Layout(2, 2))


def measure(shapes: list[ModelShape], cards: list[Accelerator]) -> tuple[float, float]:
    """Mean processor seconds of a footprint and of a prediction of speed."""
    demands = [ServingDemand(shape, "auto", Engine.VLLM, None, 8192, 16) for shape in shapes]
    cases = list(product(demands, cards, LAYOUTS))
    start = time.process_time()
    for demand, card, layout in cases:
        estimate_footprint(demand, layout, card)
    middle = time.process_time()
    for demand, card, layout in cases:
        estimate_throughput(demand, layout, card, Interconnect.PCIE)
    return (middle - start) / len(cases), (time.process_time() - middle) / len(cases)


def main() -> None:
    """Command line."""
    shapes = [find_model(model.id) for model in known_models() if model.family != "pipeline"]
    cards = [card for card in (accelerator_of(name, None) for name in CARDS) if card is not None]
    footprint, speed = measure(shapes, cards)
    print(f"{len(shapes)} models, {len(cards)} GPUs, {len(LAYOUTS)} layouts")
    print(f"footprint   {footprint * 1e6:6.1f} us")
    print(f"throughput  {speed * 1e6:6.1f} us")


if __name__ == "__main__":
    main()
