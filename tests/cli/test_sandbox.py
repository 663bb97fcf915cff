"""``gpuprov sandbox``: every command as a person types it."""

from __future__ import annotations

import json
import sqlite3

import pytest

from provisioner.cli.main import run
from provisioner.cli.sandbox import command
from provisioner.clouds.cloud import InstanceRequest, Placement
from provisioner.clouds.sandbox.cloud import SandboxCloud
from provisioner.errors import CapacityError, QuotaError, Throttled
from provisioner.node.boot import Start, user_data
from provisioner.units import GIB
from provisioner.vocabulary import CapacityType

HERE = Placement("aws", "us-east-1", "use1-az2", "g6.xlarge", CapacityType.ON_DEMAND)
SPOT = Placement("aws", "us-east-1", "use1-az2", "g6.xlarge", CapacityType.SPOT)


@pytest.fixture
def cloud(home):
    made = SandboxCloud(home)
    yield made
    made.close()


@pytest.fixture
def gpuprov(capsys):
    """Runs a command; gives its exit code, standard output and standard error."""

    def call(*args: str) -> tuple[int, str, str]:
        code = run(["sandbox", *args])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def create(cloud, key: str = "token-1", placement: Placement = HERE, **more):
    tags = {"gpuprov:stack-id": "stack-0001", "gpuprov:stack": "chat", "gpuprov:expires-at": "none"}
    return cloud.create_instance(InstanceRequest(key, f"machine-{key}", placement, "ami-1", 100 * GIB, tags, **more))


def document(result: tuple[int, str, str], kind: str) -> dict:
    code, out, _ = result
    assert code == 0
    loaded = json.loads(out)
    assert loaded["schema"] == f"gpuprov.{kind}/1"
    return loaded


def every_command(group, path=()):
    for name, one in group.commands.items():
        if hasattr(one, "commands"):
            yield from every_command(one, (*path, name))
        else:
            yield (*path, name)


@pytest.mark.parametrize("path", list(every_command(command)), ids=" ".join)
def test_every_command_explains_itself(gpuprov, path):
    code, out, _ = gpuprov(*path, "--help")
    assert code == 0
    assert out.startswith(f"Usage: gpuprov sandbox {' '.join(path)}")


def test_contracted_spellings_exist():
    paths = {" ".join(path) for path in every_command(command)}
    assert {
        "capacity set",
        "quota set",
        "reclaim",
        "vanish",
        "clock advance",
        "telemetry set",
        "bill",
    } <= paths


def test_capacity(gpuprov, cloud):
    assert gpuprov("capacity", "set", HERE.key, "0")[0] == 0
    with pytest.raises(CapacityError):
        create(cloud)
    assert gpuprov("capacity", "set", HERE.key, "2") == (0, "", f"capacity of {HERE.key}: 2\n")
    create(cloud)
    pools = [{"pool": HERE.key, "instances": 2, "used": 1}]
    assert document(gpuprov("capacity", "show", "--format", "json"), "capacity")["pools"] == pools
    code, out, _ = gpuprov("capacity", "show")
    assert (code, out.split()) == (0, ["POOL", "INSTANCES", "USED", HERE.key, "2", "1"])
    assert gpuprov("capacity", "set", HERE.key, "unlimited")[0] == 0
    assert "unlimited" in gpuprov("capacity", "show")[1]
    assert gpuprov("capacity", "clear")[0] == 0
    assert gpuprov("capacity", "show") == (0, "", "no limits: there is room for everything\n")


def test_a_misspelt_pool_is_warned_about(gpuprov):
    assert "warning: no offer" in gpuprov("capacity", "set", "aws/us-east-1/*/g6.xlrge/*", "0")[2]


def test_quota(gpuprov, cloud):
    code, _, err = gpuprov("quota", "set", "aws/us-east-1/g6.xlarge", "3")
    assert (code, "L-DB2E81BA" in err) == (0, True)
    with pytest.raises(QuotaError):
        create(cloud)
    assert gpuprov("quota", "set", "aws/us-east-1/L-DB2E81BA", "4")[0] == 0
    create(cloud)
    quotas = document(gpuprov("quota", "show", "--format", "json"), "quota")["quotas"]
    on_demand = {"cloud": "aws", "region": "us-east-1", "code": "L-DB2E81BA", "units": 4, "used": 4}
    assert on_demand in quotas
    assert "L-DB2E81BA  4      4" in gpuprov("quota", "show")[1]
    assert gpuprov("quota", "set", "aws/us-east-1/g6", "unlimited")[0] == 0
    assert document(gpuprov("quota", "show", "--format=json"), "quota")["quotas"] == []
    assert gpuprov("quota", "set", "gcp/*/GPUS_ALL_REGIONS", "0.5")[0] == 0
    assert "0.5" in gpuprov("quota", "show")[1]
    assert gpuprov("quota", "clear")[0] == 0
    assert gpuprov("quota", "show")[1] == ""


