"""A Pulumi workspace of one stack without the launches that we do not need.

``pulumi.automation`` starts the engine for a version, a selection, two readings of outputs and a history around each update
(about 0.3 s each). We know the version, name the stack in every call, and read outputs from the state.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from pulumi.automation import (
    Deployment,
    LocalWorkspace,
    OutputMap,
    Stack,
    StackNotFoundError,
    UpdateSummary,
)
from pulumi.automation._stack import StackInitMode

from provisioner.errors import UsageError
from stacks.command import EngineCommand
from stacks.state import PROJECT, StackState, parse_deployment

_PROJECT_FILE = f"name: {PROJECT}\nruntime: python\ndescription: made by gpuprov\n"


class StackWorkspace(LocalWorkspace):
    """A workspace whose stack is named in every call, so that selecting one is nothing to do."""

    def select_stack(self, stack_name: str) -> None:
        """Nothing: no call of ours depends on a selected stack."""


class LeanStack(Stack):
    """A stack whose runs are one launch each; outputs and summary are read elsewhere."""

    def outputs(self) -> OutputMap:
        """Nothing: the state is read by ``stacks.state``."""
        return {}

    def info(self, show_secrets: bool = True) -> UpdateSummary | None:  # noqa: ARG002 - the base class names it
        """A summary that claims nothing: the event stream tells what happened."""
        return UpdateSummary("update", datetime.now(UTC), "", {}, {}, "succeeded")


def open_stack(directory: Path, stack: str, command: EngineCommand, program: Callable[[], None] | None) -> LeanStack:
    """The stack as ``pulumi.automation`` sees it, with its project file in ``directory``."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write_once(directory / "Pulumi.yaml", _PROJECT_FILE)
    workspace = StackWorkspace(work_dir=str(directory), program=program, pulumi_command=command)
    return LeanStack(stack, workspace, StackInitMode.SELECT)


def configure(directory: Path, stack: str, provider: str) -> None:
    """Write where the plugin carries the stack's plans out into its settings file; other settings stay.

    The engine copies it into the state (inputs of the provider resource), so the stack keeps it.
    """
    path = directory / f"Pulumi.{stack}.yaml"
    settings: dict[str, Any] = {}
    if path.exists():
        settings = _read_settings(path)
    config = settings.setdefault("config", {})
    if config.get(f"{PROJECT}:cloud") != provider:
        config[f"{PROJECT}:cloud"] = provider
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write_once(path, yaml.safe_dump(settings, sort_keys=True))


def _read_settings(path: Path) -> dict[str, Any]:
    """The settings of a stack as they are on disk.

    Raises:
        UsageError: the file is damaged.
    """
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        if isinstance(settings, dict) and isinstance(settings.get("config", {}), dict):
            return settings
        why = "it holds no settings"
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        why = " ".join(str(error).split())
    raise UsageError(
        f"the settings file is damaged: {why}",
        where=str(path),
        remedy=f"remove {path}: it is written again, and the state knows how its secrets are kept",
    )


def create_stack(stack: LeanStack, secrets_provider: str) -> None:
    """Make the stack in the backend."""
    arguments = ["stack", "init", stack.name, "--no-select"]
    if secrets_provider != "default":
        arguments += ["--secrets-provider", secrets_provider]
    stack.workspace.pulumi_command.run(arguments, stack.workspace.work_dir, {})


def read_remote_state(stack: LeanStack) -> StackState | None:
    """The state of a stack in a remote backend; ``None`` where there is no such stack."""
    try:
        document = export(stack)
    except StackNotFoundError:
        return None
    return parse_deployment(stack.name, document.get("deployment") or {})


def export(stack: LeanStack) -> dict[str, Any]:
    """The stack's whole deployment document, secrets sealed."""
    result = stack.workspace.pulumi_command.run(
        ["stack", "export", "--stack", stack.name], stack.workspace.work_dir, {}
    )
    document = json.loads(result.stdout)
    return document if isinstance(document, dict) else {}


def edit(stack: LeanStack, change: Callable[[dict[str, Any]], bool]) -> bool:
    """Change the stack's deployment document through the engine, which checks and locks it.

    Args:
        stack: the stack.
        change: changes the deployment in place and says whether it did.
    """
    document = export(stack)
    deployment = document.get("deployment")
    if not isinstance(deployment, dict) or not change(deployment):
        return False
    stack.workspace.import_stack(stack.name, Deployment(version=document.get("version"), deployment=deployment))
    return True


def _write_once(path: Path, text: str) -> None:
    """Write a file whole or not at all, and only where it differs."""
    try:
        if path.read_text(encoding="utf-8") == text:
            return
    except FileNotFoundError:
        pass
    draft = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def list_remote(command: EngineCommand, directory: Path) -> tuple[str, ...]:
    """Names of the stacks in a remote backend, sorted."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    _write_once(directory / "Pulumi.yaml", _PROJECT_FILE)
    rows: list[Mapping[str, Any]] = json.loads(
        command.run(["stack", "ls", "--json"], str(directory), {}).stdout or "[]"
    )
    return tuple(sorted(str(row["name"]).rpartition("/")[2] for row in rows))
