"""A training run in bytes per parameter: what each precision, optimizer, method and sharding keeps where."""

from __future__ import annotations

from dataclasses import dataclass

from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.demand import TrainingDemand
from provisioner.sizing.layout import Layout
from provisioner.sizing.shapes import ModelShape
from provisioner.vocabulary import Attention, Optimizer, Sharding, TrainingMethod, TrainingPrecision

EAGER_LOSS_BYTES = 14
"""Bytes per token and vocabulary entry of the default loss: 16-bit logits, fp32 copy, log-softmax, gradient."""
FUSED_LOSS_BYTES = 0
STATE_BYTES = {
    Optimizer.ADAMW: 8.0,
    Optimizer.ADAMW_8BIT: 2.06,
    Optimizer.PAGED_ADAMW_8BIT: 2.06,
    Optimizer.ADAFACTOR: 0.02,
    Optimizer.SGD: 4.0,
    Optimizer.LION: 4.0,
    Optimizer.MUON: 4.4,
}
"""Optimizer state per parameter in fp32 terms: two moments for AdamW, one byte each with block scales for 8 bit (3 %), one
momentum for SGD, Lion and Muon (which leaves embeddings to AdamW), row and column sums for Adafactor.
"""
FOLLOWS_PARAMETERS = (Optimizer.ADAMW, Optimizer.SGD, Optimizer.LION, Optimizer.MUON)
"""Optimizers whose state has the parameters' own width (vramcalc 0.1.2 benchmarks/results.jsonl)."""
FOREACH = (Optimizer.ADAMW,)
"""Optimizers whose default step holds one more parameter-sized set (torch.optim, foreach)."""
SHARDED_WEIGHTS = (Sharding.ZERO3, Sharding.FSDP)
SHARDED_GRADIENTS = (Sharding.ZERO2, *SHARDED_WEIGHTS)
SHARDED_STATES = (Sharding.ZERO1, *SHARDED_GRADIENTS)
DEEPSPEED = (Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3)


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that a training's memory depends on, in numbers."""

    model: ModelShape
    method: TrainingMethod
    base_weights: str
    """Format word of the frozen base (LoRA, QLoRA); trained weights have ``weight_bytes`` each."""
    weight_bytes: float
    gradient_bytes: float
    master_bytes: float
    state_bytes: float
    step_bytes: float
    """Temporaries of the optimizer step."""
    compute_bytes: float
    autocast: bool
    """Weights are wider than the compute type: 16-bit copies live while the forward pass runs."""
    checkpointing: str
    """``none``, ``full`` or ``selective``."""
    attention: Attention
    loss_bytes: float
    sequence_tokens: int
    micro_batch: int
    sharding: Sharding = Sharding.NONE
    data_parallel: int = 1
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    lora_rank: int = 0
    lora_targets: str | tuple[str, ...] = "all-linear"
    wide_bytes: float = 2.0
    """Bytes of the frozen parameters that are not quantised (4 after k-bit preparation)."""
    persistent_gradients: bool = False
    extra_trained_params: int = 0
    """Modules trained in full beside adapters (embedding, head): a copy in the compute type with gradient and moments."""
    checkpoint_bytes: float | None = None
    """Bytes per element of checkpointed hidden states where they are wider than the compute type: FSDP with fp32 adapters
    hands fp32 hidden states from layer to layer (Llama-3-8B and Llama-2-70B runs of fms-acceleration).
    """
    fp32_norms: bool = True
    """Norms keep an fp32 copy of their input (off: low-precision norms)."""
    gathers_all: bool = False
    """A weight-sharded run ends its backward pass with all layers gathered (LitGPT with FSDP over 2 and 4 GPUs: adapters of a
    7B model 20.7 GiB, of a 13B model 33.1 GiB)."""
    sequence_parallel: bool = False
    """Tensor-parallel ranks share norms, residuals and checkpoints along the sequence; without, each holds them whole."""
    micro_batches: int | None = None
    """Micro-batches of one optimizer step; a pipeline holds no more of them at once. ``None``: at least as many as stages."""
    is_staged: bool = False
    """A pipeline without a schedule (a device map): one micro-batch is under way at a time."""
    trained_params: int | None = None
    """Trained parameters where they are neither the whole model nor low-rank adapters."""
    adapter_kind: str = "low-rank"
    """What adapters add to the activations of the matrices they sit on: ``low-rank``, ``scale`` (a product with every output)
    or ``none`` (prompts and prefixes)."""
    fused_qkv: bool = False
    """Queries, keys and values are one product, and an adapter on them keeps their input once."""
    fused_softmax: bool = False
    """Eager attention whose softmax never widens its scores (Megatron)."""
    unsynced_gradients: bool = False
    """Gradients are summed over micro-batches before ranks share them: whole on each rank, however they are sharded later."""
    layer_gradients: bool = False
    """Gradients are applied layer by layer and never all there."""
    context_bytes: int | None = None
    """CUDA context and kernels where they differ from those of a current release."""
    embedding_gradient: bool = False
    """A frozen embedding that still gets a gradient, which nothing clears."""
    host_states: bool = False
    host_weights: bool = False
    bucket_view: bool = False

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one GPU."""
        return self.sequence_tokens * self.micro_batch


def attention_kernel(demand: TrainingDemand, accelerator: Accelerator) -> Attention:
    """Flash where the GPU has it (compute capability 8.0 and above), else sdpa."""
    if demand.attention is not None:
        return demand.attention
    capability = accelerator.compute_capability
    return Attention.FLASH if capability is None or capability >= (8, 0) else Attention.SDPA


def recipe_for(demand: TrainingDemand, layout: Layout, accelerator: Accelerator) -> Recipe:
    """The usual recipe of a demand: Hugging Face Trainer on one GPU, DDP and FSDP; DeepSpeed for ZeRO."""
    precision = demand.precision
    is_pure = precision in (TrainingPrecision.BF16, TrainingPrecision.FP32)
    width = 4.0 if precision is TrainingPrecision.FP32 else 2.0
    is_full = demand.method is TrainingMethod.FULL
    deepspeed = layout.sharding in DEEPSPEED
    if is_full and is_pure:
        weights, master, gradients = width, 0.0, width
    elif is_full and deepspeed:
        weights, master, gradients = 2.0, 4.0, 2.0
    else:
        # Mixed precision keeps fp32 parameters; adapters are kept in fp32 too.
        weights, master, gradients = 4.0, 0.0, 4.0
    state = STATE_BYTES[demand.optimizer]
    if demand.optimizer in FOLLOWS_PARAMETERS and is_full and is_pure:
        state *= width / 4
    step = weights if demand.optimizer in FOREACH and not deepspeed else (4.0 if deepspeed else 0.0)
    return Recipe(
        model=demand.model,
        method=demand.method,
        base_weights=_base_weights(demand),
        weight_bytes=weights,
        gradient_bytes=gradients,
        master_bytes=master,
        state_bytes=state,
        step_bytes=step,
        compute_bytes=width,
        autocast=is_full and not is_pure and not deepspeed,
        checkpointing=_checkpointing(demand.gradient_checkpointing),
        attention=attention_kernel(demand, accelerator),
        loss_bytes=EAGER_LOSS_BYTES,
        sequence_tokens=demand.sequence_tokens,
        micro_batch=demand.micro_batch,
        sharding=layout.sharding,
        data_parallel=layout.data_parallel,
        tensor_parallel=layout.tensor_parallel,
        pipeline_parallel=layout.pipeline_parallel,
        # A pipeline fed with one micro-batch would idle: gradients of several are summed.
        persistent_gradients=layout.pipeline_parallel > 1,
        lora_rank=0 if is_full else demand.lora_rank,
        lora_targets=demand.lora_targets,
        checkpoint_bytes=4.0 if layout.sharding is Sharding.FSDP and not is_full else None,
        wide_bytes=4.0 if demand.method is TrainingMethod.QLORA else width,
    )


def _checkpointing(asked: bool | str) -> str:
    if asked == "selective":
        return "selective"
    return "full" if asked else "none"


def _base_weights(demand: TrainingDemand) -> str:
    """Format of the frozen base: double-quantised nf4 for QLoRA, 16 bit for LoRA unless the spec says otherwise."""
    if demand.method is TrainingMethod.QLORA:
        return "nf4-double" if demand.weights in ("auto", "nf4") else demand.weights
    if demand.method is TrainingMethod.LORA and demand.weights in ("auto", "fp16"):
        return "fp32" if demand.precision is TrainingPrecision.FP32 else "bf16"
    return demand.weights
