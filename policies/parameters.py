"""Parameters of rules: a name, a kind of value that reads and describes itself, a default."""

from __future__ import annotations

from typing import Any

from provisioner.records import record
from provisioner.workload.kinds import Kind


@record(frozen=True, slots=True)
class Parameter:
    """One parameter. ``kind`` reads what a policy file says; a ``None`` default switches that part of the rule off."""

    name: str
    kind: Kind
    default: Any
    about: str

    def schema(self) -> dict[str, Any]:
        """JSON Schema of the value, with its default."""
        default = None if self.default is None else self.kind.write(self.default)
        return self.kind.schema() | {"description": self.about, "default": default}
