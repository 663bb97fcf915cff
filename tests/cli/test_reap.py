"""``reap``, ``keepalive``, ``logs`` and ``connect`` on the sandbox, as a person types them."""

from __future__ import annotations

import json
import shlex
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace

import pytest

from provisioner.cli.connect import argv
from provisioner.cli.main import run
from provisioner.clouds.cloud import InstanceRequest, Placement
from provisioner.clouds.sandbox.cloud import SandboxCloud
from provisioner.errors import CloudError, CredentialsError
from provisioner.units import GIB
from provisioner.vocabulary import CapacityType
from tests.clouds.conftest import read_catalog_once
from tests.clouds.conftest import tags as all_tags

HERE = Placement("aws", "us-east-1", "use1-az2", "g6.xlarge", CapacityType.ON_DEMAND)
SPOT = Placement("aws", "us-east-1", "use1-az2", "g6.xlarge", CapacityType.SPOT)
QUIET = {"gpu_utilization_percent": [0], "cpu_percent": 1, "network_bytes_per_s": 10, "logins": 0}


@pytest.fixture
def cloud(home):
    made = SandboxCloud(home, catalog=read_catalog_once)
    yield made
    made.close()


@pytest.fixture
def gpuprov(capsys):
    """Runs a command; gives its exit code, standard output and standard error."""

    def call(*args: str):
        code = run(list(args))
        out, err = capsys.readouterr()
        return code, out, err

    return call


def create(cloud, key="token-1", placement=HERE, **tags):
    own = {**all_tags(), "gpuprov:idle-after": "30m", **{name.replace("_", "-"): value for name, value in tags.items()}}
    made = cloud.create_instance(InstanceRequest(key, f"machine-{key}", placement, "ami-1", 100 * GIB, own))
    cloud.controls.advance_clock(timedelta(seconds=10))
    return made


def reap(gpuprov, *options):
    code, out, _ = gpuprov("reap", *options, "--format", "json")
    assert code == 0
    return json.loads(out)


def test_an_empty_account_has_nothing_to_reap(gpuprov):
    found = reap(gpuprov)
    assert found["schema"] == "gpuprov.reap/1"
    assert found["objects"] == []
    assert found["dry_run"] is True


def test_a_quiet_machine_is_marked_and_then_stopped(cloud, gpuprov):
    machine = create(cloud)
    cloud.controls.set_telemetry(machine.id, QUIET)
    cloud.controls.advance_clock(timedelta(minutes=31))
    assert [entry["step"] for entry in reap(gpuprov)["objects"]] == ["mark"]
    assert not any(key.startswith("gpuprov-reap") for key in cloud.get_instance(HERE, machine.id).tags)
    marked = reap(gpuprov, "--yes")["objects"][0]
    assert (marked["step"], marked["done"], marked["ending"]["how"]) == ("mark", True, "stop")
    cloud.controls.advance_clock(timedelta(minutes=11))
    done = reap(gpuprov, "--yes")
    assert done["objects"][0]["done"] is True
    assert float(done["saved_usd_per_hour"]) > 0.5
    cloud.controls.advance_clock(timedelta(minutes=1))
    assert str(cloud.get_instance(HERE, machine.id).state) == "stopped"
    assert float(done["objects"][0]["stopped_usd_per_hour"]) > 0


@pytest.mark.parametrize("market", ["tomorrow", ""])
def test_a_machine_of_a_market_that_is_not_known_is_listed_and_stopped(cloud, gpuprov, monkeypatch, market):
    machine = create(cloud)
    cloud.controls.set_telemetry(machine.id, QUIET)
    cloud.controls.advance_clock(timedelta(minutes=31))
    listed = SandboxCloud.list_objects

    def list_objects(self):
        return [replace(one, extra={**one.extra, "capacity_type": market}) for one in listed(self)]

    monkeypatch.setattr(SandboxCloud, "list_objects", list_objects)
    assert [entry["step"] for entry in reap(gpuprov, "--yes")["objects"]] == ["mark"]
    cloud.controls.advance_clock(timedelta(minutes=11))
    (entry,) = reap(gpuprov, "--yes")["objects"]
    assert (entry["id"], entry["ending"]["how"], entry["done"]) == (machine.id, "stop", True)
    assert "how it was bought is not known" in entry["ending"]["reason"]
    cloud.controls.advance_clock(timedelta(minutes=1))
    assert cloud.get_instance(HERE, machine.id).state == "stopped"


