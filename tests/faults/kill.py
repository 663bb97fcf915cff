"""SIGKILL of a real process that works on EC2 over HTTP: at a seeded moment, or at a request, before or after its effect.

The process runs the product's resources over the real SDK; the engine's part is its commits to a file. A parent that has
everything imported forks one process a command, so that a kill costs no seconds of start-up.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.fakes.aws import Call, FakeAws
from tests.fakes.mini_engine import MiniEngine, Resource, offer, program

VISIBILITY = timedelta(seconds=2)
"""How long the product waits here for what may not show yet; the account shows everything within ``SHOWS_AFTER_S``."""
SHOWS_AFTER_S = 0.2
_LIMIT_S = 180
_DISKS = {"data": 50 * 2**30}
_ZONES = ("use1-az1", "use1-az2")
_KIND = "g6.xlarge"
_SERVICES = ("ec2", "ssm", "sts", "service-quotas")


@dataclass(frozen=True, slots=True)
class Blow:
    """One kill."""

    number: int
    command: str
    """What is killed: ``up``, or ``down`` of a stack that lives."""
    market: str
    first_zone_is_full: bool
    share: float
    """Of the time that the command takes undisturbed, or of the requests that it makes."""
    at_request: bool = False
    is_after: bool = False
    """Killed when the request's effect is done, and before its answer."""


@dataclass(frozen=True, slots=True)
class Wound:
    """What became of it."""

    blow: Blow
    at: str
    codes: tuple[int, ...]
    """Exit codes of the runs that healed it: ``up`` (but for a killed ``down``), ``down``."""
    most_at_once: int
    left: tuple[str, ...]
    is_foreign_whole: bool

    @property
    def is_healed(self) -> bool:
        """Never two machines, nothing left, nothing foreign touched."""
        return not any(self.codes) and self.most_at_once <= 1 and not self.left and self.is_foreign_whole


def blows(count: int, seed: int) -> Iterator[Blow]:
    """Seeded kills: half by time, half at a request; a quarter of them of ``down``."""
    draw = random.Random(seed)
    for number in range(count):
        command = "down" if number % 4 > 1 and number % 8 > 3 else "up"
        market = draw.choice(("on-demand", "on-demand", "spot"))
        is_full, share, is_after = draw.random() < 0.4, draw.random(), draw.random() < 0.5
        yield Blow(number, command, market, is_full, share, number % 4 in (0, 3), is_after)


# The process that is killed


