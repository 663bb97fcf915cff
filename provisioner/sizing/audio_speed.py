"""Speed of audio models as a real-time factor: seconds of sound made or read per second of computing.

Recognition encodes windows of 30 seconds and writes their text token by token; language models over codec tokens write sound
token by token; diffusion models refine all frames at every step.
"""

from __future__ import annotations

from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.audio import ENCODER_POSITIONS, WINDOW_SECONDS, cache_bytes
from provisioner.sizing.demand import AudioDemand
from provisioner.sizing.pipelines import ENCODERS, SPEECH_TO_TEXT
from provisioner.sizing.quantisation import bits_of
from provisioner.sizing.speed_profile import OTHER, family_of, speed_profile
from provisioner.sizing.step_time import COMPUTE, MEMORY
from provisioner.sizing.throughput import Throughput

DEFAULT_STEPS = 100
FRAME_RATE_HZ = 50.0


def audio_throughput(demand: AudioDemand, accelerator: Accelerator) -> Throughput:
    """Seconds of audio per second of computing for the whole batch, and what bounds it."""
    rates, peak = accelerator.flop_per_s, accelerator.memory_bandwidth_bytes_per_s
    rate = rates.get("bf16") or rates.get("fp16")
    if rate is None:
        return Throughput(unknown=f"the 16-bit matrix rate of {accelerator.gpu} is not known")
    if peak is None:
        return Throughput(unknown=f"the memory bandwidth of {accelerator.gpu} is not known")
    profile = speed_profile()
    table = profile.audio
    shares = profile.diffusion["transformer"]
    reached = rate * shares.get(family_of(accelerator.compute_capability), shares[OTHER])
    compute = _encoder_flop(demand) / reached
    steps, tokens = _steps(demand)
    core = demand.model.params_active
    passes = demand.batch * (2 if demand.model.guidance != "none" else 1)
    product = 2.0 * core * passes * tokens / reached
    width = min(bits_of(_core_dtype(demand)), 16.0) if demand.weights == "auto" else bits_of(demand.weights)
    read = (core * width / 8 + cache_bytes(demand) / 2) / (peak * table["memory"])
    host = ((demand.model.core_depth or 0) * table["layer_us"] + table["step_us"]) * 1e-6
    seconds = compute + steps * (max(product, read) + host)
    factor = demand.seconds * demand.batch / seconds
    band = profile.bands["audio"]
    is_read = steps * read > compute + steps * product
    return Throughput(
        realtime_factor=factor, low=factor / band, high=factor * band, bound_by=MEMORY if is_read else COMPUTE
    )


def _core_dtype(demand: AudioDemand) -> str:
    return max(demand.model.components, key=lambda part: part.params).dtype


def _encoder_flop(demand: AudioDemand) -> float:
    """Operations of all encoders over the batch."""
    model = demand.model
    if model.modality == SPEECH_TO_TEXT:
        encoder = model.role_params(("encoder",))
        windows = -(-demand.seconds // WINDOW_SECONDS)
        attention = 4.0 * (model.core_depth or 0) * (model.core_width or 0) * ENCODER_POSITIONS**2
        return demand.batch * windows * (2.0 * encoder * ENCODER_POSITIONS + attention)
    return demand.batch * 2.0 * model.role_params(ENCODERS) * model.geometry.text_tokens


def _steps(demand: AudioDemand) -> tuple[float, float]:
    """Passes through the core, one after the other, and the tokens of each pass and piece."""
    model = demand.model
    if model.modality == SPEECH_TO_TEXT:
        return demand.seconds * speed_profile().audio["text_tokens_per_s"], float(demand.beams)
    frames = demand.seconds * (model.geometry.latent_rate_hz or FRAME_RATE_HZ)
    if any(part.role == "language_model" for part in model.components):
        return frames, 1.0
    return float(model.geometry.steps or DEFAULT_STEPS), frames + model.geometry.text_tokens
