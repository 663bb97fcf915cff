"""The fitted constants of memory sizing: numbers that no config, format or source code gives, each with where it came from.

Everything else in sizing is arithmetic on a model's shape, or a figure read from an engine's own code or log. ``python -m
benchmarks.refit`` fits these again with one published source left out at a time and scores that source; ``--all`` prints the
values that all sources give, which are the ones below. Figures of engine versions, which cannot be told apart from their
version, are in ``data/engines.json``, each with the source that taught it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Constants:
    """Values in use, as a namespace. A refit replaces them for the time of one score; nothing else may."""

    backward_working: float = 1.25
    """Working set of a recomputed layer with its gradients, over what the layer stores.

    Source: foundation-model-stack/fms-acceleration, huggingface/peft, modelscope/ms-swift, bigscience-workshop/bigscience.
    """
    selective_share: float = 0.25
    """Share of a layer that selective checkpointing keeps: attention and every second matrix product.

    Source: pytorch/ao (torchtitan on three platforms).
    """
    compiled_loss_bytes: float = 14.0
    """Bytes per token and vocabulary entry of a loss under torch.compile.

    Source: pytorch/torchtitan, pytorch/ao.
    """
    metric_loss_bytes: float = 22.5
    """The same that a trainer adds which keeps fp32 logits for a metric, gaps between blocks of changing length included.

    Source: modelscope/ms-swift.
    """
    eager_working_bytes: float = 15.1
    """Bytes per attention score while one layer of eager attention runs backward: scores, softmax and their gradients.

    Source: modelscope/ms-swift.
    """
    adapter_stored_share: float = 0.65
    """Share of the counted inputs and outputs that adapters really keep.

    Source: Lightning-AI/litgpt, modelscope/ms-swift, huggingface/peft, foundation-model-stack/fms-acceleration.
    """
    gathered_layers: float = 2.0
    """Layers that a weight-sharded run holds gathered beside embedding and head: the one at work and the next.

    Source: QwenLM/Qwen, foundation-model-stack/fms-acceleration, huggingface/peft, pytorch/ao.
    """
    reserved_states_share: float = 0.06
    """What the allocator reserves beyond weights and states, of their size.

    Source: modelscope/ms-swift, QwenLM/Qwen, huggingface/peft, pytorch/torchtitan, bigscience-workshop/bigscience.
    """
    reserved_activations_share: float = 0.10
    """The same beyond what comes and goes in a step.

    Source: as above.
    """
    unet_latent_bytes: float = 65_000.0
    """16-bit working set of a U-Net per latent pixel and sample.

    Source: Hugging Face blog simple_sdxl_optimizations, huggingface/peft (SD 1.4).
    """
    unet_stored_factor: float = 6.0
    """Activations of a U-Net in training without checkpointing, over that.

    Source: huggingface/peft (SD 1.4).
    """
    unet_checkpointed_factor: float = 2.75
    """The same with checkpointing.

    Source: huggingface/peft (SD 1.4).
    """
    block_elements: float = 56.0
    """Elements per token and unit of width that a diffusion transformer's block stores for its backward pass.

    Source: huggingface/diffusers (aMUSEd).
    """
    decode_pixel_bytes: float = 1_600.0
    """16-bit working set of an AutoencoderKL decoder per pixel and image.

    Source: Hugging Face blog simple_sdxl_optimizations, huggingface/diffusers (FLUX.1-dev), SkyworkAI/SkyReels-V2.
    """
    conversion_gib: float = 0.4
    """GiB that a conversion matrix by matrix leaves behind, beside the largest matrix.

    Source: pytorch/ao.
    """


@contextmanager
def replaced(**values: float) -> Iterator[None]:
    """Use other values inside the block (refits and tests); the old ones come back however it ends."""
    before = {name: getattr(Constants, name) for name in values}
    for name, value in values.items():
        setattr(Constants, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(Constants, name, value)
