"""Drives a real plugin process over gRPC as the engine does; killing this "engine" is closing a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc
from google.protobuf import empty_pb2, struct_pb2
from pulumi.runtime.proto import engine_pb2_grpc, provider_pb2, provider_pb2_grpc, status_pb2

from tests.fakes.mini_engine import urn

SECRET = "1b47061264138c4ac30d75fd1eb44270"
SIGNATURE = "4dabf18193072939515e22adb298388d"
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"


class EngineLog(engine_pb2_grpc.EngineServicer):
    """Keeps what the plugin says."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def Log(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.lines.append(request.message)
        return empty_pb2.Empty()


class PluginClient:
    """One plugin process and the engine's side of it; a context manager."""

    def __init__(self, home: Path, **environment: str) -> None:
        self.log = EngineLog()
        self._running: list[Any] = []
        self._server = grpc.server(ThreadPoolExecutor(2))
        engine_pb2_grpc.add_EngineServicer_to_server(self.log, self._server)
        address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stacks.provider.main", address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "GPUPROV_HOME": str(home), **environment},
            start_new_session=True,
        )
        assert self.process.stdout is not None
        port = int(self.process.stdout.readline())
        self._channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        self.stub = provider_pb2_grpc.ResourceProviderStub(self._channel)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.hang_up()
        self._channel.close()
        try:
            self.process.wait(timeout=20)
        finally:
            self.process.kill()
            self.process.wait()
            for stream in (self.process.stdout, self.process.stderr):
                assert stream is not None
                stream.close()
            self._server.stop(None).wait()

    def hang_up(self) -> None:
        """What the plugin sees of an engine that was killed."""
        assert self.process.stdin is not None
        if not self.process.stdin.closed:
            self.process.stdin.close()

    def configure(self, cloud: str = "sandbox") -> Self:
        request = provider_pb2.ConfigureRequest(args=struct({"cloud": cloud}), acceptSecrets=True)
        self.stub.Configure(request)
        return self

    def check(self, name: str, news: Mapping[str, Any]) -> Any:
        return self.stub.Check(provider_pb2.CheckRequest(urn=urn(name), news=struct(news)))

    def create(self, name: str, inputs: Any, *, preview: bool = False, wait: bool = True) -> Any:
        request = provider_pb2.CreateRequest(urn=urn(name), properties=inputs, preview=preview)
        if wait:
            return self.stub.Create(request)
        self._running.append(self.stub.Create.future(request))  # a future that nobody holds cancels its call
        return self._running[-1]

    def make(self, name: str, news: Mapping[str, Any]) -> Any:
        """Check and create, as the engine does."""
        return self.create(name, self.check(name, news).inputs)

    def delete(self, name: str, resource_id: str, outputs: Any) -> None:
        self.stub.Delete(provider_pb2.DeleteRequest(urn=urn(name), id=resource_id, properties=outputs))


def struct(values: Mapping[str, Any]) -> struct_pb2.Struct:
    """Plain values as the engine sends them."""
    packed = struct_pb2.Struct()
    packed.update(values)
    return packed


def secret(value: Any) -> dict[str, Any]:
    """A value that must stay sealed."""
    return {SIGNATURE: SECRET, "value": value}


def half_made(error: grpc.RpcError) -> Any:
    """What a failed create left, as the engine unpacks it; ``None`` where it left nothing."""
    for key, value in error.trailing_metadata():
        if key == "grpc-status-details-bin":
            status = status_pb2.Status.FromString(value)
            found = provider_pb2.ErrorResourceInitFailed()
            assert status.details[0].Unpack(found)
            return found
    return None