def test_a_working_machine_and_a_silent_one_are_left_alone(cloud, gpuprov):
    busy, silent = create(cloud), create(cloud, "token-2")
    cloud.controls.set_telemetry(busy.id, {**QUIET, "gpu_utilization_percent": [80]})
    cloud.controls.advance_clock(timedelta(hours=5))
    found = {entry["id"]: entry for entry in reap(gpuprov, "--yes")["objects"]}
    assert {entry["step"] for entry in found.values()} == {"keep"}
    assert found[silent.id]["reason"].startswith("unknown")


def test_a_table_names_the_line_that_keeps_the_machine(cloud, gpuprov):
    machine = create(cloud, placement=SPOT)
    cloud.controls.set_telemetry(machine.id, QUIET)
    cloud.controls.advance_clock(timedelta(hours=1))
    code, out, err = gpuprov("reap")
    assert code == 0
    assert "would be marked" in out
    assert "gpuprov keepalive chat --for 2h" in out
    assert "a one-time spot machine cannot be stopped" in out
    assert "dry run" in err


def test_marks_are_sent_and_summed_up(cloud, gpuprov, tmp_path, monkeypatch):
    machine = create(cloud)
    cloud.controls.set_telemetry(machine.id, QUIET)
    cloud.controls.advance_clock(timedelta(hours=1))
    taken = []

    class Hook(BaseHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

        def do_POST(self):
            taken.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

    server = HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.handle_request, daemon=True).start()
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    reap(gpuprov, "--yes", "--notify", f"http://127.0.0.1:{server.server_port}/hook")
    server.server_close()
    assert taken[0]["schema"] == "gpuprov.reap-marks/1"
    assert taken[0]["marks"][0]["keepalive"] == "gpuprov keepalive chat --for 2h"
    assert "gpuprov keepalive chat --for 2h" in summary.read_text()


def test_a_hook_that_is_down_is_a_warning(cloud, gpuprov):
    machine = create(cloud)
    cloud.controls.set_telemetry(machine.id, QUIET)
    cloud.controls.advance_clock(timedelta(hours=1))
    code, _, err = gpuprov("reap", "--yes", "--notify", "http://127.0.0.1:9/hook")
    assert code == 0
    assert "could not be sent" in err


def test_an_address_that_is_none_is_refused_before_anything_is_marked(cloud, gpuprov):
    machine = create(cloud)
    cloud.controls.set_telemetry(machine.id, QUIET)
    cloud.controls.advance_clock(timedelta(hours=1))
    code, _, err = gpuprov("reap", "--yes", "--notify", "ftp://example.com")
    assert code == 2
    assert "is no http address" in err
    assert not any(key.startswith("gpuprov-reap") for key in cloud.get_instance(HERE, machine.id).tags)


def test_a_pause_of_no_time_is_refused(gpuprov):
    assert gpuprov("reap", "--watch", "--every", "0s")[0] == 2


def test_a_machine_that_cannot_be_marked_is_one_document_with_its_error(cloud, gpuprov, monkeypatch):
    machine = create(cloud)
    cloud.controls.set_telemetry(machine.id, QUIET)
    cloud.controls.advance_clock(timedelta(hours=1))

    def refuse(self, *_):
        raise CredentialsError("no right to write tags", remedy="grant ec2:CreateTags")

    monkeypatch.setattr(SandboxCloud, "set_tags", refuse)
    code, out, err = gpuprov("reap", "--yes", "--format", "json")
    found = json.loads(out)
    assert code == found["error"]["code"] == 3
    assert found["schema"] == "gpuprov.reap/1"
    assert found["objects"][0]["error"] == "no right to write tags"
    assert err.count("error:") == 1
    _, table, _ = gpuprov("reap", "--yes")
    assert "would be marked" in table


def test_a_watch_outlives_a_failed_sweep(cloud, gpuprov, monkeypatch):
    answers = iter([CloudError("the API is down"), CredentialsError("the key has expired")])

    def fail(self):
        raise next(answers)

    monkeypatch.setattr(SandboxCloud, "list_objects", fail)
    monkeypatch.setattr("provisioner.cli.reap.sleep", lambda _: None)
    code, _, err = gpuprov("reap", "--watch")
    assert code == 3
    assert "this sweep has failed, the next comes: the API is down" in err


def test_a_report_lists_machines_of_others_and_never_touches_them(cloud, gpuprov):
    request = InstanceRequest("token-9", "theirs", HERE, "ami-1", 100 * GIB, {"team": "x"})
    made = cloud.create_instance(request)
    cloud.controls.advance_clock(timedelta(hours=9))
    found = reap(gpuprov, "--yes", "--report")
    assert [entry["id"] for entry in found["foreign"]] == [made.id]
    assert found["objects"] == []


