"""EC2 instances, launch templates, volumes and security groups as facts.

Sources: documentation of hashicorp/terraform-provider-aws and of the Pulumi AWS package for the resources named here; EC2 API
reference for instance metadata options and block device mappings; read 2026-11.
"""

from __future__ import annotations

import re

from policies.facts import UNKNOWN, Disk, DiskFacts, FirewallFacts, Known, MachineFacts, Opening, Unknown
from policies.json_value import Value
from policies.resources import Places, Resource, catalog_row, child, has_gpu, is_set, read_tags, workload_path
from provisioner.catalog.snapshot import Catalog
from provisioner.records import record
from provisioner.units import GIB

_ROOT_DEVICES = ("/dev/sda1", "/dev/xvda", "/dev/sda")
_ZONE_LETTER = re.compile(r"(?P<region>[a-z]{2}(?:-[a-z]+)+-\d)[a-z]")


@record(frozen=True, slots=True)
class _Machine:
    """An instance with the launch template that fills what it leaves open."""

    resource: Resource
    template: Resource | None

    def read(self, name: str) -> Value:
        """An attribute of the instance, else of its template."""
        holders = [self.resource] if self.template is None else [self.resource, self.template]
        found = [holder.declared_child(name) for holder in holders]
        told = (value for value in found if not value.is_absent and not value.is_unknown and value.value != [])
        return next(told, found[0])

    def metadata(self, name: str) -> Value:
        """An attribute of the metadata options."""
        return child(self.read("metadata_options").first(), name)

    @property
    def image(self) -> Value:
        """Id of the machine image: ``ami`` of an instance, ``image_id`` of a template."""
        ami = self.read("ami")
        return self.read("image_id") if ami.is_absent else ami

    @property
    def public_ip(self) -> Value:
        """Whether a public address is asked for, at the top or in the first interface that says."""
        top = self.read("associate_public_ip_address")
        interfaces = self.read("network_interface").items()
        if not top.is_absent or isinstance(interfaces, Unknown):
            return top
        return next((child(item, "associate_public_ip_address") for item in interfaces), top)

    @property
    def texts(self) -> dict[str, Value]:
        """User-data, plain and in base64."""
        found = {name: self.read(name) for name in ("user_data", "user_data_base64")}
        return {name: value for name, value in found.items() if not value.is_absent}

    @property
    def sensitive(self) -> frozenset[str]:
        """Attributes that the program marks as secret."""
        return self.resource.sensitive | (self.template.sensitive if self.template is not None else frozenset())

    def places(self) -> Places:
        """Where the facts stand."""
        tags = self.resource.child("tags").path
        return {
            "instance_type": self.read("instance_type").path,
            "metadata_tokens": self.metadata("http_tokens").path,
            "metadata_endpoint": self.metadata("http_endpoint").path,
            "metadata_hop_limit": self.metadata("http_put_response_hop_limit").path,
            "zone": self.read("availability_zone").path,
            "image": self.image.path,
            "public_ip": self.public_ip.path,
            "tags": tags,
            "workload_path": tags,
            **{f"texts.{name}": value.path for name, value in self.texts.items()},
        }


def aws_machine(
    resource: Resource, catalog: Catalog, *, template: Resource | None = None, is_template: bool = False
) -> MachineFacts:
    """An EC2 instance, a spot request or a launch template; what the instance leaves open is taken from its template."""
    machine = _Machine(resource, template)
    disks, disk_places = _aws_disks(resource, template, is_template=is_template)
    tags = read_tags(resource, template)
    instance_type, zone = machine.read("instance_type").text(), machine.read("availability_zone").text()
    instance = catalog_row(catalog, "aws", instance_type)
    return MachineFacts(
        name=resource.address,
        path=resource.json.file,
        source=resource.source,
        tags=tags,
        locate=resource.locate(machine.places() | disk_places),
        cloud="aws",
        instance_type=instance_type,
        region=_aws_region(resource, zone),
        zone=zone,
        capacity_type=_aws_capacity(resource, machine),
        instance=instance,
        disks=disks,
        metadata_tokens=machine.metadata("http_tokens").text(),
        metadata_endpoint=machine.metadata("http_endpoint").text(),
        metadata_hop_limit=machine.metadata("http_put_response_hop_limit").whole(),
        image=machine.image.text(),
        public_ip=machine.public_ip.flag(),
        texts={name: value.text() or "" for name, value in machine.texts.items()},
        sensitive_texts=machine.sensitive,
        has_gpu=has_gpu(instance, instance_type),
        workload_path=workload_path(tags),
    )


def _aws_capacity(resource: Resource, machine: _Machine) -> Known[str]:
    if resource.type == "aws_spot_instance_request":
        return "spot"
    market = child(machine.read("instance_market_options").first(), "market_type").text()
    if isinstance(market, Unknown):
        return UNKNOWN
    return market if market in ("spot", "capacity-block") else "on-demand"


def _aws_region(resource: Resource, zone: Known[str | None]) -> Known[str | None]:
    region = resource.child("region").text()
    if isinstance(region, str):
        return region
    if isinstance(zone, str) and (match := _ZONE_LETTER.fullmatch(zone)):
        return match["region"]
    return resource.region


