"""Names of GPUs in specs: classes, exact models, and the spellings of APIs and tools."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner.catalog.files import CatalogFiles
from provisioner.catalog.gpus import Gpu
from provisioner.errors import UsageError

ALIAS_SCOPES = ("ec2_api", "gcp_accelerator_type", "nvidia_smi")
"""Scopes of gpu_aliases.csv that a person may write; the others are names of foreign catalogs."""


class GpuNames:
    """Finds GPU models by name, whatever the case and whether words are joined by blanks, ``_`` or ``-``.

    A class wins over an exact model, a model over an alias. A name that covers two classes (``A100``) is refused.
    """

    def __init__(self, gpus: Mapping[str, Gpu], files: CatalogFiles) -> None:
        classes: dict[str, list[str]] = {}
        for gpu in gpus.values():
            classes.setdefault(gpu.gpu_class, []).append(gpu.model)
        self.classes: Mapping[str, tuple[str, ...]] = {name: tuple(models) for name, models in classes.items()}
        self._by_class = {_folded(name): name for name in self.classes}
        self._by_model = {_folded(model): model for model in gpus}
        self._class_of = {gpu.model: gpu.gpu_class for gpu in gpus.values()}
        self._by_alias: dict[str, list[str]] = {}
        for name, scope, model in files.rows("gpu_aliases.csv", "name", "scope", "gpu_model"):
            if scope in ALIAS_SCOPES:
                self._by_alias.setdefault(_folded(name), []).append(model)

    def resolve(self, name: str) -> tuple[str, ...]:
        """Exact models that a name means, in catalog order.

        Raises:
            UsageError: the name is unknown, or covers several classes.
        """
        key = _folded(name)
        if key in self._by_class:
            return self.classes[self._by_class[key]]
        if key in self._by_model:
            return (self._by_model[key],)
        sizes = self._sizes(key)
        if len(sizes) > 1:
            raise UsageError(f"GPU {name!r} comes in several sizes", remedy=f"write {' or '.join(sizes)}")
        if key in self._by_alias:
            return tuple(dict.fromkeys(self._by_alias[key]))
        raise UsageError(f"unknown GPU {name!r}", remedy=self._suggestion(key))

    def _sizes(self, key: str) -> list[str]:
        """Classes that a name without a memory size covers: those named ``<name>-40GB``, and those that its alias means."""
        named = [
            name for folded, name in self._by_class.items() if folded.startswith(f"{key}-") and folded.endswith("gb")
        ]
        meant = [self._class_of[model] for model in self._by_alias.get(key, [])]
        return sorted(dict.fromkeys([*named, *meant]))

    def _suggestion(self, key: str) -> str:
        import difflib

        spellings = {**self._by_model, **self._by_class}
        near = difflib.get_close_matches(key, spellings, n=3, cutoff=0.5)
        if near:
            return f"nearest: {', '.join(dict.fromkeys(spellings[one] for one in near))}"
        return f"known classes: {', '.join(sorted(self.classes))}"


def _folded(name: str) -> str:
    return "-".join(name.lower().replace("_", " ").replace("-", " ").split())
