"""The first start of a machine: user data by cloud-init's own schema, and its scripts run for real in a made-up root."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from provisioner.node.boot import HEAD, Start, user_data
from provisioner.node.renew import program_of, renew
from provisioner.node.toolkit import TOOLKIT_KEY, TOOLKIT_VERSION

SCHEMA = Path(__file__).parent.parent / "data" / "cloud-init" / "schema-cloud-config-v1.json"
IMAGE = "vllm/vllm-openai@sha256:" + "a" * 64
START = Start(
    argv=["serve", "meta-llama/Llama-3.1-70B-Instruct", "--tensor-parallel-size", "4", "--quantization", "a b'c"],
    image=IMAGE,
    entrypoint="vllm",
    env={"MODE": "a b = c"},
    secrets={"HF_TOKEN": "aws-secretsmanager:team/hf"},
    data="s3://bucket/set",
    adapters={"lora-a": "s3://bucket/lora-a", "lora-b": "gs://bucket/b"},
    volumes={"data": 500 << 30, "checkpoints": 300 << 30},
)
CONFIG = {"idle_after_s": 900, "ports": [8000], "ready": {"path": "/health", "port": 8000}, "hook": ["./save.sh"]}

FAKES = {
    # Disks are lines "device type label size" in $RIG/disks.
    "blkid": """case "$1" in
-L) awk -v l="$2" '$3==l {print "/dev/"$1; f=1} END {exit !f}' "$RIG/disks";;
-p) awk -v d="$(basename "$2")" '$1==d {f=1; r=$2=="-" && $3!="parted" ? 2 : $2=="sick" ? 4 : $2=="two" ? 8 : 0} END {exit f ? r : 4}' "$RIG/disks";;
esac""",
    "blockdev": 'awk -v d="$(basename "$2")" \'$1==d {print $4}\' "$RIG/disks"',
    "mkfs.ext4": """for d in "$@"; do :; done; l=-; [ "$2" = -L ] && l=$3
awk -v d="$(basename "$d")" -v l="$l" '$1==d {$2="ext4"; $3=l} {print}' "$RIG/disks" > "$RIG/new"; mv "$RIG/new" "$RIG/disks"
echo "mkfs $(basename "$d") $l" >> "$RIG/calls\"""",
    "mount": 'echo "mount $1 ${2#$RIG}" >> "$RIG/calls"; echo "$2" >> "$RIG/mounted"',
    "mountpoint": 'grep -qx "$2" "$RIG/mounted" 2>/dev/null',
    "aws": 'echo "aws $*" >> "$RIG/calls"; case "$1" in secretsmanager) echo "hf_secret value";; esac',
    "gcloud": 'echo "gcloud $*" >> "$RIG/calls"',
    "hf": 'echo "hf $*" >> "$RIG/calls"',
    "docker": """case "$*" in *"--entrypoint nvidia-smi "*) [ ! -e "$RIG/blind" ] || { cat "$RIG/blind" >&2; exit 125; }; exit 0;; esac
case "$1 $2" in
"exec gpuprov-workload") [ -e "$RIG/container" ] || exit 1; echo "docker $*" >> "$RIG/calls";;
"info "*) echo "Runtimes: nvidia runc";;
"image inspect") grep -q "^docker pull" "$RIG/calls";;
"run --rm") printf '%s\\n' "$@" > "$RIG/ran"; cp "$RIG/run/gpuprov/env" "$RIG/env";;
*) echo "docker $*" >> "$RIG/calls";;
esac""",
    "nvidia-ctk": "exit 0",
    "nvidia-smi": "exit 0",
    "systemctl": 'echo "systemctl $*" >> "$RIG/calls"',
}


def document(text: str) -> dict[str, Any]:
    """A cloud-config behind its two lines of comments."""
    assert text.startswith(HEAD)
    return dict(json.loads(text.removeprefix(HEAD)))


