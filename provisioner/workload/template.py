"""The commented spec that ``gpuprov init`` writes, one per task."""

from __future__ import annotations

import json
import re

from provisioner.errors import UsageError
from provisioner.vocabulary import Task
from provisioner.workload.kinds import Misfit
from provisioner.workload.patterns import MODEL_ID
from provisioner.workload.tree import Scalar, show
from provisioner.workload.yaml_tree import resolve

DEFAULT_MODELS = {
    Task.SERVE: "meta-llama/Llama-3.1-8B-Instruct",
    Task.BATCH: "meta-llama/Llama-3.1-8B-Instruct",
    Task.FINETUNE: "meta-llama/Llama-3.1-8B",
    Task.PRETRAIN: "Qwen/Qwen2.5-0.5B",
}
"""A model per task that fits one common GPU."""

MEDIA_WORDS = {
    "image": {
        "section": "image",
        "size": "{width: 1024, height: 1024, steps: 30}",
        "training_size": "{width: 1024, height: 1024}",
        "pieces": "images",
        "total": "5k images",
    },
    "video": {
        "section": "video",
        "size": "{width: 832, height: 480, frames: 81, steps: 30}",
        "training_size": "{width: 832, height: 480, frames: 81}",
        "pieces": "clips",
        "total": "100 clips",
    },
}
"""Words of specs of image and video models."""
AUDIO_WORDS = {
    "section": "audio",
    "size": "{seconds: 30}",
    "training_size": "{seconds: 30}",
    "pieces": "pieces of audio",
    "total": "200 audio hours",
}
"""Words of specs of models that hear or make audio."""
LANGUAGE_MODALITIES = ("text", "text+image")

CONTEXT_TOKENS = 8192
FINETUNE_SEQUENCE_TOKENS = 4096
PRETRAIN_SEQUENCE_TOKENS = 2048
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/@+-]*")
_NAME_CHARACTERS_MAX = 41

_HEAD = """\
# What gpuprov sizes, places and ends.  `gpuprov plan {file}` shows what it needs, where, and what it costs.
# Sizes, durations and money carry a unit: 500GiB, 15m, 12.50 USD/h.  `gpuprov schema` lists every key.
version: 1
name: {name}
task: {task}                        # serve | batch | finetune | pretrain

model:
  id: {model}
  # weights: {weights}
"""

_SERVE = """
inference:
  # engine: vllm                     # vllm sglang tensorrt-llm transformers llama.cpp, with a version if it matters: vllm@0.19
  context_tokens: {context}               # input + output of the longest request; decides the memory
  concurrency: 8                     # requests at once
  input_tokens: {input}                  # a typical request; decides the speed
  output_tokens: {output}
"""

_BATCH = """
inference:
  # engine: vllm                     # vllm sglang tensorrt-llm transformers llama.cpp, with a version if it matters: vllm@0.19
  context_tokens: {context}               # input + output of the longest request; decides the memory
  concurrency: 32                    # requests at once; more of them share each read of the weights
  input_tokens: {input}                  # a typical request; decides the speed
  output_tokens: {output}
  total: 50M tokens                  # the work; or  duration: 6h
"""

_FINETUNE = """
training:
  method: qlora                      # full | lora | qlora
  sequence_tokens: {sequence}
  micro_batch: 1                     # sequences at once per GPU
  lora: {{rank: 16, targets: all-linear}}
  tokens: 20M                        # the work; or  duration: 6h
  checkpoint: {{every: 30m, resumable: true}}   # a resumable training may run on spot
"""

_PRETRAIN = """
training:
  method: full
  precision: bf16-mixed              # bf16 | bf16-mixed | fp16-mixed | fp32 | fp8
  optimizer: adamw                   # adamw adamw-8bit paged-adamw-8bit adafactor sgd lion muon
  sequence_tokens: {sequence}
  micro_batch: 4                     # sequences at once per GPU
  tokens: 1B                         # the work; or  duration: 20h
  checkpoint: {{every: 30m, resumable: true}}   # a resumable training may run on spot
"""

_MEDIA_SERVE = """
inference:
  # {section}: {size}   # default: the usual size of the model
  concurrency: 1                     # {pieces} at once
"""

_MEDIA_BATCH = """
inference:
  # {section}: {size}   # default: the usual size of the model
  concurrency: 1                     # {pieces} at once
  total: {total}                  # the work; or  duration: 6h
"""

_MEDIA_TRAINING = """
training:
  method: lora                       # full | lora | qlora
  micro_batch: 1                     # {pieces} at once per GPU
  # {section}: {training_size}   # default: the usual size of the model
  lora: {{rank: 16}}
  duration: 6h
  checkpoint: {{every: 30m, resumable: true}}   # a resumable training may run on spot
"""

