"""One preview of the real engine over many machines: what its event stream says of the pack's verdicts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stacks.engine.find import find_engine, find_yaml_language

BIN = Path(sys.executable).parent
TYPE = "gpuprov:index:GpuInstance"
LAUNCH = {
    "stackId": "s-1",
    "generation": 1,
    "createdAt": "2026-11-30T00:00:00Z",
    "expiresAt": "none",
    "image": {},
    "owner": "",
}
"""What a ``Launch`` would give; the rules look at none of it."""


class Stack:
    """A Pulumi project with its own home, backend and sandbox cloud."""

    def __init__(self, folder: Path) -> None:
        engine, language = find_engine(), find_yaml_language()
        for name in ("project", "backend", "pulumi", "home"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._command = str(engine.path)
        self._environment = {
            **os.environ,
            "PATH": f"{engine.path.parent}:{language.path.parent}:{BIN}:{os.environ['PATH']}",
            "PULUMI_HOME": str(folder / "pulumi"),
            "PULUMI_BACKEND_URL": f"file://{folder / 'backend'}",
            "PULUMI_CONFIG_PASSPHRASE": "proof",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DEBUG_COMMANDS": "true",
            "GPUPROV_HOME": str(folder / "home"),
        }

    def verdicts(self, machines: Sequence[Mapping[str, Any]]) -> list[frozenset[str]]:
        """Rules that the pack names as mandatory on each machine, in one preview of all of them.

        Raises:
            RuntimeError: the engine could not preview the machines.
        """
        resources = {
            f"m{number}": {"type": TYPE, "properties": {"launch": LAUNCH, **inputs}}
            for number, inputs in enumerate(machines)
        }
        project = {"name": "proof", "runtime": "yaml", "resources": resources}
        (self._folder / "project" / "Pulumi.yaml").write_text(json.dumps(project))
        log = self._folder / "events.log"
        log.unlink(missing_ok=True)
        self._run("stack", "select", "dev", "--create")
        pack = str(BIN / "gpuprov-policy")
        done = self._run("preview", "--policy-pack", pack, "--event-log", str(log), check=False)
        found: list[set[str]] = [set() for _ in machines]
        seen = 0
        for line in log.read_text().splitlines() if log.exists() else ():
            event = json.loads(line)
            seen += TYPE in str(event.get("resourcePreEvent", {}).get("metadata", {}).get("urn", ""))
            policy = event.get("policyEvent")
            if policy and policy["enforcementLevel"] == "mandatory":
                found[int(policy["resourceUrn"].rpartition("::m")[2])].add(policy["policyName"])
        if not log.exists() or (not seen and not any(found)):
            raise RuntimeError(f"the engine previewed nothing: {(done.stdout + done.stderr)[-3000:]}")
        return [frozenset(each) for each in found]

    def _run(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self._command, *arguments, "--non-interactive"],
            cwd=self._folder / "project",
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=1200,
            check=check,
        )
