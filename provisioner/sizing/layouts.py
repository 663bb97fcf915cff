"""Which parallel layouts a model can take, and why not the others."""

from __future__ import annotations

from provisioner.sizing.demand import (
    AudioDemand,
    Demand,
    DiffusionDemand,
    DiffusionTrainingDemand,
    ServingDemand,
    TrainingDemand,
)
from provisioner.sizing.layout import Layout
from provisioner.sizing.shapes import ModelShape, Part
from provisioner.vocabulary import Engine, Sharding, TrainingMethod

MAX_TENSOR_PARALLEL = 64
SINGLE_PROCESS_ENGINES = (Engine.TRANSFORMERS, Engine.LLAMA_CPP)
"""Engines that spread layers over GPUs in one process and have no tensor parallelism of their own."""
BLOCK = 128
"""Side of an FP8 quantisation block, and group of the usual four-bit checkpoints."""
GROUPED = ("int4-awq", "int4-gptq")


def layout_objections(demand: Demand, layout: Layout) -> tuple[str, ...]:
    """Reasons why a layout is impossible for a demand; empty where it is possible."""
    if isinstance(demand, (TrainingDemand, DiffusionTrainingDemand)):
        return _training_objections(demand, layout)
    if isinstance(demand, (DiffusionDemand, AudioDemand)):
        alone = layout.gpus_per_replica == 1
        return () if alone else (f"{demand.model.id} runs on one GPU a copy: its parts are not split",)
    return _serving_objections(demand, layout)


def feasible_layouts(demand: Demand, max_gpus: int) -> tuple[Layout, ...]:
    """Layouts of one replica, or of the training, on at most ``max_gpus``, smallest GPU count first.

    For equal counts, tensor parallelism comes before pipeline stages, and less sharding before more.
    """
    candidates = [Layout()] if max_gpus > 0 else []
    if isinstance(demand, (TrainingDemand, DiffusionTrainingDemand)):
        candidates = _training_layouts(demand, max_gpus)
    elif isinstance(demand, ServingDemand):
        candidates = _serving(demand, max_gpus)
    return tuple(layout for layout in candidates if not layout_objections(demand, layout))


def _serving(demand: ServingDemand, max_gpus: int) -> list[Layout]:
    if demand.tensor_parallel is not None:
        degrees = [demand.tensor_parallel]
    elif demand.engine in SINGLE_PROCESS_ENGINES:
        degrees = [1]
    else:
        degrees = list(range(1, min(max_gpus, MAX_TENSOR_PARALLEL) + 1))
    if demand.pipeline_parallel is not None:
        stages = [demand.pipeline_parallel]
    else:
        stages = [stage for stage in (1, 2, 3, 4, 6, 8, 16) if stage <= max_gpus]
    pairs = [(t, p) for t in degrees for p in stages if t * p <= max_gpus]
    pairs.sort(key=lambda pair: (pair[0] * pair[1], pair[1]))
    return [Layout(tensor_parallel=t, pipeline_parallel=p) for t, p in pairs]


def _serving_objections(demand: ServingDemand, layout: Layout) -> tuple[str, ...]:
    reasons = list(_tensor_objections(demand.model, layout.tensor_parallel))
    reasons += _block_objections(demand.model, demand.weights, layout.tensor_parallel)
    if layout.pipeline_parallel > demand.model.num_layers:
        reasons.append(f"{layout.pipeline_parallel} pipeline stages for {demand.model.num_layers} layers")
    if demand.tensor_parallel not in (None, layout.tensor_parallel):
        reasons.append(f"the spec asks for tensor_parallel {demand.tensor_parallel}")
    if demand.pipeline_parallel not in (None, layout.pipeline_parallel):
        reasons.append(f"the spec asks for pipeline_parallel {demand.pipeline_parallel}")
    if demand.engine in SINGLE_PROCESS_ENGINES and layout.tensor_parallel > 1:
        reasons.append(f"{demand.engine.value} splits layers over GPUs, not tensors")
    return tuple(reasons)


