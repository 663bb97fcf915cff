"""Which part a tensor belongs to, by the names that each family's checkpoints use."""

from __future__ import annotations

import pytest

from provisioner.sizing.checkpoint import Tensor, part_of_tensor, sum_parts

NAMES = {
    "embedding": (
        "model.embed_tokens.weight",
        "transformer.wte.weight",
        "transformer.word_embeddings.weight",
        "transformer.embedding.word_embeddings.weight",
        "gpt_neox.embed_in.weight",
        "backbone.embeddings.weight",
        "shared.weight",
        "embed.weight",
        "language_model.model.embed_tokens.weight",
    ),
    "head": ("lm_head.weight", "embed_out.weight", "output.weight", "transformer.output_layer.weight", "head.weight"),
    "norm": (
        "model.norm.weight",
        "h.0.ln_1.bias",
        "model.layers.3.self_attn.q_a_layernorm.weight",
        "decoder.block.0.layer.1.layer_norm.weight",
    ),
    "attention": (
        "model.layers.0.self_attn.kv_a_proj_with_mqa.weight",
        "h.0.attn.c_attn.weight",
        "transformer.h.0.self_attention.query_key_value.weight",
        "decoder.block.0.layer.1.EncDecAttention.q.weight",
        "backbone.layers.7.mixer.q_proj.weight",
        "model.layers.0.self_attn.qkv_proj.weight_scale",
        "model.layers.0.self_attn.sinks",
        "layers.0.attn.wq_a.weight",
    ),
    "linear-attention": (
        "model.layers.0.linear_attn.in_proj_qkvz.weight",
        "backbone.layers.0.mixer.A_log",
        "backbone.layers.0.mixer.conv1d.weight",
    ),
    "mlp": (
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.gate_up_proj.qweight",
        "transformer.h.0.mlp.dense_h_to_4h.weight",
        "encoder.block.0.layer.1.DenseReluDense.wi_0.weight",
        "backbone.layers.3.mixer.up_proj.weight",
        "model.layers.1.feed_forward.w1.weight",
    ),
    "expert": (
        "model.layers.3.mlp.experts.0.gate_proj.weight",
        "model.layers.0.block_sparse_moe.experts.7.w1.weight",
        "model.layers.0.mlp.experts.gate_up_proj_blocks",
        "language_model.model.layers.0.feed_forward.experts.down_proj",
        "layers.4.ffn.experts.0.w1.scale",
    ),
    "shared-expert": (
        "model.layers.3.mlp.shared_experts.up_proj.weight",
        "language_model.model.layers.0.feed_forward.shared_expert.down_proj.weight",
    ),
    "router": (
        "model.layers.3.mlp.gate.weight",
        "model.layers.3.mlp.gate.e_score_correction_bias",
        "model.layers.0.block_sparse_moe.gate.weight",
        "model.layers.0.mlp.router.weight",
        "model.layers.0.mlp.shared_expert_gate.weight",
    ),
    "tower": (
        "vision_tower.vision_model.encoder.layers.26.mlp.fc1.weight",
        "model.visual.blocks.3.attn.qkv.weight",
        "multi_modal_projector.linear_1.weight",
        "mm_projector.proj.0.weight",
        "vision_model.patch_embedding.weight",
    ),
    "draft": (
        "mtp.0.head.weight",
        "model.mtp.layers.0.mlp.up_proj.weight",
        "model.layers.61.mlp.experts.0.up_proj.weight",
    ),
}


@pytest.mark.parametrize(("part", "name"), [(part, name) for part, names in NAMES.items() for name in names])
def test_names_of_tensors(part, name):
    assert part_of_tensor(name, 61) == part


def test_blocks_of_a_tower_are_no_draft_heads():
    assert part_of_tensor("visual.blocks.99.mlp.up_proj.weight", 10) == "tower"
    assert part_of_tensor("model.layers.99.mlp.up_proj.weight", None) == "mlp"


def test_sums_keep_formats_apart():
    tensors = [
        Tensor("model.layers.0.mlp.up_proj.weight", "F8_E4M3", 100, 100),
        Tensor("model.layers.1.mlp.up_proj.weight", "F8_E4M3", 100, 100),
        Tensor("model.layers.0.mlp.up_proj.weight_scale", "F32", 2, 8),
        Tensor("lm_head.weight", "BF16", 10, 20),
    ]
    assert sum_parts(tensors, 2) == {
        "head": {"BF16": [10, 20]},
        "mlp": {"F32": [2, 8], "F8_E4M3": [200, 200]},
    }
