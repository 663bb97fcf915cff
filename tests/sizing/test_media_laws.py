"""Laws of images, video, audio and of layouts of trainings: more work never needs less, spreading it never more in all."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.rows import accelerator_of
from provisioner.sizing.demand import AudioDemand, DiffusionDemand, DiffusionTrainingDemand, TrainingDemand
from provisioner.sizing.estimate import estimate_footprint
from provisioner.sizing.footprint import Footprint
from provisioner.sizing.layout import Layout
from provisioner.sizing.models import find_model
from provisioner.sizing.pipelines import IMAGE, VIDEO, PipelineShape, pipeline, pipeline_names
from provisioner.sizing.training import stage_bytes
from provisioner.sizing.training_recipe import recipe_for
from provisioner.vocabulary import Optimizer, Sharding, TrainingMethod, TrainingPrecision

CARD = accelerator_of("H100-SXM-80GB", None)
assert CARD is not None
SHAPES = [pipeline(index) for index in sorted(set(pipeline_names().values()))]
PICTURES = st.sampled_from([s for s in SHAPES if s.modality in (IMAGE, VIDEO) and s.geometry.width])
SOUNDS = st.sampled_from([s for s in SHAPES if s.modality not in (IMAGE, VIDEO)])
LANGUAGE = st.sampled_from(
    ["Qwen/Qwen3-8B", "google/gemma-2-9b", "mistralai/Mixtral-8x7B-v0.1", "01-ai/Yi-34B", "openai-community/gpt2-xl"]
).map(find_model)
SIDES = st.integers(16, 128).map(lambda blocks: 16 * blocks)


@st.composite
def pictures(draw: st.DrawFn) -> DiffusionDemand:
    shape = draw(PICTURES)
    return DiffusionDemand(
        model=shape,
        weights=draw(st.sampled_from(["auto", "bf16", "fp8", "nf4"])),
        width=draw(SIDES),
        height=draw(SIDES),
        frames=draw(st.integers(1, 161)) if shape.modality == VIDEO else 1,
        batch=draw(st.integers(1, 16)),
        offload=draw(st.sampled_from(["none", "text-encoder", "model", "sequential", "spread"])),
        vae_slicing=draw(st.booleans()),
        vae_tiling=draw(st.booleans()),
    )


@st.composite
def picture_trainings(draw: st.DrawFn) -> DiffusionTrainingDemand:
    shape = draw(PICTURES)
    return DiffusionTrainingDemand(
        model=shape,
        weights="auto",
        method=draw(st.sampled_from(list(TrainingMethod))),
        precision=draw(st.sampled_from([TrainingPrecision.BF16, TrainingPrecision.BF16_MIXED])),
        optimizer=draw(st.sampled_from(list(Optimizer))),
        width=draw(SIDES),
        height=draw(SIDES),
        frames=draw(st.integers(1, 81)) if shape.modality == VIDEO else 1,
        micro_batch=draw(st.integers(1, 16)),
        gradient_checkpointing=draw(st.booleans()),
        lora_rank=draw(st.integers(1, 128)),
    )


@st.composite
def trainings(draw: st.DrawFn) -> TrainingDemand:
    return TrainingDemand(
        model=draw(LANGUAGE),
        weights="auto",
        method=draw(st.sampled_from(list(TrainingMethod))),
        precision=draw(st.sampled_from([TrainingPrecision.BF16, TrainingPrecision.BF16_MIXED])),
        optimizer=draw(st.sampled_from(list(Optimizer))),
        sequence_tokens=draw(st.integers(16, 16_384)),
        micro_batch=draw(st.integers(1, 8)),
        gradient_checkpointing=draw(st.sampled_from([True, False, "selective"])),
        attention=None,
    )


def size(demand: DiffusionDemand | DiffusionTrainingDemand | AudioDemand | TrainingDemand) -> Footprint:
    return estimate_footprint(demand, Layout(), CARD)


def is_ordered(footprint: Footprint) -> bool:
    terms = footprint.per_gpu
    meters = footprint.allocated_bytes <= footprint.reserved_bytes <= footprint.device_bytes
    return meters and 0 < terms.low_bytes <= terms.total_bytes <= terms.high_bytes


@settings(max_examples=80)
@given(pictures(), st.integers(1, 32))
def test_more_pixels_frames_and_images_never_need_less(demand, more):
    base = size(demand)
    assert is_ordered(base)
    changes = [
        {"width": demand.width + 16 * more},
        {"height": demand.height + 16 * more},
        {"batch": demand.batch + more},
    ]
    if demand.model.modality == VIDEO:
        changes.append({"frames": demand.frames + more})
    for change in changes:
        assert size(replace(demand, **change)).per_gpu.total_bytes >= base.per_gpu.total_bytes, change


@settings(max_examples=60)
@given(pictures())
def test_offload_and_narrow_weights_never_need_more(demand):
    whole = size(replace(demand, offload="none", weights="bf16")).per_gpu
    for offload in ("text-encoder", "sequential", "spread"):
        assert size(replace(demand, offload=offload, weights="bf16")).per_gpu.total_bytes <= whole.total_bytes
    for word in ("fp8", "nf4"):
        assert size(replace(demand, offload="none", weights=word)).per_gpu.weights_bytes <= whole.weights_bytes
    sliced = replace(demand, offload="none", weights="bf16", vae_slicing=True, vae_tiling=True)
    plain = replace(sliced, vae_slicing=False, vae_tiling=False)
    if demand.frames == 1:
        assert size(sliced).per_gpu.total_bytes <= size(plain).per_gpu.total_bytes


@settings(max_examples=60)
@given(picture_trainings(), st.integers(1, 16))
def test_larger_samples_and_batches_of_a_picture_training_never_need_less(demand, more):
    base = size(demand)
    assert is_ordered(base)
    changes = [{"width": demand.width + 16 * more}, {"micro_batch": demand.micro_batch + more}]
    changes.append({"lora_rank": demand.lora_rank + more})
    changes.append({"accumulates_gradients": True})
    for change in changes:
        assert size(replace(demand, **change)).per_gpu.total_bytes >= base.per_gpu.total_bytes, change
    stored = size(replace(demand, gradient_checkpointing=False)).per_gpu.total_bytes
    assert size(replace(demand, gradient_checkpointing=True)).per_gpu.total_bytes <= stored * 1.0001
    assert size(replace(demand, host_states=True)).per_gpu.total_bytes <= base.per_gpu.total_bytes


@settings(max_examples=60)
@given(SOUNDS, st.floats(0.5, 300), st.integers(1, 32), st.integers(1, 8))
def test_longer_pieces_batches_and_beams_never_need_less(shape, seconds, batch, beams):
    assert isinstance(shape, PipelineShape)
    demand = AudioDemand(shape, "auto", seconds, batch, beams)
    base = size(demand)
    assert is_ordered(base)
    for change in ({"seconds": seconds * 2}, {"batch": batch + 1}, {"beams": beams + 1}):
        assert size(replace(demand, **change)).per_gpu.total_bytes >= base.per_gpu.total_bytes, change
    assert size(replace(demand, weights="int8")).per_gpu.weights_bytes <= base.per_gpu.weights_bytes


def states(demand: TrainingDemand, layout: Layout) -> float:
    """Weights and optimizer state on the fullest rank."""
    assert CARD is not None
    return max(part.weights + part.optimizer for part in stage_bytes(recipe_for(demand, layout, CARD)))


@settings(max_examples=80)
@given(trainings(), st.sampled_from([2, 4, 8]))
def test_spreading_a_training_never_makes_states_and_never_holds_more_each(demand, ranks):
    one = states(demand, Layout())
    layouts = [
        Layout(tensor_parallel=ranks, sharding=Sharding.TP),
        Layout(pipeline_parallel=ranks, sharding=Sharding.PP),
        Layout(data_parallel=ranks, sharding=Sharding.FSDP),
    ]
    for layout in layouts:
        each = states(demand, layout)
        assert each <= one * 1.0001, layout
        assert each * ranks >= one * 0.9999, layout
    # Replicas each hold what one holds.
    assert states(demand, Layout(data_parallel=ranks, sharding=Sharding.DDP)) == one


@settings(max_examples=60)
@given(trainings())
def test_more_stages_and_ranks_never_need_more_each(demand):
    for kind, sharding in (("tensor_parallel", Sharding.TP), ("pipeline_parallel", Sharding.PP)):
        before = None
        for degree in (1, 2, 4, 8):
            layout = Layout(**{kind: degree}, sharding=sharding)
            assert CARD is not None
            peak = max(part.peak for part in stage_bytes(recipe_for(demand, layout, CARD)))
            # Layers that do not divide make a stage fuller than its share.
            assert before is None or peak <= before * 1.15, layout
            before = peak
