"""Entry point of ``gpuprov``: the command group, loaded one command at a time, and the one place where errors end."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, NoReturn

import click

from provisioner.cli import failure, streams
from provisioner.cli.groups import CommandGroup
from provisioner.cli.settings import Settings, checked_home

COMMANDS = {
    "check": "judge specs, plans, previews, states and Terraform plans by the policy rules",
    "connect": "a shell or a forwarded port, without an open one",
    "doctor": "say what is ready, what is not, and how to mend it",
    "down": "end everything of a stack",
    "export": "write the chosen plan for another tool",
    "gc": "list what no stack holds any more, and remove what is ours",
    "init": "write a commented workload.yaml that plans as it is",
    "keepalive": "keep a stack's machine for a while, idle or not",
    "logs": "what a stack's machine says",
    "models": "known models and their shapes; add others",
    "offers": "priced offers of the catalog",
    "plan": "size a workload, rank offers and choose",
    "preview": "show what `up` would change",
    "prices": "prices of the catalog with their dates",
    "reap": "end machines that are idle, over age or stopped too long",
    "refresh": "read a stack's real state from the cloud",
    "sandbox": "drive the sandbox cloud",
    "schema": "JSON Schema of workload.yaml",
    "size": "memory footprint and throughput per GPU layout",
    "start": "start a stopped stack",
    "status": "what exists and what it costs",
    "stop": "stop a stack's machine, keep its disks",
    "unlock": "clear a stack's lock",
    "up": "create or update a stack",
}
"""Command name -> one line of help; each lives in ``provisioner.cli.<name>`` as ``command``."""

_INSTANT = frozenset({"check", "plan", "size"})
"""Commands that hold nothing to be put away at their end: no threads, no temporary files, no connections."""


class LazyGroup(CommandGroup):
    """A group whose commands are imported when they are called: ``plan`` must not pay for ``up``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All command names, sorted."""
        del ctx
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now."""
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"provisioner.cli.{cmd_name}").command
        if not isinstance(command, click.Command):
            raise TypeError(f"provisioner.cli.{cmd_name}.command is no click command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Command list from the table, without importing any command."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--home",
    metavar="DIRECTORY",
    envvar="GPUPROV_HOME",
    help="State, sandbox and engine home.",
)
@click.option("--quiet", is_flag=True, help="Only results and errors.")
@click.option("--no-color", is_flag=True, help="No colours (NO_COLOR does the same).")
@click.version_option(package_name="gpuprov")
@click.pass_context
def group(ctx: click.Context, home: str | None, *, quiet: bool, no_color: bool) -> None:
    """Size, choose, create, check and tear down GPU machines for generative AI."""
    ctx.obj = Settings(chosen_home=checked_home(home), quiet=quiet, color=not no_color)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``gpuprov``; never returns, exits with the contracted code."""
    # A command lives for a second and makes many small frozen objects: collecting cycles among them costs a tenth of `plan`.
    gc.set_threshold(100_000, 50, 50)
    streams.prepare()
    signal.signal(signal.SIGTERM, _interrupt)
    args = list(sys.argv[1:] if arguments is None else arguments)
    code = streams.finish(run(args))
    if arguments is None and failure.command_of(args) in _INSTANT:
        os._exit(code)  # all is written; taking three hundred modules apart one by one was 4 % of `check`
    # Python looks for cycles among all objects once more at its end; the process frees them anyway.
    gc.freeze()
    sys.exit(code)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    """SIGTERM ends a command as Ctrl-C does: cancelled, exit code 8."""
    del number, frame
    raise KeyboardInterrupt


def run(args: list[str]) -> int:
    """Exit code of one invocation; errors are printed here and nowhere else."""
    try:
        result: Any = group.main(args=args, prog_name="gpuprov", standalone_mode=False)
    except BaseException as error:  # noqa: BLE001 - the one edge where everything becomes an exit code
        return failure.report(error, as_json=failure.wants_json(args), command=failure.command_of(args))
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    main()
