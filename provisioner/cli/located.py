"""Where in a spec an error belongs: names that only the catalog can check get their line and column here."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from provisioner.planner.requirements import KeyedSpecError
from provisioner.workload.load import Loaded


@contextmanager
def located(loaded: Loaded) -> Iterator[None]:
    """Give errors about a key of this spec the key's place in the file.

    Raises:
        KeyedSpecError: as raised inside, with ``where`` set.
    """
    try:
        yield
    except KeyedSpecError as error:
        error.where = error.where or loaded.origin(error.key)
        raise
