"""Make the bundled list of image, video and audio models from two CSV files.

Usage: ``python -m benchmarks.bundle_pipelines DATA_DIR``, where DATA_DIR holds ``models_diffusion.csv`` and
``models_diffusion_components.csv``. Writes ``provisioner/sizing/data/pipelines.json``.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

from provisioner.sizing.models import DATA

WIDTHS: dict[str, tuple[int, int]] = {
    "ACE-Step/ACE-Step-v1": (2560, 24),
    "ACE-Step/acestep-v15": (2048, 24),
    "Efficient-Large-Model/Sana_1600M": (2240, 20),
    "HiDream-ai/HiDream-I1": (2560, 48),
    "Lightricks/LTX-2": (4096, 48),
    "Lightricks/LTX-Video-0.9.7": (4096, 48),
    "Lightricks/LTX-Video": (2048, 28),
    "PixArt-alpha/PixArt": (1152, 28),
    "Qwen/Qwen-Image": (3072, 60),
    "Skywork/SkyReels-V2-T2V-1.3B": (1536, 30),
    "Tongyi-MAI/Z-Image": (3840, 34),
    "Wan-AI/Wan2.1-T2V-1.3B": (1536, 30),
    "Wan-AI/Wan2.2-TI2V-5B": (3072, 30),
    "Wan-AI/Wan": (5120, 40),
    "amused/amused": (1024, 22),
    "black-forest-labs/FLUX.1": (3072, 57),
    "black-forest-labs/FLUX.2-dev": (6144, 56),
    "black-forest-labs/FLUX.2-klein-base-4B": (3072, 25),
    "black-forest-labs/FLUX.2-klein-base-9B": (4096, 32),
    "facebook/musicgen-large": (2048, 48),
    "facebook/musicgen-medium": (1536, 48),
    "facebook/musicgen-small": (1024, 24),
    "genmo/mochi-1": (3072, 48),
    "hunyuanvideo-community/HunyuanVideo-1.5": (2048, 54),
    "hunyuanvideo-community/HunyuanVideo": (3072, 60),
    "stabilityai/stable-audio-open": (1536, 24),
    "stabilityai/stable-diffusion-3-medium": (1536, 24),
    "stabilityai/stable-diffusion-3.5-large": (2432, 38),
    "stabilityai/stable-diffusion-3.5-medium": (1536, 24),
    "zai-org/CogVideoX-2b": (1920, 30),
    "zai-org/CogVideoX-5b": (3072, 42),
    "openai/whisper-large-v3-turbo": (1280, 4),
    "openai/whisper-large": (1280, 32),
    "openai/whisper-medium": (1024, 24),
    "openai/whisper-small": (768, 12),
    "openai/whisper-base": (512, 6),
    "openai/whisper-tiny": (384, 4),
    "coqui/XTTS": (1024, 30),
    "suno/bark-small": (768, 12),
    "suno/bark": (1024, 24),
    "hexgrad/Kokoro": (512, 12),
}
"""Width and blocks of the denoiser, decoder or language model by the start of the id, from the published configurations; the
longest start counts. U-Nets have none: their working set follows latent pixels."""
SEQUENTIAL_GUIDANCE = re.compile(r"Wan|SkyReels|Qwen-Image|FLUX.2|HunyuanVideo-1.5|Z-Image|ACE-Step")
"""Pipelines that run guidance as two passes one after the other, not as a doubled batch (diffusers pipeline code)."""
NUMBERS = {
    "width_px": "width",
    "height_px": "height",
    "frames": "frames",
    "fps": "fps",
    "vae_spatial_factor": "vae_spatial",
    "vae_temporal_factor": "vae_temporal",
    "patch_space": "patch_space",
    "patch_time": "patch_time",
    "text_tokens": "text_tokens",
    "latent_rate_hz": "latent_rate_hz",
    "seconds": "seconds",
    "default_steps": "steps",
}


def number(text: str) -> float | int | None:
    """A CSV cell as a number, ``None`` where it is empty."""
    if not text:
        return None
    value = float(text)
    return int(value) if value == int(value) else value


def clean(name: str) -> str:
    """An id without a remark in brackets."""
    return re.sub(r"\s*\(.*\)$", "", name).strip()


def main(folder: Path) -> None:
    """Write the file."""
    components: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in csv.DictReader((folder / "models_diffusion_components.csv").open()):
        components[row["model_id"]].append(
            {
                "name": row["component"],
                "role": row["role"],
                "class": row["class_name"],
                "params": int(row["params"]),
                "dtype": row["published_dtype"],
                "optional": row["resident"] == "optional",
            }
        )
    models = []
    for row in csv.DictReader((folder / "models_diffusion.csv").open()):
        start = max((key for key in WIDTHS if row["id"].startswith(key)), key=len, default=None)
        entry: dict[str, Any] = {
            "id": clean(row["id"]),
            "modality": row["modality"],
            "dtype": row["published_dtype"],
            "guidance": "none"
            if row["uses_cfg"] != "yes"
            else "sequential"
            if SEQUENTIAL_GUIDANCE.search(row["id"])
            else "batched",
            "width_depth": list(WIDTHS[start]) if start else None,
            "aliases": [clean(name) for name in row["alias_ids"].split(";") if name],
            "components": components[row["id"]],
            "source": row["source"],
            "as_of": row["as_of"],
        }
        entry |= {key: number(row[column]) for column, key in NUMBERS.items() if row[column]}
        models.append(entry)
    lines = ",\n".join(json.dumps(model, separators=(",", ":")) for model in models)
    (DATA / "pipelines.json").write_text(f"[\n{lines}\n]\n")
    print(f"{len(models)} pipelines")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
