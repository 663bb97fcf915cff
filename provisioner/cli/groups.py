"""Command groups that answer a missing or misspelt command with help on standard error and the nearest name."""

from __future__ import annotations

import click

from provisioner.errors import UsageError


class CommandGroup(click.Group):
    """A group of commands. What click answers with a page of help as the error itself is one line here, after the help."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Options and the rest of the arguments.

        Raises:
            UsageError: nothing was given at all.
        """
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), err=True)
            raise UsageError(f"`{ctx.command_path}` needs a command", remedy="name one of those above")
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names.

        Raises:
            UsageError: there is none of that name; the nearest is named.
        """
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            from difflib import get_close_matches  # only where a name is wrong

            near = get_close_matches(name.lower(), self.list_commands(ctx), n=1)
            ahead = f"did you mean {near[0]}? " if near else ""
            raise UsageError(
                f"`{ctx.command_path}` has no command {name!r}", remedy=f"{ahead}`{ctx.command_path} --help` lists all"
            )
        return super().resolve_command(ctx, args)
