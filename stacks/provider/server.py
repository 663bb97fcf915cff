"""The plugin's server: answers the engine on a free port of the loopback until the engine is gone."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

import grpc  # type: ignore[import-untyped] # grpcio ships no types
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS as CHANNEL_OPTIONS
from pulumi.runtime.proto import provider_pb2_grpc

from provisioner.home import default_home
from stacks.provider.lifeline import Lifeline, watch
from stacks.provider.plugin import GpuprovProvider
from stacks.provider.servicer import GpuprovServicer
from stacks.provider.voice import EngineVoice

VERSION = "0.1.0"
"""Version of the plugin's schema; a test holds it equal to the package's."""


def run() -> None:
    """Serve until the engine is gone."""
    parser = argparse.ArgumentParser(prog="pulumi-resource-gpuprov", description="Pulumi provider plugin of gpuprov")
    parser.add_argument("engine", help="address of the engine; it starts this plugin by itself")
    arguments, _ = parser.parse_known_args()
    asyncio.run(serve(arguments.engine, Path(os.environ.get("GPUPROV_HOME") or default_home()).absolute()))


async def serve(engine_address: str, home: Path) -> None:
    """Answer the engine on a free port of the loopback until the process ends."""
    lifeline = Lifeline()
    voice = EngineVoice(engine_address)
    provider = GpuprovProvider(home, lifeline, voice.tell, voice.warn)
    server = grpc.aio.server(options=CHANNEL_OPTIONS)
    servicer = GpuprovServicer(sys.argv[1:], VERSION, provider, engine_address)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, _end_when_idle, lifeline)
    watch(lifeline, end=_end)
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    await server.wait_for_termination()


def _end_when_idle(lifeline: Lifeline) -> None:
    """The engine asks a plugin that it no longer needs to end by SIGINT, and kills it five seconds later."""
    lifeline.close("the engine ended the plugin")
    asyncio.get_running_loop().run_in_executor(None, _wait_and_end, lifeline)


def _wait_and_end(lifeline: Lifeline) -> None:
    lifeline.wait_until_idle()
    _end()


def _end() -> None:
    """End at once: threads of cut calls and of gRPC have nothing left to do."""
    sys.stdout.flush()
    os._exit(0)