def test_reclaim_and_clock(gpuprov, cloud):
    made = create(cloud, placement=SPOT)
    assert gpuprov("clock", "advance", "10s")[0] == 0
    assert "taken back at 20" in gpuprov("reclaim", made.id)[1]
    ahead = document(gpuprov("clock", "advance", "2m", "--format", "json"), "clock")
    assert ahead["ahead_s"] == 130
    assert cloud.get_instance(SPOT, made.id).state == "interrupted"
    assert "(130s ahead of this host)" in gpuprov("clock", "show")[1]
    other = create(cloud, "token-2", SPOT)
    said = document(gpuprov("reclaim", other.id, "--notice", "0s", "--format", "json"), "reclaim")
    assert said["id"] == other.id
    assert document(gpuprov("bill", "--running", "--format", "json"), "bill")["lines"] == []


def test_impair(gpuprov, cloud):
    made = create(cloud)
    assert cloud.read_health(HERE, made.id).ailments == ()
    assert gpuprov("impair", made.id, "--check", "system")[0] == 0
    assert gpuprov("impair", made.id, "--event", "instance-retirement", "--after", "48h")[0] == 0
    kinds = [one.kind for one in cloud.read_health(HERE, made.id).ailments]
    assert kinds == ["instance-retirement", "system-check"]
    assert gpuprov("impair", made.id, "--clear")[0] == 0
    assert cloud.read_health(HERE, made.id).ailments == ()
    assert gpuprov("impair", "i-0", "--check", "system")[0] == 4
    for wrong in ((), ("--check", "system", "--clear"), ("--check", "instance", "--after", "1h")):
        assert gpuprov("impair", made.id, *wrong)[0] == 2


def test_vanish(gpuprov, cloud):
    made = create(cloud)
    code, out, err = gpuprov("vanish", made.id)
    assert (code, out, made.id in err) == (0, "", True)
    assert cloud.get_instance(HERE, made.id) is None
    code, _, err = gpuprov("vanish", made.id)
    assert (code, err.startswith("error: nothing in the sandbox")) == (4, True)


def test_telemetry(gpuprov, cloud):
    made = create(cloud)
    assert gpuprov("telemetry", "show", made.id) == (0, "", f"{made.id} has no telemetry\n")
    assert gpuprov("telemetry", "set", made.id, "gpu_utilization_percent=[0,null]", "cpu_percent=3.5")[0] == 0
    samples = document(gpuprov("telemetry", "show", made.id, "--format", "json"), "telemetry")["samples"]
    assert [sample["signals"] for sample in samples] == [{"gpu_utilization_percent": [0, None], "cpu_percent": 3.5}]
    assert "gpu_utilization_percent=[0, null]" in gpuprov("telemetry", "show", made.id)[1]
    assert gpuprov("telemetry", "set", made.id, "--console", "hello")[0] == 0
    assert gpuprov("telemetry", "clear", made.id)[0] == 0
    assert gpuprov("telemetry", "show", made.id)[1] == ""


def test_a_stack_names_its_machine(gpuprov, cloud):
    made = create(cloud)
    assert gpuprov("telemetry", "set", "chat", "cpu_percent=3")[0] == 0
    samples = document(gpuprov("telemetry", "show", made.id, "--format", "json"), "telemetry")["samples"]
    assert [sample["signals"] for sample in samples] == [{"cpu_percent": 3}]
    assert gpuprov("telemetry", "set", "nobody", "cpu_percent=3")[0] == 4
    other = create(cloud, "token-2")
    code, _, err = gpuprov("telemetry", "set", "chat", "cpu_percent=3")
    assert (code, made.id in err, other.id in err) == (2, True, True)


def test_finish_and_a_dead_watcher(gpuprov, cloud):
    config = {"run": True, "once": True, "idle_after_s": 1200}
    made = create(cloud, user_data=user_data(config, Start(argv=["train"])))
    gpuprov("clock", "advance", "10s")
    done = document(gpuprov("finish", made.id, "--after", "2h", "--format", "json"), "finish")
    assert (done["id"], done["exit_code"]) == (made.id, 0)
    assert gpuprov("impair", made.id, "--watcher") == (0, "", f"{made.id}: its watcher is dead\n")
    gpuprov("clock", "advance", "3h")
    assert cloud.get_instance(HERE, made.id).state == "running"
    assert gpuprov("impair", made.id, "--clear")[0] == 0
    assert cloud.get_instance(HERE, made.id).state == "terminated"
    assert gpuprov("finish", made.id)[0] == 4


