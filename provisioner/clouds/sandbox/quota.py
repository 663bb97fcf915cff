"""Account quotas of the sandbox: units (vCPU on AWS, GPUs on GCP) per quota code and region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from sqlite3 import Connection

from provisioner.clouds.sandbox.errors import out_of_quota
from provisioner.clouds.sandbox.machines import ALIVE, Machine
from provisioner.errors import UsageError

GLOBAL_GPUS = "GPUS_ALL_REGIONS"
"""GCP's quota over all GPUs of a project. Source: catalog quotas.csv."""

ANY_REGION = "*"


@dataclass(frozen=True, slots=True)
class Quota:
    """A limit with its use. ``region`` is ``*`` for a limit that holds in each region (or, for the global one, over all)."""

    cloud: str
    region: str
    code: str
    units: Fraction
    used: Fraction | None
    """Units in use; ``None`` where the limit holds in each of several regions."""


@dataclass(frozen=True, slots=True)
class Demand:
    """What a machine takes from quotas."""

    cloud: str
    region: str
    code: str | None
    units: Fraction
    gpus: Fraction

    @classmethod
    def of(cls, machine: Machine) -> Demand:
        """What a machine that is to be made or started takes."""
        units, gpus = Fraction(machine.quota_units), Fraction(machine.gpus)
        return cls(machine.cloud, machine.region, machine.quota_code, units, gpus)


def put(connection: Connection, cloud: str, region: str, code: str, units: Fraction | None) -> None:
    """Set a quota, or lift it with ``None``.

    Raises:
        UsageError: a negative number.
    """
    if units is None:
        connection.execute("DELETE FROM quotas WHERE cloud = ? AND region = ? AND code = ?", (cloud, region, code))
        return
    if units < 0:
        raise UsageError("a quota is not negative")
    connection.execute("INSERT OR REPLACE INTO quotas VALUES (?, ?, ?, ?)", (cloud, region, code, str(units)))


def check(connection: Connection, demand: Demand, ending: str | None = None) -> None:
    """Refuse a machine that would exceed a quota; it must not be counted as alive yet.

    ``ending`` is the id of a machine that counts as gone.

    Raises:
        QuotaError: names the code, what is needed, allowed and used.
    """
    needs: list[tuple[str, Fraction]] = []
    if demand.code is not None:
        needs.append((demand.code, demand.units))
    if demand.cloud == "gcp":
        needs.append((GLOBAL_GPUS, demand.gpus))
    for code, need in needs:
        have = _limit(connection, demand.cloud, demand.region, code)
        if have is None:
            continue
        used = _used(connection, demand.cloud, demand.region, code, ending)
        if used + need > have:
            region = ANY_REGION if code == GLOBAL_GPUS else demand.region
            refusal = out_of_quota(demand.cloud, region, code, need=need, have=have, used=used)
            if code == GLOBAL_GPUS and used >= have:
                refusal.scope = "account"  # not one GPU is left, wherever and however it is asked for
            raise refusal


def read_all(connection: Connection) -> list[Quota]:
    """All quotas that are set, with their use."""
    rows = connection.execute("SELECT * FROM quotas ORDER BY cloud, code, region").fetchall()
    return [
        Quota(
            cloud=row["cloud"],
            region=row["region"],
            code=row["code"],
            units=Fraction(row["units"]),
            used=None
            if row["region"] == ANY_REGION and row["code"] != GLOBAL_GPUS
            else _used(connection, row["cloud"], row["region"], row["code"]),
        )
        for row in rows
    ]


def clear(connection: Connection) -> None:
    """Lift all quotas."""
    connection.execute("DELETE FROM quotas")


def _limit(connection: Connection, cloud: str, region: str, code: str) -> Fraction | None:
    """The limit of a region, else the one that holds in each region, else ``None`` for no limit."""
    for where in (region, ANY_REGION):
        row = connection.execute(
            "SELECT units FROM quotas WHERE cloud = ? AND region = ? AND code = ?", (cloud, where, code)
        ).fetchone()
        if row is not None:
            return Fraction(row["units"])
    return None


def _used(connection: Connection, cloud: str, region: str, code: str, ending: str | None = None) -> Fraction:
    alive: Sequence[str] = tuple(str(state) for state in ALIVE)
    if code == GLOBAL_GPUS:
        rows = connection.execute(
            "SELECT gpus AS units FROM instances WHERE cloud = ? AND vanished = 0 AND state IN (?, ?) AND id IS NOT ?",
            (cloud, *alive, ending),
        )
    else:
        rows = connection.execute(
            "SELECT quota_units AS units FROM instances"
            " WHERE cloud = ? AND region = ? AND quota_code = ? AND vanished = 0 AND state IN (?, ?) AND id IS NOT ?",
            (cloud, region, code, *alive, ending),
        )
    return sum((Fraction(row["units"]) for row in rows), Fraction(0))
