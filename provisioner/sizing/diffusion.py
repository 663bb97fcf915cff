"""Footprint of image and video generation: a run is a row of phases, and the largest of them rules.

Phases: text encoding, denoising (the batch doubled where guidance is batched), decoding by the VAE. Each holds the components
that are resident then, and a working set of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.errors import UsageError
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.constants import Constants
from provisioner.sizing.demand import MODEL_OFFLOAD, DiffusionDemand
from provisioner.sizing.footprint import Assumption, Footprint, MemoryTerms
from provisioner.sizing.layout import Layout
from provisioner.sizing.lora import denoiser_adapter_params
from provisioner.sizing.pipelines import DECODERS, ENCODERS, Component, PipelineShape
from provisioner.sizing.quantisation import bits_of
from provisioner.units import GIB, MIB

TRANSFORMER_ELEMENTS = 24
"""Elements per token and unit of width that a diffusion transformer holds at its widest block: queries, keys, values, the
four-fold MLP of image and text streams, modulation. A count that no published row tests: encoders or decoder rule them all."""
DECODER_WIDTHS = {"AutoencoderKLWan": 0.75, "AutoencoderKLQwenImage": 0.75, "AutoencoderDC": 1.0}
"""Width of a decoder's last block against AutoencoderKL's 128 channels."""
FRAMES_AT_ONCE = {"AutoencoderKLWan": 4, "AutoencoderKLCogVideoX": 8, "AutoencoderKLTemporalDecoder": 14}
"""Frames that a video decoder works on at once by its own design (diffusers)."""
ADAPTER_BYTES = 2
"""Bytes of a parameter of an adapter that is loaded beside the denoiser."""
TILE_PIXELS = 256 * 256
TILE_FRAMES = 16
"""Other video decoders run in tiles of this size, as their pages advise; a whole clip would not fit on any card."""
ENCODE_BYTES = 300 * MIB
"""Working set of text encoders over a few hundred tokens."""
CONTEXT_BYTES = 550 * MIB
ALLOCATOR_SHARE = 0.03
ERROR_SHARE = 0.25
ERROR_SHARE_WEIGHTS = 0.06
"""Half width of the band, of the working set and of weights: decoders choose kernels by GPU, and published figures name neither
meter nor kernel."""
SMALL_PARAMS = 10**9
"""Encoders below this size stay wide when the rest is quantised."""
OFFLOAD_BUFFER_BYTES = 200 * MIB
TEXT_OFFLOAD, SEQUENTIAL_OFFLOAD, SPREAD = "text-encoder", "sequential", "spread"
"""``spread``: whole components on several GPUs, as a balanced device map places them; the fullest GPU counts."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase of a run: bytes of resident weights and of its working set."""

    name: str
    weights: float
    working: float

    @property
    def total(self) -> float:
        """What is alive in the phase."""
        return self.weights + self.working


def diffusion_footprint(demand: DiffusionDemand, layout: Layout, accelerator: Accelerator) -> Footprint:
    """Bytes of a run of a diffusion pipeline on one GPU.

    Raises:
        UsageError: the pipeline makes neither images nor video, or its size is not known.
    """
    del layout
    peak = max(phases(demand), key=lambda phase: phase.total)
    weights = max(phase.weights for phase in phases(demand))
    overhead = CONTEXT_BYTES + ALLOCATOR_SHARE * peak.total
    total = peak.total + overhead
    error = ERROR_SHARE * peak.working + ERROR_SHARE_WEIGHTS * peak.weights + 0.2 * GIB
    fraction = demand.gpu_memory_fraction or 1.0
    return Footprint(
        per_gpu=MemoryTerms(
            weights_bytes=round(peak.weights),
            kv_cache_bytes=None,
            activation_bytes=round(peak.working),
            gradient_bytes=None,
            optimizer_bytes=None,
            overhead_bytes=round(overhead),
            total_bytes=round(total),
            low_bytes=round(total - error),
            high_bytes=round(total + error),
        ),
        usable_bytes=round(accelerator.memory_usable_bytes * fraction),
        allocated_bytes=round(peak.total),
        reserved_bytes=round(peak.total * 1.08),
        device_bytes=round(peak.total * 1.08 + CONTEXT_BYTES),
        assumptions=(
            Assumption("largest phase", peak.name, "maximum over encoding, denoising and decoding"),
            Assumption("offload", demand.offload, "inference.offload"),
            Assumption("weights over all phases", f"{round(weights)} B", "components of the bundled list"),
            Assumption("decoder", _decoder_note(demand), "diffusers pipelines; simple_sdxl_optimizations"),
            Assumption("usable memory", f"{accelerator.memory_usable_bytes} B", accelerator.memory_usable_basis),
        ),
    )


