"""The part of ``pulumi-language-python`` that starts a policy pack directory, for engines that were built without it.

As the official one does it, a pack runs as ``python -u -m pulumi.policy ENGINE DIRECTORY`` in the program's folder, and its output is
streamed back. Source: pulumi 3.274.1, sdk/python/cmd/pulumi-language-python, RunPlugin; sdk/python/lib/pulumi/policy.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2


class Host(language_pb2_grpc.LanguageRuntimeServicer):
    """Starts packs and nothing else."""

    def Handshake(self, request: Any, context: Any) -> Any:  # noqa: N802 - names of the protocol
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:  # noqa: N802 - names of the protocol
        return plugin_pb2.PluginInfo(version="3.274.1")

    def Cancel(self, request: Any, context: Any) -> Any:  # noqa: N802 - names of the protocol
        return empty_pb2.Empty()

    def RunPlugin(self, request: Any, context: Any) -> Iterator[Any]:  # noqa: N802 - names of the protocol
        command = [sys.executable, "-u", "-m", "pulumi.policy", *request.args[:1], request.info.program_directory]
        environment = dict(entry.split("=", 1) for entry in request.env if "=" in entry)
        process = subprocess.Popen(
            command,
            cwd=request.pwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        context.add_callback(process.kill)
        assert process.stdout is not None
        for line in process.stdout:
            yield language_pb2.RunPluginResponse(stdout=line)
        yield language_pb2.RunPluginResponse(exitcode=process.wait())


def main() -> None:
    """Serve until standard input, the engine's pipe, ends."""
    server = grpc.server(ThreadPoolExecutor(max_workers=8))
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(Host(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    ended = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    ended.wait()
    server.stop(grace=0)


if __name__ == "__main__":
    main()
