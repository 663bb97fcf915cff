"""The provider: each request of the engine goes to the operations of its resource, on a thread that a cut call cannot stop."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pulumi.provider.experimental import provider as engine
from pulumi.provider.experimental.property_value import PropertyValue

from provisioner.errors import UsageError
from stacks.clouds import PROVIDERS, account_of, open_cloud
from stacks.made import note_made
from stacks.provider.gpu_instance import GpuInstances
from stacks.provider.launch import Launches
from stacks.provider.lifeline import Lifeline
from stacks.provider.patience import PatientCloud
from stacks.provider.session import (
    Checked,
    Created,
    Difference,
    Found,
    PartialFailure,
    Session,
    Tell,
    cloud_settings,
)
from stacks.provider.values import UNKNOWN, Properties, has_unknown, plain_map, wrap_map
from stacks.provider.volume import Volumes

T = TypeVar("T")

LAUNCH = "gpuprov:index:Launch"
GPU_INSTANCE = "gpuprov:index:GpuInstance"
VOLUME = "gpuprov:index:Volume"
SCHEMA = Path(__file__).with_name("schema.json")
DEFAULT_PROVIDER = "sandbox"
_THREADS = 64
"""Operations at once: they wait on clouds, not on a processor; the engine's own default is 16."""


class GpuprovProvider(engine.Provider):
    """Launch, GpuInstance and Volume on one cloud."""

    def __init__(self, home: Path, lifeline: Lifeline, tell: Tell, warn: Tell) -> None:
        self._home = home
        self._lifeline = lifeline
        self._tell = tell
        self._warn = warn
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="operation")
        self._provider = ""
        self._issued: set[tuple[str, int]] = set()
        self._sessions: dict[str, Session] = {}

    async def get_schema(self, request: engine.GetSchemaRequest) -> engine.GetSchemaResponse:
        """The schema as it lies beside this file."""
        del request
        return engine.GetSchemaResponse(SCHEMA.read_text(encoding="utf-8"))

    async def check_config(self, request: engine.CheckRequest) -> engine.CheckResponse:
        """The configuration, or what is wrong with it."""
        cloud = plain_map(request.new_inputs).get("cloud")
        failures = []
        if cloud is not None and cloud is not UNKNOWN and cloud not in PROVIDERS:
            failures.append(engine.CheckFailure("cloud", f"is {cloud!r}; it is one of {', '.join(PROVIDERS)}"))
        return engine.CheckResponse(request.new_inputs, failures)

    async def diff_config(self, request: engine.DiffRequest) -> engine.DiffResponse:
        """Another cloud is a change; its resources refuse it one by one."""
        before, now = plain_map(request.old_state), plain_map(request.new_inputs)
        changed = ["cloud"] if before.get("cloud") != now.get("cloud") else []
        return engine.DiffResponse(changes=bool(changed), diffs=changed)

    async def configure(self, request: engine.ConfigureRequest) -> engine.ConfigureResponse:
        """Open the cloud: the configuration's, else GPUPROV_CLOUD's, else the sandbox."""
        stated = plain_map(request.args).get("cloud") or request.variables.get("gpuprov:config:cloud")
        self._provider = str(stated or os.environ.get("GPUPROV_CLOUD") or DEFAULT_PROVIDER)
        self._sessions.clear()
        await self._run(lambda: self._open(None))
        return engine.ConfigureResponse(
            accept_secrets=True, supports_preview=True, accept_resources=False, accept_outputs=False
        )

    async def check(self, request: engine.CheckRequest) -> engine.CheckResponse:
        """Inputs with defaults, or what is wrong with them."""
        operations = self._operations(request.type, request.new_inputs)
        checked: Checked = await self._run(
            lambda: operations.check(request.urn, request.old_inputs, request.new_inputs)
        )
        failures = [engine.CheckFailure(key, reason) for key, reason in checked.wrong.items()]
        return engine.CheckResponse(checked.inputs, failures)

    async def diff(self, request: engine.DiffRequest) -> engine.DiffResponse:
        """What an update would do."""
        operations = self._operations(request.type, request.new_inputs, request.old_state)
        if isinstance(operations, GpuInstances):
            found = await self._run(lambda: operations.diff(request.urn, request.old_state, request.new_inputs))
        else:
            found = await self._run(lambda: operations.diff(request.old_state, request.new_inputs))
        return _diff_response(found)

    async def create(self, request: engine.CreateRequest) -> engine.CreateResponse:
        """Make a resource, or say what is known of it before."""
        operations = self._operations(request.type, request.properties)
        if request.preview:
            return engine.CreateResponse("", operations.preview_create(request.properties))
        made_in = await self._run(operations.session.account)
        created: Created = await self._run(lambda: operations.create(request.urn, request.properties), made_in)
        return engine.CreateResponse(created.resource_id, _in_account(created.properties, made_in))

    async def read(self, request: engine.ReadRequest) -> engine.ReadResponse:
        """The resource as it is now; without an id where it is gone."""
        if not request.properties:
            raise UsageError(
                f"{request.type} cannot be imported by id",
                remedy="a machine and its disks are taken over by their tags: run `up` with the Launch of their stack-id",
            )
        operations = self._operations(request.type, request.inputs, request.properties)
        if isinstance(operations, Launches):
            found: Found = await self._run(
                lambda: operations.read(request.resource_id, request.properties, request.inputs)
            )
        elif isinstance(operations, GpuInstances):
            found = await self._run(lambda: operations.read(request.urn, request.properties, request.inputs))
        else:
            found = await self._run(
                lambda: operations.read(request.urn, request.resource_id, request.properties, request.inputs)
            )
        made_in = plain_map(request.properties).get("account")
        return engine.ReadResponse(found.resource_id or "", _in_account(found.properties, made_in), found.inputs)

    async def update(self, request: engine.UpdateRequest) -> engine.UpdateResponse:
        """Change a resource in place, or say what that would leave."""
        operations = self._operations(request.type, request.news, request.olds)
        made_in = plain_map(request.olds).get("account")
        if request.preview:
            after: Properties = await self._run(lambda: operations.preview_update(request.olds, request.news))
        elif isinstance(operations, Launches):
            after = await self._run(lambda: operations.update(request.olds, request.news))
        else:
            after = await self._run(lambda: operations.update(request.urn, request.olds, request.news), made_in)
        return engine.UpdateResponse(_in_account(after, made_in))

    async def delete(self, request: engine.DeleteRequest) -> None:
        """End a resource; returns when the cloud confirms it."""
        operations = self._operations(request.type, {}, request.properties)
        if isinstance(operations, Launches):
            await self._run(lambda: operations.delete(request.properties))
        else:
            await self._run(lambda: operations.delete(request.urn, request.properties))

    async def cancel(self) -> None:
        """Let no further create start; calls in flight go on, and what they made reaches the state."""
        self._lifeline.close("interrupted")

    def _open(self, settings: Mapping[str, Any] | None, made_in: str | None = None) -> Session:
        """The session on the cloud as a spec's own settings open it, in the account of the resource; one for each of them."""
        key = json.dumps([settings, made_in], sort_keys=True)
        if key not in self._sessions:
            opened = open_cloud(self._provider, self._home, settings, made_in)
            cloud = PatientCloud(opened, self._lifeline)
            self._sessions[key] = Session(
                self._provider,
                cloud,
                self._home,
                self._lifeline,
                self._tell,
                self._warn,
                note_made=lambda stack_id, stack: note_made(stack_id, stack, cloud.now()),
                account=lambda: account_of(opened),
                issued=self._issued,
            )
        return self._sessions[key]

    def _operations(
        self,
        resource_type: str,
        inputs: Mapping[str, PropertyValue],
        outputs: Mapping[str, PropertyValue] | None = None,
    ) -> Launches | GpuInstances | Volumes:
        """The operations of a type, on the configured cloud, as the spec in the inputs (or the state) opens it.

        Raises:
            UsageError: an unknown type, or a resource that was made on another provider.
        """
        if not self._sessions:
            raise UsageError("the plugin was asked before it was configured")
        given, held = plain_map(inputs), plain_map(outputs or {})
        settings = cloud_settings(self._provider, given.get("workload", held.get("workload")))
        if "workload" not in given and "workload" not in held:
            settings = held.get("cloudSettings")
        session = self._open(None if has_unknown(settings) else settings, held.get("account"))
        session.require_own(held)
        if resource_type == LAUNCH:
            return Launches(session)
        if resource_type == GPU_INSTANCE:
            return GpuInstances(session)
        if resource_type == VOLUME:
            return Volumes(session)
        raise UsageError(
            f"there is no resource type {resource_type}", remedy=f"use {LAUNCH}, {GPU_INSTANCE} or {VOLUME}"
        )

    async def _run(self, work: Callable[[], T], made_in: str | None = None) -> T:
        """Run on a thread: a call that the engine's death cuts off still ends, and its result is in the call journal.

        Args:
            work: what to run.
            made_in: the account that what is made belongs to, for a resource that is kept half-made.
        """

        def guarded() -> T:
            with self._lifeline.operation():
                try:
                    return work()
                except PartialFailure as failure:
                    failure.properties = _in_account(failure.properties, made_in)
                    raise

        return await asyncio.get_running_loop().run_in_executor(self._threads, guarded)


def _in_account(properties: Properties, made_in: str | None) -> Properties:
    """Outputs with the account that the resource was made in, by which other credentials are refused later."""
    return {**properties, **wrap_map({"account": made_in})}


def _diff_response(found: Difference) -> engine.DiffResponse:
    kinds = {True: engine.PropertyDiffKind.UPDATE_REPLACE, False: engine.PropertyDiffKind.UPDATE}
    return engine.DiffResponse(
        changes=bool(found.changed),
        replaces=found.replaces,
        stables=[] if found.replaces else list(found.stable),
        delete_before_replace=bool(found.replaces),
        diffs=list(found.changed),
        detailed_diff={
            key: engine.PropertyDiff(kinds[forces], input_diff=True) for key, forces in found.changed.items()
        },
    )
