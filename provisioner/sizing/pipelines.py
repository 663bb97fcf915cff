"""Image, video and audio models: pipelines of components with a geometry, read from the bundled list."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from provisioner.added_models import PIPELINE_KEY
from provisioner.errors import UsageError
from provisioner.records import record
from provisioner.sizing.shapes import ModelShape

DATA = Path(__file__).parent / "data"
ENCODERS = ("text_encoder", "image_encoder", "conditioner")
DECODERS = ("vae", "vocoder", "codec")
CORES = ("denoiser", "decoder", "language_model")
IMAGE, VIDEO = "image", "video"
SPEECH_TO_TEXT = "speech_to_text"


@record(frozen=True, slots=True)
class Component:
    """One network of a pipeline."""

    name: str
    role: str
    class_name: str
    params: int
    dtype: str


@record(frozen=True, slots=True)
class Geometry:
    """Usual size of what a pipeline makes, and how pixels, frames and seconds become tokens."""

    width: int | None = None
    height: int | None = None
    frames: int | None = None
    fps: float | None = None
    vae_spatial: int = 8
    vae_temporal: int = 1
    patch_space: int = 1
    patch_time: int = 1
    text_tokens: int = 77
    latent_rate_hz: float | None = None
    seconds: float | None = None
    steps: int | None = None


@record(frozen=True, eq=False)
class PipelineShape(ModelShape):
    """A model made of components; it has no layers of its own in sizing's sense, so ``kinds`` is empty.

    ``guidance`` is ``none``, ``batched`` (classifier-free guidance doubles the batch) or ``sequential`` (a second pass).
    ``core_width`` and ``core_depth`` are of the denoiser or decoder; ``None`` for U-Nets.
    """

    components: tuple[Component, ...] = ()
    geometry: Geometry = Geometry()
    guidance: str = "none"
    core_width: int | None = None
    core_depth: int | None = None

    @cached_property
    def params_total(self) -> int:
        """Weights of all components."""
        return sum(component.params for component in self.components)

    @cached_property
    def params_active(self) -> int:
        """Weights that a denoising or decoding step passes through: one core, where several take turns."""
        return max((component.params for component in self.components if component.role in CORES), default=0)

    def role_params(self, roles: tuple[str, ...]) -> int:
        """Weights of the components of some roles."""
        return sum(component.params for component in self.components if component.role in roles)


@cache
def _records() -> tuple[Mapping[str, Any], ...]:
    return tuple(json.loads((DATA / "pipelines.json").read_bytes()))


@cache
def pipeline_names() -> Mapping[str, int]:
    """Lower-case id or alias -> index of its record."""
    names: dict[str, int] = {}
    for index, each in enumerate(_records()):
        for name in (each["id"], *each["aliases"]):
            names.setdefault(name.lower(), index)
    return names


@cache
def pipeline(index: int) -> PipelineShape:
    """The shape of a record of the bundled list."""
    return _shape(_records()[index])


def pipeline_records() -> tuple[Mapping[str, Any], ...]:
    """All records, for listings."""
    return _records()


def pipeline_from_config(config: Mapping[str, Any]) -> PipelineShape:
    """The shape of a pipeline that ``gpuprov models add`` read.

    Raises:
        UsageError: its record is damaged.
    """
    try:
        return _shape(config[PIPELINE_KEY])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UsageError(
            f"the record of an added pipeline is damaged: {error!r}", remedy="run `gpuprov models add` again"
        ) from None


def _shape(record: Mapping[str, Any]) -> PipelineShape:
    words = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    size = record["width_depth"]
    geometry = {key: record[key] for key in Geometry.__dataclass_fields__ if record.get(key) is not None}
    return PipelineShape(
        id=record["id"],
        family="pipeline",
        modality=record["modality"],
        hidden_size=size[0] if size else 0,
        vocab_size=0,
        kinds=(),
        pattern=(),
        weights_dtype=words[record["dtype"]],
        components=tuple(
            Component(part["name"], part["role"], part["class"], part["params"], words[part["dtype"]])
            for part in record["components"]
            if not part["optional"]
        ),
        geometry=Geometry(**geometry),
        guidance=record["guidance"],
        core_width=size[0] if size else None,
        core_depth=size[1] if size else None,
    )
