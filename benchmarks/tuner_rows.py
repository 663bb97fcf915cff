"""How published rows name what they train: adapters of all kinds, projected gradients, chosen layers, added blocks."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from benchmarks.rows import Row
from provisioner.errors import UsageError
from provisioner.sizing.lora import ATTENTION_INPUTS
from provisioner.sizing.shapes import ModelShape

UNKNOWN_METHODS = ("lomo",)
ADAPTERS = re.compile(
    r"lora|dora|ia3|oft|adapter|vera|loha|lokr|ln_|prefix|p_tuning|prompt|bone|miss|road|shira|fourier"
)
PROMPTS = re.compile(r"prefix|p_tuning|prompt|\badapter\b")
SCALES = re.compile(r"adapter[_ ]?v2|ia3")
LAYER_BYTES = {"weight_bytes": 0.0, "gradient_bytes": 2.0, "master_bytes": 0.0, "state_bytes": 4.0, "step_bytes": 2.0}
"""Bytes of a trained part of a 16-bit model whose weights are already counted: gradient, two moments, foreach temporaries."""
LLAMAPRO_BLOCKS = 4


@dataclass(frozen=True, slots=True)
class Tuner:
    """What a method trains. ``widths`` replace the recipe's bytes per trained parameter."""

    is_adapter: bool
    adapter_kind: str = "low-rank"
    trained_params: int | None = None
    widths: Mapping[str, float] = field(default_factory=dict)


def tuner_of(row: Row, model: ModelShape, text: str) -> Tuner:
    """The tuner that a method's text names.

    Raises:
        UsageError: the method is not modelled.
    """
    if any(word in text for word in UNKNOWN_METHODS):
        raise UsageError(f"method {text.strip()!r} is not modelled")
    if "galore" in text:
        return Tuner(is_adapter=False, widths=_galore_widths(model, text))
    layer = max(kind.params for kind in model.kinds)
    chosen = re.search(r"lisa\D*(\d+)", text)
    if chosen:
        # A few layers at a time, embedding and head always.
        params = int(chosen[1]) * layer + model.embedding_params + model.head_params
        return Tuner(is_adapter=True, adapter_kind="none", trained_params=params, widths=LAYER_BYTES)
    if re.search(r"llama.?pro", text):
        return Tuner(
            is_adapter=True,
            adapter_kind="none",
            trained_params=LLAMAPRO_BLOCKS * layer,
            widths={**LAYER_BYTES, "weight_bytes": 2.0},
        )
    if not ADAPTERS.search(text):
        return Tuner(is_adapter=False)
    stated = row.number("trainable_params")
    if stated is None and row.number("trainable_params_m") is not None:
        stated = 1e6 * (row.number("trainable_params_m") or 0.0)
    kind = "scale" if SCALES.search(text) else "none" if PROMPTS.search(text) else "low-rank"
    return Tuner(
        is_adapter=True, adapter_kind=kind, trained_params=None if stated is None or stated < 1 else int(stated)
    )


def _galore_widths(model: ModelShape, text: str) -> dict[str, float]:
    """Moments of gradients projected to a rank, with the projections; what is no projected matrix has whole moments.

    Source: jiaweizzhao/GaLore (moments of rank x width, projection of rank x height); Q-GaLore keeps weights in 8 bit.
    """
    found = re.search(r"rank (\d+)", text)
    rank = int(found[1]) if found else 128
    projected = elements = 0.0
    for count, kind in zip(model.counts, model.kinds, strict=True):
        for matrix in kind.mixer.matrices + kind.mlp.matrices:
            projected += count * matrix.params
            elements += count * rank * (2 * max(matrix.inputs, matrix.outputs) + min(matrix.inputs, matrix.outputs))
    if "embedding" in text:
        projected += model.embedding_params + model.head_params
        elements += rank * (2 * model.vocab_size + model.hidden_size) * (1 if model.tied_embeddings else 2)
    whole = model.params_total - projected
    weights = (projected * (1.0 if "q-galore" in text else 2.0) + whole * 2.0) / model.params_total
    state = (elements * 2.0 + whole * 4.0) / model.params_total
    return {"weight_bytes": weights, "state_bytes": state, "step_bytes": 0.0}


TARGET_NAMES = {
    "query": "q_proj",
    "key": "k_proj",
    "value": "v_proj",
    "projection": "o_proj",
    "mlp": "mlp",
    "head": "",
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "o": "o_proj",
}
SPELLED = ("c_attn", "c_proj", "w1", "w2", "qkv", "mlp", "w_pack", "query_key_value", "dense")


def lora_targets(row: Row, model: ModelShape) -> str | tuple[str, ...]:
    """Adapter targets as the row spells them; the attention inputs where it says ``DEFAULT``."""
    stated: object = row.inputs.get("lora_targets")
    if isinstance(stated, dict):
        chosen = [TARGET_NAMES.get(str(key), str(key)) for key, value in stated.items() if value]
    elif isinstance(stated, list):
        chosen = [TARGET_NAMES.get(str(item), str(item)) for item in stated]
    elif stated is None:
        chosen = ["q_proj", "v_proj"]
    else:
        text = str(stated)
        if re.search(r"all", text, re.IGNORECASE):
            return "all-linear"
        if "DEFAULT" in text:
            return ATTENTION_INPUTS
        chosen = [TARGET_NAMES.get(word, word) for word in re.split(r"[ ,]+", text) if word]
    known = {m.name for kind in model.kinds for m in kind.mixer.matrices + kind.mlp.matrices}
    kept = tuple(word for word in chosen if word in known or word.lower() in SPELLED)
    return kept or ("q_proj", "v_proj")
