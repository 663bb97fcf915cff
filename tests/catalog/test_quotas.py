"""Quotas, billing rules, images and driver floors."""

from __future__ import annotations

import pytest

from provisioner.catalog.snapshot import Catalog
from provisioner.vocabulary import CapacityType


@pytest.mark.parametrize(
    ("key", "capacity", "code", "units"),
    [
        (("aws", "g6.xlarge"), "on-demand", "L-DB2E81BA", 4),
        (("aws", "g6.xlarge"), "spot", "L-3819A6DF", 4),
        (("aws", "p5.48xlarge"), "on-demand", "L-417A185B", 192),
        (("aws", "p5.48xlarge"), "spot", "L-C4BD4855", 192),
        (("gcp", "g2-standard-24"), "on-demand", "NVIDIA_L4_GPUS", 2),
        (("gcp", "g2-standard-24"), "spot", "PREEMPTIBLE_NVIDIA_L4_GPUS", 2),
        (("gcp", "n1-standard-8+t4x2"), "spot", "PREEMPTIBLE_NVIDIA_T4_GPUS", 2),
        (("gcp", "g4-standard-6"), "on-demand", "GPUS-PER-GPU-FAMILY-per-project-region", 0.125),
        (("gcp", "a2-highgpu-1g"), "flex-start", "PREEMPTIBLE_NVIDIA_A100_GPUS", 1),
    ],
)
def test_an_offer_takes_units_of_a_quota_of_its_market(
    catalog: Catalog, key: tuple[str, str], capacity: str, code: str, units: float
) -> None:
    """C1, C3: p5.48xlarge takes 192 vCPUs, and spot has a code of its own."""
    need = catalog.quota_need(catalog.instances[key], CapacityType(capacity))
    assert need is not None
    assert (need.quota.code, need.units) == (code, units)
    assert need.quota.how_to_read


def test_a_capacity_block_takes_no_machine_quota(catalog: Catalog) -> None:
    assert catalog.quota_need(catalog.instances["aws", "p5.48xlarge"], CapacityType.CAPACITY_BLOCK) is None


def test_every_current_gpu_type_of_both_clouds_has_its_quotas(catalog: Catalog) -> None:
    for (cloud, name), instance in catalog.instances.items():
        if cloud in ("aws", "gcp") and instance.kind == "gpu" and instance.status == "current":
            assert catalog.quota_need(instance, CapacityType.ON_DEMAND) is not None, name


def test_billing_rules_of_each_way_to_buy(catalog: Catalog) -> None:
    for cloud in ("aws", "gcp"):
        on_demand = catalog.billing_rule(cloud, CapacityType.ON_DEMAND)
        assert on_demand is not None
        assert (on_demand.granularity_s, on_demand.minimum_charge_s, on_demand.reclaim_notice_s) == (1, 60, 0)
    spot = catalog.billing_rule("aws", CapacityType.SPOT)
    assert spot is not None
    assert spot.reclaim_notice_s == 120
    block = catalog.billing_rule("aws", CapacityType.CAPACITY_BLOCK)
    assert block is not None
    assert block.minimum_charge_s == 86400
    flex = catalog.billing_rule("gcp", CapacityType.FLEX_START)
    assert flex is not None
    assert flex.reclaim_notice_s is None
    assert catalog.billing_rule("aws", CapacityType.FLEX_START) is None


def test_there_is_an_image_for_each_cloud_and_architecture(catalog: Catalog) -> None:
    found = {(image.cloud, image.cpu_architecture) for image in catalog.images}
    assert {("aws", "x86_64"), ("aws", "arm64"), ("gcp", "x86_64")} <= found
    assert catalog.instances["aws", "g5g.xlarge"].cpu_architecture == "arm64"


def test_every_generation_that_is_offered_has_a_driver_floor(catalog: Catalog) -> None:
    covered = {capability for floor in catalog.driver_floors for capability in floor.compute_capabilities}
    needed = set()
    for offer in catalog.offers():
        if offer.instance.gpu_model:
            capability = catalog.gpus[offer.instance.gpu_model].compute_capability
            if capability is not None:
                needed.add(capability)
    assert needed
    assert needed <= covered
    ceilings = {floor.generation: floor.max_driver_branch for floor in catalog.driver_floors}
    assert ceilings["Volta"] == 580
    assert ceilings["Hopper"] is None
