"""A stand-in of the driver's library, built from its C source where a test needs a real shared object."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("fake_nvml.c")


def build(target: Path) -> Path:
    """Compile the stand-in; a host without a compiler fails the test and is told what to install."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.fail(
            f"no C compiler: the tests build {SOURCE.name}, a stand-in of libnvidia-ml; install one, for example "
            "`apt-get install gcc libc6-dev`",
            pytrace=False,
        )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(target), str(SOURCE)], check=True)
    return target
