"""What AWS tells of a machine from outside: CloudWatch metrics, the serial console, and machines that are not ours.

Source: CloudWatch agent, section ``nvidia_gpu`` (namespace CWAgent, ``nvidia_smi_*``; its dimensions differ per configuration, so
they are listed first and then asked for exactly); EC2 metrics (namespace AWS/EC2); EC2 API reference, GetConsoleOutput.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from provisioner.clouds.aws import tagging, views
from provisioner.clouds.aws.instances import Instances
from provisioner.clouds.aws.session import where_it_answers
from provisioner.clouds.cloud import BillableObject, Placement, Signals, Survey
from provisioner.errors import CloudError, NotFound
from provisioner.tags import PREFIX

if TYPE_CHECKING:
    from provisioner.catalog.snapshot import Catalog

PERIOD_S = 300
"""EC2's basic monitoring; the agent's finer points are taken at their maximum."""
GPU_METRICS = {"nvidia_smi_utilization_gpu": "utilization", "nvidia_smi_power_draw": "watts"}
_OWN = {
    # metric: (statistic, source, divisor)
    "CPUUtilization": ("Maximum", "cpu_percent", 1.0),
    "NetworkIn": ("Sum", "network_bytes_per_s", float(PERIOD_S)),
    "NetworkOut": ("Sum", "network_bytes_per_s", float(PERIOD_S)),
}
_QUERIES_MAX = 500
"""Metrics of one call. Source: CloudWatch API reference, GetMetricData."""
_CONSOLE_LINES = 100

Key = tuple[str, str | None]
"""Source, and the GPU that it is of."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """Readings of the machines of one account."""

    instances: Instances
    catalog: Callable[[], Catalog]

    def console(self, placement: Placement, instance_id: str) -> tuple[str, ...]:
        """See ``Cloud.read_console``: the newest lines where the machine type can tell them."""
        try:
            answer = self.instances.api.call(
                "ec2", "GetConsoleOutput", placement.region, InstanceId=instance_id, Latest=True
            )
        except NotFound:
            return ()
        except CloudError:  # types without Nitro know no latest output
            answer = self.instances.api.call("ec2", "GetConsoleOutput", placement.region, InstanceId=instance_id)
        return tuple(str(answer.get("Output") or "").splitlines()[-_CONSOLE_LINES:])  # the SDK has decoded it

    def signals(self, placement: Placement, instance_id: str, since: datetime) -> Signals:
        """See ``Cloud.read_signals``."""
        queries, keys = self._queries(placement.region, instance_id)
        points: dict[datetime, dict[Key, float]] = {}
        for begin in range(0, len(queries), _QUERIES_MAX):
            found = self.instances.api.pages(
                "cloudwatch",
                "GetMetricData",
                placement.region,
                "MetricDataResults",
                MetricDataQueries=queries[begin : begin + _QUERIES_MAX],
                StartTime=since,
                EndTime=datetime.now(UTC),
                ScanBy="TimestampAscending",
            )
            for series in found:
                key, divisor, adds = keys[series["Id"]]
                for at, value in zip(series["Timestamps"], series["Values"], strict=True):
                    point = points.setdefault(at.astimezone(UTC), {})
                    before, now = point.get(key, 0.0), value / divisor
                    # One GPU may be listed under several sets of dimensions.
                    point[key] = before + now if adds else max(before, now)
        gpus = sorted({key[1] for key, *_ in keys.values() if key[1] is not None})
        return Signals([(at, _reading(points[at], gpus)) for at in sorted(points)], period_s=float(PERIOD_S))

    def survey_others(self) -> Survey:
        """See ``Cloud.list_others``, in the regions that answer, and why the others do not.

        Raises:
            GpuprovError: the regions themselves cannot be listed.
        """
        return Survey(*where_it_answers(self._others, self.instances.places.regions()))

    def _others(self, region: str) -> Iterator[BillableObject]:
        known = {name for cloud, name in self.catalog().instances if cloud == views.CLOUD}
        asked = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopping", "stopped"]}]
        reservations = self.instances.api.pages("ec2", "DescribeInstances", region, "Reservations", Filters=asked)
        for described in (machine for one in reservations for machine in one["Instances"]):
            shown = tagging.read(described.get("Tags"))
            if described["InstanceType"] not in known or any(key.startswith(PREFIX) for key in shown.tags):
                continue
            machine = views.view(described, region, self.instances.places)
            yield BillableObject(
                cloud=views.CLOUD,
                kind="instance",
                id=machine.id,
                region=region,
                zone=machine.placement.zone,
                state=str(machine.state),
                tags=machine.tags,
                price_usd_per_hour=None,
                created_at=machine.created_at,
                extra={
                    "provider": views.CLOUD,
                    "name": machine.name,
                    "instance_type": machine.placement.instance_type,
                    "capacity_type": str(machine.placement.capacity_type),
                },
            )

    def _queries(
        self, region: str, instance_id: str
    ) -> tuple[list[dict[str, Any]], dict[str, tuple[Key, float, bool]]]:
        """One query a metric that exists, and what each is."""
        queries: list[dict[str, Any]] = []
        keys: dict[str, tuple[Key, float, bool]] = {}
        ours = [{"Name": "InstanceId", "Value": instance_id}]

        def ask(metric: Mapping[str, Any], statistic: str, key: Key, divisor: float) -> None:
            name = f"m{len(queries)}"
            keys[name] = (key, divisor, statistic == "Sum")
            stat = {"Metric": dict(metric), "Period": PERIOD_S, "Stat": statistic}
            queries.append({"Id": name, "MetricStat": stat, "ReturnData": True})

        for name, source in GPU_METRICS.items():
            listed = self.instances.api.pages(
                "cloudwatch", "ListMetrics", region, "Metrics", Namespace="CWAgent", MetricName=name, Dimensions=ours
            )
            for metric in listed:
                asked = {key: metric[key] for key in ("Namespace", "MetricName", "Dimensions")}
                ask(asked, "Maximum", (source, _gpu_of(metric)), 1.0)
        for name, (statistic, source, divisor) in _OWN.items():
            metric = {"Namespace": "AWS/EC2", "MetricName": name, "Dimensions": ours}
            ask(metric, statistic, (source, None), divisor)
        return queries, keys


def _gpu_of(metric: Mapping[str, Any]) -> str:
    dimensions = {entry["Name"]: entry["Value"] for entry in metric["Dimensions"]}
    return str(dimensions.get("index", "0"))


def _reading(point: Mapping[Key, float], gpus: list[str]) -> dict[str, Any]:
    """One moment's values; a GPU that is silent at this moment is unknown, as long as it has a metric at all."""
    reading: dict[str, Any] = {source: value for (source, gpu), value in point.items() if gpu is None}
    if gpus:
        reading["gpus"] = [
            {"utilization": point.get(("utilization", g)), "watts": point.get(("watts", g))} for g in gpus
        ]
        reading["gpus_expected"] = len(gpus)
    return reading
