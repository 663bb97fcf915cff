"""Which engine releases gpuprov is proved with, and what it takes to build them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).with_name("modules")
"""Small Go modules, one a program: ``go install program@version`` refuses modules that carry ``replace`` lines."""


@dataclass(frozen=True, slots=True)
class Release:
    """A program of the engine: its proved version, the oldest that will do, and its Go package."""

    program: str
    version: str
    minimum: str
    module: Path
    package: str
    version_variable: str

    @property
    def linker_flags(self) -> str:
        """Strip symbols, and stamp the version that the program reports."""
        return f"-s -w -X {self.version_variable}=v{self.version}"


ENGINE = Release(
    program="pulumi",
    version="3.274.1",
    # The Python SDK in use (3.272.0) speaks this engine protocol; older engines are not tried.
    minimum="3.272.0",
    module=MODULES / "pulumi",
    package="github.com/pulumi/pulumi/pkg/v3/cmd/pulumi",
    version_variable="github.com/pulumi/pulumi/sdk/v3/go/common/version.Version",
)

YAML_LANGUAGE = Release(
    program="pulumi-language-yaml",
    version="1.25.0",
    minimum="1.0.0",
    # A module apart: it wants an older pkg/v3 than the engine.
    module=MODULES / "yaml",
    package="github.com/pulumi/pulumi-yaml/cmd/pulumi-language-yaml",
    version_variable="github.com/pulumi/pulumi-yaml/pkg/version.Version",
)
