"""Language models that the source folder lacks, by their published config.json, and further names of models it has.

Their parameter counts agree with the published totals to the parameter; ``bundle_models`` appends them to the index.
"""

from __future__ import annotations

from typing import Any

AS_OF = "2026-11-30"
SOURCE = "published config.json"


def _llama(*sizes: int) -> Any:
    """A config by hidden size, layers, heads, key-value heads, intermediate size, vocabulary and context."""
    hidden, layers, heads, kv_heads, intermediate, vocab, context = sizes
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": intermediate,
        "vocab_size": vocab,
        "max_position_embeddings": context,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }


def _qwen2(*sizes: int) -> Any:
    return {**_llama(*sizes), "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"}


ADDED: tuple[tuple[str, Any, tuple[str, ...], int], ...] = (
    (
        "01-ai/Yi-6B",
        _llama(4096, 32, 32, 4, 11008, 64000, 4096),
        ("01-ai/Yi-6B-Chat", "01-ai/Yi-1.5-6B", "01-ai/Yi-1.5-6B-Chat"),
        6_061_035_520,
    ),
    (
        "01-ai/Yi-1.5-9B",
        _llama(4096, 48, 32, 4, 11008, 64000, 4096),
        ("01-ai/Yi-1.5-9B-Chat", "01-ai/Yi-9B"),
        8_829_407_232,
    ),
    (
        "01-ai/Yi-34B",
        _llama(7168, 60, 56, 8, 20480, 64000, 4096),
        ("01-ai/Yi-34B-Chat", "01-ai/Yi-1.5-34B", "01-ai/Yi-1.5-34B-Chat"),
        34_388_917_248,
    ),
    (
        "deepseek-ai/deepseek-llm-7b-base",
        _llama(4096, 30, 32, 32, 11008, 102400, 4096),
        ("deepseek-ai/deepseek-llm-7b-chat",),
        6_910_365_696,
    ),
    (
        "mistralai/Mistral-Nemo-Instruct-2407",
        {**_llama(5120, 40, 32, 8, 14336, 131072, 131072), "model_type": "mistral", "head_dim": 128},
        ("mistralai/Mistral-Nemo-Base-2407",),
        12_247_782_400,
    ),
    ("Qwen/Qwen1.5-7B", _qwen2(4096, 32, 32, 32, 11008, 151936, 32768), ("Qwen/Qwen1.5-7B-Chat",), 7_721_324_544),
    ("Qwen/Qwen1.5-14B", _qwen2(5120, 40, 40, 40, 13696, 152064, 32768), ("Qwen/Qwen1.5-14B-Chat",), 14_167_290_880),
    ("Qwen/Qwen1.5-32B", _qwen2(5120, 64, 40, 8, 27392, 152064, 32768), ("Qwen/Qwen1.5-32B-Chat",), 32_512_218_112),
)
"""Id, config, other names, published parameters."""

SAME_SHAPE = {
    "lmsys/vicuna-13b-v1.5": "meta-llama/Llama-2-13b-hf",
    "HuggingFaceH4/zephyr-7b-beta": "mistralai/Mistral-7B-v0.1",
    "bigscience/bloom-7b1": "bigscience/bloomz-7b1",
}
"""Fine-tuned or renamed models -> the model whose config they share."""