def test_bill(gpuprov, cloud):
    assert gpuprov("bill") == (0, "total 0 USD; now 0 USD/h\n", "nothing ever billed\n")
    made = create(cloud)
    gpuprov("clock", "advance", "10h")
    loaded = document(gpuprov("bill", "--format", "json"), "bill")
    (line,) = [line for line in loaded["lines"] if line["id"] == made.id]
    assert (line["stack"], line["to"], line["usd_per_hour"], line["running"]) == ("chat", None, "0.8048", True)
    assert 8.048 <= float(line["usd"]) < 8.1
    code, out, _ = gpuprov("bill", "--running")
    assert (code, out.count("\n")) == (0, 5)
    assert out.splitlines()[0].split()[:2] == ["ID", "KIND"]
    assert gpuprov("bill", "--stack-id", "another")[2] == "nothing ever billed\n"
    gpuprov("vanish", made.id)
    assert gpuprov("bill", "--running")[1].endswith("now 0 USD/h\n")


def test_an_unknown_price_is_warned_about(gpuprov, cloud):
    made = create(cloud, placement=Placement("aws", "us-east-1", "use1-az2", "g7.2xlarge", CapacityType.SPOT))
    code, out, err = gpuprov("bill")
    assert (code, f"warning: without a known price, and in no sum: {made.id}\n") == (0, err)
    assert [made.id, "instance", "chat"] == out.splitlines()[1].split()[:3]
    assert out.splitlines()[1].split()[-2:] == ["-", "-"]


def test_calls(gpuprov, cloud):
    assert gpuprov("calls")[2] == "no calls yet\n"
    made = create(cloud)
    create(cloud)
    cloud.list_objects()
    calls = document(gpuprov("calls", "--operation", "create_instance", "--format", "json"), "calls")["calls"]
    assert [(call["effect"], call["outcome"], call["token"], call["object"]) for call in calls] == [
        ("created", "ok", "token-1", made.id),
        ("replayed", "ok", "token-1", made.id),
    ]
    later = document(gpuprov("calls", "--after", str(calls[-1]["number"]), "--format", "json"), "calls")["calls"]
    assert [call["operation"] for call in later] == ["list_objects"]
    assert "list_objects" in gpuprov("calls")[1]


def test_errors(gpuprov, cloud):
    assert gpuprov("errors", "inject", "throttle", "--on", "create_instance", "--count", "2", "--skip", "1")[0] == 0
    create(cloud)
    for _ in range(2):
        with pytest.raises(Throttled):
            create(cloud)
    create(cloud)
    assert gpuprov("errors", "show")[2] == "no errors are injected\n"
    assert gpuprov("errors", "inject", "credentials", "--always", "--at", "aws/*/*/*/*")[0] == 0
    expected = [{"kind": "credentials", "on": "*", "at": "aws/*/*/*/*", "skip": 0, "remaining": None}]
    assert document(gpuprov("errors", "show", "--format", "json"), "faults")["errors"] == expected
    assert "always" in gpuprov("errors", "show")[1]
    assert gpuprov("errors", "clear")[0] == 0
    create(cloud)


def test_latency(gpuprov):
    assert gpuprov("latency", "set", "create", "5s", "--record-at", "end") == (0, "", "latency of create: 5s\n")
    found = {
        one["name"]: one for one in document(gpuprov("latency", "show", "--format", "json"), "latency")["latencies"]
    }
    assert found["create"] == {"name": "create", "seconds": 5.0, "record_at": "end"}
    assert "create       5s        end" in gpuprov("latency", "show")[1]


