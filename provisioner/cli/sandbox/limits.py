"""``sandbox capacity`` and ``sandbox quota``: what the sandbox has room for, and what the account may use."""

from __future__ import annotations

import re
from fractions import Fraction

import click

from provisioner.cli import settings
from provisioner.cli.groups import CommandGroup
from provisioner.cli.sandbox.output import controls, count_or_unlimited, format_option, print_document, print_table
from provisioner.errors import UsageError

_UNITS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?")


@click.group("capacity", cls=CommandGroup)
def capacity() -> None:
    """Machines that can run at once in a pool of placements; without any limit there is always room."""


@capacity.command("set")
@click.argument("pool")
@click.argument("instances")
def set_capacity(pool: str, instances: str) -> None:
    """Limit a POOL to INSTANCES machines at once (0: sold out; `unlimited` lifts it).

    POOL is CLOUD/REGION/ZONE/INSTANCE_TYPE/CAPACITY_TYPE with * for any, such as 'aws/us-east-1/*/g6.xlarge/spot'. Of several pools that match
    a placement the most specific one decides. What runs already stays.
    """
    sandbox = controls()
    sandbox.set_capacity(pool, count_or_unlimited(instances))
    if not sandbox.is_sold(pool):
        settings.warn(f"no offer of the catalog falls into {pool}")
    settings.say(f"capacity of {pool}: {instances}")


@capacity.command("show")
@format_option
def show_capacity(output: str) -> None:
    """Show all limits with their use."""
    found = controls().capacities()
    if output == "json":
        print_document(
            "capacity", pools=[{"pool": one.pool, "instances": one.instances, "used": one.used} for one in found]
        )
        return
    rows = [(one.pool, "unlimited" if one.instances is None else one.instances, one.used) for one in found]
    print_table(("POOL", "INSTANCES", "USED"), rows, empty="no limits: there is room for everything")


@capacity.command("clear")
def clear_capacity() -> None:
    """Forget all limits."""
    controls().clear_capacity()
    settings.say("capacity: unlimited everywhere")


@click.group("quota", cls=CommandGroup)
def quota() -> None:
    """Account quotas per region: vCPU on AWS, GPUs on GCP; without any there is no limit."""


@quota.command("set")
@click.argument("name")
@click.argument("units")
def set_quota(name: str, units: str) -> None:
    """Set quota NAME to UNITS (`unlimited` lifts it).

    NAME is CLOUD/REGION/CODE with * for each region, such as aws/us-east-1/L-DB2E81BA; an instance type or family in place of the
    code stands for its quotas: 'aws/*/g6'. 'gcp/*/GPUS_ALL_REGIONS' counts all GPUs of the project.
    """
    cloud, region, code = _parts(name)
    codes = controls().set_quota(cloud, region, code, _units(units))
    settings.say(f"quota {', '.join(codes)} of {cloud} in {region}: {units}")


@quota.command("show")
@format_option
def show_quota(output: str) -> None:
    """Show all quotas that are set, with their use."""
    found = controls().quotas()
    if output == "json":
        items = [
            {
                "cloud": one.cloud,
                "region": one.region,
                "code": one.code,
                "units": _number(one.units),
                "used": None if one.used is None else _number(one.used),
            }
            for one in found
        ]
        print_document("quota", quotas=items)
        return
    rows = [
        (one.cloud, one.region, one.code, _number(one.units), None if one.used is None else _number(one.used))
        for one in found
    ]
    print_table(("CLOUD", "REGION", "CODE", "UNITS", "USED"), rows, empty="no quotas: nothing is limited")


@quota.command("clear")
def clear_quota() -> None:
    """Lift all quotas."""
    controls().clear_quotas()
    settings.say("quotas: none")


def _number(units: Fraction) -> int | float:
    return int(units) if units.denominator == 1 else float(units)


def _parts(name: str) -> tuple[str, str, str]:
    parts = name.split("/")
    if len(parts) != 3 or not all(parts) or parts[0] not in settings.PROVIDERS[1:]:
        raise UsageError(
            f"{name!r} is no quota: write CLOUD/REGION/CODE", remedy="such as aws/us-east-1/L-DB2E81BA or 'aws/*/g6'"
        )
    return parts[0], parts[1], parts[2]


def _units(text: str) -> Fraction | None:
    if text == "unlimited":
        return None
    if not _UNITS.fullmatch(text):
        raise UsageError(
            f"{text[:40]!r} is no number of units", remedy="write a number such as 16 or 0.25, or unlimited"
        )
    return Fraction(text)