def _tensor_objections(model: ModelShape, tensor: int) -> tuple[str, ...]:
    """Heads, key-value heads and experts' widths must divide by the tensor-parallel degree."""
    reasons = [
        f"{heads} attention heads do not divide by tensor_parallel {tensor}"
        for heads in model.attention_heads
        if heads % tensor
    ]
    reasons += [
        f"{heads} key-value heads neither divide by tensor_parallel {tensor} nor into it"
        for heads in model.kv_heads
        if heads % tensor and tensor % heads
    ]
    for kind in model.kinds:
        for matrix in kind.mlp.matrices + kind.mlp.expert_matrices:
            if matrix.name == "down_proj" and matrix.inputs % tensor:
                reasons.append(f"MLP width {matrix.inputs} does not divide by tensor_parallel {tensor}")
    return tuple(dict.fromkeys(reasons))


def _block_objections(model: ModelShape, weights: str, tensor: int) -> tuple[str, ...]:
    """Widths per rank must be whole quantisation blocks: 128 x 128 for FP8, groups of 128 for experts in four bits.

    Source: vllm-project/vllm#17569, #48173 (1536 / 8 = 192), #54178 and #17604; sgl-project/sglang#3345 and #10852.
    """
    published = dict(model.quantisation.formats) if model.quantisation else {}
    formats = published if weights == "auto" else {Part.EXPERT: weights}
    if tensor == 1 or not formats:
        return ()
    reasons = []
    for kind in model.kinds:
        groups = ((kind.mlp.part, kind.mlp.matrices), (Part.EXPERT, kind.mlp.expert_matrices))
        for part, matrices in groups:
            name = formats.get(part)
            is_cut = name == "fp8-block" or (part is Part.EXPERT and name in GROUPED)
            widths = {matrix.inputs for matrix in matrices if matrix.name == "down_proj" and is_cut}
            reasons += [
                f"{part.value} width {width} over {tensor} ranks is no multiple of the {name} block of {BLOCK}"
                for width in sorted(widths)
                if width % tensor == 0 and (width // tensor) % BLOCK
            ]
    return tuple(dict.fromkeys(reasons))


TRAINING_SHARDINGS = {
    Sharding.NONE: (Sharding.NONE,),
    Sharding.DDP: (Sharding.DDP,),
    Sharding.ZERO1: (Sharding.ZERO1,),
    Sharding.ZERO2: (Sharding.ZERO2,),
    Sharding.ZERO3: (Sharding.ZERO3,),
    Sharding.FSDP: (Sharding.FSDP,),
    Sharding.AUTO: (Sharding.DDP, Sharding.FSDP),
}


def _training_layouts(demand: TrainingDemand | DiffusionTrainingDemand, max_gpus: int) -> list[Layout]:
    counts = [n for n in (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024) if n <= max_gpus]
    if max_gpus not in counts and max_gpus > 0:
        counts.append(max_gpus)
    found = []
    for count in counts:
        if demand.sharding is Sharding.TP:
            found.append(Layout(tensor_parallel=count, sharding=Sharding.TP if count > 1 else Sharding.NONE))
        elif demand.sharding is Sharding.PP:
            found.append(Layout(pipeline_parallel=count, sharding=Sharding.PP if count > 1 else Sharding.NONE))
        elif count == 1:
            found.append(Layout())
        else:
            found += [Layout(data_parallel=count, sharding=kind) for kind in TRAINING_SHARDINGS[demand.sharding]]
    return found


def _training_objections(demand: TrainingDemand | DiffusionTrainingDemand, layout: Layout) -> tuple[str, ...]:
    model = demand.model
    reasons: list[str] = []
    if layout.tensor_parallel > 1:
        reasons += _tensor_objections(model, layout.tensor_parallel)
    if layout.pipeline_parallel > 1 and model.num_layers % layout.pipeline_parallel:
        reasons.append(f"{model.num_layers} layers do not divide by pipeline_parallel {layout.pipeline_parallel}")
    single = (Sharding.NONE, Sharding.AUTO)
    if layout.gpus_per_replica > 1 and demand.sharding is Sharding.NONE:
        reasons.append("training.sharding is none, so the training has one GPU")
    if layout.gpus_per_replica > 1 and layout.sharding in single:
        reasons.append("several GPUs need a sharding")
    if demand.method is TrainingMethod.QLORA and layout.tensor_parallel > 1:
        reasons.append("QLoRA has no tensor parallelism")
    return tuple(reasons)