def test_reset_wants_a_yes_and_keeps_everything_without(gpuprov, cloud):
    create(cloud)
    code, _, err = gpuprov("reset")
    assert (code, err) == (2, "error: emptying the sandbox needs a yes; add --yes\n")
    assert len(cloud.controls.bill().lines) == 3
    assert gpuprov("reset", "--yes")[0] == 0
    assert cloud.controls.bill().lines == ()


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (("capacity", "set", "g6.xlarge", "0"), 2, "is no pool"),
        (("capacity", "set", "aws/*/*/*/*", "few"), 2, "is no count"),
        (("capacity", "set", "aws/*/*/*/*", "-1"), 2, "No such option"),
        (("quota", "set", "L-DB2E81BA", "4"), 2, "CLOUD/REGION/CODE"),
        (("quota", "set", "azure/east/x", "4"), 2, "CLOUD/REGION/CODE"),
        (("quota", "set", "aws/us-east-1/g99", "4"), 2, "no quota code, instance type or family"),
        (("quota", "set", "aws/nowhere-1/g6", "4"), 2, "no region"),
        (("quota", "set", "aws/us-east-1/g6", "many"), 2, "no number of units"),
        (("reclaim", "i-0"), 4, "no instance i-0"),
        (("vanish", "i-0"), 4, "nothing in the sandbox"),
        (("clock", "advance", "2"), 2, "is not a duration"),
        (("clock", "advance", "90000d"), 2, "years ahead"),
        (("telemetry", "set", "i-0"), 2, "nothing to set"),
        (("telemetry", "set", "i-0", "cpu_percent"), 2, "is no signal"),
        (("telemetry", "set", "i-0", "cpu_percent=high"), 2, "no JSON"),
        (("telemetry", "set", "i-0", "cpu_percent=3"), 4, "no instance i-0"),
        (("errors", "inject", "earthquake"), 2, "earthquake"),
        (("errors", "inject", "throttle", "--on", "create_world"), 2, "no operation"),
        (("latency", "set", "warp", "5s"), 2, "warp"),
        (("nothing",), 2, "nothing"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_makes_no_sense_is_one_error_line(gpuprov, args, code, words):
    got, out, err = gpuprov(*args)
    assert (got, out) == (code, "")
    assert err.startswith("error: ")
    assert words in err
    assert err.count("\n") == 1


def test_a_broken_file_is_a_cloud_error_with_a_document(gpuprov, home):
    (home / "sandbox.sqlite").write_bytes(b"broken" * 1000)
    code, out, err = gpuprov("bill", "--format", "json")
    assert (code, json.loads(out)["kind"]) == (4, "cloud")
    assert "sandbox.sqlite is damaged" in err
    assert gpuprov("reset", "--yes")[0] == 0
    assert gpuprov("bill")[0] == 0


def test_a_newer_file_is_refused_and_not_reset(gpuprov, home):
    gpuprov("bill")
    connection = sqlite3.connect(home / "sandbox.sqlite")
    connection.execute("PRAGMA user_version=99")
    connection.close()
    for args in (("bill",), ("reset", "--yes")):
        code, _, err = gpuprov(*args)
        assert (code, "schema version 99" in err) == (4, True)


HUGE = "9" * 5000


@pytest.mark.parametrize(
    "words",
    [
        ("capacity", "set", "aws/us-east-1/*/g6.xlarge/spot", HUGE),
        ("capacity", "set", "aws/us-east-1/*/g6.xlarge/spot", "1.5"),
        ("capacity", "set", "aws/us-east-1/*/g6.xlarge/spot", "\u0663"),
        ("quota", "set", "aws/us-east-1/L-DB2E81BA", HUGE),
        ("quota", "set", "aws/us-east-1/L-DB2E81BA", "1e999999999"),
        ("quota", "set", "aws/us-east-1/L-DB2E81BA", "1/0"),
        ("errors", "inject", "capacity", "--count", HUGE),
        ("errors", "inject", "capacity", "--skip", "9" * 20),
        ("calls", "--after", "9" * 20),
        ("latency", "set", "create", "999999d"),
        ("clock", "advance", f"{HUGE}d"),
    ],
    ids=lambda words: " ".join(words)[:40],
)
def test_numbers_beyond_reason_are_refused_in_one_short_line(gpuprov, words):
    code, out, err = gpuprov(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1


def test_a_notice_beyond_reason_is_refused(gpuprov, cloud):
    made = create(cloud, placement=SPOT)
    code, _, err = gpuprov("reclaim", made.id, "--notice", "9999999d")
    assert (code, err.count("\n")) == (2, 1)


def test_telemetry_is_never_no_number(gpuprov, cloud):
    made = create(cloud)
    for value in ("NaN", "Infinity", "-Infinity", "1e999", "-3", HUGE):
        code, out, err = gpuprov("telemetry", "set", made.id, f"cpu_percent={value}")
        assert (code, out, len(err) < 250) == (2, "", True)
    assert document(gpuprov("telemetry", "show", made.id, "--format", "json"), "telemetry")["samples"] == []