class FileEngine(MiniEngine):
    """The engine's part with its state in a file, which a kill finds whole: before or after a commit."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "state.json"
        super().__init__(None, folder / "home", _load(self.file))  # type: ignore[arg-type]

    def restart(self) -> None:
        from provisioner.clouds.aws.cloud import AwsCloud
        from stacks.provider.lifeline import Lifeline
        from stacks.provider.patience import PatientCloud
        from stacks.provider.session import Session
        from tests.clouds.conftest import read_catalog_once

        lifeline = Lifeline()
        patient = PatientCloud(AwsCloud(catalog=read_catalog_once), lifeline)
        self.session = Session("aws", patient, self.home, lifeline, lambda _urn, text: self.told.append(text))

    def _commit(self, name: str, resource: Resource | None) -> None:
        super()._commit(name, resource)
        from stacks.provider.values import plain_map

        held = {
            key: [one.id, plain_map(one.inputs), plain_map(one.outputs), one.init_errors]
            for key, one in self.state.items()
        }
        fresh = self.file.with_suffix(".new")
        fresh.write_text(json.dumps(held))
        fresh.rename(self.file)


def _load(file: Path) -> dict[str, Resource]:
    from stacks.provider.values import wrap_map

    held = json.loads(file.read_text()) if file.exists() else {}
    return {
        name: Resource(own_id, wrap_map(inputs), wrap_map(outputs), errors)
        for name, (own_id, inputs, outputs, errors) in held.items()
    }


def _carry_out(command: str, folder: Path, market: str) -> int:
    from provisioner.errors import GpuprovError
    from stacks.provider.session import PartialFailure, ProviderFailure

    engine = FileEngine(folder)
    try:
        if command == "down":
            engine.destroy()
        else:
            engine.up(program(offers=[offer(zone, capacity=market) for zone in _ZONES], disks=_DISKS))
    except (GpuprovError, PartialFailure, ProviderFailure) as error:
        print(f"{command}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def serve() -> None:
    """Fork a process for each line ``command folder market`` of standard input: its pid, then how it ended."""
    import boto3
    import botocore.session

    import provisioner.clouds.aws.cloud  # noqa: F401 - each child would import it
    from tests.clouds.conftest import load_models_once, read_catalog_once

    read_catalog_once()
    botocore.session.create_loader = load_models_once
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("stacks.provider.") and hasattr(module, "VISIBILITY"):
            module.VISIBILITY = VISIBILITY
    for service in _SERVICES:  # their models are read here, once: no child parses EC2's megabytes again
        boto3.client(service, region_name="us-east-1")
    print("ready", flush=True)
    for line in sys.stdin:
        command, folder, market = line.split()
        pid = os.fork()
        if pid == 0:
            os._exit(_carry_out(command, Path(folder), market))
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


# The one who kills


class Killer:
    """An emulated account, and the parent of the processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fake = FakeAws().start()
        self.fake.reset()
        environment = {**os.environ, **self.fake.environment}
        self._parent = subprocess.Popen(
            [sys.executable, "-c", "from tests.faults.kill import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )
        assert self._line() == "ready"
        self._seen = 0
        self._most = 0
        self._blow: Blow | None = None
        self._victim = 0
        self._at = ""
        self.fake.on_call = self._watch
        self.whole: dict[str, tuple[float, int]] = {}
        """Command -> how long it takes undisturbed in seconds, and how many requests it makes."""
        for command in ("up", "down"):
            self.whole[command] = self._undisturbed(command)

    def close(self) -> None:
        """End the account and the parent."""
        assert self._parent.stdin is not None
        self._parent.stdin.close()
        self._parent.wait(10)
        self.fake.stop()

    def strike(self, blow: Blow) -> Wound:
        """Kill one command, run it again, end the stack, and look at what the account holds."""
        from tests.fakes import aws_rules

        place = self._fresh(blow)
        foreign = self._settle_colleague()
        if blow.command == "down":
            assert self._run("up", place, blow.market) == 0
        self._seen, self._at, self._blow = 0, "", blow
        self._run(blow.command, place, blow.market)
        self._blow = None
        codes = [] if blow.command == "down" else [self._run("up", place, blow.market)]
        if blow.command == "up":
            held = _load(place / "state.json")
            assert [held["gpu"].id] == [one.id for one in self._living() if one.id != foreign]
        codes.append(self._run("down", place, blow.market))
        whole = aws_rules.machine("us-east-1", foreign)._state.name == "running"
        return Wound(blow, self._at or "after its end", tuple(codes), self._most, tuple(self._left(foreign)), whole)

    def _fresh(self, blow: Blow) -> Path:
        from tests.fakes import aws_rules

        self.fake.reset()
        self.fake.rules.visibility_s = SHOWS_AFTER_S
        if blow.first_zone_is_full:
            zones = aws_rules.backend("us-east-1").describe_availability_zones()
            letter = next(zone.name for zone in zones if zone.zone_id == _ZONES[0])
            self.fake.capacity[letter, _KIND] = 0
        self._most = 0
        place = self.folder / f"{blow.number:03}"
        place.mkdir()
        return place

    def _undisturbed(self, command: str) -> tuple[float, int]:
        place = self._fresh(Blow(900 + len(command), command, "on-demand", False, 1.0))
        if command == "down":
            assert self._run("up", place, "on-demand") == 0
        begin, before = time.monotonic(), len(self.fake.calls)
        assert self._run(command, place, "on-demand") == 0
        return time.monotonic() - begin, len(self.fake.calls) - before

    def _run(self, command: str, place: Path, market: str) -> int:
        assert self._parent.stdin is not None
        self._parent.stdin.write(f"{command} {place} {market}\n")
        self._parent.stdin.flush()
        self._victim = int(self._line())
        blow = self._blow
        if blow is not None and not blow.at_request:
            after_s = blow.share * self.whole[command][0]
            timer = threading.Timer(after_s, self._kill, [self._victim, f"{command}, by time"])
            timer.start()
            code = int(self._line())
            timer.cancel()
            timer.join()
            return code
        return int(self._line())

    def _line(self) -> str:
        assert self._parent.stdout is not None
        line = self._parent.stdout.readline().strip()
        assert line, "the parent of the processes has ended"
        return line

    def _watch(self, call: Call, stage: str) -> None:
        if stage == "done" and call.operation == "RunInstances":
            own = [one for one in self._living() if any(t["key"] == "gpuprov:stack-id" for t in one.get_tags())]
            self._most = max(self._most, len(own))
        blow = self._blow
        if blow is None or not blow.at_request or self._at:
            return
        self._seen += stage == "arrived"
        due = 1 + int(blow.share * self.whole[blow.command][1])
        if self._seen == due and (stage == "done") == blow.is_after:
            self._kill(self._victim, f"{blow.command}, {call.operation} {stage}")

    def _kill(self, pid: int, at: str) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        self._at = at

    def _settle_colleague(self) -> str:
        """A machine of somebody else with the same names."""
        import boto3

        ec2 = boto3.client(
            "ec2", endpoint_url=self.fake.url, region_name="us-east-1", aws_access_key_id="theirs",
            aws_secret_access_key="testing",
        )  # fmt: skip
        carried = [{"Key": "Name", "Value": "dev-gpu"}, {"Key": "gpuprov:stack", "Value": "dev"}]
        kinds = [{"ResourceType": kind, "Tags": carried} for kind in ("instance", "volume")]
        from tests.fakes.aws_rules import IMAGE

        made = ec2.run_instances(ImageId=IMAGE, InstanceType=_KIND, MinCount=1, MaxCount=1, TagSpecifications=kinds)
        return str(made["Instances"][0]["InstanceId"])

    def _living(self) -> list[Any]:
        from tests.fakes import aws_rules

        machines = (one for region in aws_rules.REGIONS for one in aws_rules.backend(region).all_instances())
        return [one for one in machines if one._state.name not in ("terminated", "shutting-down")]

    def _left(self, foreign: str) -> Iterator[str]:
        """Machines, disks, groups, addresses, interfaces, open spot requests and relaunches that are not somebody else's."""
        from tests.fakes import aws_rules

        yield from (one.id for one in self._living() if one.id != foreign)
        for region in aws_rules.REGIONS:
            model = aws_rules.backend(region)
            for volume in model.volumes.values():
                if volume.attachment is None or volume.attachment.instance.id != foreign:
                    yield volume.id
            for groups in model.groups.values():
                yield from (group.id for group in groups.values() if group.name != "default")
            yield from model.addresses
            yield from (one for one, eni in model.enis.items() if getattr(eni.instance, "id", None) != foreign)
        requests = self.fake.rules.spot_requests.values()
        yield from (one["SpotInstanceRequestId"] for one in requests if one["State"] in ("open", "active"))
        yield from self.fake.rules.relaunched
