"""What every test has: no way out to the network, a home of its own, a seeded search."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("seeded", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("seeded")

# Fixtures of a session are made before any test has its own environment.
os.environ["GPUPROV_CATALOG"] = "bundled"

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
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("GPUPROV_HOME", str(folder))
    return folder
