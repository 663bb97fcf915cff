"""What every test has: no way out to the network, a home of its own, a seeded search."""

from __future__ import annotations

import atexit
import os
import socket
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("seeded", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("seeded")

_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def own_cache(folder: Path) -> Path:
    """A cache folder that holds the engine of the real one, and neither its prices nor what launches say about supply."""
    cache = folder / "user-cache"
    (cache / "gpuprov").mkdir(parents=True)
    if (_CACHE / "gpuprov" / "engine").is_dir():
        (cache / "gpuprov" / "engine").symlink_to(_CACHE / "gpuprov" / "engine")
    return cache


# Fixtures of a session are made before any test has its own environment.
_SESSION = tempfile.TemporaryDirectory(prefix="gpuprov-tests-")
atexit.register(_SESSION.cleanup)
os.environ |= {
    "GPUPROV_CATALOG": "bundled",
    "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR") or str(_CACHE / "pip"),
    "XDG_CACHE_HOME": str(own_cache(Path(_SESSION.name))),
}

_LOOPBACK = ("127.", "::1", "localhost")
_FOREIGN = ("GPUPROV_", "AWS_", "PULUMI_", "GOOGLE_", "CLOUDSDK_", "XDG_DATA_HOME", "NO_COLOR", "HF_")


class NetworkBlocked(AssertionError):
    """A test tried to leave the machine."""


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    real_connect = socket.socket.connect

    def connect(self: socket.socket, address: object) -> None:
        if self.family != socket.AF_UNIX and not str(address[0]).startswith(_LOOPBACK):  # type: ignore[index]
            raise NetworkBlocked(f"a test connects to {address!r}")
        real_connect(self, address)  # type: ignore[arg-type]

    monkeypatch.setattr(socket.socket, "connect", connect)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty GPUPROV_HOME; nothing of the caller's environment leaks in."""
    engine = os.environ.get("GPUPROV_PULUMI")
    for name in list(os.environ):
        if name.startswith(_FOREIGN):
            monkeypatch.delenv(name)
    if engine:
        monkeypatch.setenv("GPUPROV_PULUMI", engine)
    # The developer's own refreshed prices must not decide what a test sees.
    monkeypatch.setenv("GPUPROV_CATALOG", "bundled")
    monkeypatch.setenv("XDG_CACHE_HOME", str(own_cache(tmp_path)))
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("GPUPROV_HOME", str(folder))
    return folder
