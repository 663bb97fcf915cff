"""Diffusers pipelines: components are counted from their own shards, the geometry is that of their family."""

from __future__ import annotations

import json

import pytest

from provisioner.sizing.models import find_model
from provisioner.sizing.pipelines import PipelineShape
from tests.fakes.hub import Hub, Repository, safetensors

INDEX = {
    "_class_name": "FluxPipeline",
    "_diffusers_version": "0.30.0",
    "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "text_encoder_2": ["transformers", "T5EncoderModel"],
    "tokenizer_2": ["transformers", "T5TokenizerFast"],
    "transformer": ["diffusers", "FluxTransformer2DModel"],
    "vae": ["diffusers", "AutoencoderKL"],
    "safety_checker": [None, None],
}


def flux(**index: object) -> Repository:
    small = {"num_attention_heads": 4, "attention_head_dim": 64, "num_layers": 3, "num_single_layers": 6}
    return Repository(
        files={
            "model_index.json": json.dumps({**INDEX, **index}).encode(),
            "transformer/config.json": json.dumps(small).encode(),
            "transformer/diffusion_pytorch_model.safetensors": safetensors({"a": ("BF16", (1000, 100))}),
            "vae/diffusion_pytorch_model.safetensors": safetensors({"a": ("F32", (300, 10))}),
            "text_encoder/model.safetensors": safetensors({"a": ("BF16", (200, 10))}),
            "text_encoder_2/model.safetensors": safetensors({"a": ("BF16", (400, 10))}),
        }
    )


def test_a_pipeline_is_added_and_sized(hub: Hub, gpuprov, tmp_path):
    hub.repositories["me/art"] = flux()
    code, out, _ = gpuprov("models", "add", "me/art", "--format", "json")
    assert code == 0
    (model,) = json.loads(out)["models"]
    assert model["components"] == {"text_encoder": 2000, "text_encoder_2": 4000, "transformer": 100_000, "vae": 3000}
    shape = find_model("me/art")
    assert isinstance(shape, PipelineShape)
    assert (shape.core_width, shape.core_depth) == (256, 9)
    assert shape.modality == "image"
    spec = tmp_path / "workload.yaml"
    spec.write_text("version: 1\nname: art\ntask: serve\nmodel: {id: me/art}\nplacement: {gpus: [L4]}\n")
    code, out, _ = gpuprov("size", str(spec), "--format", "json")
    assert code == 0
    weights = json.loads(out)["layouts"][0]["footprint"]["per_gpu"]["weights_bytes"]
    assert weights == 2 * (2000 + 4000 + 100_000) + 4 * 3000
    plan = tmp_path / "plan.json"
    assert gpuprov("plan", str(spec), "-o", str(plan))[0] == 0
    gpuprov("models", "remove", "me/art")
    assert gpuprov("check", str(plan))[0] == 0


@pytest.mark.parametrize(
    ("index", "why"),
    [
        ({"transformer": ["diffusers", "WonderTransformer"]}, "WonderTransformer"),
        ({"transformer": [None, None]}, "no denoiser"),
        ({"mystery": ["diffusers", "Mystery"]}, "component mystery"),
        ({"image_encoder": ["transformers", "CLIPVisionModel"]}, "image_encoder has no safetensors"),
    ],
)
def test_what_is_not_modelled_is_named(hub: Hub, gpuprov, index, why):
    hub.repositories["me/art"] = flux(**index)
    code, _, error = gpuprov("models", "add", "me/art")
    assert code == 2
    assert why in error
