"""The engine's verbs on one stack: preview, update, refresh, destroy, remove; under its lock, with one clean stop.

Foreign errors end here: the text of the engine is read by ``stacks.outcome`` and this module, nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from pulumi.automation.errors import CommandError, ConcurrentUpdateError, StackAlreadyExistsError, StackNotFoundError

from provisioner.errors import Cancelled, CloudError, GpuprovError
from stacks import backend_failures, workspace
from stacks.backend import POLICY_PACK, find_script
from stacks.backend_failures import last_error
from stacks.command import Interrupts
from stacks.locks import (
    WAIT_DEFAULT,
    EngineLock,
    Life,
    StackLock,
    clear_dead_locks,
    explain,
    judge,
    lock_path,
    parse_engine_locks,
)
from stacks.outcome import EventLog, Listener, Outcome
from stacks.program import ProgramInputs, make_program
from stacks.site import Say, Site
from stacks.state import StackState
from stacks.workspace import LeanStack


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told what, while the engine works."""

    say: Say
    """Lines that matter: waiting, cleared locks, stopping."""
    step: Listener | None = None
    detail: Say | None = None
    """The plugin's own progress: offers tried."""


class Session:
    """One stack under its lock. A context manager: entering takes the lock, and waits for another holder up to ``wait``."""

    def __init__(
        self,
        site: Site,
        stack: str,
        command: str,
        watch: Watch,
        wait: timedelta = WAIT_DEFAULT,
        *,
        clears_locks: bool = True,
    ) -> None:
        """Name the stack; nothing happens before it is entered.

        Args:
            site: where it lives.
            stack: its name.
            command: what other commands are told about this one.
            watch: who is told about waiting and progress.
            wait: how long to wait for another holder.
            clears_locks: whether an engine's lock of a dead process goes on entering, and any other refuses.
        """
        self.site = site
        self.stack = stack
        self.watch = watch
        self._wait = wait
        self._clears_locks = clears_locks
        self._lock = StackLock(lock_path(site.home, site.backend.key, stack), command)
        self._interrupts = Interrupts(watch.say)

    def __enter__(self) -> Self:
        self._interrupts.__enter__()
        try:
            self._lock.acquire(self._wait, self.watch.say)
            if self._clears_locks:
                self._clear_locks()
        except BaseException:
            self._lock.release()
            self._interrupts.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()
        self._interrupts.__exit__(kind, error, trace)

    def state(self) -> StackState | None:
        """The state now; ``None`` where there is no such stack."""
        return self.site.read(self.stack)

    def ensure(self, provider: str) -> None:
        """Make the stack where there is none, and write down its provider."""
        workspace.configure(self.site.directory(self.stack), self.stack, provider)
        if self.state() is not None:
            return
        try:
            workspace.create_stack(self._open(provider, None), self.site.backend.secrets_provider)
        except StackAlreadyExistsError:
            return  # made from another host just now; its lock decides who goes first
        except CommandError as error:
            raise self._translate(error) from None

    def preview(self, inputs: ProgramInputs, provider: str, *, refresh: bool = True) -> Outcome:
        """What an update would do, after a look at the cloud; changes nothing.

        Args:
            inputs: what the program states.
            provider: where it is.
            refresh: look at the cloud first; a new stack has nothing to look at.
        """
        program = make_program(inputs)
        return self._run(
            provider,
            lambda stack, log: stack.preview(
                program=program, refresh=refresh, policy_packs=_packs(), on_event=log.on_event, color="never"
            ),
        )

    def update(self, inputs: ProgramInputs, provider: str) -> Outcome:
        """Create or update, after a refresh of the state."""
        return self._run(
            provider,
            lambda stack, log: stack.up(
                program=make_program(inputs), refresh=True, policy_packs=_packs(), on_event=log.on_event, color="never"
            ),
        )

    def refresh(self, provider: str | None) -> Outcome:
        """Take what the cloud shows into the state."""
        return self._run(provider, lambda stack, log: stack.refresh(on_event=log.on_event, color="never"))

    def destroy(self, provider: str | None, urns: tuple[str, ...] = ()) -> Outcome:
        """End all resources, or those of ``urns``."""
        return self._run(
            provider,
            lambda stack, log: stack.destroy(target=list(urns) or None, on_event=log.on_event, color="never"),
        )

    def edit(self, change: Callable[[dict[str, Any]], bool], provider: str | None) -> bool:
        """Change the deployment document of the stack; see ``stacks.workspace.edit``."""
        try:
            return workspace.edit(self._open(provider, None), change)
        except CommandError as error:
            raise self._translate(error) from None

    def remove(self, *, bookkeeping: bool = False) -> None:
        """Remove the empty stack and its settings; also after a signal, since nothing can be in the middle of something.

        Args:
            bookkeeping: take along the engine's own entries, which an update that made nothing leaves: stack and provider.
        """
        try:
            stack = self._open(None, None, interruptible=False)
            stack.workspace.remove_stack(self.stack, force=bookkeeping)
        except StackNotFoundError:
            pass
        except CommandError as error:
            raise self._translate(error) from None
        directory = self.site.directory(self.stack)
        for path in (directory / f"Pulumi.{self.stack}.yaml", directory / "Pulumi.yaml"):
            path.unlink(missing_ok=True)

    def require_free(self) -> None:
        """Refuse before a cloud is told to change what another host works on.

        The engine looks only when it starts; locks of a file backend were looked at when the session began.

        Raises:
            CloudError: somebody holds the stack; it is said who, and since when.
        """
        if self.site.backend.is_local:
            return
        try:
            # Importing the state that is there needs the lock, and changes nothing.
            workspace.edit(self._open(None, None), lambda _: True)
        except ConcurrentUpdateError as error:
            if not self._clear_remote_locks(error):
                raise self._translate(error) from None
        except CommandError as error:
            raise self._translate(error) from None

    def cancel_remote_lock(self) -> tuple[EngineLock, ...]:
        """Clear the locks of a remote backend, because a person said so.

        Returns:
            What was there, as the engine names it; empty where the stack was free.
        """
        stack = self._open(None, None)
        try:
            # Importing the state that is there needs the lock, and changes nothing.
            workspace.edit(stack, lambda _: True)
        except ConcurrentUpdateError as error:
            stack.cancel()
            return parse_engine_locks(str(error))
        except CommandError as error:
            raise self._translate(error) from None
        return ()

    def _run(self, provider: str | None, verb: Callable[[LeanStack, EventLog], object]) -> Outcome:
        """One run of the engine; a foreign lock that turns out to be our own dead engine's is cleared, once."""
        outcome, refusal = self._attempt(provider, verb)
        if refusal is not None and self._clear_remote_locks(refusal):
            outcome, refusal = self._attempt(provider, verb)
        if refusal is not None:
            return replace(outcome, failure=self._translate(refusal))
        return outcome

    def _attempt(
        self, provider: str | None, verb: Callable[[LeanStack, EventLog], object]
    ) -> tuple[Outcome, ConcurrentUpdateError | None]:
        log = EventLog(self.watch.step, self.watch.detail)
        try:
            verb(self._open(provider, None), log)
        except ConcurrentUpdateError as error:
            return log.outcome(), error
        except CommandError as error:
            return self._failed(log, error), None
        self._interrupts.check()
        return log.outcome(), None

    def _failed(self, log: EventLog, error: CommandError) -> Outcome:
        outcome = log.outcome(last_error(str(error)))
        if self._interrupts.count:
            return replace(outcome, failure=self._translate(error))
        if isinstance(outcome.failure, CloudError) and outcome.failure.kind == CloudError.kind:
            # No mark told the cause: the engine's own words are all there is.
            return replace(outcome, failure=self._translate(error, outcome.failure))
        return outcome

    def _open(
        self, provider: str | None, program: Callable[[], None] | None, *, interruptible: bool = True
    ) -> LeanStack:
        command = self.site.command(
            provider,
            interrupts=self._interrupts if interruptible else None,
            lock_descriptor=self._lock.descriptor,
            on_start=self._lock.note_engine,
        )
        return workspace.open_stack(self.site.directory(self.stack), self.stack, command, program)

    def _clear_locks(self) -> None:
        directory = self.site.backend.directory
        if directory is None:
            return
        remaining = clear_dead_locks(directory, self.stack, self.watch.say)
        if remaining:
            raise explain(self.stack, remaining)

    def _clear_remote_locks(self, error: CommandError) -> bool:
        locks = parse_engine_locks(str(error))
        if self.site.backend.is_local or not locks:
            return False
        if any(judge(lock, ours=self._lock.previous, is_remote=True) is not Life.DEAD for lock in locks):
            return False
        for lock in locks:
            self.watch.say(f"cleared the engine's lock of a process that has ended: {lock}")
        self._open(None, None).cancel()
        return True

    def _translate(self, error: CommandError, default: GpuprovError | None = None) -> GpuprovError:
        if self._interrupts.count:
            return Cancelled(
                "interrupted; the engine stopped cleanly",
                remedy=f"the same command again goes on from here, `gpuprov down {self.stack}` ends it",
            )
        if isinstance(error, ConcurrentUpdateError):
            return explain(self.stack, parse_engine_locks(str(error)))
        said = last_error(str(error))
        about_state = None if self.site.backend.is_local else backend_failures.explain(said, self.site.backend.url)
        return about_state or default or CloudError(f"the engine failed: {said}")


def _packs() -> list[str]:
    return [str(find_script(POLICY_PACK))]
