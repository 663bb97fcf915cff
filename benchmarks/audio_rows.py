"""Predictions for measured rows of audio models: recognition, speech and music."""

from __future__ import annotations

import re

from benchmarks.rows import Row, accelerator_of, weight_word
from benchmarks.serving_rows import Prediction
from provisioner.errors import UsageError
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.audio import audio_footprint
from provisioner.sizing.demand import AudioDemand
from provisioner.sizing.layout import Layout
from provisioner.sizing.models import find_model
from provisioner.sizing.pipelines import IMAGE, VIDEO, PipelineShape
from provisioner.units import GIB
from provisioner.vocabulary import Fit

UNKNOWN_CARD = Accelerator("unknown", "unknown", "unknown", 80 * GIB, "assumed", None, "unknown", None)
WHISPER = re.compile(r"(?:faster-|distil-)?whisper[- ]?", re.IGNORECASE)
PIECE_SECONDS = 30.0


def audio_model(name: str) -> PipelineShape:
    """The audio model of a row's name; a bare size of Whisper counts.

    Raises:
        UsageError: no audio model has this name.
    """
    bare = WHISPER.sub("", name.rsplit("/", maxsplit=1)[-1])
    for text in (name, f"openai/whisper-{bare}"):
        try:
            found = find_model(text)
        except UsageError:
            continue
        if isinstance(found, PipelineShape) and found.modality not in (IMAGE, VIDEO):
            return found
    raise UsageError(f"{name} is no audio model that is known")


def predict_audio(row: Row) -> Prediction:
    """Prediction for a row of an audio model.

    Raises:
        UsageError: the model is not known, or the row is of a training.
    """
    if row.text("task") == "training" or row.text("method"):
        raise UsageError("training of audio models is not modelled")
    model = audio_model(row.model)
    accelerator = accelerator_of(row.gpu, row.memory_gb)
    footprint = audio_footprint(
        AudioDemand(
            model=model,
            weights=weight_word(row.text("quant", "quantization", "compute_type"), row.text("dtype")) or "auto",
            seconds=row.number("seconds", "audio_seconds", "duration_s") or model.geometry.seconds or PIECE_SECONDS,
            batch=row.count("batch", "batch_size"),
            beams=row.count("beams", "beam_size", "num_beams") if row.number("beams", "beam_size", "num_beams") else 5,
        ),
        Layout(),
        accelerator or UNKNOWN_CARD,
    )
    reading = {
        "allocated": footprint.allocated_bytes,
        "reserved": footprint.reserved_bytes,
        "device": footprint.device_bytes,
    }.get(str(row.norm.get("meter")), footprint.device_bytes)
    terms = footprint.per_gpu
    fits = {Fit.FITS: True, Fit.BORDERLINE: None, Fit.DOES_NOT_FIT: False}[footprint.fit]
    return Prediction(
        "predicted",
        reading / GIB,
        reading / GIB * terms.low_bytes / terms.total_bytes,
        reading / GIB * terms.high_bytes / terms.total_bytes,
        fits if accelerator is not None else None,
    )
