"""Machines of the sandbox that somebody changes by hand, and how that shows beside what they were asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

from provisioner.clouds.cloud import ROOT_SPEED, ForeignChange, Inspection, Terms
from provisioner.clouds.sandbox import instances, machines, spans
from provisioner.clouds.sandbox.call import Call
from provisioner.clouds.sandbox.machines import Machine
from provisioner.clouds.sandbox.prices import Market, rate_text
from provisioner.clouds.sandbox.sizes import shown_speed
from provisioner.errors import UsageError
from provisioner.units import DiskSpeed

_SHUTDOWN = {True: "stop", False: "terminate"}


def set_type(call: Call, machine: Machine, instance_type: str, market: Market) -> None:
    """Make a machine another type, as if it was stopped, changed and started again; it bills as that from now on.

    Raises:
        Rejected: the catalog has no such offer there.
        UsageError: it is not sold in the machine's zone.
    """
    quote = market.quote(replace(machine.placement, instance_type=instance_type))
    if machine.zone not in quote.rates:
        raise UsageError(f"{instance_type} is not sold in {machine.zone}", remedy="see `gpuprov offers`")
    rate = rate_text(quote.rates[machine.zone])
    offered = quote.instance
    machines.save(
        call.connection,
        replace(
            machine,
            instance_type=instance_type,
            compute_rate=rate,
            has_local_disk=offered.local_ssd_kind == "bundled",
            quota_code=None if quote.quota is None else quote.quota.quota.code,
            quota_units="0" if quote.quota is None else str(Fraction(str(quote.quota.units))),
            gpus=str(offered.gpu_count * Fraction(str(offered.gpu_fraction))),
        ),
    )
    if machine.is_alive:
        spans.end(call.connection, machine.id, call.now_us)
        spans.start(call.connection, spans.Meter(spans.INSTANCE, machine.id, machine.id, rate), call.now_us)


def inspect(machine: Machine, terms: Terms) -> Inspection:
    """What is other about a machine than it was asked for."""
    return Inspection(tuple(_changes(machine, terms)))


def put_right(call: Call, machine: Machine, terms: Terms) -> None:
    """Change back what can be changed back while a machine runs."""
    if terms.stop_on_shutdown is not None and terms.stop_on_shutdown != machine.stop_on_shutdown:
        instances.set_shutdown(call, machine.placement, machine.id, stops=terms.stop_on_shutdown)


def _changes(machine: Machine, terms: Terms) -> Iterator[ForeignChange]:
    # Brings the catalog's readers along, which a start of the sandbox does without.
    from provisioner.catalog.disk_kinds import INCLUDED_SPEED

    asked = terms.placement
    if asked is not None and asked.instance_type != machine.instance_type:
        undo = f"gpuprov sandbox alter {machine.id} --instance-type {asked.instance_type}"
        yield ForeignChange("instance type", asked.instance_type, machine.instance_type, undo)
    stops = terms.stop_on_shutdown
    if stops not in (None, machine.stop_on_shutdown):
        words = (_SHUTDOWN[bool(stops)], _SHUTDOWN[machine.stop_on_shutdown])
        yield ForeignChange("what a shutdown from inside does", *words)
    found = shown_speed(machine.cloud, machine.root_iops, machine.root_mib_per_s)
    wanted = terms.root_speed or INCLUDED_SPEED
    if found is not None and found != wanted:
        yield ForeignChange(ROOT_SPEED, _speed(wanted), _speed(found))


def _speed(speed: DiskSpeed) -> str:
    return f"{speed.iops} IOPS, {speed.mib_per_s} MiB/s"
