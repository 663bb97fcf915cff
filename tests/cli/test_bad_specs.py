"""Wrong specs through the command as a user meets them: exit 2, one line with file:line:column, one JSON object that says the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from provisioner.cli.main import run

SERVE = """\
version: 1
name: case
task: serve
model:
  id: meta-llama/Llama-3.1-8B-Instruct
inference:
  context_tokens: 8192
"""
TUNE = """\
version: 1
name: case
task: finetune
model:
  id: meta-llama/Llama-3.1-8B
training:
  method: qlora
  sequence_tokens: 4096
"""
BATCH = SERVE.replace("serve", "batch")
FLUX = SERVE.replace("meta-llama/Llama-3.1-8B-Instruct", "black-forest-labs/FLUX.1-dev").replace(
    "  context_tokens: 8192\n", ""
)

CASES: dict[str, tuple[str | bytes, str, str]] = {
    # what is written, place, words that must be said
    "quoted version": (SERVE.replace("1\n", '"1"\n', 1), "1:10", "write version: 1"),
    "version 1.0": (SERVE.replace("1\n", "1.0\n", 1), "1:10", "write version: 1"),
    "version 2": (SERVE.replace("1\n", "2\n", 1), "1:10", "write version: 1"),
    "no version": (SERVE.partition("\n")[2], "1:1", "add version: 1"),
    "look-alike key": (SERVE.replace("task", "t\u0430sk"), "3:1", "did you mean task?"),
    "zero width": (SERVE.replace("task", "ta\u200bsk"), "3:1", "ta\\u200bsk"),
    "look-alike digits": (SERVE.replace("8192", "８１９２"), "7:19", "no whole number"),  # noqa: RUF001
    "BOM and typo": (b"\xef\xbb\xbf" + SERVE.replace("name", "nam").encode(), "2:1", "did you mean name?"),
    "CRLF and typo": ((SERVE + "  concurency: 4\n").replace("\n", "\r\n"), "8:3", "concurrency"),
    "tab": (SERVE.replace("  context", "\tcontext"), "7:1", "tabs"),
    "UTF-16": (SERVE.encode("utf-16"), "1:1", "UTF-8"),
    "not UTF-8": (SERVE.replace("case", "caf\xe9").encode("latin-1"), "2:10", "UTF-8"),
    "NUL": (SERVE.replace("case", "ca\0se"), "2:9", "U+0000"),
    "empty": ("", "1:1", "gpuprov init"),
    "comments only": ("# nothing\n# here\n", "1:1", "gpuprov init"),
    "a word": ("hello\n", "1:1", "version, name, task"),
    "a list": ("- version: 1\n", "1:1", "version, name, task"),
    "two documents": (SERVE + "---\n" + SERVE, "8:1", "one workload"),
    "a tag": (SERVE.replace(": case", ": !!str case"), "2:7", "!!str"),
    "an anchor without end": ("a: &a [*a]\n", "1:8", "inside its own anchor"),
    "unknown alias": (SERVE.replace(": case", ": *x"), "2:7", "*x"),
    "merge key": (SERVE + "<<: {optimize: cost}\n", "8:1", "write the keys out"),
    "alias bomb": ("".join(f"k{n}: &k{n} [{','.join([f'*k{n - 1}' if n else 'x'] * 9)}]\n" for n in range(9)), "5:", "10000"),
    "deep": (SERVE + "tags: " + "{a: " * 500 + "1" + "}" * 500, "8:", "64 levels"),
    "duplicate in flow": (SERVE + "placement: {gpus: [L4], gpus: [T4]}\n", "8:25", "line 8, column 13"),
    "boolean key": (SERVE + "true: 1\n", "8:1", '"true"'),
    "YAML 1.1 no": (SERVE + "  concurrency: no\n", "8:16", "YAML 1.1"),
    "YAML 1.1 octal": (SERVE.replace("8192", "010"), "7:19", "octal"),
    "YAML 1.1 sexagesimal": (SERVE + "lifecycle: {max_lifetime: 1:30}\n", "8:27", "1:30"),
    "YAML 1.1 underscore": (SERVE.replace("8192", "8_192"), "7:19", "YAML 1.1"),
    "25 digits": (SERVE.replace("8192", "9" * 25), "7:19", "out of range"),
    "5000 digits": (SERVE.replace("8192", "9" * 5000), "7:19", "999..."),
    "NaN": (SERVE + "  gpu_memory_fraction: .nan\n", "8:24", "above 0"),
    "percent": (SERVE + "  gpu_memory_fraction: 90%\n", "8:24", "0.9"),
    "replicas backwards": (SERVE + "  replicas: 4..1\n", "8:13", "smaller number first"),
    "bare duration": (SERVE + "  targets: {time_to_first_token: 500}\n", "8:34", "no unit"),
    "bare money": (SERVE + "placement: {max_price: 12}\n", "8:24", "USD/h"),
    "euro": (SERVE + "placement: {max_price: 12 EUR/h}\n", "8:24", "USD"),
    "G": (SERVE + "storage: {data: 500G}\n", "8:17", "GiB"),
    "unknown model": (SERVE.replace("Instruct", "Instuct"), "5:7", "meta-llama/llama-3.1-8b-instruct"),
    "unknown GPU": (SERVE + "placement: {gpus: [H1000]}\n", "8:20", "H100"),
    "A100": (SERVE + "placement: {gpus: [L4, A100]}\n", "8:24", "A100-40GB or A100-80GB"),
    "unknown region": (SERVE + "placement: {regions: [us-esat-1]}\n", "8:23", "us-east-1"),
    "a zone": (SERVE + "placement: {regions: [us-east-1a]}\n", "8:23", "us-east-1"),
    "unknown type": (SERVE + "placement: {instance_types: [g6.xlrage]}\n", "8:30", "g6.xlarge"),
    "region elsewhere": (SERVE + "placement: {clouds: [aws], regions: [us-central1]}\n", "8:28", "us-central1"),
    "all excluded": (SERVE + "placement: {gpus: [H200-SXM], exclude_gpus: [H200]}\n", "8:31", "leaves nothing"),
    "diffusers for text": (SERVE + "  engine: diffusers\n", "8:11", "vllm"),
    "vllm for images": (FLUX + "  engine: vllm\n", "7:11", "diffusers"),
    "image for text": (SERVE + "  image: {width: 512}\n", "8:3", "makes no image"),
    "video for images": (FLUX + "  video: {frames: 8}\n", "7:3", "inference.image"),
    "offload for text": (SERVE + "  offload: model\n", "8:12", "image and video"),
    "pictures for text": (SERVE + "  inputs: {images: 4}\n", "8:20", "takes no image"),
    "images of text": (BATCH + "  total: 5M images\n", "8:10", "tokens"),
    "fp8 in llama.cpp": (SERVE.replace("inference:\n", "  weights: fp8\ninference:\n  engine: llama.cpp\n"), "6:12", "gguf-Q8_0"),
    "GGUF in TensorRT": (SERVE.replace("inference:\n", "  weights: gguf-Q8_0\ninference:\n  engine: tensorrt-llm\n"), "6:12", "llama.cpp"),
    "fp8 cache": (SERVE + "  engine: transformers\n  kv_cache: fp8\n", "9:13", "vllm"),
    "no sequence": (TUNE.replace("  sequence_tokens: 4096\n", ""), "6:1", "add sequence_tokens:"),
    "quantised full": (TUNE.replace("training:", "  weights: nf4\ntraining:").replace("qlora", "full"), "6:12", "lora"),
    "awq qlora": (TUNE.replace("training:", "  weights: int4-awq\ntraining:"), "6:12", "nf4"),
    "unknown layers": (TUNE + "  lora: {targets: [foo_proj]}\n", "9:10", "q_proj"),
    "training to serve": (SERVE + "training: {method: lora}\n", "8:1", "inference"),
    "run budget": (SERVE + "placement: {budget: 5 USD/run}\n", "8:21", "USD/month"),
    "unknown architecture": (SERVE.replace("id: meta-llama/Llama-3.1-8B-Instruct", "config: {model_type: nonesuch}"), "5:3", "nonesuch"),
}  # fmt: skip


@pytest.mark.parametrize("command", ["plan", "size", "check"])
@pytest.mark.parametrize("case", CASES)
def test_a_wrong_spec(case: str, command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written, place, said = CASES[case]
    path = tmp_path / "workload.yaml"
    path.write_bytes(written if isinstance(written, bytes) else written.encode())
    assert run([command, str(path), "--format", "json"]) == 2
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if not line.startswith("warning: ")]
    assert len(lines) == 1
    assert lines[0].startswith(f"error: {path}:{place}"), lines[0]
    assert said in lines[0]
    document = json.loads(out)
    assert (document["schema"], document["code"]) == ("gpuprov.error/1", 2)
    where, message, remedy = document["where"], document["message"], document["remedy"]
    assert lines[0] == f"error: {where}: {message}; {remedy}"
    assert where.rsplit(":", 2)[0] == str(path)
