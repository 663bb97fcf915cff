"""``gpuprov models``: known models and their shapes; ``add`` fetches one more into the user's cache, ``remove`` forgets it."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from provisioner.cli.groups import CommandGroup
from provisioner.cli.settings import current, say, warn
from provisioner.errors import UsageError

if TYPE_CHECKING:
    from provisioner.hub.add import Added
    from provisioner.sizing.models import KnownModel

SCHEMA = "gpuprov.models/1"
FORM = click.option("--format", "form", type=click.Choice(["table", "json"]), default="table")


class ModelsGroup(CommandGroup):
    """A group in which everything that is no command of it is an id to show: ``gpuprov models Qwen/Qwen3-8B``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments, with ``show`` in front where no command is named."""
        first = next((each for each in args if not each.startswith("-")), None)
        if first not in self.commands and not any(each in ("-h", "--help") for each in args):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group("models", cls=ModelsGroup)
def command() -> None:
    """Known models and their shapes: all, or those that an ID or a part of one names; `add` fetches one more."""


@command.command("show")
@click.argument("model", metavar="[ID]", required=False)
@FORM
def show(model: str | None, *, form: str) -> None:
    """All known models, or one by id or alias (case does not count; part of an id lists what matches)."""
    from provisioner.sizing.models import known_models

    known = known_models()
    if model is not None:
        known = _matching(model, known)
    is_one = model is not None and len(known) == 1
    if form == "json":
        click.echo(json.dumps(_document(known, with_components=is_one), indent=2, ensure_ascii=False))
        return
    from provisioner.report.models import print_model, print_models

    if is_one:
        print_model(known[0], color=current().color)
        return
    print_models(known, color=current().color)
    say(
        f"{len(known)} models; `gpuprov models add` fetches others, and a config.json works as well: model: {{config: ./config.json}}"
    )


@command.command("add")
@click.argument("model", metavar="ID|PATH")
@click.option("--revision", default="main", show_default=True, help="Branch, tag or commit on the hub.")
@click.option("--as", "wanted", metavar="ID", help="Id to store a local model under (default: the name of its folder).")
@FORM
def add(model: str, *, revision: str, wanted: str | None, form: str) -> None:
    """Fetch a model's config.json and the headers of its weight files, so that `size`, `plan` and `check` know it offline.

    ID is read from the hub (HF_ENDPOINT, default https://huggingface.co) with the token of HF_TOKEN where there is one; no weights
    are downloaded. PATH is a local folder or config.json.
    """
    from provisioner.added_models import is_model_id
    from provisioner.hub.add import add_model, folder_id, local_source
    from provisioner.hub.client import HubSource, endpoint_of

    local = local_source(model)
    if local is not None:
        _report(add_model(local, folder_id(local.path, wanted)), form)
        return
    model_id, _, pinned = model.removeprefix("hf://").partition("@")
    if not is_model_id(model_id):
        raise UsageError(
            f"{model!r} is no model id and no path", remedy="write it as organisation/name, or name a folder"
        )
    if wanted is not None:
        raise UsageError("--as goes with a local model; one of the hub keeps its id", remedy="remove --as")
    source = HubSource(model_id, pinned or revision, endpoint=endpoint_of())
    say(f"reading the config and the shard headers of {source.name}")
    _report(add_model(source, model_id, revision=pinned or revision), form)


@command.command("remove")
@click.argument("model", metavar="ID")
def remove(model: str) -> None:
    """Forget a model that was added."""
    from provisioner.added_models import is_model_id, remove_added

    if not is_model_id(model) or not remove_added(model):
        raise UsageError(f"{model!r} was not added", remedy="`gpuprov models` marks those that were")
    say(f"{model} is forgotten")


def _report(added: Added, form: str) -> None:
    from provisioner.sizing.models import known_added

    for note in added.shape.notes:
        warn(note)
    if added.shape.kinds and added.shape.stored is None:
        say("no safetensors files: its weights are sized by the config alone")
    one = known_added(added.record)
    if form == "json":
        document = _document((one,), with_components=True)
        click.echo(json.dumps(document | {"path": str(added.path)}, indent=2, ensure_ascii=False))
        return
    from provisioner.report.models import print_model

    print_model(one, color=current().color)
    say(f"stored in {added.path}; name it in a spec as model: {{id: {one.id}}}")


def _matching(text: str, known: tuple[KnownModel, ...]) -> tuple[KnownModel, ...]:
    """The model that is meant, or all whose id or alias holds the text."""
    from provisioner.sizing.models import find_model

    exact = tuple(each for each in known if each.id.lower() == text.strip().lower())
    if exact:
        return exact
    try:
        wanted = find_model(text).id
    except UsageError:
        part = text.strip().lower()
        found = tuple(each for each in known if any(part in name.lower() for name in (each.id, *each.aliases)))
        if not part or not found:
            raise
        return found
    return tuple(each for each in known if each.id == wanted)


def _document(known: tuple[KnownModel, ...], *, with_components: bool) -> dict[str, Any]:
    """``gpuprov.models/1``; one model has its components."""
    return {"schema": SCHEMA, "models": [_entry(each, with_components=with_components) for each in known]}


def _entry(one: KnownModel, *, with_components: bool) -> dict[str, Any]:
    from provisioner.sizing.components import component_params

    facts = {each.name: getattr(one, each.name) for each in fields(one) if each.name != "shape"}
    facts["aliases"] = list(one.aliases)
    if with_components and one.shape is not None:
        facts["components"] = component_params(one.shape)
        facts["layers"] = one.shape.num_layers or None
        facts["stored_weights_bytes"] = one.shape.stored.total_bytes if one.shape.stored else None
        facts["notes"] = list(one.shape.notes)
    return facts
