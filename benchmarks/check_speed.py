"""``python -m benchmarks.check_speed``: one ``gpuprov check`` over many specs, a spec's milliseconds, and whether they stay the same.

Most specs of a repository pass; one in ten here does not fit and is told its smallest change, which takes a search. With
``--checkov COMMAND`` (of an environment of its own) the same Terraform plan is given to Checkov.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.pairs import environment, measure, timed

SPEC_MS_MAX = 30.0
GROWTH_MAX = 1.25
"""Most times that a spec of many may cost what a spec of half as many does."""
REFUSED_EVERY = 10
SIZES = (1024, 2048, 4096, 8192)
INSTANCE = {
    "ami": "ami-0123456789abcdef0",
    "instance_type": "g6.xlarge",
    "root_block_device": [{"encrypted": True, "volume_size": 200}],
    "metadata_options": [{"http_tokens": "required"}],
    "tags": {"owner": "ana"},
}


def spec(number: int) -> dict[str, Any]:
    """One spec of many; every tenth cannot be held by what it allows."""
    large = number % REFUSED_EVERY == 0
    model = "meta-llama/Llama-3.1-70B-Instruct" if large else "meta-llama/Llama-3.1-8B-Instruct"
    return {
        "version": 1,
        "name": f"chat-{number}",
        "task": "serve",
        "model": {"id": model, "weights": "bf16"},
        "inference": {"context_tokens": SIZES[number % 4], "concurrency": 1 + number % 7},
        "placement": {"max_gpus": 1, "clouds": [("aws", "gcp")[number % 2]]},
        "tags": {"owner": "ana"},
    }


def seconds(folder: Path, count: int, gpuprov: str) -> float:
    """Wall seconds of one check over so many specs."""
    inside = folder / str(count)
    inside.mkdir()
    for number in range(count):
        (inside / f"{number}.workload.yaml").write_text(json.dumps(spec(number)), encoding="utf-8")
    began = time.perf_counter()
    done = subprocess.run(
        [gpuprov, "check", str(inside), "--format", "json"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.perf_counter() - began
    if done.returncode != 5 or json.loads(done.stdout)["counts"]["files"] != count:
        raise RuntimeError(f"check ended with {done.returncode}: {done.stderr[-2000:]}")
    return took


def main() -> int:
    """0 where a spec keeps its milliseconds and twice as many specs take twice as long, else 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--specs", type=int, default=1000)
    parser.add_argument("--checkov", help="how to run Checkov, such as /path/to/its/bin/checkov")
    arguments = parser.parse_args()
    gpuprov = str(Path(sys.executable).parent / "gpuprov")
    with tempfile.TemporaryDirectory() as name:
        half_s = seconds(Path(name), arguments.specs // 2, gpuprov)
        whole_s = seconds(Path(name), arguments.specs, gpuprov)
        each_ms, growth = 1000 * whole_s / arguments.specs, whole_s / half_s / 2
        print(f"{arguments.specs} specs in {whole_s:.1f} s: {each_ms:.1f} ms each (limit {SPEC_MS_MAX:g})")
        print(f"against half as many: {growth:.2f} times a spec (limit {GROWTH_MAX})")
        if arguments.checkov:
            compare(Path(name), gpuprov, arguments.checkov)
    return 0 if each_ms <= SPEC_MS_MAX and growth <= GROWTH_MAX else 1


def compare(folder: Path, gpuprov: str, checkov: str) -> None:
    """One Terraform plan through both."""
    change = {"address": "aws_instance.gpu", "mode": "managed", "type": "aws_instance", "name": "gpu"}
    inner = {"actions": ["create"], "before": None, "after": INSTANCE, "after_unknown": {}, "after_sensitive": {}}
    plan = {"format_version": "1.2", "terraform_version": "1.9.5", "resource_changes": [change | {"change": inner}]}
    path = folder / "tfplan.json"
    path.write_text(json.dumps(plan), encoding="utf-8")
    words = [*shlex.split(checkov), "-f", str(path), "--quiet", "--soft-fail", "-o", "json"]
    pairs = measure(
        lambda: timed(words, environment()), lambda: timed([gpuprov, "check", str(path)], environment()), pairs=3
    )
    subject, floor = statistics.median(pairs.subject_s), statistics.median(pairs.floor_s)
    print(f"Checkov {subject:.2f} s, gpuprov check {floor:.2f} s: {pairs.ratio:.1f} times")


if __name__ == "__main__":
    sys.exit(main())
