"""The result of sizing: bytes per GPU by term, with a band, three meters and the assumptions behind them."""

from __future__ import annotations

from provisioner.records import record
from provisioner.vocabulary import Fit


@record(frozen=True, slots=True)
class Assumption:
    """A number that the result rests on, with where it was measured or stated."""

    name: str
    value: str
    source: str


@record(frozen=True, slots=True)
class MemoryTerms:
    """Bytes on the fullest GPU. ``None`` where a term does not exist for the task (gradients of a serving copy).

    ``total_bytes`` is the need on the device meter; the peaks of the terms need not fall together, so their sum may exceed it
    by up to a third. ``low_bytes <= total_bytes <= high_bytes`` is the band.
    """

    weights_bytes: int
    kv_cache_bytes: int | None
    activation_bytes: int
    gradient_bytes: int | None
    optimizer_bytes: int | None
    overhead_bytes: int
    total_bytes: int
    low_bytes: int
    high_bytes: int


@record(frozen=True, slots=True)
class Footprint:
    """Memory need of one layout on one GPU kind.

    ``usable_bytes`` is the memory that a CUDA process sees times the engine's fraction. Three meters: ``allocated_bytes``
    (tensors), ``reserved_bytes`` (allocator), ``device_bytes`` (with CUDA context and libraries).
    """

    per_gpu: MemoryTerms
    usable_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    device_bytes: int
    assumptions: tuple[Assumption, ...] = ()

    @property
    def headroom_bytes(self) -> int:
        """Usable memory minus the need; negative where it does not fit."""
        return self.usable_bytes - self.per_gpu.total_bytes

    @property
    def fit(self) -> Fit:
        """``fits``: the high end of the band fits; ``borderline``: only the middle does."""
        if self.per_gpu.high_bytes <= self.usable_bytes:
            return Fit.FITS
        if self.per_gpu.total_bytes <= self.usable_bytes:
            return Fit.BORDERLINE
        return Fit.DOES_NOT_FIT