def phases(demand: DiffusionDemand) -> tuple[Phase, ...]:
    """The phases of a run in order."""
    model = demand.model
    encoders = _role_bytes(demand, ENCODERS)
    decoders = _role_bytes(demand, DECODERS)
    rest = sum(component_bytes(demand, part) for part in model.components) - encoders - decoders
    rest += demand.adapters * denoiser_adapter_params(model, demand.adapter_rank) * ADAPTER_BYTES
    resident = encoders + decoders + rest
    encoding = denoising = decoding = resident
    if demand.offload == TEXT_OFFLOAD:
        encoding, denoising, decoding = encoders, decoders + rest, decoders + rest
    elif demand.offload == MODEL_OFFLOAD:
        largest = max((component_bytes(demand, part) for part in model.components if part.role in ENCODERS), default=0)
        core = max(component_bytes(demand, part) for part in model.components if part.role not in ENCODERS)
        encoding, denoising, decoding = largest, core, decoders + OFFLOAD_BUFFER_BYTES
    elif demand.offload == SEQUENTIAL_OFFLOAD:
        encoding = denoising = decoding = float(OFFLOAD_BUFFER_BYTES)
    elif demand.offload == SPREAD:
        encoding = max((component_bytes(demand, part) for part in model.components if part.role in ENCODERS), default=0)
        denoising, decoding = rest, decoders
    return (
        Phase("text encoding", encoding, ENCODE_BYTES if encoders else 0),
        Phase("denoising", denoising, denoise_bytes(demand)),
        Phase("decoding", decoding, decode_bytes(demand) if demand.decodes else 0.0),
    )


def component_bytes(demand: DiffusionDemand, part: Component) -> float:
    """Bytes of one component: cores and large encoders in the asked format, the rest 16 bit or as published."""
    published = bits_of(part.dtype)
    is_decoder = part.role in DECODERS
    word = demand.weights
    if part.role in ENCODERS and demand.encoder_weights is not None:
        word = demand.encoder_weights
    if word == "auto":
        return part.params * (published if is_decoder else min(published, 16.0)) / 8
    bits = bits_of(word)
    if is_decoder or (bits < 16 and part.role in ENCODERS and part.params < SMALL_PARAMS):
        return part.params * (published if bits >= 16 else min(published, 16.0)) / 8
    return part.params * bits / 8


def _role_bytes(demand: DiffusionDemand, roles: tuple[str, ...]) -> float:
    return sum(component_bytes(demand, part) for part in demand.model.components if part.role in roles)


def latent_tokens(model: PipelineShape, width: int, height: int, frames: int) -> int:
    """Tokens of one sample: latent pixels over patches, and latent frames."""
    geometry = model.geometry
    side = geometry.vae_spatial * geometry.patch_space
    latent_frames = 1 + (frames - 1) // geometry.vae_temporal if frames > 1 else 1
    return -(-width // side) * -(-height // side) * -(-latent_frames // geometry.patch_time)


def denoise_bytes(demand: DiffusionDemand) -> float:
    """Working set of one denoising step."""
    model = demand.model
    samples = demand.batch * (2 if model.guidance == "batched" else 1)
    tokens = latent_tokens(model, demand.width, demand.height, demand.frames)
    if model.core_width is None:
        return samples * tokens * Constants.unet_latent_bytes
    tokens += model.geometry.text_tokens
    return samples * tokens * model.core_width * TRANSFORMER_ELEMENTS * 2


def decoder_pixel_bytes(part: Component) -> float:
    """16-bit working set of a VAE's decoder per pixel."""
    return Constants.decode_pixel_bytes * DECODER_WIDTHS.get(part.class_name, 1.0)


def decode_bytes(demand: DiffusionDemand) -> float:
    """Working set of the decoder at the end: all images of the batch unless it decodes one after the other."""
    part = next((part for part in demand.model.components if part.role == "vae"), None)
    if part is None:
        return 0.0
    per_pixel = decoder_pixel_bytes(part) * bits_of(part.dtype) / 16
    pixels = demand.width * demand.height
    if demand.frames == 1:
        return pixels * per_pixel * (1 if demand.vae_slicing else demand.batch)
    at_once = FRAMES_AT_ONCE.get(part.class_name)
    # The output clip itself stays in fp32.
    output = pixels * demand.frames * 3 * 4 * demand.batch
    if at_once is None or demand.vae_tiling:
        return min(pixels, TILE_PIXELS) * min(demand.frames, TILE_FRAMES) * per_pixel + output
    return pixels * min(at_once, demand.frames) * per_pixel + output


def _decoder_note(demand: DiffusionDemand) -> str:
    part = next((part for part in demand.model.components if part.role == "vae"), None)
    if part is None:
        return "none"
    if demand.frames > 1 and part.class_name not in FRAMES_AT_ONCE:
        return "VAE decodes in tiles"
    return "VAE decodes one image at a time" if demand.vae_slicing else "VAE decodes the whole batch"


def usual_size(model: PipelineShape) -> tuple[int, int, int]:
    """Width, height and frames that the model is made for.

    Raises:
        UsageError: the model makes neither images nor video.
    """
    geometry = model.geometry
    if geometry.width is None or geometry.height is None:
        raise UsageError(f"{model.id} makes neither images nor video ({model.modality})")
    return geometry.width, geometry.height, geometry.frames or 1
