"""Reading dimensions out of a config.json: many spellings, one error that names all that is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.errors import UsageError

MAX_DIMENSION = 10**9
"""Larger values are no dimension of a model but a mistake or an attack."""


class Fields:
    """Typed access to a config; ``need`` collects what is missing, ``check`` refuses with all of it at once."""

    def __init__(self, config: Mapping[str, Any], model_id: str) -> None:
        self.config = config
        self.model_id = model_id
        self.missing: list[str] = []

    @property
    def family(self) -> str:
        """``model_type`` of the config."""
        return str(self.config.get("model_type", "")).lower()

    def need(self, *names: str) -> int:
        """A whole number above 0 under the first of several spellings; noted as missing (and 1) where there is none."""
        value = self.maybe(*names)
        if value is None or value == 0:
            self.missing.append(" or ".join(names))
            return 1
        return value

    def maybe(self, *names: str) -> int | None:
        """A whole number of 0 or more, or ``None``.

        Raises:
            UsageError: the value is no whole number, negative or absurdly large.
        """
        for name in names:
            value = self.config.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or value != int(value):
                raise UsageError(f"{self.model_id}: config field {name} is {value!r}, not a whole number")
            if not 0 <= value <= MAX_DIMENSION:
                raise UsageError(f"{self.model_id}: config field {name} is {value!r}, outside 0 to {MAX_DIMENSION:,}")
            return int(value)
        return None

    def number(self, name: str, default: int) -> int:
        """A whole number, or the class default."""
        value = self.maybe(name)
        return default if value is None else value

    def flag(self, name: str, *, default: bool) -> bool:
        """A yes or no, or the class default."""
        value = self.config.get(name)
        return default if value is None else bool(value)

    def words(self, name: str) -> tuple[str, ...]:
        """A list as text, empty where it is missing."""
        value = self.config.get(name)
        return tuple(str(item) for item in value) if isinstance(value, list) else ()

    def child(self, name: str) -> Fields:
        """A nested section; missing fields are noted under its name."""
        section = self.config.get(name)
        inner = Fields(section if isinstance(section, Mapping) else {}, f"{self.model_id} ({name})")
        inner.missing = self.missing
        return inner

    def check(self) -> None:
        """Refuse a config that lacks dimensions.

        Raises:
            UsageError: fields are missing; all are named.
        """
        if self.missing:
            raise UsageError(
                f"{self.model_id}: config of model type {self.family!r} lacks {', '.join(self.missing)}",
                remedy="add the fields to the config, or describe the model with model.shape",
            )

    def require_divisible(self, whole: str, total: int, by: str, divisor: int) -> None:
        """Refuse dimensions that contradict each other.

        Raises:
            UsageError: ``total`` is not a multiple of ``divisor``.
        """
        if divisor and total % divisor:
            raise UsageError(f"{self.model_id}: {whole} {total} is not a multiple of {by} {divisor}")


def dtype_word(config: Mapping[str, Any], default: str = "bf16") -> str:
    """``bf16``, ``fp16`` or ``fp32`` of a config's dtype field."""
    text = config.get("torch_dtype") or config.get("dtype") or (config.get("text_config") or {}).get("dtype")
    words = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "half": "fp16", "float": "fp32"}
    return words.get(str(text).removeprefix("torch."), default)
