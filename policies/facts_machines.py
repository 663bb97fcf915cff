"""Readers of other people's resources, by Terraform type."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from policies import facts_aws, facts_gcp, facts_links
from policies.facts import Subject
from policies.resources import Resource
from provisioner.catalog.snapshot import Catalog

READERS: Mapping[str, Callable[[Resource, Catalog], Subject | None]] = {
    "aws_instance": facts_aws.aws_machine,
    "aws_spot_instance_request": facts_aws.aws_machine,
    "aws_launch_template": lambda resource, catalog: facts_aws.aws_machine(resource, catalog, is_template=True),
    "aws_launch_configuration": facts_aws.aws_machine,
    "aws_ebs_volume": lambda resource, _: facts_aws.aws_volume(resource),
    "aws_security_group": lambda resource, _: facts_aws.aws_security_group(resource),
    "aws_default_security_group": lambda resource, _: facts_aws.aws_security_group(resource),
    "aws_security_group_rule": lambda resource, _: facts_aws.aws_ingress_rule(resource),
    "aws_vpc_security_group_ingress_rule": lambda resource, _: facts_aws.aws_ingress_rule(resource),
    **dict.fromkeys(facts_links.RESERVATIONS, lambda resource, _: facts_links.reservation(resource)),
    "google_compute_instance": facts_gcp.gcp_machine,
    "google_compute_instance_template": facts_gcp.gcp_machine,
    "google_compute_region_instance_template": facts_gcp.gcp_machine,
    "google_compute_disk": lambda resource, _: facts_gcp.gcp_disk(resource),
    "google_compute_region_disk": lambda resource, _: facts_gcp.gcp_disk(resource),
    "google_compute_firewall": lambda resource, _: facts_gcp.gcp_firewall(resource),
}
"""Reader by Terraform type."""
