"""Progress lines from the plugin to whoever watches the engine."""

from __future__ import annotations

import logging
import threading

import grpc  # type: ignore[import-untyped] # grpcio ships no types
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

from provisioner.errors import UsageError

_TIMEOUT_S = 5.0
_LOG = logging.getLogger(__name__)


class EngineVoice:
    """Sends lines to the engine's log; one that does not arrive is not worth a failed create."""

    def __init__(self, address: str) -> None:
        if not address:
            raise UsageError("the engine's address is missing", remedy="the engine starts this plugin by itself")
        self._address = address
        self._lock = threading.Lock()
        self._stub: engine_pb2_grpc.EngineStub | None = None

    def tell(self, urn: str, text: str) -> None:
        """Say a line about a resource."""
        self._log(engine_pb2.INFO, urn, text)

    def warn(self, urn: str, text: str) -> None:
        """Say what somebody should know before an update; a preview shows it too."""
        self._log(engine_pb2.WARNING, urn, text)

    def _log(self, severity: engine_pb2.LogSeverity.ValueType, urn: str, text: str) -> None:
        request = engine_pb2.LogRequest(severity=severity, message=text, urn=urn)
        try:
            self._engine().Log(request, timeout=_TIMEOUT_S)
        except grpc.RpcError as error:
            _LOG.debug("a progress line did not reach the engine: %s", error)

    def _engine(self) -> engine_pb2_grpc.EngineStub:
        with self._lock:
            if self._stub is None:
                self._stub = engine_pb2_grpc.EngineStub(grpc.insecure_channel(self._address))
            return self._stub
