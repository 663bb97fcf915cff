"""Which reader reads which ``model_type``."""

from __future__ import annotations

from collections.abc import Callable

from provisioner.errors import UsageError
from provisioner.sizing.families import compressed, encdec, gpt, hybrid, latent, sparse, speech, windows
from provisioner.sizing.families.dense import FAMILIES, read_dense
from provisioner.sizing.families.fields import Fields
from provisioner.sizing.families.towers import phi3_tower, pixtral_tower, qwen_tower
from provisioner.sizing.shapes import ModelShape, Tower


def _read_qwen_vl(fields: Fields) -> ModelShape:
    """Qwen-VL: a dense or routed Qwen with a vision tower."""
    text = fields.child("text_config") if "text_config" in fields.config else fields
    hidden = text.need("hidden_size")
    return read_dense(text, top=fields, towers=(qwen_tower(fields.child("vision_config"), hidden),))


def _read_mistral3(fields: Fields) -> ModelShape:
    """Mistral 3: a Mistral with a Pixtral tower."""
    text = fields.child("text_config") if "text_config" in fields.config else fields
    towers: tuple[Tower, ...] = ()
    if fields.config.get("vision_config"):
        merge = fields.number("spatial_merge_size", 2)
        towers = (pixtral_tower(fields.child("vision_config"), text.need("hidden_size"), merge),)
    return read_dense(text, top=fields, towers=towers)


def _read_phi3_vision(fields: Fields) -> ModelShape:
    """Phi-3 Vision: a Phi-3 with a CLIP tower."""
    has_tower = bool(fields.config.get("img_processor"))
    return read_dense(fields, towers=(phi3_tower(fields.need("hidden_size")),) if has_tower else ())


READERS: dict[str, Callable[[Fields], ModelShape]] = {
    **dict.fromkeys(FAMILIES, read_dense),
    **gpt.READERS,
    "qwen2_vl": _read_qwen_vl,
    "qwen2_5_vl": _read_qwen_vl,
    "qwen3_vl": _read_qwen_vl,
    "qwen3_vl_moe": _read_qwen_vl,
    "phi3_v": _read_phi3_vision,
    "ministral3": _read_mistral3,
    "mistral3": _read_mistral3,
    "gemma2": windows.read_gemma,
    "gemma3_text": windows.read_gemma,
    "gemma3": windows.read_gemma3,
    "gemma4": windows.read_gemma4,
    "gemma4_text": windows.read_gemma4,
    "gpt_oss": windows.read_gpt_oss,
    "mimo_v2_flash": windows.read_mimo_v2,
    "step3p7": windows.read_step,
    "llama4": windows.read_llama4,
    "llama4_text": windows.read_llama4,
    "deepseek_v2": latent.read_latent,
    "deepseek_v3": latent.read_latent,
    "deepseek_v32": latent.read_latent,
    "kimi_k2": latent.read_latent,
    "glm4_moe_lite": latent.read_latent,
    "glm_moe_dsa": latent.read_latent,
    "kimi_k25": latent.read_kimi_k25,
    "deepseek_v4": compressed.read_deepseek_v4,
    "deepseek_ref": compressed.read_deepseek_v4,
    "minimax_m3": sparse.read_minimax_m3,
    "minimax_m3_vl": sparse.read_minimax_m3,
    "qwen3_next": hybrid.read_qwen_hybrid,
    "qwen3_5": hybrid.read_qwen_hybrid,
    "qwen3_5_moe": hybrid.read_qwen_hybrid,
    "nemotron_h": hybrid.read_nemotron_h,
    "nemotron-nas": hybrid.read_nemotron_nas,
    "kimi_k3": hybrid.read_kimi_linear,
    "kimi_linear": hybrid.read_kimi_linear,
    "t5": encdec.read_t5,
    "mt5": encdec.read_t5,
    "mllama": encdec.read_mllama,
    "whisper": speech.read_whisper,
}


def read_shape(fields: Fields) -> ModelShape:
    """The shape of a config by its ``model_type``.

    Raises:
        UsageError: the model type is missing or not modelled, or fields are missing; each is named.
    """
    family = fields.family
    if not family:
        raise UsageError(f"{fields.model_id}: config has no model_type", remedy="use the config.json of the model")
    reader = READERS.get(family)
    if reader is None:
        architectures = ", ".join(fields.words("architectures")) or "no architecture named"
        raise UsageError(
            f"{fields.model_id}: model type {family!r} ({architectures}) is not modelled",
            remedy="describe the model with model.shape, or use one of the families of `gpuprov models`",
        )
    return reader(fields)
