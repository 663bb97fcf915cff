"""``gpuprov init``: a commented spec to start from."""

from __future__ import annotations

from pathlib import Path

import click

from provisioner.cli.settings import say
from provisioner.errors import UsageError
from provisioner.planner.requirements import KeyedSpecError
from provisioner.vocabulary import Task

DEFAULT_FILE = "workload.yaml"


@click.command()
@click.option("--task", type=click.Choice([str(task) for task in Task]), default="serve", show_default=True)
@click.option("--model", "model_id", metavar="ID", help="A model that `gpuprov models` lists.")
@click.option("-o", "--output", metavar="FILE", default=DEFAULT_FILE, show_default=True, help="- is standard output.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
def command(task: str, model_id: str | None, output: str, *, force: bool) -> None:
    """Write a commented workload.yaml that plans as it is."""
    from provisioner.planner.request import demand_for
    from provisioner.sizing.models import find_model
    from provisioner.workload.load import parse
    from provisioner.workload.template import DEFAULT_MODELS, checked_model_id, spec_text

    chosen = checked_model_id(model_id) if model_id is not None else DEFAULT_MODELS[Task(task)]
    shape = find_model(chosen)
    file = DEFAULT_FILE if output == "-" else output
    limit, modality = shape.max_context_tokens, shape.modality
    text = spec_text(Task(task), chosen, file=file, context_limit=limit, modality=modality)
    try:
        demand_for(parse(text.encode(), Path(file)).workload, shape)
    except KeyedSpecError as error:  # a task that this kind of model has no sizing for
        raise UsageError(f"--model {chosen} with --task {task}: {error.message}", remedy=error.remedy) from None
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