class Root:
    """A root folder after its first boot: the files that cloud-init writes and what their own program unpacks; with fake tools."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = folder
        self.document = document(text)
        for name in ("dev", "etc", "sys/block", "run", "tools"):
            (folder / name).mkdir(parents=True)
        (folder / "dev/ttyS0").touch()
        (folder / "etc/fstab").touch()
        (folder / "calls").touch()
        for entry in self.document["write_files"]:
            path = folder / entry["path"].lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(entry["content"])
            path.chmod(int(entry["permissions"], 8))
        self.path = f"{folder / 'tools'}:/usr/bin:/bin"
        self.tools(FAKES)
        (command,) = self.document["runcmd"]
        words = command.replace("/opt/", f"{folder}/opt/").split()
        environment = {"PATH": self.path, "RIG": str(folder), "GPUPROV_NODE_ROOT": str(folder)}
        subprocess.run([sys.executable, "-S", "-E", *words[1:]], env=environment, check=True)
        self.first_calls = self.calls
        (folder / "calls").write_text("")

    def tools(self, scripts: dict[str, str]) -> None:
        for name, script in scripts.items():
            (self.folder / "tools" / name).write_text(f"#!/bin/bash\n{script}\n")
            (self.folder / "tools" / name).chmod(0o755)

    def disks(self, *lines: str, local: tuple[str, ...] = ()) -> None:
        (self.folder / "disks").write_text("".join(f"{line}\n" for line in lines))
        for line in lines:
            device = self.folder / "sys/block" / line.split()[0] / "device"
            device.mkdir(parents=True, exist_ok=True)
            kind = "Amazon EC2 NVMe Instance Storage" if line.split()[0] in local else "Amazon Elastic Block Store"
            (device / "model").write_text(kind)

    def script(self, name: str, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": self.path,
            "RIG": str(self.folder),
            "GPUPROV_NODE_ROOT": str(self.folder),
            "GPUPROV_WAIT": "2",
            "GPUPROV_NAP": "0",
        }
        path = str(self.folder / "opt/gpuprov" / name)
        return subprocess.run(["/bin/bash", path, *words], env=environment, capture_output=True, text=True, check=False)

    def reboot(self) -> None:
        """What a restart loses: mounts that fstab does not name, and everything in memory."""
        (self.folder / "mounted").unlink(missing_ok=True)
        for path in (self.folder / "run").rglob("*"):
            if path.is_file():
                path.unlink()

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    @property
    def console(self) -> str:
        return (self.folder / "dev/ttyS0").read_text()


DISKS = ("nvme0n1 ext4 root 107374182400", f"nvme1n1 - - {500 << 30}", f"nvme2n1 - - {300 << 30}", "nvme3n1 - - 1000")


@pytest.fixture
def root(tmp_path):
    made = Root(tmp_path / "root", user_data(CONFIG, START))
    made.disks(*DISKS, local=("nvme3n1",))
    return made


@pytest.mark.parametrize("start", [None, START, Start(argv=["python", "train.py"])])
def test_cloud_inits_own_schema_takes_it_and_it_fits(start):
    text = user_data(CONFIG, start)
    jsonschema.Draft4Validator(json.loads(SCHEMA.read_text())).validate(document(text))
    assert len(gzip.compress(text.encode(), 9)) < 16_384
    assert text == user_data(CONFIG, start)


def test_the_dead_man_is_armed_before_the_workload(root):
    timer = "systemctl start --no-block gpuprov-deadman.timer"
    assert root.first_calls[:3] == ["systemctl daemon-reload", "systemctl enable gpuprov-deadman.timer", timer]
    for name in ("watcher", "workload", "leave"):
        assert f"systemctl enable gpuprov-{name}.service" in root.first_calls
        assert f"systemctl start --no-block gpuprov-{name}.service" in root.first_calls
    renewed, ticked = root.document["bootcmd"]
    assert renewed.endswith("watcher.py renew")
    assert ticked.endswith("watcher.py tick")


def test_volumes_are_formatted_once_and_mounted_by_label(root):
    done = root.script("boot.sh")
    assert done.returncode == 0, done.stderr + root.console
    formatted = [call for call in root.calls if call.startswith("mkfs")]
    assert formatted == ["mkfs nvme1n1 gpuprov-data", "mkfs nvme2n1 gpuprov-checkpoints", "mkfs nvme3n1 -"]
    assert "mount LABEL=gpuprov-data /data" in root.calls
    assert "mount /dev/nvme3n1 /scratch" in root.calls
    assert (root.folder / "etc/fstab").read_text().count("LABEL=gpuprov-data /data ext4 nofail") == 1
    root.reboot()
    assert root.script("boot.sh").returncode == 0
    assert [call for call in root.calls if call.startswith("mkfs")] == formatted
    assert (root.folder / "etc/fstab").read_text().count("gpuprov-data") == 1
    assert root.calls.count(f"docker pull -q {IMAGE}") == 1


def test_a_disk_with_anything_on_it_is_never_formatted(root):
    size = 500 << 30
    root.disks(
        "nvme0n1 ext4 root 1",
        *(f"nvme1n{n} {kind} other {size}" for n, kind in enumerate(("xfs", "LVM2_member", "sick", "two"), 1)),
        f"nvme2n1 - parted {300 << 30}",
    )
    done = root.script("boot.sh")
    assert done.returncode != 0
    assert not any(call.startswith("mkfs") for call in root.calls)
    assert "volume data is not there" in root.console


def test_a_disk_that_was_added_is_mounted_when_the_start_is_taken_over_and_the_others_are_left(tmp_path):
    root = Root(tmp_path / "root", user_data(CONFIG, replace(START, volumes={"data": 500 << 30})))
    root.disks(*DISKS[:2], DISKS[3], local=("nvme3n1",))
    assert root.script("boot.sh").returncode == 0
    root.disks("nvme0n1 ext4 root 1", f"nvme1n1 ext4 gpuprov-data {500 << 30}", *DISKS[2:], local=("nvme3n1",))
    renew(root.folder, program_of(user_data(CONFIG, START).encode()), lambda *_: "")
    root.reboot()
    before = len(root.calls)
    assert root.script("boot.sh").returncode == 0, root.console
    done = root.calls[before:]
    assert [call for call in done if call.startswith("mkfs")][:1] == ["mkfs nvme2n1 gpuprov-checkpoints"]
    assert not any("mkfs nvme1n1" in call for call in done)
    assert "mount LABEL=gpuprov-checkpoints /checkpoints" in done


def test_an_empty_disk_is_not_taken_for_one_of_its_size_that_comes_later(tmp_path):
    """Two disks of one size, the kept one attached last: formatted in its place, the empty one would hide it."""
    size = 500 << 30
    root = Root(tmp_path / "root", user_data(CONFIG, replace(START, volumes={"data": size, "checkpoints": size})))
    root.disks("nvme0n1 ext4 root 1", f"nvme1n1 - - {size}")
    assert root.script("boot.sh").returncode != 0
    assert not any(call.startswith("mkfs") for call in root.calls)
    assert "volume data is not there" in root.console
    root.disks("nvme0n1 ext4 root 1", f"nvme1n1 - - {size}", f"nvme2n1 ext4 gpuprov-data {size}")
    assert root.script("boot.sh").returncode == 0, root.console
    assert [call for call in root.calls if call.startswith("mkfs")] == ["mkfs nvme1n1 gpuprov-checkpoints"]


def test_data_is_fetched_by_a_tool_that_resumes(root):
    root.script("boot.sh")
    assert f"aws s3 sync --only-show-errors s3://bucket/set {root.folder}/data/set" in root.calls
    adapters = f"{root.folder}/scratch/adapters"
    assert f"aws s3 sync --only-show-errors s3://bucket/lora-a {adapters}/lora-a" in root.calls
    assert f"gcloud storage rsync --recursive --checksums-only gs://bucket/b {adapters}/lora-b" in root.calls


def test_secrets_go_into_memory_and_the_planned_words_arrive_whole(root):
    root.script("boot.sh")
    done = root.script("run.sh")
    assert done.returncode == 0, done.stderr
    assert (root.folder / "env").read_text() == "MODE=a b = c\nHF_TOKEN=hf_secret value\n"
    ran = (root.folder / "ran").read_text().splitlines()
    assert ran[ran.index(IMAGE) + 1 :] == list(START.argv)
    assert ran[ran.index("--entrypoint") + 1] == "vllm"
    kept = [p for p in root.folder.rglob("*") if p.is_file() and "run/" not in str(p.relative_to(root.folder))]
    assert not any("hf_secret" in p.read_text(errors="replace") for p in kept if p.name not in ("env", "aws"))
    assert "hf_secret" not in json.dumps(root.document)


def test_a_command_without_an_image_runs_as_it_is(tmp_path):
    start = Start(argv=["sh", "-c", 'echo "$MODE" > "$RIG/said"; exit 3'], env={"MODE": "two words"})
    root = Root(tmp_path / "root", user_data({}, start))
    root.disks("nvme0n1 ext4 root 1")
    assert root.script("boot.sh").returncode == 0
    assert root.script("run.sh").returncode == 3
    assert (root.folder / "said").read_text() == "two words\n"


def test_x4_a_machine_whose_driver_does_not_answer_says_so(root):
    (root.folder / "tools/nvidia-smi").write_text("#!/bin/sh\nexit 9\n")
    assert root.script("boot.sh").returncode != 0
    assert "the driver does not answer" in root.console


TOO_OLD = """\
docker: Error response from daemon: failed to create task for container: failed to create shim task: OCI runtime create failed: runc \
create failed: unable to start container process: error during container init: error running prestart hook #0: exit status 1, \
stderr: Auto-detected mode as "legacy"
nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0, please update your driver to a newer version
"""


@pytest.mark.parametrize("said", [TOO_OLD, "Failed to initialize NVML: Unknown Error\n"])
def test_p11_a_container_that_gets_no_gpu_is_not_started_and_the_console_says_why(root, said):
    assert root.script("boot.sh").returncode == 0
    (root.folder / "blind").write_text(said)
    root.reboot()
    assert root.script("boot.sh").returncode != 0
    told = json.loads(root.console.splitlines()[-1])
    assert told["state"] == "boot"
    assert told["why"].startswith("no GPU in the container: ")
    assert said.split()[-1] in told["why"]
    assert not (root.folder / "ran").exists()


def test_p11_a_workload_without_a_container_needs_the_hosts_driver_alone(tmp_path):
    root = Root(tmp_path / "root", user_data({}, Start(argv=["true"])))
    root.disks("nvme0n1 ext4 root 1")
    (root.folder / "blind").touch()
    assert root.script("boot.sh").returncode == 0


APT = {
    "apt-get": """all="$*"; echo "apt-get ${all#-qq -o DPkg::Lock::Timeout=900 }" >> "$RIG/calls"
