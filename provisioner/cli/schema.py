"""``gpuprov schema``: JSON Schema of the spec, for editors."""

from __future__ import annotations

import json

import click


@click.command()
@click.option(
    "--format",
    "form",
    type=click.Choice(["json"]),
    default="json",
    show_default=True,
    help="The schema is a JSON document.",
)
def command(form: str) -> None:
    """Print the JSON Schema of workload.yaml.

    Most editors complete and check a spec that begins with
    `# yaml-language-server: $schema=PATH` once this output is saved at PATH.
    """
    del form
    from provisioner.workload.schema import json_schema

    click.echo(json.dumps(json_schema(), indent=2, ensure_ascii=False))
