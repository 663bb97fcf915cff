"""What AWS tells of a machine from outside, on moto: CloudWatch of the agent and of EC2, the console, machines of others."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from provisioner.reaper.evidence import judge
from provisioner.reaper.machines import Observed, Sample

REGION = "us-east-1"


def put(rig, namespace, metric, values, now, /, **dimensions):
    """Points of one metric, one in five minutes up to now."""
    client = rig.cloud._api._client("cloudwatch", REGION, once=False)
    for number, value in enumerate(values):
        client.put_metric_data(
            Namespace=namespace,
            MetricData=[
                {
                    "MetricName": metric,
                    "Dimensions": [{"Name": key, "Value": text} for key, text in dimensions.items()],
                    "Timestamp": now - timedelta(minutes=5 * (len(values) - 1 - number)),
                    "Value": value,
                }
            ],
        )


def seen(rig, machine, now):
    signals = rig.cloud.read_signals(rig.here, machine.id, now - timedelta(hours=3))
    return Observed([Sample(at, reading) for at, reading in signals.samples], signals.holds, signals.period_s)


def test_the_agents_gpus_and_ec2s_own_metrics_make_a_reading(aws_rig):
    machine = aws_rig.running()
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    for index, used in (("0", 0.0), ("1", 61.0)):
        more = {"InstanceId": machine.id, "index": index, "name": "NVIDIA L4", "host": "h"}
        put(aws_rig, "CWAgent", "nvidia_smi_utilization_gpu", [used] * 3, now, **more)
    put(aws_rig, "AWS/EC2", "CPUUtilization", [1.0] * 3, now, InstanceId=machine.id)
    put(aws_rig, "AWS/EC2", "NetworkIn", [30_000.0] * 3, now, InstanceId=machine.id)
    observed = seen(aws_rig, machine, now)
    last = observed.samples[-1].reading
    assert [gpu["utilization"] for gpu in last["gpus"]] == [0.0, 61.0]
    assert last["cpu_percent"] == 1.0
    assert last["network_bytes_per_s"] == 100.0
    assert judge(observed, now).state == "busy"


def test_quiet_metrics_are_idle_and_metrics_without_a_gpu_are_unknown(aws_rig):
    machine, bare = aws_rig.running(), aws_rig.running("token-2")
    now = datetime.now(UTC).replace(second=0, microsecond=0)
    put(aws_rig, "CWAgent", "nvidia_smi_utilization_gpu", [0.0] * 13, now, InstanceId=machine.id, index="0")
    put(aws_rig, "AWS/EC2", "CPUUtilization", [1.0] * 13, now, InstanceId=machine.id)
    put(aws_rig, "AWS/EC2", "CPUUtilization", [1.0] * 13, now, InstanceId=bare.id)
    found = judge(seen(aws_rig, machine, now), now)
    assert found.state == "idle"
    assert found.quiet >= timedelta(minutes=55)
    assert judge(seen(aws_rig, bare, now), now).state == "unknown"


def test_the_console_is_read_by_its_newest_lines(aws_rig):
    machine = aws_rig.running()
    asked = []
    real = aws_rig.cloud._api.call

    def call(service, operation, region, **parameters):
        asked.append((operation, parameters))
        if operation == "GetConsoleOutput":
            return {"Output": 'boot\n{"gpuprov": 1, "state": "busy"}\n'}
        return real(service, operation, region, **parameters)

    object.__setattr__(aws_rig.cloud._api, "call", call)
    assert aws_rig.cloud.read_console(aws_rig.here, machine.id)[-1] == '{"gpuprov": 1, "state": "busy"}'
    assert asked[-1][1]["Latest"] is True


def test_machines_with_gpus_of_others_are_listed_and_ours_are_not(aws_rig):
    aws_rig.running()
    client = aws_rig.cloud._api._client("ec2", REGION, once=False)
    image = client.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    for kind in ("g5.xlarge", "m5.large"):
        client.run_instances(ImageId=image, InstanceType=kind, MinCount=1, MaxCount=1)
    others = aws_rig.cloud.list_others()
    assert [entry.extra["instance_type"] for entry in others] == ["g5.xlarge"]
