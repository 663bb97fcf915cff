"""Make the bundled model index from a folder of config.json files.

Usage: ``python -m benchmarks.bundle_models MODELS_DIR``, where MODELS_DIR holds ``index.csv``, ``ALIASES.json`` and one folder
with a config.json per model. Writes ``provisioner/sizing/data/models.jsonl`` (one model a line) and ``models.index.json``
(name in lower case -> byte offset and length of its line), so that finding one model parses one line.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from benchmarks.added_models import ADDED, AS_OF, SAME_SHAPE, SOURCE
from provisioner.sizing.families.fields import Fields
from provisioner.sizing.families.registry import read_shape
from provisioner.sizing.models import DATA
from provisioner.sizing.quantisation import condense

IGNORED_KEYS = re.compile(
    r"token|dropout|initializer|transformers_version|auto_map|_name_or_path|use_cache|torchscript|rope|summary|"
    r"time_step|_eps|epsilon|image_grid|placeholder|vision_feature|process_image|return_dict|output_scores|rescale|"
    r"softmax|activation|_act$|swiglu|hidden_act|bos_|eos_|pad_|scoring|topk_group|n_group$|norm_topk|embd_pdrop"
)
KEPT_DESPITE_PATTERN = re.compile(r"head_dim|experts_per_token|num_experts|multi_query|image_token_index$|qk_rope")
"""Dimensions whose names match a word of ``IGNORED_KEYS``."""

NVFP4_SECTION = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
FP8_SECTION = {"quant_method": "modelopt", "quant_algo": "FP8"}
NAMED_FORMATS = (
    (re.compile(r"dequantized|fp16$", re.IGNORECASE), None),
    (re.compile(r"^meta-llama/.*fp8", re.IGNORECASE), "fp8:mlp"),
    (re.compile(r"awq", re.IGNORECASE), "int4-awq"),
    (re.compile(r"gptq-int8|-int8$", re.IGNORECASE), "int8-gptq"),
    (re.compile(r"gptq|-int4$|autoround", re.IGNORECASE), "int4-gptq"),
    (re.compile(r"bnb-4bit", re.IGNORECASE), "nf4-double"),
    (re.compile(r"nvfp4", re.IGNORECASE), "nvfp4"),
    (re.compile(r"w8a8", re.IGNORECASE), "int8"),
    (re.compile(r"fp8-block", re.IGNORECASE), "fp8-block"),
    (re.compile(r"fp8", re.IGNORECASE), "fp8"),
)
"""What the name of a quantised checkpoint says about its format; the first match counts."""

GEMMA3_VISION = {
    "hidden_size": 1152,
    "intermediate_size": 4304,
    "num_hidden_layers": 27,
    "patch_size": 14,
    "image_size": 896,
}
"""SigLIP tower of Gemma 3 from 4B on; the source configs hold the language model alone (published config.json)."""


CONTEXT_LIMITS = {
    "meta-llama/Llama-2-7b-hf": 4096,
    "meta-llama/Llama-2-13b-hf": 4096,
    "meta-llama/Llama-2-70b-hf": 4096,
    "google/gemma-7b": 8192,
    "google/gemma-7b-it": 8192,
    "google/gemma-2b-it": 8192,
    "google/codegemma-7b-it": 8192,
    "codellama/CodeLlama-13b-Instruct-hf": 16384,
    "togethercomputer/LLaMA-2-7B-32K": 32768,
    "mistralai/Mistral-7B-Instruct-v0.1": 32768,
    "mistralai/Mistral-Large-Instruct-2407": 131072,
    "mistralai/Mistral-Large-Instruct-2411": 131072,
    "Qwen/Qwen1.5-1.8B": 32768,
    "Qwen/Qwen3-Next-80B-A3B-Instruct": 262144,
    "Qwen/Qwen3.5-9B": 262144,
    "deepseek-ai/DeepSeek-V2": 163840,
    "mistralai/Mistral-Small-24B-Instruct-2501": 32768,
    "zai-org/GLM-4.5": 131072,
    "zai-org/GLM-4.5-Air": 131072,
    "moonshotai/Moonlight-16B-A3B": 8192,
    "huggyllama/llama-7b": 2048,
    "huggyllama/llama-13b": 2048,
    "huggyllama/llama-30b": 2048,
    "huggyllama/llama-65b": 2048,
    "lmsys/vicuna-7b-v1.5": 4096,
    "openai-community/gpt2-large": 1024,
    "openai-community/gpt2-xl": 1024,
    "Qwen/Qwen-7B": 32768,
    "Qwen/Qwen-14B": 8192,
    "Qwen/Qwen-72B": 32768,
    "bigscience/bloom": 2048,
    "bigscience/bloomz-7b1": 2048,
    "mosaicml/mpt-7b": 2048,
    "mosaicml/mpt-30b": 8192,
    "bigcode/starcoder": 8192,
    "baichuan-inc/Baichuan2-13B-Chat": 4096,
    "THUDM/chatglm-6b": 2048,
}
"""Published limits of models whose sources hold another number or none: a first upload (huggingface/transformers#24986 for Llama 2),
a serving preset, or a training table that keeps its default or the width of a window. Each is what the model's card and present
config.json state (google/gemma_pytorch ``gemma/config.py`` for Gemma)."""


def trim(value: Any) -> Any:
    """A config without keys that no reader looks at."""
    if isinstance(value, dict):
        return {
            key: trim(item)
            for key, item in value.items()
            if item is not None and (not IGNORED_KEYS.search(key) or KEPT_DESPITE_PATTERN.search(key))
        }
    return value


def record(row: dict[str, str], config: dict[str, Any], aliases: Iterable[str]) -> dict[str, Any]:
    """One line of the index."""
    stated = config.get("quantization_config") or (config.get("text_config") or {}).get("quantization_config")
    if not stated and row["quantisation"].startswith("not_in_config"):
        config["quantization_config"] = NVFP4_SECTION if row["quantisation"].endswith("nvfp4") else FP8_SECTION
    if "vision tower" in row["params_scope"] and row["model_type"] == "gemma3_text":
        config = {"model_type": "gemma3", "text_config": config, "vision_config": GEMMA3_VISION}
    shape = read_shape(Fields(config, row["id"]))
    quantisation = condense(config, is_moe=shape.is_moe, is_latent=any(k.mixer.kind == "latent" for k in shape.kinds))
    small = trim({key: item for key, item in config.items() if key != "quantization_config"})
    if isinstance(small.get("text_config"), dict):
        small["text_config"].pop("quantization_config", None)
    if row["id"] in CONTEXT_LIMITS:
        text = small.get("text_config")
        (text if isinstance(text, dict) else small)["max_position_embeddings"] = CONTEXT_LIMITS[row["id"]]
    small.pop("dtype", None)
    small["torch_dtype"] = row["weights_dtype"]
    if quantisation:
        small["quantization_config"] = quantisation
    return {
        "id": row["id"],
        "config": small,
        "aliases": sorted(set(aliases)),
        "params_published": int(row["params_total"]),
        "source": row["source"],
        "as_of": row["as_of"],
    }


def alias_format(name: str) -> dict[str, Any] | None:
    """Quantisation that the name of a quantised alias states; an empty mapping where it says none."""
    for pattern, weight_format in NAMED_FORMATS:
        if pattern.search(name):
            return {} if weight_format is None else {"format": weight_format}
    return None


def read_aliases(folder: Path) -> dict[str, tuple[str, dict[str, Any]]]:
    """Alias -> (id, quantisation of its own); names that no person would type are left out."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, target in json.loads((folder / "ALIASES.json").read_text()).items():
        relation = target["relation"]
        if relation == "inferred" or name == target["id"] or "/" not in name:
            continue
        own = {} if relation in ("same", "same_shape") else (alias_format(name) or {"format": "unknown"})
        if (
            relation == "other_quantisation"
            and own == {"format": "unknown"}
            and not re.search("quant", name, re.IGNORECASE)
        ):
            own = {"format": "none"}
        found[name] = (target["id"], own)
    return found


def _append_added(out: BinaryIO, names: dict[str, list[Any]], offset: int) -> int:
    """Write the models that the folder lacks, and give the offset behind them."""
    for identifier, config, aliases, params in ADDED:
        line = {
            "id": identifier,
            "config": trim(config),
            "aliases": sorted(aliases),
            "params_published": params,
            "source": SOURCE,
            "as_of": AS_OF,
        }
        text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        out.write(text)
        for name in (identifier, *aliases):
            names.setdefault(name.lower(), [offset, len(text)])
        offset += len(text)
    return offset


def main(folder: Path) -> None:
    """Write both files."""
    rows = list(csv.DictReader((folder / "index.csv").open()))
    aliases = read_aliases(folder)
    ids = {row["id"].lower() for row in rows}
    names: dict[str, list[Any]] = {}
    offset = 0
    with (DATA / "models.jsonl").open("wb") as out:
        for row in rows:
            config = json.loads((folder / row["folder"] / "config.json").read_text())
            stated = [name for name in row["alias_ids"].split(";") if "/" in name and "(" not in name]
            stated += [name for name, target in SAME_SHAPE.items() if target == row["id"]]
            own = {name: quantised for name, (target, quantised) in aliases.items() if target == row["id"]}
            if "/Meta-Llama-3" in row["id"]:
                stated.append(row["id"].replace("/Meta-Llama-3", "/Llama-3"))
            line = json.dumps(record(row, config, [*stated, *own]), separators=(",", ":")).encode() + b"\n"
            out.write(line)
            for name in (row["id"], *stated, *own):
                key = name.lower()
                if name != row["id"] and key in ids:
                    continue
                entry = [offset, len(line)]
                names.setdefault(key, [*entry, own[name]["format"]] if own.get(name) else entry)
            offset += len(line)
        offset = _append_added(out, names, offset)
    (DATA / "models.index.json").write_text(json.dumps(dict(sorted(names.items())), separators=(",", ":")) + "\n")
    print(f"{len(rows) + len(ADDED)} models, {len(names)} names, {offset:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
