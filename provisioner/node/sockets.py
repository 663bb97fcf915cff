"""TCP connections as the kernel lists them, of the host and of its containers. Python 3.9 and its standard library only."""

from __future__ import annotations

from pathlib import Path

ESTABLISHED, _LISTENS = "01", "0A"
_LOOPBACK_V6, _MAPPED = "00000000000000000000000001000000", "0000000000000000FFFF0000"


def sockets_of(folder: Path) -> list[tuple[str, int, str, str]] | None:
    """Address and port of this end, address of the other, and state, of each TCP socket; ``None`` where none can be read."""
    found, is_read = [], False
    for name in ("tcp", "tcp6"):
        try:
            lines = (folder / name).read_text().splitlines()[1:]
        except OSError:
            continue
        is_read = True
        for line in lines:
            _, local, remote, state = line.split()[:4]
            address, _, port = local.rpartition(":")
            found.append((_v4(address), int(port, 16), _v4(remote.rpartition(":")[0]), state))
    return found if is_read else None


def _v4(address: str) -> str:
    """An address as the kernel writes it; one of version 4 in the guise of 6 without it."""
    return address.removeprefix(_MAPPED)


def is_own(local: str, remote: str) -> bool:
    """Whether this machine talks to itself."""
    return remote in (local, _LOOPBACK_V6) or (len(remote) == 8 and remote.endswith("7F"))


def from_beyond(folder: Path) -> int:
    """Connections that came into a container from beyond its bridge: neighbours and the host share its first 16 (64) bits."""
    sockets = sockets_of(folder) or ()
    listens = {port for _, port, _, state in sockets if state == _LISTENS}
    return sum(
        state == ESTABLISHED
        and port in listens
        and not is_own(local, remote)
        and (local[4:] != remote[4:] if len(local) == 8 else local[:16] != remote[:16])
        for local, port, remote, state in sockets
    )
