"""A home of its own with the installed command beside it: what end-to-end tests and proofs drive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

GPUPROV = Path(sys.executable).with_name("gpuprov")
SPEC = """\
version: 1
name: {name}
task: serve
model: {{id: meta-llama/Llama-3.1-8B-Instruct}}
inference: {{context_tokens: 8192, concurrency: 4}}
{extra}
"""
LIMIT_S = 120
"""A command that takes longer hangs; nothing here is measured by it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Standard output as one JSON document."""
        return json.loads(self.out)


class Bench:
    """A gpuprov home, a spec in it, and its sandbox."""

    def __init__(self, home: Path, *, name: str = "demo", extra: str = "", spec: str | None = None) -> None:
        self.home = home
        self.name = name
        home.mkdir(parents=True, exist_ok=True)
        self.spec = home / "workload.yaml"
        self.spec.write_text(spec or SPEC.format(name=name, extra=extra))

    @property
    def environment(self) -> dict[str, str]:
        """The caller's environment with this home."""
        return {**os.environ, "GPUPROV_HOME": str(self.home)}

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start a command in a session of its own, as a terminal or a pipeline would.

        Its calls to AWS bear its name, by which an emulated account tells the calls of the commands apart.
        """
        return subprocess.Popen(
            [str(GPUPROV), *arguments],
            env={**self.environment, "AWS_SDK_UA_APP_ID": arguments[0], **options.pop("env", {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
        )

    def run(self, *arguments: str, env: Mapping[str, str] | None = None) -> Answer:
        """Run a command to its end."""
        process = self.start(*arguments, env=dict(env or {}))
        try:
            out, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, err = process.communicate()
            raise AssertionError(f"gpuprov {' '.join(arguments)} hangs\n{out}\n{err}") from None
        assert "Traceback" not in out + err, err
        return Answer(process.returncode, out, err)

    def sandbox(self, *arguments: str) -> None:
        """Drive the sandbox; the command must work."""
        answer = self.run("sandbox", *arguments)
        assert answer.code == 0, answer.err

    def up(self, *arguments: str, **options: Any) -> Answer:
        """``gpuprov up`` of the spec, answered in JSON."""
        return self.run("up", str(self.spec), "--yes", "--format", "json", *arguments, **options)

    def down(self, *arguments: str) -> Answer:
        """``gpuprov down`` of the stack, answered in JSON."""
        return self.run("down", self.name, "--yes", "--format", "json", *arguments)

    @property
    def cloud(self) -> Any:
        """The sandbox behind the home."""
        from provisioner.clouds.sandbox.cloud import SandboxCloud

        return SandboxCloud(self.home)

    @property
    def controls(self) -> Any:
        """What drives the sandbox from outside."""
        return self.cloud.controls

    def machines(self) -> list[Any]:
        """Machines that exist."""
        return [
            entry for entry in self.cloud.list_objects() if entry.kind == "instance" and entry.state != "terminated"
        ]

    def creates(self, operations: Sequence[str] = ("create_instance", "create_volume")) -> list[Any]:
        """Calls that asked the sandbox for something that bills."""
        return [entry for entry in self.controls.calls() if entry.operation in operations]

    def running_bill(self) -> list[str]:
        """Ids of all that bills now."""
        return [line.id for line in self.controls.bill(running_only=True).lines]

    def most_machines_at_once(self) -> int:
        """The largest number of machines that ever existed at one moment, by the sandbox's bill."""
        spans = [
            (line.started_us, line.ended_us if line.ended_us is not None else 2**62)
            for line in self.controls.bill().lines
            if line.kind == "instance"
        ]
        return max((sum(a <= start < b for a, b in spans) for start, _ in spans), default=0)

    def total_usd(self) -> Fraction:
        """What everything has cost so far."""
        return Fraction(self.controls.bill().total_usd)
