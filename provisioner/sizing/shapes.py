"""Model shapes: dimensions and parameter counts read from a bundled index, a config.json or an explicit shape."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Dimensions that memory and speed depend on (placeholder of the final one)."""

    id: str
