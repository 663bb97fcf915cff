"""Reading measured rows: files, GPU names, models and number formats as published sources write them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.other_gpus import OTHER_GPUS
from provisioner.catalog.gpus import Gpu
from provisioner.catalog.snapshot import load_catalog
from provisioner.errors import UsageError
from provisioner.sizing.accelerator import Accelerator
from provisioner.sizing.models import find_model, shape_from_config
from provisioner.sizing.shapes import ModelShape
from provisioner.units import GIB

NAMES = (
    (r"GB200", "GB200"),
    (r"GB300", "GB300"),
    (r"GB10|DGX Spark", "GB10"),
    (r"B200", "B200-SXM"),
    (r"B300", "B300-SXM"),
    (r"GH200", "GH200"),
    (r"H200", "H200-SXM"),
    (r"H20\b", "H20"),
    (r"H100.*500W", "H100-SXM-500W"),
    (r"H100.*NVL", "H100-NVL"),
    (r"H100.*PCIE", "H100-PCIe"),
    (r"H100|H800", "H100-SXM"),
    (r"A100.*PCIE.*40", "A100-PCIe-40"),
    (r"A100.*PCIE", "A100-PCIe-80"),
    (r"A100.*40", "A100-SXM-40"),
    (r"A100|A800|80 ?GB", "A100-SXM-80"),
    (r"L40S", "L40S"),
    (r"L40\b", "L40"),
    (r"A10G", "A10G"),
    (r"\bL4\b", "L4"),
    (r"\bA10\b", "A10"),
    (r"\bA40\b", "A40"),
    (r"\bA30\b", "A30"),
    (r"A6000", "RTX-A6000"),
    (r"A5000", "RTX-A5000"),
    (r"RTX 6000 ADA", "RTX-6000-Ada"),
    (r"RTX 5000 ADA", "RTX-5000-Ada"),
    (r"RTX 4000 ADA", "RTX-4000-Ada"),
    (r"PRO 6000.*(SERVER|SE\b)", "RTX-PRO-6000-Server"),
    (r"PRO 6000", "RTX-PRO-6000-Workstation"),
    (r"5090", "RTX-5090"),
    (r"5080", "RTX-5080"),
    (r"5070 TI", "RTX-5070-Ti"),
    (r"4090", "RTX-4090"),
    (r"4080", "RTX-4080"),
    (r"4070 TI SUPER", "RTX-4070-Ti-Super"),
    (r"4070", "RTX-4070"),
    (r"3090 TI", "RTX-3090-Ti"),
    (r"3090", "RTX-3090"),
    (r"3080 TI", "RTX-3080-Ti"),
    (r"3080", "RTX-3080-10"),
    (r"3070", "RTX-3070"),
    (r"3060", "RTX-3060-12"),
    (r"2080 ?TI", "RTX-2080-Ti"),
    (r"V100.*32", "V100-SXM2-32"),
    (r"V100", "V100-SXM2-16"),
    (r"\bT4\b", "T4"),
    (r"\bP40\b", "P40"),
    (r"MI300X", "MI300X"),
    (r"MI325X", "MI325X"),
    (r"MI355X", "MI355X"),
    (r"MI350X", "MI350X"),
)
"""Spellings of GPUs in published text -> catalog model; the first match counts."""
LABEL_TO_USABLE = 0.985
"""Usable share of a binary label, for GPUs that the catalog does not know."""


@dataclass(frozen=True, slots=True)
class Row:
    """One measured row, with the parts that a predictor may look at."""

    id: str
    family: str
    model: str
    model_config: str | None
    inputs: Mapping[str, Any]
    norm: Mapping[str, Any]
    raw: Mapping[str, Any]

    def text(self, *names: str) -> str:
        """The first of several inputs that is stated, as text."""
        for name in names:
            value = self.inputs.get(name)
            if value is not None:
                return str(value)
        return ""

    def number(self, *names: str) -> float | None:
        """The first of several inputs that is a number."""
        found = (_number(self.inputs.get(name)) for name in names)
        return next((value for value in found if value is not None), None)

    def count(self, *names: str) -> int:
        """A degree, batch or length, 1 where the row says none."""
        return max(1, int(self.number(*names) or 1))

    def whole(self, name: str) -> int | None:
        """A canonical input that is a whole number of 1 or more, ``None`` where it says none."""
        value = _number(self.norm.get(name))
        return int(value) if value is not None and value >= 1 else None

    @property
    def memory_gb(self) -> float | None:
        """Stated memory of a GPU."""
        value = _number(self.norm.get("gpu_mem_gb"))
        return value if value and value > 0 else None

    @property
    def gpu(self) -> str:
        """The GPU as the row names it."""
        return str(self.norm.get("gpu") or self.text("gpu"))


def _number(value: object) -> float | None:
    """A number, or the text of one; what is none, not finite or beyond any size says nothing."""
    if isinstance(value, str) and re.fullmatch(r"\s*\d+(\.\d+)?\s*", value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < LARGEST else None


LARGEST = 1e12
"""Bound of any input: beyond it a number is a mistake."""


def read_rows(path: Path) -> Iterator[Row]:
    """Rows of a JSON lines file."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.strip():
                raw = json.loads(line)
                inputs = raw.get("inputs") or raw.get("conditions") or {}
                norm = {key: value for key, value in (raw.get("norm") or {}).items() if not key.startswith("value")}
                yield Row(
                    id=str(raw["id"]),
                    family=str(raw.get("family") or raw.get("kind") or ""),
                    model=str(raw.get("model") or inputs.get("model") or ""),
                    model_config=raw.get("model_config") or inputs.get("model_config"),
                    inputs=inputs,
                    norm=norm,
                    raw=raw,
                )


