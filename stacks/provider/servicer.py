"""The gRPC edge: errors without tracebacks, half-made resources that the engine keeps, a refresh before each update.

``pulumi.provider.experimental`` 3.272.0 turns every exception into a text with its traceback, has no answer for a create or
update that made something and then failed, and cannot ask for a refresh. The engine takes all three; this subclass gives them.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Awaitable, Sequence
from pathlib import Path
from tempfile import gettempdir
from typing import Any, NoReturn

import grpc  # type: ignore[import-untyped] # grpcio ships no types
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.server import ProviderServicer
from pulumi.runtime.proto import provider_pb2, status_pb2

from provisioner.errors import GpuprovError, InternalBug
from stacks import failures
from stacks.failures import Attempt
from stacks.provider.session import PartialFailure, ProviderFailure

_DETAILS = "grpc-status-details-bin"
_CODE = grpc.StatusCode.UNKNOWN
"""The code under which the engine looks for a half-made resource in the details."""


class GpuprovServicer(ProviderServicer):
    """Serves a provider as the engine expects it; each method is the base's, with errors as they should be."""

    async def GetSchema(self, request: Any, context: Any) -> Any:  # noqa: N802 - the protocol names it
        """See ``provider.proto``; likewise below."""
        return await _answer(context, super().GetSchema(request, context))

    async def CheckConfig(self, request: Any, context: Any) -> Any:  # noqa: D102, N802
        return await _answer(context, super().CheckConfig(request, context))

    async def DiffConfig(self, request: Any, context: Any) -> Any:  # noqa: D102, N802
        return await _answer(context, super().DiffConfig(request, context))

    async def Configure(self, request: Any, context: Any) -> Any:  # noqa: D102, N802
        return await _answer(context, super().Configure(request, context))

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: D102, N802
        return await _answer(context, super().Check(request, context))

    async def Diff(self, request: Any, context: Any) -> Any:  # noqa: D102, N802
        return await _answer(context, super().Diff(request, context))

    async def Create(self, request: Any, context: Any) -> Any:  # noqa: D102, N802
        return _refreshed(await _answer(context, super().Create(request, context)))

    async def Read(self, request: Any, context: Any) -> Any:  # noqa: D102, N802
        return _refreshed(await _answer(context, super().Read(request, context)))

    async def Update(self, request: Any, context: Any) -> Any:  # noqa: D102, N802
        return _refreshed(await _answer(context, super().Update(request, context)))

    async def Delete(self, request: Any, context: Any) -> Any:  # noqa: D102, N802
        return await _answer(context, super().Delete(request, context))


def error_text(error: GpuprovError, attempts: Sequence[Attempt] = ()) -> str:
    """What the engine shows for an error: our text with its remedy, and for ``gpuprov`` a mark that it reads back."""
    if failures.wants_marks():
        return failures.encode(error, attempts)
    tried = "".join(f"\n  {attempt.offer}: {attempt.outcome} {attempt.message}".rstrip() for attempt in attempts)
    return f"{error}{tried}"


def failure_of(error: BaseException) -> tuple[GpuprovError, tuple[Attempt, ...], PartialFailure | None]:
    """Our error for any exception, the offers that were tried, and what exists although it failed."""
    if isinstance(error, PartialFailure):
        return error.cause, error.attempts, error
    if isinstance(error, ProviderFailure):
        return error.cause, error.attempts, None
    if isinstance(error, GpuprovError):
        return error, (), None
    return _bug(error), (), None


async def _answer(context: Any, call: Awaitable[Any]) -> Any:
    try:
        return await call
    except NotImplementedError:
        raise
    except Exception as error:  # noqa: BLE001 - the one edge where everything becomes a status
        # The base class raises a text with a traceback in the handler of the original, which is its context.
        await _abort(context, error.__context__ or error)


async def _abort(context: Any, error: BaseException) -> NoReturn:
    cause, attempts, partial = failure_of(error)
    text = error_text(cause, attempts)
    metadata = ((_DETAILS, _half_made(partial, text)),) if partial is not None else ()
    await context.abort(_CODE, text, metadata)
    raise AssertionError("unreachable: an abort raises")


def _half_made(partial: PartialFailure, text: str) -> bytes:
    """The status in which the engine finds id, outputs and reason of a resource that exists and is not whole."""
    detail = provider_pb2.ErrorResourceInitFailed(
        id=partial.resource_id,
        properties=PropertyValue.marshal_map(partial.properties),
        reasons=[text],
        refresh_before_update=True,
    )
    status = status_pb2.Status(code=_CODE.value[0], message=text)
    status.details.add().Pack(detail)
    packed: bytes = status.SerializeToString()
    return packed


def _refreshed(response: Any) -> Any:
    """The same response; the engine reads the resource before each later update of it."""
    response.refresh_before_update = True
    return response


def _bug(error: BaseException) -> InternalBug:
    """A bug of ours: the traceback goes to a file that the message names, never to the engine's output."""
    log = Path(gettempdir()) / f"gpuprov-plugin-bug-{os.getpid()}.log"
    try:
        with log.open("a", encoding="utf-8") as file:
            file.write("".join(traceback.format_exception(error)))
    except OSError as failure:
        kept = f"its traceback could not be kept ({failure.strerror})"
    else:
        kept = f"its traceback is in {log}"
    return InternalBug(f"{type(error).__name__}: {error}", remedy=f"this is a bug in gpuprov; {kept}: please report it")
