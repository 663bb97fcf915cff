"""Health of the sandbox's machines: well until somebody says otherwise; a stop and start moves a machine to another host."""

from __future__ import annotations

from sqlite3 import Connection

from provisioner.clouds.cloud import Ailment, Health
from provisioner.clouds.sandbox.clock import from_us

CHECKS = {"instance": "instance-check", "system": "system-check"}
"""What ``sandbox impair --check`` takes -> kind of the ailment."""
EVENTS = ("instance-retirement", "instance-stop", "system-reboot", "instance-reboot", "system-maintenance")
"""What ``sandbox impair --event`` takes. Source: EC2 API reference, EventCode."""
_TEXTS = {
    "system-check": "the host's status check fails (network, power or hardware of the host)",
    "instance-check": "the machine's own status check fails (its system does not answer)",
}
_MOVE = "stop and start it, which moves it to another host; what cannot stop is made again by `down` and `up`"


def write(connection: Connection, instance_id: str, kind: str, not_before_us: int | None = None) -> None:
    """Let a machine ail; the same kind again replaces what was said before."""
    connection.execute(
        "INSERT OR REPLACE INTO health (instance_id, kind, state, not_before_us) VALUES (?, ?, 'impaired', ?)",
        (instance_id, kind, not_before_us),
    )


def clear(connection: Connection, instance_id: str) -> None:
    """The machine is well again."""
    connection.execute("DELETE FROM health WHERE instance_id = ?", (instance_id,))


def read(connection: Connection, instance_id: str) -> Health:
    """How a machine is."""
    rows = connection.execute("SELECT * FROM health WHERE instance_id = ? ORDER BY kind", (instance_id,))
    return Health(tuple(_ailment(row["kind"], row["not_before_us"]) for row in rows))


def _ailment(kind: str, not_before_us: int | None) -> Ailment:
    if kind in _TEXTS:
        return Ailment(kind, _TEXTS[kind], _MOVE)
    when = "" if not_before_us is None else from_us(not_before_us).strftime(" from %Y-%m-%d %H:%M UTC on")
    return Ailment(kind, f"the cloud has scheduled {kind}{when}", _MOVE)
