"""Compute Engine instances, templates, disks and firewall rules as facts.

Sources: documentation of hashicorp/terraform-provider-google and of the Pulumi GCP package for the resources named here;
Google Cloud, "Default encryption at rest"; read 2026-11.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from policies.facts import UNKNOWN, Disk, DiskFacts, FirewallFacts, Known, MachineFacts, Opening, Unknown
from policies.json_value import Value
from policies.resources import (
    WORKLOAD_KEYS,
    Places,
    Resource,
    catalog_row,
    child,
    has_gpu,
    is_set,
    last_part,
    workload_path,
)
from provisioner.catalog.instances import InstanceType
from provisioner.catalog.snapshot import Catalog
from provisioner.tags import WORKLOAD
from provisioner.units import GB

_ZONE = re.compile(r"(?:.*/)?(?P<region>[a-z]+-[a-z]+\d+)-[a-z]")


def gcp_machine(resource: Resource, catalog: Catalog) -> MachineFacts:
    """A Compute Engine instance or instance template."""
    kind, zone = resource.child("machine_type"), resource.child("zone")
    instance_type = last_part(kind.text())
    scheduling = resource.child("scheduling").first()
    account = resource.child("service_account").first()
    metadata = resource.child("metadata").table()
    disks, places = _gcp_disks(resource)
    image = _gcp_image(resource)
    tags = _gcp_tags(resource, metadata)
    instance_type = _with_attached(resource, catalog, instance_type)
    instance = catalog_row(catalog, "gcp", instance_type)
    texts, text_places = _gcp_texts(resource, metadata)
    scopes = child(account, "scope").texts()
    places |= {
        "instance_type": kind.path,
        "zone": zone.path,
        "image": image.path,
        "on_host_maintenance": child(scheduling, "on_host_maintenance").path,
        "service_account": account.path,
        "tags": resource.child("label").path,
        "workload_path": resource.child("label").path,
        "public_ip": resource.child("network_interface").path,
    } | text_places
    return MachineFacts(
        name=resource.address,
        path=resource.json.file,
        source=resource.source,
        tags=tags,
        locate=resource.locate(places),
        cloud="gcp",
        instance_type=instance_type,
        region=_gcp_region(resource, zone.text()),
        zone=last_part(zone.text()),
        capacity_type=_gcp_capacity(scheduling),
        instance=instance,
        disks=disks,
        image=image.text(),
        public_ip=_gcp_public_ip(resource),
        texts=texts,
        sensitive_texts=resource.sensitive,
        scopes=UNKNOWN if isinstance(scopes, Unknown) or UNKNOWN in scopes else tuple(str(scope) for scope in scopes),
        service_account=child(account, "email").text(),
        on_host_maintenance=child(scheduling, "on_host_maintenance").text(),
        has_gpu=_gcp_has_gpu(resource, instance, instance_type),
        workload_path=workload_path(tags),
    )


def _with_attached(resource: Resource, catalog: Catalog, host: Known[str | None]) -> Known[str | None]:
    """The catalog's name of a host with attached GPUs; the nearest host with the same GPUs where it has not this one."""
    accelerators = resource.child("guest_accelerator").items()
    if isinstance(accelerators, Unknown) or not accelerators or not isinstance(host, str):
        return host
    kind, count = last_part(child(accelerators[0], "type").text()), child(accelerators[0], "count").whole()
    if isinstance(kind, Unknown) or isinstance(count, Unknown):
        return UNKNOWN
    own = catalog.instances.get(("gcp", host))
    if own is not None and own.gpu_model is not None:
        return host
    same = [
        row
        for row in catalog.instances.values()
        if row.attached is not None and row.attached.accelerator_type == kind and row.gpu_count == (count or 1)
    ]
    same.sort(key=lambda row: (row.attached is None or row.attached.host != host, row.name))
    return same[0].name if same else f"{host}+{kind}x{count or 1}"


def _gcp_texts(
    resource: Resource, metadata: Known[Mapping[str, Known[str]]]
) -> tuple[Known[Mapping[str, Known[str]]], Places]:
    if isinstance(metadata, Unknown):
        return UNKNOWN, {"texts": resource.child("metadata").path}
    base = resource.child("metadata").path
    texts = dict(metadata)
    places: Places = {f"texts.{key}": (*base, key) for key in texts}
    script = resource.child("metadata_startup_script")
    if not script.is_absent:
        text = script.text()
        texts["metadata_startup_script"] = "" if text is None else text
        places["texts.metadata_startup_script"] = script.path
    return texts, places


def _gcp_disks(resource: Resource) -> tuple[Known[tuple[Disk, ...]], Places]:
    """Disks of a Compute Engine machine: always encrypted. Source: Google Cloud, "Default encryption at rest"."""
    boot = resource.child("boot_disk").first()
    blocks = [("boot", "root", boot)]
    attached = resource.child("attached_disk").items()
    listed = resource.child("disk").items()
    blocks += [
        (f"attached[{i}]", "data", item) for i, item in enumerate(() if isinstance(attached, Unknown) else attached)
    ]
    blocks += [
        (f"disk[{i}]", "root" if i == 0 else "data", item)
        for i, item in enumerate(() if isinstance(listed, Unknown) else listed)
    ]
    disks: list[Disk] = []
    places: Places = {}
    for key, role, block in blocks:
        if block.is_absent:
            continue
        size = child(child(block, "initialize_params").first(), "size").whole()
        if size is None:
            size = child(block, "disk_size_gb").whole()
        secret = child(block, "kms_key_self_link"), child(block, "disk_encryption_key").first()
        places[key] = block.path
        customer: Known[bool] = (
            True
            if any(is_set(value) is True for value in secret)
            else UNKNOWN
            if any(value.is_unknown for value in secret)
            else False
        )
        disks.append(
            Disk(
                key=key,
                role=role,
                encrypted=True,
                customer_key=customer,
                size_bytes=size * GB if isinstance(size, int) else size,
            )
        )
    return tuple(disks), places


