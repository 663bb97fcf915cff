"""What a wrong spec is answered with: place, words, remedy. One row per mistake that people make."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from provisioner.errors import Position, SpecError

Refused = Callable[[str | bytes], SpecError]

SERVE = """\
version: 1
name: case
task: serve
model:
  id: meta-llama/Meta-Llama-3.1-8B-Instruct
  weights: bf16
inference:
  engine: vllm
  context_tokens: 8192
  concurrency: 4
"""
"""Ten lines; cases append an eleventh and more."""

TRAIN = """\
version: 1
name: case
task: finetune
model:
  id: meta-llama/Meta-Llama-3.1-8B
training:
  method: lora
  sequence_tokens: 2048
"""
"""Eight lines."""

APPENDED = {
    # unknown keys, at every depth
    "top": ("infernce: {}", 11, 1, "infernce", "inference"),
    "second level": ("placement:\n  max_gpu: 1", 12, 3, "max_gpu", "max_gpus"),
    "third level": ("  targets:\n    time_to_first_tokn: 500ms", 12, 5, "time_to_first_tokn", "time_to_first_token"),
    "in flow": ("lifecycle: {idle: {after: 5m, thn: stop}}", 11, 31, "thn", "then"),
    "hyphens": ("placement:\n  max-price: 1 USD/h", 12, 3, "max-price", "max_price"),
    "camel case": ("placement:\n  maxPrice: 1 USD/h", 12, 3, "maxPrice", "max_price"),
    "belongs elsewhere": ("max_price: 12 USD/h", 11, 1, "max_price", "it belongs at placement.max_price"),
    "belongs below": ("placement: {hours_per_month: 5}", 11, 13, "hours_per_month", "lifecycle.hours_per_month"),
    "near one elsewhere": ("max_pric: 12 USD/h", 11, 1, "max_pric", "placement.max_price"),
    "like nothing": ("access:\n  zzz: 1", 12, 3, "zzz", "cidrs"),
    "merge key": ("access:\n  <<: {cidrs: [10.0.0.0/8]}", 12, 3, "<<", "merge"),
    "in a secret": ("run: {env: {A: {secrt: x}}}", 11, 17, "secrt", "secret"),
    # duplicates
    "command as text": ("run: {command: python serve.py}", 11, 16, "a list is wanted", "write [python, serve.py]"),
    "command in quotes": ("run: {command: 'sh -c \"a b\"'}", 11, 16, "a list is wanted", "write one entry a word"),
    "duplicate top": ("task: batch", 11, 1, "duplicate key task", "line 3"),
    "duplicate below": ("storage:\n  data: 1GiB\n  data: 2GiB", 13, 3, "duplicate key data", "line 12"),
    "duplicate in flow": ("storage: {data: 1GiB, data: 2GiB}", 11, 23, "duplicate key data", "line 11"),
    "duplicate tag": ("tags: {a: x, 'a': y}", 11, 14, "duplicate key a", "line 11"),
    # units
    "bare size": ("storage:\n  data: 500", 12, 9, "500 has no unit", "GiB"),
    "bare quoted size": ('storage:\n  data: "500"', 12, 9, "has no unit", "GiB"),
    "zero size": ("storage:\n  data: 0", 12, 9, "0 has no unit", "GiB"),
    "size per month": ("storage:\n  egress: 200GB", 12, 11, "200GB is not a size per month", "200GB/month"),
    "bare duration": ("lifecycle:\n  max_lifetime: 12", 12, 17, "12 has no unit", "2h"),
    "bare money": ("placement:\n  max_price: 12.5", 12, 14, "12.5 has no unit", "USD/h"),
    "money without period": ("placement:\n  max_price: 12 USD", 12, 14, "12 USD does not say per what", "12 USD/h"),
    "money per month": ("placement:\n  max_price: 12 USD/month", 12, 14, "is per month", "12 USD/h"),
    "budget per hour": ("placement:\n  budget: 12 USD/h", 12, 11, "is per h", "USD/month"),
    "other currency": ("placement:\n  max_price: 12 EUR/h", 12, 14, "12 EUR/h", "USD/h"),
    "dollar sign": ("placement:\n  max_price: $12/h", 12, 14, "$12/h", "USD/h"),
    "unknown unit": ("storage:\n  data: 500 gigs", 12, 9, "500 gigs is not a size", "500GiB"),
    "small letters": ("storage:\n  data: 500gb", 12, 9, "500gb is not a size", "500GiB"),
    "negative size": ("storage:\n  data: -5GiB", 12, 9, "-5GiB", "GiB"),
    "huge size": ("storage:\n  data: 99999999999999TiB", 12, 9, "out of range", "8192TiB"),
    "many digits": (f"storage:\n  data: {'9' * 5000}GiB", 12, 9, "999", "GiB"),
    "huge duration": ("lifecycle:\n  lease: 99999999999999d", 12, 10, "99999999999999d", "7d"),
    "zero duration": ("lifecycle:\n  lease: 0s", 12, 10, "out of range", "1ms"),
    "two units": ("lifecycle:\n  lease: 1h30m", 12, 10, "1h30m is not a duration", "90s"),
    # YAML 1.1
    "sexagesimal": ("lifecycle:\n  max_lifetime: 1:30", 12, 17, "1:30 is not a duration", "2h"),
    "no for a word": ("lifecycle:\n  idle: {after: no}", 12, 17, "no ", "off"),
    "false for off": ("lifecycle:\n  idle: {after: false}", 12, 17, "false", "did you mean off"),
    "on for a boolean": ("lifecycle:\n  keep_failed: on", 12, 16, "on is neither", "true or false"),
    "yes for a boolean": ("lifecycle:\n  keep_failed: yes", 12, 16, "yes is neither", "true or false"),
    "Yes for a boolean": ("lifecycle:\n  keep_failed: Yes", 12, 16, "Yes is neither", "true or false"),
    "no for an enum": ("placement:\n  capacity: no", 12, 13, "no is none of auto, spot", "on-demand"),
    "octal": ("placement:\n  max_gpus: 0777", 12, 13, "0777", "777"),
    "underscore": ("placement:\n  max_gpus: 1_000", 12, 13, "1_000 is no whole number", "1.1"),
    "binary": ("placement:\n  max_gpus: 0b11", 12, 13, "0b11", "whole number"),
    "infinity": ("lifecycle:\n  hours_per_month: .inf", 12, 20, ".inf is out of range", "744"),
    "not a number": ("lifecycle:\n  hours_per_month: .nan", 12, 20, ".nan is out of range", "744"),
    "tag": ("tags: {a: !!str 5}", 11, 11, "the tag !!str", "quotes"),
    "python tag": ("run: !!python/object/apply:os.system [ls]", 11, 6, "!!python/object", "remove it"),
    "local tag": ("run: !secret x", 11, 6, "!secret", "remove it"),
    "number as key": ("tags: {1: a}", 11, 8, "key 1 is no text", '"1"'),
    "boolean as key": ("tags: {true: a}", 11, 8, "key true is no text", '"true"'),
    "nothing as key": ("tags: {~: a}", 11, 8, "key ~ is no text", "quotes"),
    "list as key": ("tags: {[a, b]: c}", 11, 8, "a list or a mapping", "quotes"),
    "number as text": ("tags: {a: 5}", 11, 11, "5 is no text", '"5"'),
    "date as number": ("tags: {a: 1e3}", 11, 11, "1e3 is no text", '"1e3"'),
    # wrong words, numbers and shapes
    "capacity": ("placement:\n  capacity: on_demand", 12, 13, "on_demand", "did you mean on-demand"),
    "cloud": ("placement:\n  clouds: [aws, azure]", 12, 17, "azure", "aws, gcp"),
    "cloud twice": ("placement:\n  clouds: [aws, aws]", 12, 17, "listed twice", "remove"),
    "optimize": ("optimize: costs", 11, 11, "costs", "did you mean cost"),
    "pattern": ("lifecycle:\n  pattern: burst", 12, 12, "burst", "did you mean bursty"),
    "then": ("lifecycle:\n  idle: {then: terminte}", 12, 16, "terminte", "did you mean terminate"),
    "zero": ("placement:\n  max_gpus: 0", 12, 13, "0 is out of range", "from 1"),
    "negative": ("placement:\n  max_gpus: -1", 12, 13, "-1 is out of range", "from 1"),
    "fraction of a GPU": ("placement:\n  max_gpus: 1.5", 12, 13, "1.5 is no whole number", "from 1"),
    "number in quotes": ('placement:\n  max_gpus: "8"', 12, 13, "is no whole number", "write 8 without quotes"),
    "too many hours": ("lifecycle:\n  hours_per_month: 800", 12, 20, "800 is out of range", "744"),
    "empty list": ("placement:\n  gpus: []", 12, 3, "the list is empty", "remove the key"),
    "word for a list": ("placement:\n  gpus: L4", 12, 9, "a list is wanted", "[L4]"),
    "mapping for a list": ("placement:\n  gpus: {L4: 1}", 12, 3, "a list is wanted", "[a, b]"),
    "list for a word": ("placement:\n  capacity: [spot]", 12, 3, "not a list", "spot"),
    "word for a mapping": ("placement: aws", 11, 12, "placement is a mapping", "clouds"),
    "list for a mapping": ("placement: [aws]", 11, 1, "placement is a mapping", "clouds"),
    "nothing for a mapping": ("placement:", 11, 11, "placement has no keys", "remove it"),
    "nothing for a value": ("storage:\n  data:", 12, 8, "no value", "500GiB"),
    "null for a value": ("storage:\n  data: null", 12, 9, "no value", "500GiB"),
    "GPU excluded and wanted": ("placement:\n  gpus: [L4]\n  exclude_gpus: [L4]", 13, 18, "L4", "remove"),
    "number as GPU": ("placement:\n  gpus: [4090]", 12, 10, "4090 is no text", '"4090"'),
    "address": ("access: {cidrs: [203.0.113.300/32]}", 11, 18, "203.0.113.300/32 is not a network", "203.0.113.7/32"),
    "address without prefix": ("access: {cidrs: [203.0.113.7]}", 11, 18, "no prefix", "203.0.113.7/32"),
    "address inside": ("access: {cidrs: [203.0.113.7/24]}", 11, 18, "inside a network", "203.0.113.0/24"),
    "port": ("run: {image: x, ports: [0]}", 11, 25, "0 is out of range", "65535"),
    "image as number": ("run: {image: 5}", 11, 14, "5 is no text", "quotes"),
    "run as a word": ("run: yes", 11, 6, "run is a mapping", "image"),
    "run without keys": ("run: {}", 11, 1, "run has no keys", "run: auto"),
    "secret store": ("run: {env: {A: {secret: aws-secretmanager:hf}}}", 11, 25, "names no store", "aws-secretsmanager"),
    "secret without name": ("run: {env: {A: {secret: aws-secretsmanager}}}", 11, 25, "names no secret", "name"),
    "variable": ("run: {env: {A-B: x}}", 11, 13, "A-B", "HF_HOME"),
    "our tag": ("tags: {'gpuprov:stack': x}", 11, 8, "gpuprov:", "team"),
    "the cloud's tag": ("tags: {'AWS:x': x}", 11, 8, "AWS:x", "team"),
    "long tag": (f"tags: {{a: {'x' * 300}}}", 11, 11, "300 characters", "256"),
    "too many tags": (f"tags: {{{', '.join(f'k{n}: v' for n in range(41))}}}", 11, 1, "41 keys", "40"),
    "address of data": ("run: {image: x, data: /mnt/set}", 11, 23, "/mnt/set", "s3://"),
    # what does not go together
    "training with serve": ("training: {method: lora}", 11, 1, "training does not go with task serve", "inference"),
    "wrong training with serve": (
        "training: {metod: lora}",
        11,
        1,
        "training does not go with task serve",
        "inference",
    ),
    "total with serve": ("  total: 5M tokens", 11, 3, "inference.total does not go with task serve", "batch"),
    "deadline with serve": ("placement: {deadline: 48h}", 11, 13, "placement.deadline does not go", "remove it"),
    "budget per run with serve": ("placement: {budget: 5 USD/run}", 11, 21, "per run", "USD/month"),
    "more input than context": ("  input_tokens: 9000", 11, 17, "9000 is more than context_tokens 8192", "raise it"),
    "sum over context": ("  input_tokens: 8000\n  output_tokens: 500", 12, 18, "8192", "raise it"),
    "image and video": ("  image: {steps: 5}\n  video: {fps: 5}", 12, 3, "exclude each other", "keep one"),
    # YAML itself
    "tab": ("storage:\n\tdata: 1GiB", 12, 1, "YAML syntax", "tabs"),
    "open bracket": ("tags: {a: b", 11, 12, "YAML syntax", "bracket"),
    "open quote": ('tags: {a: "b}', 11, 14, "YAML syntax", "quotes"),
    "colon in a text": ("tags:\n  a: b: c", 12, 7, "YAML syntax", "quotes"),
    "no space": ("storage:data", 11, 13, "YAML syntax", ""),
    "indentation": ("storage:\n    data: 1GiB\n  egress: 1GB/month", 13, 3, "YAML syntax", "indent"),
    "second document": ("---\nversion: 1", 11, 1, "second document", "one workload per file"),
    "unknown alias": ("storage: {data: *size}", 11, 17, "*size", "&size"),
    "control character": ("tags: {a: \x07}", 11, 11, "U+0007", "remove"),
    "NUL": ("tags: {a: \x00}", 11, 11, "U+0000", "remove"),
}


@pytest.mark.parametrize("case", APPENDED)
def test_a_mistake_after_a_good_spec(case: str, refused: Refused) -> None:
    text, line, column, message, remedy = APPENDED[case]
    error = refused(SERVE + text + "\n")
    assert isinstance(error.where, Position)
    assert (error.where.line, error.where.column) == (line, column), str(error)
    assert message in error.message
    assert remedy in f"{error.message} {error.remedy}"


REPLACED = {
    "version 2": (SERVE, "version: 1", "version: 2", 1, 10, "2 is no version", "version: 1"),
    "version as text": (SERVE, "version: 1", 'version: "1"', 1, 10, '"1" is no version', "version: 1"),
    "version 1.0": (SERVE, "version: 1", "version: 1.0", 1, 10, "1.0 is no version", "version: 1"),
    "version true": (SERVE, "version: 1", "version: true", 1, 10, "true is no version", "version: 1"),
    "no version": (SERVE, "version: 1\n", "", 1, 1, "version is missing", "version: 1"),
    "no name": (SERVE, "name: case\n", "", 1, 1, "name is missing", "name:"),
    "no task": (SERVE, "task: serve\n", "", 1, 1, "task is missing", "serve, batch, finetune"),
    "no model": (SERVE, "model:\n  id: meta-llama/Meta-Llama-3.1-8B-Instruct\n  weights: bf16\n", "", 1, 1, "model is missing", "id:"),
    "no id": (SERVE, "  id: meta-llama/Meta-Llama-3.1-8B-Instruct\n", "", 4, 1, "model.id", "id:"),
    "id and shape": (SERVE, "  weights: bf16", "  shape: {a: 1}", 6, 3, "exclude each other", "keep one"),
    "model as text": (SERVE, "model:\n  id: meta-llama/Meta-Llama-3.1-8B-Instruct\n  weights: bf16\n", "model: a/b\n", 4, 8, "a mapping", "id: a/b"),
    "mistyped name": (SERVE, "name:", "nam:", 2, 1, "unknown key nam", "name"),
    "mistyped model": (SERVE, "model:", "modl:", 4, 1, "unknown key modl", "model"),
    "task": (SERVE, "task: serve", "task: server", 3, 7, "server", "did you mean serve"),
    "capitals in name": (SERVE, "name: case", "name: Case", 2, 7, "Case", "small letters"),
    "underscore in name": (SERVE, "name: case", "name: my_case", 2, 7, "my_case", "hyphens"),
    "hyphen at the end": (SERVE, "name: case", "name: case-", 2, 7, "case-", "llama-70b-chat"),
    "long name": (SERVE, "name: case", f"name: {'a' * 42}", 2, 7, "42 characters", "41"),
    "number as name": (SERVE, "name: case", "name: 8", 2, 7, "8 is no text", "quotes"),
    "engine": (SERVE, "engine: vllm", "engine: vlm", 8, 11, "vlm is not an engine", "did you mean vllm"),
    "engine version": (SERVE, "engine: vllm", "engine: vllm@latest", 8, 11, "no version after the @", "vllm@ and"),
    "engine with equals": (SERVE, "engine: vllm", "engine: vllm==0.19", 8, 11, "vllm==0.19 is not an engine", "vllm@0.19"),
    "weights": (SERVE, "weights: bf16", "weights: bfloat16", 6, 12, "bfloat16", "bf16"),
    "weights number": (SERVE, "weights: bf16", "weights: 8", 6, 12, "8 is not a weight format", "int8"),
    "gguf type": (SERVE, "weights: bf16", "weights: gguf-q4_k_x", 6, 12, "gguf-q4_k_x", "gguf-Q4_K"),
    "zero concurrency": (SERVE, "concurrency: 4", "concurrency: 0", 10, 16, "0 is out of range", "from 1"),
    "context with suffix": (SERVE, "context_tokens: 8192", "context_tokens: 8k", 9, 19, "8k is no whole number", "whole number"),
    "fraction": (SERVE, "concurrency: 4", "gpu_memory_fraction: 1.2", 10, 24, "1.2 is out of range", "0.9"),
    "percent": (SERVE, "concurrency: 4", "gpu_memory_fraction: 90%", 10, 24, "90% is no number", "0.9"),
    "range backwards": (SERVE, "concurrency: 4", "replicas: 4..1", 10, 13, "out of range", "smaller"),
    "range from zero": (SERVE, "concurrency: 4", "replicas: 0..4", 10, 13, "out of range", "from 1"),
    "range with dash": (SERVE, "concurrency: 4", "replicas: 1-4", 10, 13, "1-4", "1..4"),
    "parallel": (SERVE, "concurrency: 4", "tensor_parallel: atuo", 10, 20, "atuo", "did you mean auto"),
    "kv cache": (SERVE, "concurrency: 4", "kv_cache: fp6", 10, 13, "fp6", "fp8"),
    "source": (SERVE, "weights: bf16", "source: https://huggingface.co/a/b", 6, 11, "https://huggingface.co/a/b", "hf://"),
    "inference with training": (TRAIN, "training:", "inference: {}\ntraining:", 6, 1, "inference does not go with task finetune", "training"),
    "no training": (TRAIN, "training:\n  method: lora\n  sequence_tokens: 2048\n", "", 1, 1, "training.method is missing", "method:"),
    "mistyped training": (TRAIN, "training:", "trainig:", 6, 1, "unknown key trainig", "training"),
    "no method": (TRAIN, "  method: lora\n", "", 6, 1, "training.method is missing", "full, lora or qlora"),
    "method": (TRAIN, "method: lora", "method: qlra", 7, 11, "qlra", "did you mean qlora"),
    "lora with full": (TRAIN, "method: lora", "method: full\n  lora: {rank: 8}", 8, 3, "lora does not go with method full", "method: lora"),
    "lora modules": (TRAIN, "method: lora", "method: lora\n  lora: {targets: q_proj}", 8, 19, "a list is wanted", "[q_proj]"),
    "optimizer": (TRAIN, "method: lora", "method: lora\n  optimizer: adam", 8, 14, "adam", "did you mean adamw"),
    "precision": (TRAIN, "method: lora", "method: lora\n  precision: mixed-bf16", 8, 14, "mixed-bf16", "bf16-mixed"),
    "checkpointing": (TRAIN, "method: lora", "method: lora\n  gradient_checkpointing: yes", 8, 27, "yes", "true or false"),
    "tokens and duration": (TRAIN, "method: lora", "method: lora\n  tokens: 2B\n  duration: 5h", 9, 3, "exclude each other", "keep one"),
    "steps with training": (TRAIN, "method: lora", "method: lora\n  image: {steps: 5}", 8, 11, "unknown key steps", "inference.image.steps"),
    "tokens without count": (TRAIN, "method: lora", "method: lora\n  tokens: many", 8, 11, "many is not a count", "2B"),
    "resumable": (TRAIN, "method: lora", "method: lora\n  checkpoint: {resumable: y}", 8, 27, "y is neither", "true or false"),
    "region of the hub": (TRAIN, "  id:", "  source_region: us-west-2\n  id:", 5, 3, "is the region of a bucket", "s3://"),
    "adapters with full": (TRAIN, "  id:", "  adapters: [s3://b/a]\n  id:", 5, 3, "model.adapters does not go", "lora"),
}  # fmt: skip


@pytest.mark.parametrize("case", REPLACED)
def test_a_mistake_in_a_spec(case: str, refused: Refused) -> None:
    spec, old, new, line, column, message, remedy = REPLACED[case]
    assert old in spec
    spec = spec.replace("method: lora", "method: full") if case == "adapters with full" else spec
    error = refused(spec.replace(old, new))
    assert isinstance(error.where, Position)
    assert (error.where.line, error.where.column) == (line, column), str(error)
    assert message in error.message
    assert remedy in f"{error.message} {error.remedy}"


WORK = {
    "bare": ("5000000", "has no unit", "tokens"),
    "suffix alone": ("5M", "has no unit", "tokens"),
    "unit": ("5M token", "counts token", "did you mean tokens"),
    "fraction": ("1.5 images", "out of range", "whole"),
    "zero": ("0 tokens", "out of range", "from 1"),
    "words": ("lots of tokens", "not an amount of work", "5M tokens"),
}


@pytest.mark.parametrize("case", WORK)
def test_the_work_of_a_batch(case: str, refused: Refused) -> None:
    text, message, remedy = WORK[case]
    error = refused(SERVE.replace("task: serve", "task: batch") + f"  total: {text}\n")
    assert isinstance(error.where, Position)
    assert (error.where.line, error.where.column) == (11, 10)
    assert message in error.message
    assert remedy in str(error)


def test_total_and_duration_exclude_each_other(refused: Refused) -> None:
    error = refused(SERVE.replace("serve", "batch") + "  duration: 5h\n  total: 5M tokens\n")
    assert "exclude each other" in error.message


WHOLE_FILES = {
    "empty": (b"", 1, 1, "empty", "gpuprov init"),
    "white space": (b" \n\n", 1, 1, "empty", "gpuprov init"),
    "comments": (b"# a\n# b\n", 1, 1, "empty", "gpuprov init"),
    "null": (b"---\n", 1, 1, "empty", "gpuprov init"),
    "word": (b"hello\n", 1, 1, "the top level is a mapping of keys, not hello", "version"),
    "list": (b"- version: 1\n", 1, 1, "the top level is a mapping of keys, not a list", "version"),
    "latin-1": (b"version: 1\nname: caf\xe9\n", 2, 10, "not UTF-8: byte 0xe9", "UTF-8"),
    "UTF-16": ("version: 1\n".encode("utf-16"), 1, 1, "UTF-16", "UTF-8"),
    "UTF-16 without mark": ("version: 1\n".encode("utf-16-le"), 1, 2, "U+0000", "remove"),
    "binary": (b"\x7fELF\x02\x01\x01\x00\xff", 1, 9, "not UTF-8", "UTF-8"),
    "JSON with a comma": (b'{"version": 1,, }', 1, 15, "YAML syntax", ""),
    "directive 1.1": (b"%YAML 1.1\n---\nversion: 1\n", 1, 1, "YAML 1.1", "YAML 1.2"),
    "tag directive": (b"%TAG ! tag:x,2000:\n---\nversion: 1\n", 1, 1, "declares tags", "%TAG"),
    "alias of itself": (b"a: &a [*a]\n", 1, 8, "inside its own anchor", "write the value out"),
    "deep flow": (b"a: " + b"[" * 500, 1, 67, "deeper than 64", "flatten"),
    "very deep flow": (b"a: " + b"[" * 100_000, 1, 1003, "nesting depth", "flatten"),
    "deep block": (b"- " * 5000, 1, 129, "deeper than 64", ""),
    "deep mappings": (b"{a: " * 5000, 1, 257, "deeper than 64", ""),
}


@pytest.mark.parametrize("case", WHOLE_FILES)
def test_a_file_that_is_no_spec(case: str, refused: Refused) -> None:
    content, line, column, message, remedy = WHOLE_FILES[case]
    error = refused(content)
    assert isinstance(error.where, Position)
    assert (error.where.line, error.where.column) == (line, column), str(error)
    assert message in error.message
    assert remedy in str(error)


def test_aliases_cannot_grow_without_bound(refused: Refused) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30)]
    error = refused("\n".join(lines))
    assert "10000 values" in error.message
    assert "alias" in str(error)


def test_a_file_of_a_million_keys_is_refused_at_once(refused: Refused) -> None:
    error = refused("".join(f"k{n}: 1\n" for n in range(60_000)))
    assert "10000 values" in error.message


def test_a_larger_file_is_not_read(refused: Refused) -> None:
    assert "larger than 1 MiB" in refused(b"#" * (2**20 + 1)).message


def test_the_first_by_position_is_shown_with_the_number_of_others(refused: Refused) -> None:
    error = refused(SERVE.replace("concurrency: 4", "concurrency: 0") + "storage:\n  data: 5\nfoo: 1\n")
    assert "concurrency" in error.message
    assert error.message.endswith("(and 2 more)")


def test_another_version_is_all_that_is_said(refused: Refused) -> None:
    error = refused("foo: 1\nname: X\nversion: 2\n")
    assert error.message == "version: 2 is no version that this gpuprov reads"
    assert str(error.where).endswith(":3:10")


def test_an_empty_model_is_a_missing_one(refused: Refused) -> None:
    assert "model.id" in refused("version: 1\nname: a\ntask: serve\nmodel: {}\n").message


def test_thousands_of_unknown_keys_cost_no_search_each(refused: Refused) -> None:
    error = refused(SERVE + "".join(f"key{n}: 1\n" for n in range(4000)))
    assert "unknown key key0" in error.message
    error = refused("".join(f"key{n}: 1\n" for n in range(4000)) + SERVE)
    assert "unknown key key0" in error.message


def test_a_long_or_broken_key_is_quoted_on_one_short_line(refused: Refused) -> None:
    error = refused(SERVE + f'"{"x" * 5000}": 1\n')
    assert len(str(error)) < 700
    error = refused(SERVE + '"a\\nb": 1\n')
    assert "a\\nb" in error.message


def test_a_byte_order_mark_is_no_error_and_moves_no_column(refused: Refused) -> None:
    error = refused(b"\xef\xbb\xbf" + SERVE.replace("version: 1", "version: 2").encode())
    assert isinstance(error.where, Position)
    assert (error.where.line, error.where.column) == (1, 10)


def test_windows_line_ends_count_once(refused: Refused) -> None:
    error = refused((SERVE + "foo: 1\n").replace("\n", "\r\n"))
    assert isinstance(error.where, Position)
    assert (error.where.line, error.where.column) == (11, 1)


@pytest.mark.parametrize("key", ["version: 1", "name: case", "task: serve"])
def test_a_required_key_without_a_value_cannot_be_removed(key: str, refused: Refused) -> None:
    error = refused(SERVE.replace(key, f"{key.partition(':')[0]}:"))
    assert "no value" in error.message
    assert "remove" not in (error.remedy or "")


def test_a_model_without_keys_cannot_be_removed(refused: Refused) -> None:
    error = refused(SERVE.replace("  id: meta-llama/Meta-Llama-3.1-8B-Instruct\n  weights: bf16\n", ""))
    assert "model has no keys" in error.message
    assert "remove" not in (error.remedy or "")


def test_an_optional_key_without_a_value_can_be_removed(refused: Refused) -> None:
    assert "or remove the key" in (refused(SERVE + "optimize:\n").remedy or "")
    assert "or remove it" in (refused(SERVE + "storage:\n").remedy or "")