case "$*" in *" install "*) [ ! -e "$RIG/cut" ] || { rm "$RIG/cut"; touch "$RIG/half"; exit 100; };; esac
[ ! -e "$RIG/half" ] || { echo "dpkg was interrupted" >&2; exit 100; }
case "$*" in *docker.io*) cp "$RIG/kept/docker" "$RIG/tools";; *container-toolkit=*) cp "$RIG/kept/nvidia-ctk" "$RIG/tools";; esac""",
    "dpkg": 'echo "dpkg $*" >> "$RIG/calls"; rm -f "$RIG/half"',
}
DNF = {
    "dnf": """echo "dnf $*" >> "$RIG/calls"
case "$*" in *" docker") cp "$RIG/kept/docker" "$RIG/tools";; *container-toolkit-1*) cp "$RIG/kept/nvidia-ctk" "$RIG/tools";; esac"""
}
KEY = {
    "curl": 'echo "curl ${@: -1}" >> "$RIG/calls"; while [ "$1" != -o ]; do shift; done; echo armoured > "$2"',
    "gpg": 'cat "$RIG/key"',
}
PACKAGES = (
    "nvidia-container-toolkit",
    "nvidia-container-toolkit-base",
    "libnvidia-container-tools",
    "libnvidia-container1",
)
HOST_TOOLS = (
    "awk",
    "bash",
    "basename",
    "cat",
    "cp",
    "grep",
    "mkdir",
    "mv",
    "rm",
    "seq",
    "wc",
    "sleep",
    "tee",
    "touch",
    "ls",
    "dirname",
    "tr",
)


@pytest.fixture
def bare(root):
    """An image with neither an engine nor the toolkit; what gives them lies in ``kept``, and nothing of this host is found."""
    (root.folder / "kept").mkdir()
    for name in ("docker", "nvidia-ctk"):
        (root.folder / "tools" / name).rename(root.folder / "kept" / name)
    for name in ("apt/sources.list.d", "yum.repos.d"):
        (root.folder / "etc" / name).mkdir(parents=True)
    for tool in HOST_TOOLS:
        (root.folder / "tools" / tool).symlink_to(str(shutil.which(tool)))
    root.path = str(root.folder / "tools")
    root.tools(KEY)
    (root.folder / "key").write_text(
        f"pub:-:4096:1:DDCA:1:::\nfpr:::::::::{TOOLKIT_KEY}:\nuid:x\nsub:x\nfpr:::::::::00:\n"
    )
    return root


@pytest.mark.parametrize(("tools", "sign"), [(APT, "="), (DNF, "-")])
def test_an_engine_and_the_toolkit_come_from_signed_and_pinned_packages_once(bare, tools, sign):
    bare.tools(tools)
    done = bare.script("boot.sh")
    assert done.returncode == 0, bare.console
    packages = " ".join(f"{name}{sign}{TOOLKIT_VERSION}" for name in PACKAGES)
    manager = "apt-get install -y" if sign == "=" else "dnf -qy install"
    installed = [call for call in bare.calls if call.startswith(manager)]
    assert installed == [f"{manager} {'docker.io' if sign == '=' else 'docker'}", f"{manager} {packages}"]
    assert "curl https://nvidia.github.io/libnvidia-container/gpgkey" in bare.calls
    key = bare.folder / "etc/gpuprov/nvidia.asc"
    if sign == "=":
        source = (bare.folder / "etc/apt/sources.list.d/gpuprov.list").read_text()
        assert source == f"deb [signed-by={key}] https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /\n"
    else:
        source = (bare.folder / "etc/yum.repos.d/gpuprov.repo").read_text()
        assert f"gpgkey=file://{key}" in source
        assert "repo_gpgcheck=1" in source
        assert "baseurl=https://nvidia.github.io/libnvidia-container/stable/rpm/$basearch" in source
    bare.reboot()
    assert bare.script("boot.sh").returncode == 0
    assert [call for call in bare.calls if call.startswith(manager)] == installed


def test_an_installation_that_a_restart_cuts_is_taken_up_again(bare):
    bare.tools(APT)
    (bare.folder / "cut").touch()
    assert bare.script("boot.sh").returncode != 0
    bare.reboot()
    done = bare.script("boot.sh")
    assert done.returncode == 0, bare.console
    assert "ready to start the workload" in bare.console


def test_a_key_with_another_fingerprint_installs_nothing(bare):
    bare.tools(APT)
    own = f"pub:-:4096:1:DDCA:1:::\nfpr:::::::::{TOOLKIT_KEY}:\n"
    for key in ("", own.replace("C95B", "C95C"), own + own.replace("C95B", "0000")):
        (bare.folder / "key").write_text(key)
        assert bare.script("boot.sh").returncode != 0
    assert bare.console.count("is not the pinned one") == 3
    assert not any("toolkit=" in call for call in bare.calls)


def test_an_image_without_a_known_package_manager_says_what_fails(bare):
    assert bare.script("boot.sh").returncode != 0
    assert "installs docker" in bare.console
    assert "failed at line" in bare.console


def test_units_end_restarts_and_wait_for_requests(root):
    unit = (root.folder / "etc/systemd/system/gpuprov-workload.service").read_text()
    assert "Restart=always" in unit
    assert "TimeoutStopSec=300" in unit
    once = Root(root.folder.parent / "once", user_data({"once": True}, START))
    assert "Restart=on-failure" in (once.folder / "etc/systemd/system/gpuprov-workload.service").read_text()
    assert os.access(root.folder / "opt/gpuprov/boot.sh", os.X_OK)


def test_the_hook_runs_inside_the_container_while_it_is_there(root):
    root.script("boot.sh")
    (root.folder / "container").touch()
    assert root.script("run.sh", "./save.sh", "two words").returncode == 0
    assert root.calls[-1] == "docker exec gpuprov-workload ./save.sh two words"
    assert not any("secretsmanager" in call for call in root.calls), "a notice leaves no time to fetch secrets again"


def test_the_hook_runs_in_a_container_like_it_once_the_work_is_done(root):
    root.script("boot.sh")
    assert root.script("run.sh", "./save.sh", "two words").returncode == 0
    ran = (root.folder / "ran").read_text().splitlines()
    assert ran[ran.index("--entrypoint") + 1] == "./save.sh"
    assert ran[ran.index(IMAGE) + 1 :] == ["two words"]
    assert "/checkpoints:/checkpoints" in ran


def test_a_hook_without_a_container_runs_on_the_machine_with_the_workloads_environment(tmp_path):
    start = Start(argv=["false"], env={"MODE": "a b"})
    root = Root(tmp_path / "root", user_data({}, start))
    assert root.script("run.sh", "sh", "-c", 'echo "$MODE" > "$RIG/saved"').returncode == 0
    assert (root.folder / "saved").read_text() == "a b\n"


@pytest.mark.parametrize(
    ("resumable", "left", "told"), [(True, ["step-9"], True), (True, ["lost+found"], False), (False, ["step-9"], False)]
)
def test_a_resumable_training_is_told_that_there_is_something_to_go_on_from(tmp_path, resumable, left, told):
    start = Start(argv=["sh", "-c", 'echo "${GPUPROV_RESUME-none}" > "$RIG/said"'], resumable=resumable)
    root = Root(tmp_path / "root", user_data({}, start))
    for name in left:
        (root.folder / "checkpoints" / name).mkdir(parents=True)
    assert root.script("run.sh").returncode == 0
    assert (root.folder / "said").read_text().strip() == ("/checkpoints" if told else "none")


def test_a_shutdown_runs_the_hook_before_the_workload_stops_and_docker_after_it(root):
    units = root.folder / "etc/systemd/system"
    leave = (units / "gpuprov-leave.service").read_text()
    assert "After=gpuprov-workload.service" in leave, (
        "stopped in the reverse order: the hook finds the workload at work"
    )
    assert "ExecStop=/usr/bin/python3 /opt/gpuprov/watcher.py leave" in leave
    assert (
        "docker.service" in (units / "gpuprov-workload.service").read_text().partition("After=")[2].partition("\n")[0]
    )
    assert not (
        Root(root.folder.parent / "other", user_data({}, START)).folder / "etc/systemd/system/gpuprov-leave.service"
    ).exists()


@pytest.mark.parametrize(("address", "words"), [("hf://org/name", "main"), ("hf://org/name@v1", "v1")])
def test_weights_of_the_hub_are_fetched_in_their_revision(tmp_path, address, words):
    root = Root(tmp_path / "root", user_data({}, Start(argv=["true"], source=address)))
    root.disks("nvme0n1 ext4 root 1")
    assert root.script("boot.sh").returncode == 0, root.console
    assert f"hf download org/name --revision {words} --local-dir {root.folder}/scratch/model" in root.calls
    assert "aws s3" not in (root.folder / "opt/gpuprov/boot.sh").read_text(), "nobody needs it here"


def test_a_script_holds_what_its_start_needs_and_no_more(tmp_path):
    bare = Root(tmp_path / "bare", user_data({}, Start(argv=["true"]))).folder / "opt/gpuprov"
    boxed = Root(tmp_path / "boxed", user_data({}, START)).folder / "opt/gpuprov"
    for name, word in (("boot.sh", "docker pull"), ("run.sh", "docker run"), ("boot.sh", "toolkit")):
        assert word in (boxed / name).read_text()
        assert word not in (bare / name).read_text()
    assert 'exec "${argv[@]}"' in (bare / "run.sh").read_text()
    assert 'exec "${argv[@]}"' not in (boxed / "run.sh").read_text()
    for script in (*bare.glob("*.sh"), *boxed.glob("*.sh")):
        assert subprocess.run(["/bin/bash", "-n", str(script)], check=False).returncode == 0
