"""``gpuprov doctor``: what is ready, what is not, and how to mend it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from provisioner.cli import settings
from provisioner.cli.failure import DocumentedFailure, error_document
from provisioner.errors import GpuprovError, UsageError

if TYPE_CHECKING:
    from stacks.doctor import Finding

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
    error = _error(findings)
    if output == "json":
        items = [{"check": f.check, "state": f.state, "found": f.found, "fix": f.fix} for f in findings]
        report: dict[str, Any] = {"schema": "gpuprov.doctor/1", "checks": items}
        report |= {"error": error_document(error)} if error is not None else {}
        click.echo(json.dumps(report, indent=2, ensure_ascii=False))
    else:
        for finding in findings:
            click.echo(f"{_MARKS[finding.state]}  {finding.check}: {finding.found}")
            if finding.fix:
                click.echo(f"         fix: {finding.fix}")
    if error is not None:
        raise DocumentedFailure(error)


def _error(findings: Sequence[Finding]) -> GpuprovError | None:
    """What is broken, with the exit code of CONTRACTS section 3: a wrong set-up or spec first, else the cause if it is one."""
    broken = [finding for finding in findings if finding.state == "broken"]
    if not broken:
        return None
    error = GpuprovError(
        f"broken: {', '.join(finding.check for finding in broken)}", remedy="mend each as its fix says"
    )
    codes = {finding.exit_code for finding in broken}
    if UsageError.exit_code in codes:
        error.exit_code = UsageError.exit_code
    elif len(codes) == 1:
        error.exit_code = codes.pop()
    return error
