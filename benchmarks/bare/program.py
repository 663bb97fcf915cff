"""A bare Automation API program with the engine phases of ``gpuprov up``: make the stack, preview, update, each after a refresh.

``python -m benchmarks.bare.program ENGINE FOLDER``: FOLDER holds the state and, on its ``bin``, the provider and the pack.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pulumi
from pulumi import automation

RESOURCES = 3
"""As many as a workload with one machine and one data disk has."""


def program() -> None:
    """Resources that nothing stands behind."""
    for number in range(RESOURCES):
        pulumi.CustomResource("bare:index:Nothing", f"nothing-{number}", {"text": "a" * 200})


def main(engine: Path, folder: Path) -> None:
    """One ``up``."""
    environment = {
        "PATH": os.pathsep.join((str(folder / "bin"), str(engine.parent), os.environ["PATH"])),
        "PULUMI_HOME": str(folder / "pulumi"),
        "PULUMI_CONFIG_PASSPHRASE": "bare",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }
    os.environ.update(environment)
    options = automation.LocalWorkspaceOptions(
        env_vars=environment,
        pulumi_command=automation.PulumiCommand(skip_version_check=True),
        project_settings=automation.ProjectSettings(
            name="bare", runtime="python", backend=automation.ProjectBackend(url=f"file://{folder / 'state'}")
        ),
    )
    stack = automation.create_or_select_stack("bare", project_name="bare", program=program, opts=options)
    packs = [str(folder / "bin" / "bare-policy")]
    stack.preview(refresh=True, policy_packs=packs, on_event=lambda _event: None)
    stack.up(refresh=True, policy_packs=packs, on_event=lambda _event: None)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
