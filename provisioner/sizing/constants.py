"""The fitted constants of memory sizing: numbers that no config, format or source code gives, each with where it came from.

Everything else in sizing is arithmetic on a model's shape, or a figure read from an engine's own code. ``python -m
benchmarks.refit`` fits these again with one published source left out at a time, and scores that source; docs/proofs/sizing.md
has the result. Figures of engine versions, which cannot be fitted apart from their version, are in ``data/engines.json``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Constants:
    """Values in use, as a namespace. A refit replaces them for the time of one score; nothing else may."""

    backward_working: float = 1.25
    selective_share: float = 0.21
    compiled_loss_bytes: float = 14.0
    metric_loss_bytes: float = 22.5
    eager_working_bytes: float = 15.0
    adapter_stored_share: float = 0.65
    gathered_layers: float = 2.0
    reserved_states_share: float = 0.07
    reserved_activations_share: float = 0.10
    unet_latent_bytes: float = 65_000.0
    unet_stored_factor: float = 6.0
    unet_checkpointed_factor: float = 2.75
    block_elements: float = 56.0
    decode_pixel_bytes: float = 1_600.0
    loop_reserved_share: float = 0.005
    conversion_gib: float = 0.35


@contextmanager
def replaced(**values: float) -> Iterator[None]:
    """Use other values inside the block (refits and tests); the old ones come back however it ends."""
    before = {name: getattr(Constants, name) for name in values}
    for name, value in values.items():
        setattr(Constants, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(Constants, name, value)
