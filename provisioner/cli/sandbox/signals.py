"""``sandbox telemetry``: what a machine's metrics and serial console say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

from provisioner.cli import settings
from provisioner.cli.groups import CommandGroup
from provisioner.cli.sandbox.output import controls, format_option, print_document, print_table
from provisioner.clouds.sandbox.samples import PER_GPU, SCALARS, Sample
from provisioner.errors import UsageError
from provisioner.tags import format_time

_SHOWN_MAX = 60


@click.group("telemetry", cls=CommandGroup)
def telemetry() -> None:
    """Signals of machines, for idle decisions."""


@telemetry.command("set", epilog=f"Signals: {', '.join((*PER_GPU, *SCALARS))}.")
@click.argument("instance_id", metavar="ID")
@click.argument("signals", metavar="[SIGNAL=VALUE]...", nargs=-1)
@click.option("--console", help="Line to add to the machine's serial console.")
@format_option
def set_telemetry(instance_id: str, signals: tuple[str, ...], console: str | None, output: str) -> None:
    """Set signals of machine ID (or of the machine of stack ID) from now on, such as gpu_utilization_percent=[0,97] cpu_percent=3; null is "not available"."""
    if not signals and console is None:
        raise UsageError("nothing to set", remedy="name a signal, such as cpu_percent=3, or --console LINE")
    samples = controls().set_telemetry(instance_id, dict(_signal(text) for text in signals), console)
    _print(instance_id, samples[-1:], output)


@telemetry.command("show")
@click.argument("instance_id", metavar="ID")
@format_option
def show_telemetry(instance_id: str, output: str) -> None:
    """Show the samples of machine ID, oldest first; each holds until the next."""
    _print(instance_id, controls().telemetry(instance_id), output)


@telemetry.command("clear")
@click.argument("instance_id", metavar="ID")
def clear_telemetry(instance_id: str) -> None:
    """Let the telemetry of machine ID go silent: no samples at all."""
    controls().clear_telemetry(instance_id)
    settings.say(f"{instance_id} has no telemetry")


def _signal(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsageError(f"{text!r} is no signal", remedy="write SIGNAL=VALUE, such as cpu_percent=3")
    try:
        return name, json.loads(value)
    except ValueError:
        shown = text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."
        raise UsageError(f"{shown!r}: the value is no JSON", remedy="write a number, null, or a list of them") from None


def _print(instance_id: str, samples: Sequence[Sample], output: str) -> None:
    if output == "json":
        items = [{"at": format_time(sample.at), "signals": dict(sample.signals)} for sample in samples]
        print_document("telemetry", id=instance_id, samples=items)
        return
    rows = [
        (format_time(sample.at), " ".join(f"{name}={json.dumps(value)}" for name, value in sample.signals.items()))
        for sample in samples
    ]
    print_table(("AT", "SIGNALS"), rows, empty=f"{instance_id} has no telemetry")
