"""What is asked of a GPU, in sizing's own words: frozen inputs made from a workload by the planner."""

from __future__ import annotations

from provisioner.records import record
from provisioner.sizing.pipelines import PipelineShape
from provisioner.sizing.shapes import ModelShape
from provisioner.vocabulary import (
    Attention,
    Engine,
    KvDtype,
    Optimizer,
    Sharding,
    TrainingMethod,
    TrainingPrecision,
)

MODEL_OFFLOAD = "model"
"""Word of an offload that keeps whole components of a pipeline in host memory while others work."""


@record(frozen=True, slots=True)
class ServingDemand:
    """One serving copy of a language model.

    ``weights`` is a word of ``WeightFormat`` or ``gguf-<type>``; ``auto`` = as published. ``engine_version`` ``None`` takes the
    newest profile. ``context_tokens`` is input + output per request, ``concurrency`` the requests at once per replica.
    """

    model: ModelShape
    weights: str
    engine: Engine
    engine_version: str | None
    context_tokens: int
    concurrency: int
    kv_dtype: KvDtype = KvDtype.AUTO
    gpu_memory_fraction: float | None = None
    input_tokens: int = 1024
    output_tokens: int = 256
    adapters: int = 0
    """LoRA adapters served beside the base: as many slots are kept on the GPU."""
    adapter_rank: int | None = None
    """Largest rank among them; ``None`` where it is not known."""
    adapter_targets: tuple[str, ...] | None = None
    """Matrices that they sit on; ``None`` for all linear layers."""
    tensor_parallel: int | None = None
    """Asked for in the spec; ``None`` = any."""
    pipeline_parallel: int | None = None
    max_sequences: int | None = None
    """Sequences that the engine prepares for at start-up; ``None`` = its default."""
    max_batched_tokens: int | None = None
    """Tokens of one forward pass; ``None`` = the engine's default."""
    uses_graphs: bool = True
    """CUDA graphs are captured (off: eager mode)."""
    uses_draft: bool = False
    """The model's own draft (multi-token-prediction) layers are loaded."""
    quantises_on_load: bool = False
    """The engine makes ``weights`` out of a 16-bit checkpoint while it loads."""
    images: int | None = None
    """Images of a request, part of its context; ``None`` where nothing is said of them."""
    image_pixels: int = 0
    """Pixels of one of them."""


@record(frozen=True, slots=True)
class TrainingDemand:
    """A fine-tuning or pre-training of a language model. ``micro_batch`` counts sequences per GPU.

    ``gradient_checkpointing`` is ``True``, ``False`` or ``"selective"``.
    """

    model: ModelShape
    weights: str
    method: TrainingMethod
    precision: TrainingPrecision
    optimizer: Optimizer
    sequence_tokens: int
    micro_batch: int
    gradient_checkpointing: bool | str
    attention: Attention | None
    """``None``: flash where the GPU has it, else sdpa."""
    lora_rank: int = 16
    lora_targets: str | tuple[str, ...] = "all-linear"
    sharding: Sharding = Sharding.AUTO


@record(frozen=True, slots=True)
class DiffusionDemand:
    """One copy of an image or video pipeline. ``frames`` is 1 for images; ``offload`` ``none``, ``text-encoder`` or ``model``."""

    model: PipelineShape
    weights: str
    width: int
    height: int
    frames: int = 1
    batch: int = 1
    steps: int | None = None
    offload: str = "none"
    gpu_memory_fraction: float | None = None
    vae_slicing: bool = False
    vae_tiling: bool = False
    encoder_weights: str | None = None
    """Format of large text encoders; ``None`` = as ``weights``."""
    adapters: int = 0
    """LoRA adapters loaded beside the denoiser."""
    adapter_rank: int = 16
    """Largest rank among them; 16 where they state none."""
    decodes: bool = True
    """The run ends with decoding; off where latents are the result."""


@record(frozen=True, slots=True)
class AudioDemand:
    """One copy of a speech or music model with a batch of pieces."""

    model: PipelineShape
    weights: str
    seconds: float
    batch: int = 1
    beams: int = 5
    gpu_memory_fraction: float | None = None


@record(frozen=True, slots=True)
class DiffusionTrainingDemand:
    """A fine-tuning or pre-training of a pipeline's core, its denoiser or the networks of a speech or music model.

    ``micro_batch`` counts samples per GPU. Audio has ``seconds`` and neither width nor height.
    """

    model: PipelineShape
    weights: str
    method: TrainingMethod
    precision: TrainingPrecision
    optimizer: Optimizer
    width: int
    height: int
    frames: int
    micro_batch: int
    gradient_checkpointing: bool | str
    lora_rank: int = 16
    sharding: Sharding = Sharding.AUTO
    seconds: float = 0.0
    """Length of a piece of audio; 0 for images and video."""
    keeps_frozen_parts: bool = True
    """Encoders and VAE stay on the GPU (off: their outputs were computed before)."""
    accumulates_gradients: bool = False
    """Gradients live through several micro-batches."""
    host_states: bool = False
    """Optimizer state and its step are in host memory."""
    trained_params: int | None = None
    """Parameters of a network that is trained beside the frozen denoiser (ControlNet)."""


Demand = ServingDemand | TrainingDemand | DiffusionDemand | AudioDemand | DiffusionTrainingDemand
