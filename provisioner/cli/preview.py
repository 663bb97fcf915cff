"""``gpuprov preview``: what ``up`` would change."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from provisioner.cli import stack_options as options
from provisioner.errors import GpuprovError


@click.command("preview")
@click.argument("spec", type=click.Path(path_type=Path))
@options.cloud_option
@click.option("--stack", metavar="NAME", help="Name of the stack; default the workload's name.")
@options.backend_option
@click.option("--replan", is_flag=True, help="Choose anew, as `up --replan` would.")
@click.option("--plan", "saved", type=click.Path(path_type=Path), help="A plan saved by `gpuprov plan --format json`.")
@click.option("--catalog", type=click.Path(path_type=Path, file_okay=False), help="Directory of CSV files.")
@options.lock_wait_option
@options.format_option
def command(
    spec: Path,
    *,
    cloud: str | None,
    stack: str | None,
    backend: str | None,
    replan: bool,
    saved: Path | None,
    catalog: Path | None,
    lock_wait: timedelta,
    form: str,
) -> None:
    """Plan SPEC, pass the gate, and show what the engine would change; changes nothing in a cloud."""
    options.cancel_on_signals()
    from provisioner.cli import stack_orders as orders
    from stacks.apply import ApplyFailed
    from stacks.documents import failed_preview_document

    loaded = orders.load_spec(spec)
    order = orders.order_for(loaded, cloud=cloud, stack=stack, replan=replan, saved=saved, catalog=catalog)
    empty = failed_preview_document(order.stack)
    try:
        decision, seen = orders.preview_order(order, loaded, backend, lock_wait=lock_wait)
    except ApplyFailed as failed:
        raise options.documented(failed.error, empty, form) from failed
    except GpuprovError as error:
        raise options.documented(error, orders.failure_document(error, empty), form) from error
    if form == "json":
        options.emit(orders.seen_document(order.stack, decision, seen))
    else:
        orders.print_preview(order.stack, decision, seen)