def test_i14_a_machine_stopped_for_too_long_is_terminated(cloud, gpuprov):
    machine = create(cloud)
    cloud.stop_instance(HERE, machine.id)
    cloud.controls.advance_clock(timedelta(days=7, hours=1))
    first = reap(gpuprov, "--yes")["objects"][0]
    assert (first["step"], first["cause"]) == ("mark", "stopped-too-long")
    cloud.controls.advance_clock(timedelta(hours=2))
    assert reap(gpuprov, "--yes")["objects"][0]["done"] is True
    cloud.controls.advance_clock(timedelta(minutes=1))
    assert str(cloud.get_instance(HERE, machine.id).state) == "terminated"


@pytest.mark.parametrize("command", ["keepalive", "logs", "connect"])
def test_an_unknown_stack_is_a_usage_error(gpuprov, command):
    more = ["--for", "2h"] if command == "keepalive" else []
    assert gpuprov(command, "nothing", *more)[0] == 2


@pytest.mark.parametrize("period", ["0s", "90d", "soon"])
def test_a_keepalive_has_bounds(gpuprov, period):
    assert gpuprov("keepalive", "nothing", "--for", period)[0] == 2


def test_connect_needs_no_open_port(cloud):
    machine = create(cloud)
    assert argv(machine, None, None) == ["aws", "ssm", "start-session", "--target", machine.id, "--region", "us-east-1"]
    forwarded = argv(machine, 8000, 9000, "work")
    assert forwarded[-1] == '{"portNumber":["8000"],"localPortNumber":["9000"]}'
    assert "--profile" in forwarded


def test_a_local_port_without_a_port_is_refused(gpuprov):
    code, _, err = gpuprov("connect", "nothing", "--local-port", "9000")
    assert code == 2
    assert "add --port" in err


@pytest.fixture
def connected(monkeypatch):
    """A running machine of a stack on AWS, as ``connect`` and ``keepalive`` find it; gives its tags and what was written."""
    carried, written = {"gpuprov:expires-at": "none"}, {}
    instance = SimpleNamespace(id="i-1", name="chat", placement=HERE, state="running", tags=carried)
    shell = SimpleNamespace(argv=("/tools/session-manager-plugin", "x"), environment={"RESPONSE": "y"})
    found = SimpleNamespace(
        open_shell=lambda *_: shell,
        now=lambda: datetime(2026, 11, 30, tzinfo=UTC),
        set_tags=lambda place, one, tags: written.update(tags),
    )
    state = SimpleNamespace(provider="aws", settings={})
    site = SimpleNamespace(existing=lambda name: state, home=None)
    monkeypatch.setattr("provisioner.cli.stack_options.open_site", lambda backend: site)
    monkeypatch.setattr("stacks.clouds.cloud_of", lambda *_: found)
    monkeypatch.setattr("stacks.own_machine.machine_of", lambda *_: instance)
    return carried, written


def test_the_printed_command_can_be_pasted_into_a_shell(gpuprov, connected):
    code, out, _ = gpuprov("connect", "chat", "--port", "8000", "--print")
    assert code == 0
    assert shlex.split(out)[-1] == '{"portNumber":["8000"],"localPortNumber":["8000"]}'


def test_a_connection_that_fails_is_a_failure_of_the_cloud(gpuprov, connected, monkeypatch):
    ran = []
    monkeypatch.setattr(
        "subprocess.run",
        lambda words, env, check: ran.append((words, env["RESPONSE"])) or SimpleNamespace(returncode=5),
    )
    code, _, err = gpuprov("connect", "chat")
    assert code == 4
    assert "error: `session-manager-plugin` ended with 5" in err
    assert ran == [(["/tools/session-manager-plugin", "x"], "y")]


@pytest.mark.parametrize(("cause", "is_lifted"), [("idle", True), ("over-age", False)])
def test_a_keepalive_lifts_the_mark_of_an_idle_machine_alone(gpuprov, connected, cause, is_lifted):
    carried, written = connected
    carried |= {"gpuprov-reap-due": "2026-11-30T01:00:00Z", "gpuprov-reap-for": cause}
    assert gpuprov("keepalive", "chat", "--for", "2h")[0] == 0
    assert written["gpuprov-lease-until"] == "2026-11-30T02:00:00Z"
    assert ("gpuprov-reap-due" in written) is is_lifted
