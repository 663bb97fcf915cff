"""The four ways to an engine, in their order; locks, interruptions and refusals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from provisioner.errors import EngineMissing, UsageError
from stacks.engine import build, cache, find, install
from stacks.engine.releases import ENGINE, YAML_LANGUAGE


def program(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f'#!/bin/sh\n[ "$1" = version ] && echo v{version}\n')
    path.chmod(0o755)
    return path


def fake_go(folder: Path, body: str = "", version: str = "1.26.8") -> None:
    """A ``go`` that answers its version and "builds" a program that answers ours."""
    folder.mkdir(parents=True, exist_ok=True)
    script = f"""\
        #!/bin/sh
        if [ "$1" = version ]; then echo "go version go{version} linux/amd64"; exit 0; fi
        {body}
        while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done
        echo some/package >&2
        mkdir -p "$(dirname "$out")"
        printf '#!/bin/sh\\necho v{ENGINE.version}\\n' > "$out"; chmod +x "$out"
    """
    (folder / "go").write_text(textwrap.dedent(script))
    (folder / "go").chmod(0o755)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No engine anywhere, no way out, a PATH with a shell and nothing of ours."""
    monkeypatch.delenv("GPUPROV_PULUMI", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")

    def unreachable(*_arguments: object) -> None:
        raise install.InstallFailed("the official installer cannot be reached (no route)")

    monkeypatch.setattr(install, "install", unreachable)
    return tmp_path


def test_the_named_engine_is_the_only_one_tried(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare / "bin" / "pulumi", "9.9.9")
    monkeypatch.setenv("GPUPROV_PULUMI", str(program(bare / "mine", ENGINE.version)))
    assert find.find_engine() == find.Engine(bare / "mine", ENGINE.version, "variable")


@pytest.mark.parametrize("version", ["3.100.0", "2.0.0"])
def test_a_named_engine_that_is_too_old_is_refused(bare: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("GPUPROV_PULUMI", str(program(bare / "old", version)))
    with pytest.raises(UsageError, match=version):
        find.find_engine()


def test_a_named_engine_that_is_no_program_is_refused(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUPROV_PULUMI", str(bare / "nothing"))
    with pytest.raises(UsageError, match="no pulumi that runs"):
        find.find_engine()


def test_path_comes_before_the_cache(bare: Path) -> None:
    program(cache.cached_program(ENGINE), ENGINE.version)
    assert find.find_engine().source == "cache"
    program(bare / "bin" / "pulumi", "3.999.0")
    assert find.find_engine() == find.Engine(bare / "bin" / "pulumi", "3.999.0", "path")


def test_an_old_pulumi_on_path_is_passed_over(bare: Path) -> None:
    program(bare / "bin" / "pulumi", "3.99.0")
    program(cache.cached_program(ENGINE), ENGINE.version)
    assert find.find_engine().source == "cache"


def test_the_installer_comes_before_go(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_go(bare / "bin", body="exit 1")
    monkeypatch.setattr(install, "install", lambda _r, folder, _s: program(folder / "bin" / "pulumi", ENGINE.version))
    assert find.find_engine().source == "installer"
    assert find.find_engine().source == "cache"


def test_go_builds_once_and_the_copy_is_reused(bare: Path) -> None:
    fake_go(bare / "bin")
    said: list[str] = []
    assert find.find_engine(said.append).source == "go"
    assert any("building pulumi" in text for text in said)
    assert find.find_engine() == find.Engine(cache.cached_program(ENGINE), ENGINE.version, "cache")
    assert not list(cache.engine_folder().glob(".*partial"))


def test_without_obtain_nothing_is_built(bare: Path) -> None:
    fake_go(bare / "bin")
    with pytest.raises(EngineMissing):
        find.find_engine(obtain=False)
    assert not cache.cached_program(ENGINE).exists()


@pytest.mark.parametrize(
    ("go", "reason"),
    [
        (None, "no `go` on PATH"),
        ("1.24.0", "go 1.24 is older than 1.26"),
        ("broken", "`go build` failed: disk is full"),
    ],
)
def test_when_all_ways_fail_the_error_names_each(bare: Path, go: str | None, reason: str) -> None:
    if go == "broken":
        fake_go(bare / "bin", body='echo "disk is full" >&2; exit 1')
    elif go:
        fake_go(bare / "bin", version=go)
    with pytest.raises(EngineMissing) as caught:
        find.find_engine()
    assert caught.value.exit_code == 2
    message = caught.value.message
    assert "1. no pulumi on PATH" in message
    assert "2. no cached copy" in message
    assert "3. the official installer" in message
    assert f"4. {reason}" in message
    assert not cache.release_folder(ENGINE).exists()


BUILD_IN_CHILD = "from stacks.engine import find, install\n" + textwrap.dedent("""
    def unreachable(*_a):
        raise install.InstallFailed('no route')
    install.install = unreachable
    print(find.find_engine(lambda t: print(t, flush=True)).source, flush=True)
""")


def child() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BUILD_IN_CHILD],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_two_processes_build_once(bare: Path) -> None:
    fake_go(bare / "bin", body=f'echo x >> "{bare}/builds"; sleep 1')
    first, second = child(), child()
    outputs = [process.communicate(timeout=60)[0] for process in (first, second)]
    assert sorted(output.splitlines()[-1] for output in outputs) == ["cache", "go"]
    assert (bare / "builds").read_text() == "x\n"


def test_a_killed_build_leaves_no_half_program(bare: Path) -> None:
    marker = bare / "started"
    fake_go(bare / "bin", body=f'touch "{marker}"; sleep 60')
    process = child()
    for _ in range(600):
        if marker.exists():
            break
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    assert not cache.cached_program(ENGINE).exists()
    fake_go(bare / "bin")
    assert find.find_engine().source == "go"
    assert not list(cache.engine_folder().glob(".*partial"))


def test_an_unreachable_installer_is_a_reason_not_a_crash(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(install, "INSTALLER_URL", "http://127.0.0.1:9/install.sh")
    with pytest.raises(install.InstallFailed, match="cannot be reached"):
        install.install(ENGINE, tmp_path, lambda _text: None)


def test_versions_are_remembered_until_the_program_changes(bare: Path) -> None:
    path = program(bare / "bin" / "pulumi", "3.300.0")
    assert find.program_version(path) == "3.300.0"
    facts = path.stat()
    path.write_text(path.read_text().replace("3.300.0", "3.301.0"))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    assert find.program_version(path) == "3.301.0"


def test_modules_are_complete_and_pin_the_release() -> None:
    for release in (ENGINE, YAML_LANGUAGE):
        text = (release.module / "go.mod").read_text()
        assert f"tool {release.package}" in text
        assert f"v{release.version}" in text
        assert (release.module / "go.sum").stat().st_size > 10_000


def test_go_version_reads_major_and_minor(bare: Path) -> None:
    assert build.go_version() is None
    fake_go(bare / "bin", version="1.27rc1")
    assert build.go_version() == (1, 27)


@pytest.mark.parametrize(
    "body",
    ["exec sleep 1000", "printf '\\377\\376'", "echo not a version", "echo v3.272.0; exit 3", "exec cat"],
    ids=["never ends", "binary", "words", "fails", "reads"],
)
def test_a_program_that_is_no_engine_is_refused_in_time(bare: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    monkeypatch.setattr(find, "_VERSION_TIMEOUT_S", 0.5)
    path = program(bare / "mine", ENGINE.version)
    path.write_text(f"#!/bin/sh\n{body}\n")
    monkeypatch.setenv("GPUPROV_PULUMI", str(path))
    with pytest.raises(UsageError, match="no pulumi that runs"):
        find.find_engine()


def test_a_way_that_leaves_no_program_is_a_reason(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "install", lambda *_arguments: None)
    with pytest.raises(EngineMissing, match=r"3\. the installer left no pulumi; 4\. no `go`"):
        find.find_engine()
    assert not cache.release_folder(ENGINE).exists()


def test_the_yaml_language_has_ways_of_its_own(bare: Path) -> None:
    with pytest.raises(EngineMissing) as caught:
        find.find_yaml_language()
    assert caught.value.message.startswith("no pulumi-language-yaml: 1. no pulumi-language-yaml on PATH; 2. no cached")
    assert "; 3. no `go`" in caught.value.message
    assert caught.value.remedy == find.YAML_WAYS
    with pytest.raises(EngineMissing, match=r"2\. no cached copy"):
        find.find_yaml_language(obtain=False)


def test_a_damaged_memory_of_versions_is_no_trouble(bare: Path) -> None:
    path = program(bare / "mine", ENGINE.version)
    memory = cache.engine_folder() / "versions.json"
    memory.parent.mkdir(parents=True)
    for content in ("[]", "{", '{"x": 5}', ""):
        memory.write_text(content)
        assert find.program_version(path) == ENGINE.version


def test_the_module_prints_the_path_or_one_error(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def module(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "stacks.engine", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3])

    program(bare / "bin" / "pulumi", ENGINE.version)
    done = module()
    assert (done.returncode, done.stdout) == (0, f"{bare / 'bin' / 'pulumi'}\n")
    (bare / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(bare / "file"))
    done = module("yaml-language")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {bare / 'file'}")
    assert module("nothing").returncode == 2
