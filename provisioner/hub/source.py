"""Where a model's files are read from: what the hub and a local folder have in common."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from provisioner.errors import UsageError
from provisioner.records import record


@record(frozen=True, slots=True)
class Piece:
    """The first bytes of a range that was asked for, and the size of the whole file where it is known."""

    content: bytes
    file_bytes: int | None


class Source(Protocol):
    """A model's files."""

    @property
    def name(self) -> str:
        """The place in words, for errors."""
        ...

    @property
    def commit(self) -> str | None:
        """The commit that the files are of, where the place has commits and one was seen."""
        ...

    def file(self, path: str, limit_bytes: int) -> bytes | None:
        """A whole small file; ``None`` where there is none.

        Raises:
            GpuprovError: it cannot be read, or is larger than the limit.
        """
        ...

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of the user's own."""
        ...

    def piece(self, path: str, start: int, length: int) -> Piece | None:
        """``length`` bytes of a file from ``start``, fewer where it ends before; ``None`` where there is no such file.

        Raises:
            GpuprovError: it cannot be read.
        """
        ...


class FolderSource:
    """A folder on this machine; a single config file is a folder with nothing beside it. ``path`` is what was named."""

    def __init__(self, path: Path) -> None:
        self._folder = path if path.is_dir() else path.parent
        self._only = None if path.is_dir() else path.name
        self.path = path

    @property
    def name(self) -> str:
        """The path."""
        return str(self.path)

    @property
    def commit(self) -> str | None:
        """Folders have none."""
        return None

    def file(self, path: str, limit_bytes: int) -> bytes | None:
        """A whole small file; the single file of this source stands for ``config.json``.

        Raises:
            UsageError: it cannot be read, or is larger than the limit.
        """
        if self._only is not None:
            if path != "config.json":
                return None
            path = self._only
        try:
            with (self._folder / path).open("rb") as stream:
                content = stream.read(limit_bytes + 1)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UsageError(
                f"{path} cannot be read: {error.strerror or error}", where=self.name, remedy="mend it, or name another"
            ) from None
        if len(content) > limit_bytes:
            raise UsageError(
                f"{path} is larger than {limit_bytes // 2**20} MiB", where=self.name, remedy="is it the right file?"
            )
        return content

    @property
    def is_local(self) -> bool:
        """It is."""
        return True

    def piece(self, path: str, start: int, length: int) -> Piece | None:
        """A piece of a shard; ``None`` where there is no such file.

        Raises:
            UsageError: it cannot be read.
        """
        if self._only is not None:
            return None
        try:
            with (self._folder / path).open("rb") as stream:
                size = stream.seek(0, 2)
                stream.seek(start)
                return Piece(stream.read(length), size)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise UsageError(
                f"{path} cannot be read: {error.strerror or error}", where=self.name, remedy="mend it, or name another"
            ) from None
