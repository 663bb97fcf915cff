"""``gpuprov doctor``: what is ready, what is not, and how to mend it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from provisioner.cli import settings
from provisioner.cli.failure import DocumentedFailure
from provisioner.errors import GpuprovError

_MARKS = {"ok": "ok     ", "warning": "warning", "broken": "broken "}


@click.command("doctor")
@click.argument("spec", required=False, type=click.Path(path_type=Path))
@click.option(
    "--cloud", type=click.Choice(settings.PROVIDERS), help="Cloud to look at (default: GPUPROV_CLOUD or sandbox)."
)
@click.option("--get-engine", is_flag=True, help="Get the Pulumi engine where it is missing.")
@click.option(
    "--print-iam", "iam", type=click.Choice(["aws"]), help="Print the least rights for each purpose, and nothing else."
)
@click.option("--format", "output", type=click.Choice(["table", "json"]), default="table")
def command(spec: Path | None, cloud: str | None, *, get_engine: bool, iam: str | None, output: str) -> None:
    """Say for each thing gpuprov needs whether it is ok, and what mends it where it is not."""
    if iam is not None:
        from provisioner.clouds.aws import rights

        commands = {purpose: list(names) for purpose, names in rights.COMMANDS.items()}
        document = {"schema": "gpuprov.iam/1", "cloud": iam, "commands": commands, "policies": rights.policies()}
        click.echo(
            json.dumps({**document, "options": rights.options(), "machine_role": rights.machine_role()}, indent=2)
        )
        return
    from stacks.doctor import examine

    if get_engine:
        from stacks.engine.find import find_engine

        find_engine(settings.say)
    findings = examine(settings.current().home, cloud or settings.default_cloud(), spec)
    if output == "json":
        items = [{"check": f.check, "state": f.state, "found": f.found, "fix": f.fix} for f in findings]
        click.echo(json.dumps({"schema": "gpuprov.doctor/1", "checks": items}, indent=2, ensure_ascii=False))
    else:
        for finding in findings:
            click.echo(f"{_MARKS[finding.state]}  {finding.check}: {finding.found}")
            if finding.fix:
                click.echo(f"         fix: {finding.fix}")
    broken = [finding for finding in findings if finding.state == "broken"]
    if broken:
        error = GpuprovError(
            f"broken: {', '.join(finding.check for finding in broken)}", remedy="mend each as its fix says"
        )
        codes = {finding.exit_code for finding in broken}
        error.exit_code = codes.pop() if len(codes) == 1 else error.exit_code
        raise DocumentedFailure(error)
