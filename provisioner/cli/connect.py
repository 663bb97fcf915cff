"""``gpuprov connect``: a shell or a forwarded port, without an open one."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import click

from provisioner.cli import stack_options as options
from provisioner.errors import CloudError, NotFound, UsageError

if TYPE_CHECKING:
    from provisioner.clouds.cloud import Instance, Placement


@click.command("connect")
@click.argument("stack")
@click.option("--port", type=click.IntRange(1, 65_535), help="Forward this port of the machine instead of a shell.")
@click.option("--local-port", type=click.IntRange(1, 65_535), help="Where it shows here; default the same.")
@click.option(
    "--print", "only_print", is_flag=True, help="Show a command of the cloud's own CLI for it, and connect to nothing."
)
@options.backend_option
def command(stack: str, *, port: int | None, local_port: int | None, only_print: bool, backend: str | None) -> None:
    """Open a shell on the machine of STACK, or forward one of its ports: by SSM on AWS, by IAP on GCP."""
    if local_port is not None and port is None:
        raise UsageError("--local-port says where a forwarded port shows here", remedy="add --port")
    from stacks import own_machine
    from stacks.clouds import cloud_of

    site = options.open_site(backend)
    state = site.existing(options.checked_name(stack))
    provider = state.provider or "sandbox"
    cloud = cloud_of(state, provider, site.home)
    instance = own_machine.machine_of(state, cloud)
    if str(instance.state) != "running":
        raise NotFound(f"{instance.id} is {instance.state}", remedy=f"gpuprov start {stack}")
    settings = state.settings or {}
    words = argv(instance, port, local_port, profile=str(settings.get("profile") or "") or None)
    if only_print:
        click.echo(shlex.join(words))
        return
    if provider == "sandbox":
        raise UsageError(
            "a machine of the sandbox has nothing inside to connect to",
            remedy=f"on a real cloud this runs: {shlex.join(words)}",
        )
    if isinstance(cloud, Shelled):
        opened = cloud.open_shell(instance.placement, instance.id, port, local_port)
        words, more = list(opened.argv), opened.environment
    elif shutil.which(words[0]) is None:
        raise UsageError(f"there is no `{words[0]}` on PATH", remedy="install the Google Cloud CLI")
    else:
        more = {}
    name = Path(words[0]).name
    code = _run(words, more)
    if code != 0:
        # Its numbers are not ours: 2 or 5 of a shell would read as a wrong spec or a policy violation.
        raise CloudError(f"`{name}` ended with {code}", remedy="what it printed says why")


@runtime_checkable
class Shelled(Protocol):
    """A cloud that opens a session itself."""

    def open_shell(self, placement: Placement, instance_id: str, port: int | None, local_port: int | None) -> Opened:
        """A session with a machine, and what speaks in it."""
        ...


class Opened(Protocol):
    """What speaks in a session."""

    @property
    def argv(self) -> tuple[str, ...]:
        """The program and its arguments."""
        ...

    @property
    def environment(self) -> Mapping[str, str]:
        """What is added to its environment."""
        ...


def _run(words: list[str], more: Mapping[str, str]) -> int:
    """Run a program to its end; signals of the keyboard are for it, and not for this process."""
    before = {number: signal.signal(number, lambda *_: None) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        return subprocess.run(words, env={**os.environ, **more}, check=False).returncode
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def argv(instance: Instance, port: int | None, local_port: int | None, profile: str | None = None) -> list[str]:
    """The command that connects.

    Source: AWS Systems Manager user guide, "Start a session"; gcloud reference, ``compute ssh --tunnel-through-iap``.
    """
    place = instance.placement
    if place.cloud == "gcp":
        words = ["gcloud", "compute", "ssh", instance.name, "--zone", place.zone or "", "--tunnel-through-iap"]
        return words if port is None else [*words, "--", "-N", "-L", f"{local_port or port}:localhost:{port}"]
    words = ["aws", "ssm", "start-session", "--target", instance.id, "--region", place.region]
    words += ["--profile", profile] if profile else []
    if port is None:
        return words
    ports = json.dumps({"portNumber": [str(port)], "localPortNumber": [str(local_port or port)]}, separators=(",", ":"))
    return [*words, "--document-name", "AWS-StartPortForwardingSession", "--parameters", ports]
