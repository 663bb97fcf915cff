"""An emulated account with machines in it, and commands of gpuprov on it in this process, where no engine is needed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from provisioner.cli.main import run
from provisioner.clouds.aws.cloud import AwsCloud
from provisioner.clouds.cloud import Instance, InstanceRequest, Placement
from provisioner.tags import format_time
from provisioner.units import GIB
from provisioner.vocabulary import CapacityType
from tests.clouds.conftest import read_catalog_once, tags
from tests.e2e.bench import Answer
from tests.fakes import aws_rules
from tests.fakes.aws import FakeAws
from tests.fakes.aws_journal import VARIABLE

HERE = Placement("aws", "us-east-1", "use1-az2", "g6.xlarge", CapacityType.ON_DEMAND)
SPOT = replace(HERE, capacity_type=CapacityType.SPOT)


@dataclass
class Account:
    """What tests put into the account bears no command's name; what commands do bears theirs."""

    fake: FakeAws
    home: Path
    patch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]
    cloud: AwsCloud = field(default_factory=lambda: AwsCloud(catalog=read_catalog_once))

    def run(self, *arguments: str) -> Answer:
        """A command to its end."""
        with self.patch.context() as patch:
            patch.setenv(VARIABLE, arguments[0])
            code = run(list(arguments))
        out, err = self.capsys.readouterr()
        return Answer(code, out, err)

    def machine(self, stack_id: str, place: Placement = HERE, **more: str) -> Instance:
        """A running machine of a stack; ``more`` are tags, ``expires_at`` for ``gpuprov:expires-at``."""
        own = {**tags(stack_id), **{f"gpuprov:{key.replace('_', '-')}": value for key, value in more.items()}}
        image = self.cloud.resolve_image(place)
        is_spot = place.capacity_type is CapacityType.SPOT
        asked = InstanceRequest(stack_id, f"chat-{stack_id}", place, image, 100 * GIB, own, stop_on_shutdown=is_spot)
        return self.cloud.create_instance(asked)

    def stopped(self, stack_id: str, ago: timedelta, place: Placement = HERE, **more: str) -> Instance:
        """A machine that was stopped so long ago."""
        made = self.machine(stack_id, place, **more)
        self.cloud.stop_instance(made.placement, made.id)
        since = datetime.now(UTC) - ago
        self.model(made)._reason = f"User initiated ({since:%Y-%m-%d %H:%M:%S} GMT)"
        return made

    def model(self, machine: Instance) -> Any:
        """The machine as the emulated account keeps it."""
        return aws_rules.machine(machine.placement.region, machine.id)

    def state(self, machine: Instance) -> str:
        """Its state by EC2's own word."""
        return str(self.model(machine)._state.name)

    def tags(self, machine: Instance) -> Mapping[str, str]:
        """The tags that it has now."""
        return {tag["key"]: tag["value"] for tag in self.model(machine).get_tags()}

    def let_root_stay(self, machine: Instance) -> str:
        """Let a machine's root disk outlive it, as somebody at the console can; the disk's id."""
        root = next(iter(self.model(machine).block_device_mapping.values()))
        root.delete_on_termination = False
        return str(root.volume_id)

    def write_tag(self, machine: Instance, key: str, value: str) -> None:
        """Change a tag behind everybody's back."""
        aws_rules.backend(machine.placement.region).create_tags([machine.id], {key: value})

    def made_here(self, *stack_ids: str) -> None:
        """Write ids into the list of those that this backend has made."""
        path = self.home / "state" / "made.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps({"stack_id": one, "stack": "mine", "at": ago(hours=30)}) + "\n" for one in stack_ids)
        path.write_text("".join(lines))

    def measure(self, machine: Instance, metric: str, values: Sequence[float | None], **dimensions: str) -> None:
        """Points of CloudWatch, one in five minutes up to now; ``None`` leaves one out."""
        client = self.cloud._api._client("cloudwatch", machine.placement.region, once=False)
        now = datetime.now(UTC).replace(second=0, microsecond=0)
        named = [{"Name": key, "Value": text} for key, text in {"InstanceId": machine.id, **dimensions}.items()]
        points = [
            {
                "MetricName": metric,
                "Dimensions": named,
                "Timestamp": now - timedelta(minutes=5 * (len(values) - 1 - number)),
                "Value": value,
            }
            for number, value in enumerate(values)
            if value is not None
        ]
        space = "CWAgent" if metric.startswith("nvidia_smi") else "AWS/EC2"
        client.put_metric_data(Namespace=space, MetricData=points)


def ago(**duration: float) -> str:
    """A time in the past as tags hold it."""
    return format_time(datetime.now(UTC) - timedelta(**duration))
