"""The entry point as a process: what a missing command, a closed stream, a full disk or a strange locale make of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from provisioner.cli import main as entry
from provisioner.cli.settings import Settings, checked_home
from provisioner.errors import UsageError
from provisioner.home import default_cache, default_home

SPEC = """\
version: 1
name: case
task: serve
model:
  id: meta-llama/Llama-3.1-8B-Instruct
"""
WRONG = SPEC.replace("task: serve", "task: sevre")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "workload.yaml"
    path.write_text(SPEC)
    return path


def gpuprov(*arguments: str, shell_end: str = "", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The command as a process; ``shell_end`` is added to the shell line, such as a redirection."""
    command = [
        "/bin/sh",
        "-c",
        f'exec "$@" {shell_end}',
        "sh",
        sys.executable,
        "-m",
        "provisioner.cli.main",
        *arguments,
    ]
    return subprocess.run(command, capture_output=True, check=False, env={**os.environ, **environment})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "`gpuprov` needs a command"),
        (("plann",), "`gpuprov` has no command 'plann'; did you mean plan? `gpuprov --help` lists all"),
        (("PLAN",), "did you mean plan?"),
        (("quxquux",), "`gpuprov` has no command 'quxquux'; `gpuprov --help` lists all"),
        (("sandbox",), "`gpuprov sandbox` needs a command"),
        (("sandbox", "capasity"), "`gpuprov sandbox` has no command 'capasity'; did you mean capacity?"),
        (("sandbox", "capacity", "sett"), "did you mean set?"),
        (("prices", "shwo"), "did you mean show?"),
        (("plan",), "Missing argument 'SPEC'; see `gpuprov plan --help`"),
        (("plan", "x.yaml", "--fromat", "json"), "Did you mean '--format'?"),
        (("--home", "", "models"), "--home is empty"),
        (("--home", "/dev/null", "sandbox", "bill"), "--home /dev/null is no folder"),
    ],
)
def test_a_bad_invocation_is_one_line_with_what_to_do(
    arguments: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert entry.run(list(arguments)) == 2
    out, err = capsys.readouterr()
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert said in errors[0]
    assert not out


def test_no_command_shows_the_help_before_the_error(capsys: pytest.CaptureFixture[str]) -> None:
    entry.run([])
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Usage: gpuprov")
    assert any(line.strip().startswith("plan ") for line in lines)
    assert lines[-1].startswith("error: ")


@pytest.mark.parametrize("name", sorted(entry.COMMANDS))
def test_every_command_has_help_by_both_names(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run([name, "-h"]) == 0
    short = capsys.readouterr().out
    assert entry.run([name, "--help"]) == 0
    assert capsys.readouterr().out == short
    assert short.startswith(f"Usage: gpuprov {name}")


def test_a_closed_standard_output_is_no_failure(spec: Path) -> None:
    for form in ("json", "table"):
        done = gpuprov("plan", str(spec), "--format", form, shell_end=">&-")
        assert (done.returncode, b"error" in done.stderr) == (0, False)


def test_all_streams_closed(spec: Path) -> None:
    assert gpuprov("plan", str(spec), shell_end="<&- >&- 2>&-").returncode == 0
    assert gpuprov("plan", "nowhere.yaml", shell_end="<&- >&- 2>&-").returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the kernel has no /dev/full")
@pytest.mark.parametrize("arguments", [("schema",), ("--version",), ("plan", "nowhere.yaml", "--format", "json")])
def test_a_full_disk_is_said_in_one_line(arguments: tuple[str, ...]) -> None:
    done = gpuprov(*arguments, shell_end=">/dev/full")
    errors = done.stderr.decode().splitlines()
    assert done.returncode == (2 if "plan" in arguments else 1)
    assert all(line.startswith("error: ") for line in errors)
    assert any("No space left on device" in line or "cannot read the spec" in line for line in errors)


def test_a_reader_that_goes_away_is_no_error() -> None:
    done = gpuprov("schema", shell_end="| true")
    assert done.stderr == b""


@pytest.mark.parametrize("locale", ["C", "POSIX", "en_US.ISO-8859-1"])
def test_output_is_utf8_under_any_locale(tmp_path: Path, locale: str) -> None:
    path = tmp_path / "wörk load.yaml"
    path.write_text(WRONG)
    plain = {"LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = gpuprov("plan", str(path), "--format", "json", **plain)
    assert done.returncode == 2
    where = f"{path}:3:7"
    assert json.loads(done.stdout.decode("utf-8"))["where"] == where
    assert done.stderr.decode("utf-8").startswith(f"error: {where}: ")
    path.write_text(SPEC)
    done = gpuprov("plan", str(path), **plain)
    assert done.returncode == 0, done.stderr
    assert "█" in done.stdout.decode("utf-8")


def test_a_name_that_is_no_utf8_is_shown_escaped(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/b\xffd\nname.yaml"
    Path(os.fsdecode(path)).write_text(WRONG)
    done = gpuprov("plan", os.fsdecode(path), "--format", "json", LC_ALL="C.UTF-8")
    assert done.returncode == 2
    assert done.stderr.decode().splitlines()[-1].startswith(f"error: {tmp_path}/b\\udcffd\\nname.yaml:3:7: ")
    assert json.loads(done.stdout)["where"].endswith("name.yaml:3:7")


def test_sigterm_ends_a_command_as_cancelled(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    command = [sys.executable, "-m", "provisioner.cli.main", "plan", str(fifo)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        writer = os.open(fifo, os.O_WRONLY)  # returns once the command has opened it, so its handler is set
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
        os.close(writer)
    assert process.returncode == 8
    assert err.splitlines()[-1].startswith(b"error: interrupted")


def test_the_home_is_looked_for_only_when_it_is_needed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nobody() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", nobody)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    settings = Settings()
    with pytest.raises(UsageError, match="no home folder") as caught:
        _ = settings.home
    assert caught.value.remedy == "set GPUPROV_HOME or HOME to a folder"
    assert Settings(chosen_home=tmp_path).home == tmp_path


def test_relative_xdg_folders_do_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable, folder in (("XDG_DATA_HOME", default_home), ("XDG_CACHE_HOME", default_cache)):
        monkeypatch.setenv(variable, "somewhere")
        assert folder().is_relative_to(tmp_path)
        monkeypatch.setenv(variable, str(tmp_path / variable))
        assert folder() == tmp_path / variable / "gpuprov"


def test_a_home_may_be_new(tmp_path: Path) -> None:
    assert checked_home(None) is None
    assert checked_home(str(tmp_path / "new")) == tmp_path / "new"