_TAIL = """
storage:
  data: {data}                       # persistent disk; survives the instance

placement:                           # hard requirements; leave out what does not matter
  clouds: [aws, gcp]
  # regions: [us-east-1, us-central1]
  # gpus: [L4, A10G, L40S]           # names or classes
  {max_gpus}
  # capacity: auto                   # auto | spot | on-demand | reserved
  # max_price: 12 USD/h              # compute only
  # budget: 3000 USD/month           # the whole bill

optimize: cost                       # cost | throughput | latency

lifecycle:
  pattern: {pattern}                    # steady | bursty
{hours}  idle: {{after: 30m}}                 # a quiet machine is stopped, or ended where it cannot be stopped
  max_lifetime: {lifetime}                  # from creation or the last start

# access:
#   cidrs: [203.0.113.7/32]          # networks that may connect; none = closed

# tags:
#   team: search
"""


_SECTIONS = {Task.SERVE: _SERVE, Task.BATCH: _BATCH, Task.FINETUNE: _FINETUNE, Task.PRETRAIN: _PRETRAIN}
_MEDIA_SECTIONS = {
    Task.SERVE: _MEDIA_SERVE,
    Task.BATCH: _MEDIA_BATCH,
    Task.FINETUNE: _MEDIA_TRAINING,
    Task.PRETRAIN: _MEDIA_TRAINING.replace("method: lora ", "method: full ").replace("  lora: {{rank: 16}}\n", ""),
}


def checked_model_id(text: str) -> str:
    """The id, if a spec can hold it.

    Raises:
        UsageError: it has characters that no model id has.
    """
    try:
        return MODEL_ID.read(Scalar(text, text, plain=False))
    except Misfit as misfit:
        raise UsageError(f"--model {misfit.message}", remedy=misfit.remedy) from None


def default_name(model_id: str, task: Task) -> str:
    """A valid workload name from the model's last name part and the task."""
    base = re.sub(r"[^a-z0-9]+", "-", model_id.rpartition("/")[2].lower()).strip("-")
    if not base[:1].isalpha():
        base = f"model-{base}".strip("-")
    return f"{base[: _NAME_CHARACTERS_MAX - len(task) - 1].strip('-')}-{task}"


def quoted(text: str) -> str:
    """A text as a YAML 1.2 scalar: plain where that reads back as the same text, else in double quotes."""
    return text if _PLAIN.fullmatch(text) and isinstance(resolve(text), str) else json.dumps(text)


def spec_text(
    task: Task,
    model_id: str,
    *,
    file: str = "workload.yaml",
    context_limit: int | None = None,
    modality: str = "text",
) -> str:
    """A commented spec for a task and a model.

    ``context_limit`` is the most tokens that the model takes, ``modality`` what it works on, as sizing calls it.
    """
    fits_one_gpu = model_id == DEFAULT_MODELS[task]
    limit = context_limit or CONTEXT_TOKENS
    context = min(CONTEXT_TOKENS, limit)
    sequence = min(PRETRAIN_SEQUENCE_TOKENS if task is Task.PRETRAIN else FINETUNE_SEQUENCE_TOKENS, limit)
    words = {} if modality in LANGUAGE_MODALITIES else MEDIA_WORDS.get(modality, AUDIO_WORDS)
    middle = (_MEDIA_SECTIONS if words else _SECTIONS)[task]
    is_serve = task is Task.SERVE
    text = (_HEAD + middle + _TAIL).format(
        file=show(file),
        name=default_name(model_id, task),
        task=task,
        model=quoted(model_id),
        weights=_weights_comment(task),
        context=context,
        input=min(1024, context * 3 // 4),
        output=min(256, context // 4),
        sequence=sequence,
        max_gpus="max_gpus: 1  # of the whole workload" if fits_one_gpu else "# max_gpus: 8  # of the whole workload",
        data="100GiB",
        pattern="bursty",
        hours="  hours_per_month: 120               # hours of use that a month is billed for\n" if is_serve else "",
        lifetime="12h" if is_serve else "7d",
        **words,
    )
    return _aligned(text)


def _weights_comment(task: Task) -> str:
    if task in {Task.SERVE, Task.BATCH}:
        return "fp8                     # auto = as published; fp8 int8 int4-awq int4-gptq ... take less memory"
    return "bf16                    # auto = as published; with qlora nf4"


def _aligned(text: str) -> str:
    """The text with the comments behind values in one column."""
    return re.sub(r"(?m)^(.*\S)[ ]{2,}(# .*)$", lambda match: f"{match[1]:<36} {match[2]}", text)
