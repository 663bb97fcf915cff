"""``gpuprov init``: a commented spec to start from."""

from __future__ import annotations

from pathlib import Path

import click

from provisioner.cli.settings import say
from provisioner.errors import UsageError
from provisioner.vocabulary import Task

DEFAULT_FILE = "workload.yaml"


@click.command()
@click.option("--task", type=click.Choice([str(task) for task in Task]), default="serve", show_default=True)
@click.option("--model", "model_id", metavar="ID", help="A model that `gpuprov models` lists.")
@click.option("-o", "--output", metavar="FILE", default=DEFAULT_FILE, show_default=True, help="- is standard output.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(task: str, model_id: str | None, output: str, *, force: bool) -> None:
    """Write a commented workload.yaml that plans as it is."""
    from provisioner.sizing.models import find_model
    from provisioner.workload.template import DEFAULT_MODELS, checked_model_id, spec_text

    chosen = checked_model_id(model_id) if model_id is not None else DEFAULT_MODELS[Task(task)]
    limit = find_model(chosen).max_context_tokens
    file = DEFAULT_FILE if output == "-" else output
    text = spec_text(Task(task), chosen, file=file, context_limit=limit)
    if output == "-":
        click.echo(text, nl=False)
        return
    _write(Path(output), text, force=force)
    say(f"wrote {output}; next: gpuprov plan {output}")


def _write(path: Path, text: str, *, force: bool) -> None:
    try:
        with path.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        remedy = "name another file with -o, or overwrite it with --force"
        raise UsageError(f"{path} exists already", where=str(path), remedy=remedy) from None
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror}", remedy="name a file in a folder that exists"
        ) from None
