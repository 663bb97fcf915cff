"""``gpuprov up``: create or update a stack from a workload spec."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import click

from provisioner.cli import stack_options as options


@click.command("up")
@click.argument("spec", type=click.Path(path_type=Path))
@options.yes_option
@click.option(
    "--wait",
    type=click.Choice(("created", "ready")),
    default="ready",
    show_default=True,
    help="When to return: the machine is made, or it runs.",
)
@options.cloud_option
@click.option("--stack", metavar="NAME", help="Name of the stack; default the workload's name.")
@options.backend_option
@click.option("--replan", is_flag=True, help="Choose anew, and move where another offer is better.")
@click.option("--plan", "saved", type=click.Path(path_type=Path), help="A plan saved by `gpuprov plan --format json`.")
@click.option("--catalog", "catalog", type=click.Path(path_type=Path, file_okay=False), help="Directory of CSV files.")
@options.lock_wait_option
@options.format_option
def command(
    spec: Path,
    *,
    yes: bool,
    wait: str,
    cloud: str | None,
    stack: str | None,
    backend: str | None,
    replan: bool,
    saved: Path | None,
    catalog: Path | None,
    lock_wait: timedelta,
    form: str,
) -> None:
    """Create or update the stack of SPEC: plan, policy gate, preview, and then the machine."""
    options.cancel_on_signals()
    from provisioner.cli import stack_orders as orders
    from stacks.apply import Applied, ApplyFailed, machine_price
    from stacks.documents import up_document

    named = stack
    try:
        options.require_consent(yes=yes)
        loaded = orders.load_spec(spec)
        named = named or loaded.workload.name
        order = orders.order_for(
            loaded, cloud=cloud, stack=named, replan=replan, saved=saved, catalog=catalog, wait=wait
        )
        applied = orders.apply_order(order, loaded, backend, yes=yes, lock_wait=lock_wait)
    except ApplyFailed as failed:
        document = up_document(failed.applied, machine_price(failed.applied))
        raise options.documented(failed.error, document, form) from failed
    except Exception as error:
        ours = options.classified(error)
        empty = orders.failure_document(ours, up_document(Applied(named)))
        raise options.documented(ours, empty, form) from error
    if form == "json":
        options.emit(up_document(applied, machine_price(applied)))
    else:
        orders.print_result(applied)
