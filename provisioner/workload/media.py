"""Parts of a spec that say what an image, video or audio model makes, hears or trains on."""

from typing import Annotated

from provisioner.workload.kinds import Number, Whole
from provisioner.workload.part import SpecPart

Side = Annotated[int, Whole(16, 65_536)]
Pieces = Annotated[int, Whole(1, 10_000)]
Frames = Annotated[int, Whole(1, 1_000_000)]
FramesPerSecond = Annotated[float, Number(1000, "16")]


class Image(SpecPart):
    """An image to generate."""

    width: Side | None = None
    """Pixels."""
    height: Side | None = None
    """Pixels."""
    steps: Pieces | None = None
    """Denoising steps."""
    batch: Pieces | None = None
    """Images at once."""


class Video(SpecPart):
    """A video clip to generate."""

    width: Side | None = None
    """Pixels."""
    height: Side | None = None
    """Pixels."""
    steps: Pieces | None = None
    """Denoising steps."""
    batch: Pieces | None = None
    """Clips at once."""
    frames: Frames | None = None
    """Frames of a clip."""
    fps: FramesPerSecond | None = None
    """Frames per second."""


class Audio(SpecPart):
    """Audio to transcribe or to generate."""

    seconds: Annotated[float, Number(1e6, "30")] | None = None
    """Length of one piece."""
    batch: Pieces | None = None
    """Pieces at once."""


class TrainingImage(SpecPart):
    """An image to train on; ``micro_batch`` counts them, there are no steps."""

    width: Side | None = None
    """Pixels."""
    height: Side | None = None
    """Pixels."""
    batch: Pieces | None = None
    """Images at once."""


class TrainingVideo(SpecPart):
    """A clip to train on; ``micro_batch`` counts them, there are no steps."""

    width: Side | None = None
    """Pixels."""
    height: Side | None = None
    """Pixels."""
    batch: Pieces | None = None
    """Clips at once."""
    frames: Frames | None = None
    """Frames of a clip."""
    fps: FramesPerSecond | None = None
    """Frames per second."""