@cache
def catalog_gpus() -> Mapping[str, Gpu]:
    """GPU rows of the bundled catalog."""
    return load_catalog().gpus


def gpu_name(text: str) -> str | None:
    """Catalog model of a published GPU name, ``None`` where it says none."""
    upper = text.upper().replace("-", " ").replace("_", " ")
    return next((model for pattern, model in NAMES if re.search(pattern.replace("-", " "), upper)), None)


def accelerator_of(text: str, memory_gb: float | None, usable_gib: float | None = None) -> Accelerator | None:
    """The GPU of a row: memory as stated in the row, else as the catalog has it, else from its label."""
    model = gpu_name(text)
    if usable_gib is None and memory_gb is None and model is not None and model in OTHER_GPUS:
        return OTHER_GPUS[model]
    stated = re.search(r"\(?(\d{1,3}\.\d{1,2}) ?GiB", text)
    if usable_gib is None and stated and "NEED" not in text.upper():
        usable_gib = float(stated[1])
    gpu = catalog_gpus().get(model) if model else None
    if gpu is not None and memory_gb and gpu.memory_usable_bytes:
        # A modified or other card under the same name: "RTX 4090 48GB".
        label = gpu.memory_usable_bytes / GIB
        if memory_gb > 1.35 * label or memory_gb < 0.8 * label:
            usable_gib = usable_gib or memory_gb * LABEL_TO_USABLE
    if gpu is None:
        label_gb = memory_gb or _label_gb(text)
        if usable_gib is None and label_gb is None:
            return None
        usable = usable_gib if usable_gib is not None else (label_gb or 0) * LABEL_TO_USABLE
        return Accelerator(
            text or "unknown", text or "unknown", "unknown", int(usable * GIB), "label", None, "unknown", None
        )
    usable_bytes = int(usable_gib * GIB) if usable_gib else gpu.memory_usable_bytes
    if usable_bytes is None:
        return None
    return Accelerator(
        gpu=gpu.gpu_class,
        model=gpu.model,
        vendor=gpu.vendor,
        memory_usable_bytes=usable_bytes,
        memory_usable_basis=gpu.memory_usable_basis,
        memory_bandwidth_bytes_per_s=gpu.memory_bandwidth_bytes_per_s,
        memory_class=gpu.memory_class,
        compute_capability=gpu.compute_capability,
        flop_per_s=gpu.flop_per_s,
        bf16_supported=gpu.bf16_supported,
        fp8_supported=gpu.fp8_supported,
        fp4_supported=gpu.fp4_supported,
        nvlink_bytes_per_s=gpu.nvlink_bytes_per_s or 0.0,
        pcie_bytes_per_s=gpu.pcie_bytes_per_s,
    )


def _label_gb(text: str) -> float | None:
    match = re.search(r"(\d{1,3}) ?G(i?)B", text)
    return float(match[1]) if match else None


ARCH_FIELDS = {
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "intermediate_size": "intermediate_size",
    "vocab_size": "vocab_size",
    "tie_word_embeddings": "tie_word_embeddings",
    "attention_bias": "attention_bias",
    "ffn": "intermediate_size",
}
"""Fields of a row's own description of a model -> config fields."""
GPT2_VOCABULARY = 50304


