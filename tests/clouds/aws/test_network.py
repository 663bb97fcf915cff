"""Security groups and subnets on EC2: one group a stack and region, exactly the wanted rules, safe with two callers."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from provisioner.clouds.aws.cloud import AwsCloud
from provisioner.clouds.aws.network import Rule, made_at
from provisioner.clouds.aws.settings import AwsSettings
from provisioner.errors import CapacityError, Rejected
from tests.fakes import aws_rules


def group(rig):
    model = aws_rules.backend("us-east-1")
    (found,) = [one for groups in model.groups.values() for one in groups.values() if one.name != "default"]
    return found


def openings(rig):
    """Rules for traffic that comes in: (protocol, port, source)."""
    (found,) = rig.cloud._api.pages(
        "ec2", "DescribeSecurityGroups", "us-east-1", "SecurityGroups", GroupIds=[group(rig).id]
    )
    return {
        (rule["IpProtocol"], rule["FromPort"], source.get("CidrIp") or source.get("CidrIpv6"))
        for rule in found["IpPermissions"]
        for source in (*rule["IpRanges"], *rule.get("Ipv6Ranges", ()))
    }


def ensure(rig, cidrs=(), ports=(), cloud=None):
    tags = {"gpuprov:stack-id": "stack-0001", "gpuprov:stack": "chat"}
    return (cloud or rig.cloud).ensure_security_group(rig.here, tags, list(cidrs), list(ports))


def test_a_group_is_closed_until_something_is_opened_and_closed_again(aws_rig):
    made = ensure(aws_rig)
    assert openings(aws_rig) == set()
    assert ensure(aws_rig, ["203.0.113.7/32", "198.51.100.9/24"], [8000, 22]) == made
    assert openings(aws_rig) == {
        ("tcp", port, cidr) for port in (8000, 22) for cidr in ("203.0.113.7/32", "198.51.100.0/24")
    }
    ensure(aws_rig, ["203.0.113.7/32"], [8000])
    assert openings(aws_rig) == {("tcp", 8000, "203.0.113.7/32")}
    ensure(aws_rig)
    assert openings(aws_rig) == set()


def test_what_is_as_it_should_be_is_not_touched(aws_rig):
    ensure(aws_rig, ["203.0.113.7/32", "2001:db8::/64"], [8000])
    writes = ("AuthorizeSecurityGroupIngress", "RevokeSecurityGroupIngress", "CreateSecurityGroup")
    before = [len(aws_rig.fake.of(operation)) for operation in writes]
    ensure(aws_rig, ["203.0.113.7/32", "2001:db8::/64"], [8000], cloud=AwsCloud())
    assert [len(aws_rig.fake.of(operation)) for operation in writes] == before


def test_a_rule_that_somebody_added_is_taken_away(aws_rig):
    made = ensure(aws_rig, ["203.0.113.7/32"], [8000])
    aws_rules.backend("us-east-1").authorize_security_group_ingress(
        made, "tcp", "22", "22", [{"CidrIp": "0.0.0.0/0"}], sgrule_tags={}
    )
    ensure(aws_rig, ["203.0.113.7/32"], [8000])
    assert openings(aws_rig) == {("tcp", 8000, "203.0.113.7/32")}


def test_callers_at_once_make_one_group(aws_rig):
    found = []
    threads = [threading.Thread(target=lambda: found.append(ensure(aws_rig, cloud=AwsCloud()))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(found) == {group(aws_rig).id}
    assert len(found) == 4


def test_a_group_says_when_it_was_made(aws_rig):
    ensure(aws_rig)
    (entry,) = aws_rig.cloud.list_objects()
    age = aws_rig.cloud.now() - entry.created_at
    assert abs(age.total_seconds()) < 60
    assert made_at({"Description": "somebody wrote over it"}) >= entry.created_at


def test_without_a_default_vpc_the_way_out_is_named(aws_rig):
    for vpc in aws_rules.backend("us-east-1").vpcs.values():
        vpc.is_default = "false"
    with pytest.raises(CapacityError, match="no default VPC in us-east-1") as refusal:
        ensure(aws_rig)
    assert "create-default-vpc --region us-east-1" in refusal.value.remedy


def test_a_vpc_of_another_region_makes_room_for_the_next_offer(aws_rig):
    with pytest.raises(CapacityError, match=r"aws.vpc vpc-0000000000000000f has no subnet in us-east-1"):
        ensure(aws_rig, cloud=AwsCloud(AwsSettings(vpc="vpc-0000000000000000f")))


def test_a_named_vpc_gives_subnet_and_group(aws_rig):
    model = aws_rules.backend("us-east-1")
    vpc = model.create_vpc("10.9.0.0/16")
    letter = next(z.name for z in model.describe_availability_zones() if z.zone_id == aws_rig.here.zone)
    private = model.create_subnet(vpc.id, "10.9.1.0/24", availability_zone=letter)
    public = model.create_subnet(vpc.id, "10.9.2.0/24", availability_zone=letter)
    public.map_public_ip_on_launch = True
    cloud = AwsCloud(AwsSettings(vpc=vpc.id))
    made = ensure(aws_rig, cloud=cloud)
    assert group(aws_rig).vpc_id == vpc.id
    machine = cloud.create_instance(aws_rig.request(security_group=made))
    assert aws_rig.fake.of("RunInstances")[0].parameters["SubnetId"] == public.id != private.id
    assert machine.public_ip


def test_a_group_without_tags_is_refused(aws_rig):
    with pytest.raises(Rejected, match="needs tags"):
        aws_rig.cloud.ensure_security_group(aws_rig.here, {}, [], [])


def letter(rig):
    zones = aws_rules.backend("us-east-1").describe_availability_zones()
    return next(zone.name for zone in zones if zone.zone_id == rig.here.zone)


def drop_default_subnet(rig):
    model = aws_rules.backend("us-east-1")
    subnet = model.get_default_subnets()[letter(rig)]
    model.subnets[letter(rig)].pop(subnet.id)


def test_a_zone_without_a_default_subnet_makes_room_for_the_next_offer(aws_rig):
    drop_default_subnet(aws_rig)
    with pytest.raises(CapacityError, match="No default subnet") as refusal:
        aws_rig.running()
    assert refusal.value.scope == "subnet"
    assert "create-default-subnet" in refusal.value.remedy
    assert aws_rig.running("token-2", placement=aws_rig.next_zone)


def own_vpc(rig, count=1):
    model = aws_rules.backend("us-east-1")
    vpc = model.create_vpc("10.9.0.0/16")
    subnets = [model.create_subnet(vpc.id, f"10.9.{n}.0/24", availability_zone=letter(rig)) for n in range(count)]
    return vpc, sorted(subnets, key=lambda subnet: subnet.id)


def test_a_full_subnet_gives_way_to_another_of_the_zone_and_a_repeated_call_keeps_its_own(aws_rig):
    vpc, (first, second) = own_vpc(aws_rig, 2)
    first._available_ip_addresses = 1
    made = AwsCloud(AwsSettings(vpc=vpc.id)).create_instance(aws_rig.request("token-1"))
    assert aws_rules.machine("us-east-1", made.id).subnet_id == first.id
    first._available_ip_addresses = 0
    again = AwsCloud(AwsSettings(vpc=vpc.id)).create_instance(aws_rig.request("token-1"))
    assert again.id == made.id
    other = AwsCloud(AwsSettings(vpc=vpc.id)).create_instance(aws_rig.request("token-2"))
    assert aws_rules.machine("us-east-1", other.id).subnet_id == second.id


def taken(rig, vpc):
    """Subnets of a VPC in which a machine of any zone may start."""
    found = AwsCloud(AwsSettings(vpc=vpc.id))._network.own(replace(rig.here, zone=None))
    return [subnet["SubnetId"] for subnet in found]


def test_a_subnet_without_ipv4_is_not_taken_unless_it_is_named(aws_rig):
    vpc, (first, second) = own_vpc(aws_rig, 2)
    first.ipv6_native = True
    assert taken(aws_rig, vpc) == [second.id]
    named = AwsCloud(AwsSettings(subnets=(first.id,)))._network.own(aws_rig.here)
    assert [subnet["SubnetId"] for subnet in named] == [first.id]


def test_a_subnet_of_a_local_zone_is_not_taken(aws_rig, monkeypatch):
    model = aws_rules.backend("us-east-1")
    vpc, (here,) = own_vpc(aws_rig)
    other = next(zone for zone in model.describe_availability_zones() if zone.zone_id != aws_rig.here.zone)
    model.create_subnet(vpc.id, "10.9.9.0/24", availability_zone=other.name)
    monkeypatch.setattr(other, "zone_type", "local-zone", raising=True)
    assert taken(aws_rig, vpc) == [here.id]


def test_a_group_of_our_name_without_our_tags_is_not_touched(aws_rig):
    """Identity is the stack-id: what somebody made or took the tags from is his."""
    made = ensure(aws_rig, ["203.0.113.7/32"], [8000])
    model = aws_rules.backend("us-east-1")
    model.delete_tags([made], {tag["key"]: None for tag in group(aws_rig).get_tags()})
    with pytest.raises(Rejected, match="has the name of ours and not its tags"):
        ensure(aws_rig, cloud=AwsCloud())
    assert openings(aws_rig) == {("tcp", 8000, "203.0.113.7/32")}


def test_rules_that_somebody_changed_are_named(aws_rig):
    tags = aws_rig.request().tags
    group = aws_rig.cloud.ensure_security_group(aws_rig.here, tags, ["203.0.113.7/32"], [8000])
    assert aws_rig.cloud.foreign_rules(aws_rig.here, group, ["203.0.113.7/32"], [8000]) == ()
    aws_rig.cloud._network._change(
        "us-east-1", "AuthorizeSecurityGroupIngress", {"GroupId": group}, [Rule("tcp", 22, 22, "0.0.0.0/0")]
    )
    found = aws_rig.cloud.foreign_rules(aws_rig.here, group, ["203.0.113.7/32"], [8000, 9000])
    assert found == ("tcp 22 from 0.0.0.0/0 is open", "tcp 9000 from 203.0.113.7/32 is closed")
    assert aws_rig.cloud.foreign_rules(aws_rig.here, "sg-0fffffffffffffff1", [], []) == ()