def _gcp_image(resource: Resource) -> Value:
    boot = child(resource.child("boot_disk").first(), "initialize_params").first()
    image = child(boot, "image")
    if not image.is_absent:
        return image
    return child(resource.child("disk").first(), "source_image")


def _gcp_tags(resource: Resource, metadata: Known[Mapping[str, Known[str]]]) -> Known[Mapping[str, Known[str]]]:
    """Labels, and the workload's path where it stands in the metadata (labels take no slash)."""
    labels = resource.child("label").table()
    if isinstance(labels, Unknown):
        return UNKNOWN
    if isinstance(metadata, Unknown):
        return {**labels, WORKLOAD: UNKNOWN} if not any(key in labels for key in WORKLOAD_KEYS) else labels
    return {**labels, **{key: metadata[key] for key in WORKLOAD_KEYS if key in metadata}}


def _gcp_public_ip(resource: Resource) -> Known[bool | None]:
    interfaces = resource.child("network_interface").items()
    if isinstance(interfaces, Unknown):
        return UNKNOWN
    answers: list[Known[bool]] = []
    for interface in interfaces:
        access = child(interface, "access_config").items()
        answers.append(UNKNOWN if isinstance(access, Unknown) else len(access) > 0)
    return True if True in answers else UNKNOWN if UNKNOWN in answers else False


def _gcp_capacity(scheduling: Value) -> Known[str]:
    model, preemptible = child(scheduling, "provisioning_model").text(), child(scheduling, "preemptible").flag()
    if model == "SPOT" or preemptible is True:
        return "spot"
    if isinstance(model, Unknown) and not scheduling.is_absent:
        return UNKNOWN
    return {"RESERVATION_BOUND": "reserved", "FLEX_START": "flex-start"}.get(str(model), "on-demand")


def _gcp_region(resource: Resource, zone: Known[str | None]) -> Known[str | None]:
    if isinstance(zone, str) and (match := _ZONE.fullmatch(zone)):
        return match["region"]
    return UNKNOWN if isinstance(zone, Unknown) else resource.region


def _gcp_has_gpu(
    resource: Resource, instance: Known[InstanceType | None], instance_type: Known[str | None]
) -> Known[bool]:
    attached = resource.child("guest_accelerator").items()
    if isinstance(attached, Unknown):
        # The provider computes this list where the program has none: only the machine type's own GPUs count then.
        return has_gpu(instance, instance_type)
    return len(attached) > 0 or has_gpu(instance, instance_type)


def gcp_disk(resource: Resource) -> DiskFacts:
    """A persistent disk: always encrypted at rest."""
    size = resource.child("size").whole()
    customer = is_set(child(resource.child("disk_encryption_key").first(), "kms_key_self_link"))
    disk = Disk(
        key="data",
        role="data",
        encrypted=True,
        customer_key=customer,
        size_bytes=size * GB if isinstance(size, int) else size,
    )
    return DiskFacts(
        name=resource.address,
        path=resource.json.file,
        source=resource.source,
        tags=resource.child("label").table(),
        locate=resource.locate({"data": resource.attributes.path}),
        disk=disk,
    )


def gcp_firewall(resource: Resource) -> FirewallFacts | None:
    """A VPC firewall rule; ``None`` where it lets nothing in (egress, disabled, deny)."""
    if resource.child("direction").value == "EGRESS" or resource.child("disabled").value is True:
        return None
    allows = resource.child("allow").items()
    if allows == ():
        return None
    ranges = resource.declared_child("source_range")
    texts = ranges.texts()
    if texts == ():
        texts = _sources_without_ranges(resource)
    places: Places = {"openings": ranges.path}
    openings: Known[tuple[Opening, ...]] = UNKNOWN
    if not isinstance(texts, Unknown):
        ports = UNKNOWN if isinstance(allows, Unknown) else _gcp_ports(allows)
        openings = tuple(Opening(key="openings", cidr=text, ports=span) for text in texts for span in _spans(ports))
    return FirewallFacts(
        name=resource.address,
        path=resource.json.file,
        source=resource.source,
        locate=resource.locate(places),
        openings=openings,
    )


def _sources_without_ranges(resource: Resource) -> Known[tuple[Known[str], ...]]:
    """What a rule without source ranges lets in: machines with a tag or an account, or all addresses where it names neither.

    Source: Compute Engine API reference, firewalls, ``sourceRanges``.
    """
    named = [resource.declared_child(name) for name in ("source_tag", "source_service_account")]
    if any(value.value not in (None, []) and not value.is_unknown for value in named):
        return ()
    return UNKNOWN if any(value.is_unknown for value in named) else ("0.0.0.0/0",)


def _spans(ports: Known[tuple[tuple[int, int] | None, ...]]) -> tuple[Known[tuple[int, int] | None], ...]:
    return (UNKNOWN,) if isinstance(ports, Unknown) else ports


def _gcp_ports(allows: tuple[Value, ...]) -> Known[tuple[tuple[int, int] | None, ...]]:
    """Port ranges of ``allow`` blocks; ``None`` for a block that names none: it opens all."""
    spans: list[tuple[int, int] | None] = []
    for allow in allows:
        texts = child(allow, "port").texts()
        if isinstance(texts, Unknown):
            return UNKNOWN
        if not texts:
            spans.append(None)
        for text in texts:
            if isinstance(text, Unknown) or not (match := re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", text)):
                return UNKNOWN
            spans.append((int(match[1]), int(match[2] or match[1])))
    return tuple(spans)
