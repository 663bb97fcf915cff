"""A machine that is stopped, told another start, and started: the real watcher takes over what its user data says then."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from provisioner.node import renew
from provisioner.node.boot import Start, user_data
from provisioner.node.renew import program_of

OLD = Start(argv=["serve", "old"], image="vllm@sha256:a", source="s3://models/old")
NEW = Start(argv=["serve", "new"], image="vllm@sha256:b", source="s3://models/new")


def program(start: Start | None, **config) -> bytes:
    return program_of(user_data(config, start).encode())


def install(rig, start: Start | None, **config) -> None:
    """What cloud-init writes at the first boot, and what that does."""
    assert renew.install(rig.folder, program(start, **config), lambda *_: "")
    (rig.folder / "scratch/model").mkdir(parents=True)
    (rig.folder / "scratch/model/shard").touch()


def reboot(rig, text: str) -> None:
    """Start again with that user data: what ``bootcmd`` runs, as the real joined program."""
    rig.metadata.pages["/latest/user-data"] = text
    rig.boot("boot-2")
    assert rig.start("renew").wait(timeout=30) == 0, (rig.folder / "stderr").read_text()


def test_a_new_start_is_taken_over_before_the_workload_runs_and_waits_for_no_unit(make_rig):
    rig = make_rig()
    install(rig, OLD, ports=[8000])
    reboot(rig, user_data({"ports": [9000], "run_digest": "b"}, NEW))
    assert "IMAGE='vllm@sha256:b'" in (rig.folder / "etc/gpuprov/run.env").read_text()
    assert (rig.folder / "etc/gpuprov/argv").read_bytes() == b"serve\0new\0"
    assert json.loads((rig.folder / "etc/gpuprov/node.json").read_text())["ports"] == [9000]
    assert not (rig.folder / "scratch/model").exists(), "weights of the old model would lie among the new ones"
    assert "systemctl daemon-reload" in rig.calls
    starts = [call for call in rig.calls if call.startswith("systemctl start")]
    assert starts
    assert all("--no-block" in call for call in starts), "a unit that waits for this boot stage would never come up"
    assert not any("--now" in call for call in rig.calls)
    assert "takes over a new start" in rig.lines[-1]["why"]


def test_a_plain_reboot_writes_and_fetches_nothing_again(make_rig):
    rig = make_rig()
    install(rig, OLD, ports=[8000])
    reboot(rig, user_data({"ports": [8000]}, OLD))
    assert rig.calls == []
    assert rig.lines == []
    assert (rig.folder / "scratch/model/shard").exists()


def test_new_flags_on_the_same_weights_keep_what_was_fetched(make_rig):
    rig = make_rig()
    install(rig, OLD)
    reboot(rig, user_data({}, Start(argv=["serve", "old", "--more"], image="vllm@sha256:a", source="s3://models/old")))
    assert (rig.folder / "scratch/model/shard").exists()
    assert b"--more" in (rig.folder / "etc/gpuprov/argv").read_bytes()


def test_a_run_that_is_taken_out_is_not_started_any_more(make_rig):
    rig = make_rig()
    install(rig, OLD, hook=["./save.sh"])
    reboot(rig, user_data({}, None))
    left = {path.name for path in (rig.folder / "etc/systemd/system").glob("gpuprov-*")}
    assert left == {"gpuprov-deadman.service", "gpuprov-deadman.timer", "gpuprov-watcher.service"}
    assert {"systemctl disable gpuprov-workload.service", "systemctl disable gpuprov-leave.service"} <= set(rig.calls)


def test_without_the_metadata_service_the_machine_keeps_what_it_has_and_says_so(make_rig):
    rig = make_rig()
    install(rig, OLD)
    rig.metadata.is_up = False
    reboot(rig, "")
    assert "IMAGE='vllm@sha256:a'" in (rig.folder / "etc/gpuprov/run.env").read_text()
    assert "keeps its start" in rig.lines[-1]["why"]


def test_user_data_of_somebody_else_is_left_alone(make_rig):
    rig = make_rig()
    install(rig, OLD)
    reboot(rig, "#!/bin/sh\necho hello\n")
    assert "keeps its start" in rig.lines[-1]["why"]
    assert "IMAGE='vllm@sha256:a'" in (rig.folder / "etc/gpuprov/run.env").read_text()


def test_packed_user_data_is_read_too_and_a_cut_half_way_is_made_good(tmp_path: Path):
    packed = program_of(gzip.compress(user_data({}, NEW).encode()))
    calls: list[list[str]] = []

    cuts = ["sync", "systemctl"]

    def cut(words: list[str], _: float) -> None:
        if words[0] == cuts[0]:
            cuts.pop(0)
            raise KeyboardInterrupt

    while cuts:  # before the first file is replaced, and after the last
        with pytest.raises(KeyboardInterrupt):
            renew.renew(tmp_path, packed, cut)
        assert (tmp_path / "etc/gpuprov/argv").exists() is (not cuts)

    def fail(words: list[str], _: float) -> str | None:
        calls.append(words)
        return None if "enable" in words else ""

    def work(words: list[str], _: float) -> str:
        calls.append(words)
        return ""

    for run in (fail, work):  # cut before the units were enabled, and a tool that failed
        calls.clear()
        renew.renew(tmp_path, packed, run)
        assert ["systemctl", "enable", "gpuprov-workload.service"] in [[*words[:2], words[-1]] for words in calls]
    calls.clear()
    assert renew.renew(tmp_path, packed, work) == []
    assert calls == []
    (tmp_path / "etc/gpuprov/argv").write_bytes(b"half")
    assert renew.renew(tmp_path, packed, work) == ["etc/gpuprov/argv"]
    assert (tmp_path / "etc/gpuprov/argv").stat().st_mode & 0o777 == 0o600


def test_a_disk_without_room_changes_nothing(make_rig, monkeypatch):
    rig = make_rig()
    install(rig, OLD)
    before = {path: path.read_bytes() for path in (rig.folder / "etc").rglob("*") if path.is_file()}

    def full(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space"):
        renew.renew(rig.folder, program(NEW), lambda *_: "")
    assert (rig.folder / "scratch/model/shard").exists()
    assert all(path.read_bytes() == content for path, content in before.items())


def test_the_first_boot_tries_again_until_each_unit_is_enabled(tmp_path: Path):
    answers = iter([None, None])
    calls: list[list[str]] = []

    def stumble(words: list[str], _: float) -> str | None:
        calls.append(words)
        return next(answers, "")

    assert renew.install(tmp_path, program(NEW), stumble)
    enabled = [words[-1] for words in calls if "enable" in words]
    assert enabled[:3] == ["gpuprov-deadman.timer", "gpuprov-watcher.service", "gpuprov-workload.service"]
    assert len(enabled) == 6
    assert not renew.install(tmp_path / "other", program(NEW), lambda *_: None)


def test_a_first_boot_that_was_cut_before_it_wrote_anything_is_made_good_by_the_next(make_rig):
    rig = make_rig()
    (rig.folder / "etc/gpuprov/node.json").unlink()
    reboot(rig, user_data({"ports": [8000]}, NEW))
    assert (rig.folder / "etc/gpuprov/argv").read_bytes() == b"serve\0new\0"
    assert "systemctl enable gpuprov-deadman.timer" in rig.calls


def test_weights_that_the_image_brought_along_stay_at_the_first_boot(tmp_path: Path):
    (tmp_path / "scratch/model").mkdir(parents=True)
    assert renew.install(tmp_path, program(NEW), lambda *_: "")
    assert (tmp_path / "scratch/model").exists()


@settings(max_examples=30, deadline=None)
@given(
    words=st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=40)),
    value=st.text(st.characters(codec="utf-8", blacklist_characters="\0\n\r"), max_size=40),
)
def test_words_of_any_letters_arrive_whole(words: list[str], value: str):
    files = renew.wanted_files(program(Start(argv=words, env={"A": value})))
    assert files["etc/gpuprov/argv"][0].decode() == "".join(f"{word}\0" for word in words)
    assert files["etc/gpuprov/workload.env"][0].decode() == f"A={value}\n"
    assert {mode for name, (_, mode) in files.items() if name.startswith("etc/gpuprov/")} == {0o600}


def test_a_watcher_of_another_form_would_refuse_it():
    with pytest.raises(ValueError, match="Expecting value"):
        json.loads(user_data({}, NEW).partition("\n")[2])
    with pytest.raises(ValueError, match="no cloud-config of gpuprov"):
        program_of(user_data({}, NEW).replace("#2\n", "", 1).encode())