def _aws_disks(
    resource: Resource, template: Resource | None, *, is_template: bool
) -> tuple[Known[tuple[Disk, ...]], Places]:
    """Root and data disks. A root disk that nobody describes takes the account's default: encryption unknown."""
    disks: list[Disk] = []
    places: Places = {}
    for holder in (template, resource):
        if holder is None:
            continue
        mapped = holder.child("block_device_mapping").items()
        if isinstance(mapped, Unknown):
            return UNKNOWN, {}
        for index, item in enumerate(mapped):
            name = child(item, "device_name").text()
            role = "root" if name in _ROOT_DEVICES else "data"
            _add_disk(disks, places, child(item, "ebs").first(), role, f"mapping[{index}]")
    root = resource.child("root_block_device").first()
    if not is_template and not root.is_absent and not (root.is_unknown and any(disk.role == "root" for disk in disks)):
        disks = [disk for disk in disks if disk.role != "root"]
        _add_disk(disks, places, root, "root", "root")
    if not any(disk.role == "root" for disk in disks):
        disks.append(Disk(key="root", role="root", encrypted=None))
    data = resource.declared_child("ebs_block_device").items()
    if isinstance(data, Unknown):
        return UNKNOWN, places
    for index, item in enumerate(data):
        name = child(item, "device_name").text()
        _add_disk(disks, places, item, "root" if name in _ROOT_DEVICES else "data", f"ebs[{index}]")
    return tuple(disks), places


def _add_disk(disks: list[Disk], places: Places, block: Value, role: str, key: str) -> None:
    encrypted, size = child(block, "encrypted"), child(block, "volume_size").whole()
    flag = encrypted.flag()
    places[key] = block.path
    places[f"{key}.encrypted"] = encrypted.path
    disks.append(
        Disk(
            key=key,
            role=role,
            encrypted=flag,
            customer_key=is_set(child(block, "kms_key_id")),
            size_bytes=size * GIB if isinstance(size, int) else size,
        )
    )


def aws_volume(resource: Resource) -> DiskFacts:
    """An EBS volume."""
    encrypted, size = resource.child("encrypted"), resource.child("size").whole()
    flag = encrypted.flag()
    places: Places = {
        "data": resource.attributes.path,
        "data.encrypted": encrypted.path,
        "tags": resource.child("tags").path,
    }
    disk = Disk(
        key="data",
        role="data",
        encrypted=flag,
        customer_key=is_set(resource.child("kms_key_id")),
        size_bytes=size * GIB if isinstance(size, int) else size,
    )
    return DiskFacts(
        name=resource.address,
        path=resource.json.file,
        source=resource.source,
        tags=read_tags(resource),
        locate=resource.locate(places),
        disk=disk,
    )


def aws_security_group(resource: Resource) -> FirewallFacts:
    """A security group with its inline ingress rules."""
    rules = resource.declared_child("ingress").items()
    return _firewall(resource, rules)


def aws_ingress_rule(resource: Resource) -> FirewallFacts | None:
    """A rule on its own; ``None`` for an egress rule."""
    direction = resource.child("type")
    if direction.value == "egress":
        return None
    return _firewall(resource, (resource.attributes,))


def _firewall(resource: Resource, rules: Known[tuple[Value, ...]]) -> FirewallFacts:
    openings: list[Opening] = []
    places: Places = {"openings": resource.child("ingress").path}
    known = not isinstance(rules, Unknown)
    for index, rule in enumerate(() if isinstance(rules, Unknown) else rules):
        if rule.is_unknown:
            known = False
            continue
        _aws_openings(openings, places, rule, f"openings[{index}]")
    return FirewallFacts(
        name=resource.address,
        path=resource.json.file,
        source=resource.source,
        tags=read_tags(resource),
        locate=resource.locate(places),
        openings=tuple(openings) if known else UNKNOWN,
    )


def _aws_openings(openings: list[Opening], places: Places, rule: Value, key: str) -> None:
    ports = _aws_ports(rule)
    for name in ("cidr_blocks", "ipv6_cidr_blocks", "cidr_ipv4", "cidr_ipv6"):
        value = child(rule, name)
        if value.is_absent:
            continue
        texts = value.texts() if isinstance(value.value, list) else (value.text() or "",)
        places[f"{key}.{name}"] = value.path
        if isinstance(texts, Unknown):
            openings.append(Opening(key=f"{key}.{name}", cidr=UNKNOWN, ports=ports))
            continue
        openings.extend(Opening(key=f"{key}.{name}", cidr=text, ports=ports) for text in texts if text != "")


def _aws_ports(rule: Value) -> Known[tuple[int, int] | None]:
    protocol = child(rule, "protocol") if not child(rule, "protocol").is_absent else child(rule, "ip_protocol")
    first, last = child(rule, "from_port").whole(), child(rule, "to_port").whole()
    if protocol.value in ("-1", -1, "all"):
        return None
    if protocol.is_unknown or isinstance(first, Unknown) or isinstance(last, Unknown):
        return UNKNOWN
    if first is None or first == -1:
        return None
    return first, first if last is None else last
