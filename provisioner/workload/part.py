"""Base of all parts of a spec."""

from pydantic import BaseModel, ConfigDict


class SpecPart(BaseModel):
    """Base of all parts of a spec: nothing but the named keys, and no change after reading."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