class Models:
    """Shapes by config folder, by published name, or from a row's own dimensions."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._shapes: dict[str, ModelShape] = {}

    def find(self, row: Row) -> ModelShape:
        """Shape of a row's model; a name that states a quantised checkpoint wins over its bare config.

        Raises:
            UsageError: the model is not known.
        """
        arch = row.inputs.get("arch")
        key = f"{row.model_config}|{row.model}|{json.dumps(arch, sort_keys=True, default=str)}"
        if key not in self._shapes:
            self._shapes[key] = self._read(row)
        return self._shapes[key]

    def language(self, row: Row) -> ModelShape:
        """Shape of a row's language model.

        Raises:
            UsageError: the model is not known, or is none of language.
        """
        shape = self.find(row)
        if not shape.kinds:
            raise UsageError(f"{shape.id} is no language model")
        return shape

    def _read(self, row: Row) -> ModelShape:
        for name in _spellings(row.model):
            try:
                return find_model(name)
            except UsageError:
                continue
        if row.model_config:
            name = row.model_config.replace("__", "/")
            try:
                return find_model(name)
            except UsageError:
                path = self.folder / row.model_config / "config.json" if self.folder is not None else None
                if path is None or not path.exists():
                    raise
                return shape_from_config(json.loads(path.read_text()), name)
        arch = row.inputs.get("arch")
        if isinstance(arch, Mapping) and "hidden_size" in arch:
            return _shape_of_arch(arch, row.model)
        raise UsageError(f"model {row.model!r} is not known and the row has no dimensions")


REPACKED = re.compile(
    r"[-_.](awq|gptq|gguf|fp8|fp8[-_]dynamic|nvfp4|mxfp4|bnb[-_]4bit|int4|int8|4bit|8bit|w4a16|w8a8|hf|quantized[.-]\w+).*$",
    re.IGNORECASE,
)
"""What other publishers add to the name of a checkpoint that they quantised or converted."""


def _spellings(name: str) -> tuple[str, ...]:
    """A published name, then the same without publisher and format, as the base model may be called."""
    if not name:
        return ()
    short = REPACKED.sub("", name.rsplit("/", maxsplit=1)[-1])
    found = [name, short, f"Meta-{short}", short.removeprefix("Meta-"), f"{short}-hf"]
    return tuple(dict.fromkeys(text for text in found if len(text) > 3))


def _shape_of_arch(arch: Mapping[str, Any], name: str) -> ModelShape:
    note = str(arch.get("note", ""))
    if "ffn" in arch:
        config = {
            "model_type": "gpt2",
            "n_embd": arch["hidden_size"],
            "n_head": arch["num_heads"],
            "n_layer": arch["num_layers"],
            "n_inner": arch["ffn"],
            "vocab_size": arch.get("vocab_size") or GPT2_VOCABULARY,
            "n_positions": 2048,
        }
    else:
        config = {field: arch[key] for key, field in ARCH_FIELDS.items() if arch.get(key) is not None}
        config["model_type"] = "qwen3" if "qwen3" in (name + note).lower() else "llama"
        config.setdefault("intermediate_size", 4 * int(config["hidden_size"]))
    return shape_from_config({**config, "torch_dtype": "bfloat16"}, name or "row")


def weight_word(*texts: str | None) -> str | None:
    """Format word of published dtype and quantisation texts, ``None`` where they say nothing."""
    text = " ".join(part for part in texts if part).lower()
    gguf = re.search(r"\bi?q\d_(?:k_[sml]|k|[01]|xs|xxs|m|nl)\b", text)
    if gguf:
        return f"gguf-{gguf[0]}"
    for pattern, word in FORMAT_PATTERNS:
        if re.search(pattern, text):
            return word
    return None


FORMAT_PATTERNS = (
    (r"nvfp4", "nvfp4"),
    (r"mxfp4", "mxfp4"),
    (r"nf4-?dq|double|nf4.*dq|bnb 4-bit", "nf4-double"),
    (r"awq", "int4-awq"),
    (r"gptq-?int8|int8 ?\(gptq\)|int8.*gptq", "int8-gptq"),
    (r"gptq|int4 ?\(gptq\)", "int4-gptq"),
    (r"nf4|bnb.*4|4-?bit", "nf4"),
    (r"int4 ?wo|int4 ?g32|int4", "int4-gptq"),
    (r"fp6", "fp6"),
    (r"mxfp8", "mxfp8"),
    (r"float8|fp8", "fp8"),
    (r"int8|8-?bit", "int8"),
    (r"bf16|bfloat16", "bf16"),
    (r"fp16|float16|16-?bit", "fp16"),
    (r"fp32|float32|32-?true|tf32", "fp32"),
)
"""Published number-format texts -> format word; the first match counts."""
