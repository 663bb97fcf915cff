"""Where stacks live and what runs them; light, so that ``plan --stack`` and ``status`` start no engine and import none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from provisioner.errors import CloudError, UsageError
from provisioner.workload.nearest import nearest
from stacks.backend import Backend, choose_backend, engine_environment
from stacks.engine.find import Engine, find_engine
from stacks.state import StackState, list_file_stacks, read_file_state

if TYPE_CHECKING:
    from stacks.command import EngineCommand

Say = Callable[[str], None]
T = TypeVar("T")


class Site:
    """Where stacks live and what runs them: one per command. The engine is looked for when something needs it."""

    def __init__(self, home: Path, backend_url: str | None, say: Say) -> None:
        """Choose the backend.

        Args:
            home: gpuprov's home.
            backend_url: ``--backend``; ``None`` asks the environment.
            say: told about the making of an engine, which takes minutes where there is none.

        Raises:
            UsageError: the backend is wrong.
        """
        self.home = home
        self.backend: Backend = choose_backend(home, backend_url)
        self._say = say

    @cached_property
    def engine(self) -> Engine:
        """The engine.

        Raises:
            EngineMissing: there is none and no way to get one.
        """
        return find_engine(self._say)

    def directory(self, stack: str) -> Path:
        """Folder of a stack's project and settings files."""
        return self.home / "workspaces" / self.backend.key / stack

    def command(self, provider: str | None = None, **options: Any) -> EngineCommand:
        """The engine with the environment of this site; see ``stacks.command.EngineCommand`` for the options."""
        from stacks.command import EngineCommand

        environment = engine_environment(self.home, self.backend, provider)
        return EngineCommand(self.engine.path, self.engine.version, environment, **options)

    def stacks(self) -> tuple[str, ...]:
        """Names of all stacks, sorted."""
        if self.backend.directory is not None:
            return list_file_stacks(self.backend.directory)
        from stacks import workspace

        directory = self.home / "workspaces" / self.backend.key
        return self._reached(lambda: workspace.list_remote(self.command(), directory))

    def read(self, stack: str) -> StackState | None:
        """The state of a stack, or ``None`` where there is none; no lock is needed to look.

        Files are read as they are; a remote backend costs one launch of the engine.
        """
        if self.backend.directory is not None:
            return read_file_state(self.backend.directory, stack)
        from stacks import workspace

        opened = workspace.open_stack(self.directory(stack), stack, self.command(), None)
        return self._reached(lambda: workspace.read_remote_state(opened))

    def _reached(self, ask: Callable[[], T]) -> T:
        """The answer of a remote backend.

        Raises:
            GpuprovError: it cannot be reached or read; nothing was changed.
        """
        from pulumi.automation.errors import CommandError

        from stacks.backend_failures import explain, last_error

        try:
            return ask()
        except CommandError as error:
            said, url = last_error(str(error)), self.backend.url
            raise explain(said, url) or CloudError(f"the state cannot be read: {said}", where=url) from error

    def existing(self, stack: str) -> StackState:
        """The state of a stack that must exist.

        Raises:
            UsageError: there is none of that name; the nearest one is named.
        """
        state = self.read(stack)
        if state is None:
            raise self.unknown(stack)
        return state

    def unknown(self, stack: str) -> UsageError:
        """The refusal for a name that no stack has."""
        known = self.stacks()
        near = nearest(stack, known)
        if near:
            remedy = f"did you mean {near}?"
        elif known:
            remedy = f"stacks here: {', '.join(known[:10])}"
        else:
            remedy = "there are no stacks here; `gpuprov up` makes one"
        return UsageError(f"there is no stack {stack!r}", remedy=remedy)
