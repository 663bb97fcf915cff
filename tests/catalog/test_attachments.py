"""GCP hosts with attached GPUs."""

from __future__ import annotations

from decimal import Decimal

from provisioner.catalog.instances import AttachedGpus
from provisioner.catalog.snapshot import Catalog
from provisioner.units import GIB


def test_host_and_gpu_are_priced_together(catalog: Catalog) -> None:
    """n1-standard-4 at 0.189999 and a T4 at 0.35 in us-central1."""
    found = [
        offer
        for offer in catalog.offers(["gcp"])
        if offer.instance.name == "n1-standard-4+t4x1"
        and offer.region == "us-central1"
        and offer.capacity_type == "on-demand"
    ]
    assert {offer.zone for offer in found} == {"us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"}
    for offer in found:
        assert offer.price_usd_per_hour == Decimal("0.539999")
        assert offer.price_source == "gcp_karpenter_2026_08;gcp_anycloud_2026_05"
        assert offer.price_as_of == "2026-05-20"


def test_two_gpus_cost_twice_one(catalog: Catalog) -> None:
    prices = {
        offer.instance.name: offer.price_usd_per_hour
        for offer in catalog.offers(["gcp"])
        if offer.zone == "us-central1-a" and offer.capacity_type == "spot" and offer.instance.attached
    }
    assert prices["n1-standard-8+t4x2"] == Decimal("0.13402") + 2 * Decimal("0.1654")


def test_a_type_says_what_a_create_call_attaches(catalog: Catalog) -> None:
    instance = catalog.instances["gcp", "n1-standard-16+v100-16gbx4"]
    assert instance.attached == AttachedGpus("n1-standard-16", "nvidia-tesla-v100", 4)
    assert (instance.kind, instance.gpu_model, instance.gpu_count) == ("gpu", "V100-SXM2-16", 4)
    assert instance.gpu_memory_usable_bytes == catalog.gpus["V100-SXM2-16"].memory_usable_bytes
    assert instance.nvlink_bytes_per_s_per_gpu == 300e9
    assert (instance.quota_on_demand, instance.quota_spot) == ("NVIDIA_V100_GPUS", "PREEMPTIBLE_NVIDIA_V100_GPUS")
    assert instance.quota_units == 4


def test_hosts_keep_the_limits_of_their_gpus(catalog: Catalog) -> None:
    attached = [instance for instance in catalog.instances.values() if instance.attached]
    assert len(attached) >= 20
    for instance in attached:
        assert instance.attached is not None
        host = catalog.instances["gcp", instance.attached.host]
        assert (instance.vcpu, instance.ram_bytes) == (host.vcpu, host.ram_bytes)
        assert instance.vcpu in (4 * instance.gpu_count, 8 * instance.gpu_count)
        if instance.gpu_model == "V100-SXM2-16":
            assert instance.vcpu <= 12 * instance.gpu_count
            assert instance.ram_bytes <= 78 * GIB * instance.gpu_count


def test_where_the_host_has_no_price_the_sum_is_unknown(catalog: Catalog) -> None:
    # The N1 prices of five regions are known; T4 cards are offered in many more.
    offers = [offer for offer in catalog.offers(["gcp"]) if offer.instance.attached]
    priced = {offer.region for offer in offers if offer.price_usd_per_hour is not None}
    assert priced == {"us-central1", "us-east1", "us-west1", "europe-west4", "asia-southeast1"}
    unpriced = {offer.region for offer in offers if offer.price_usd_per_hour is None}
    assert {"asia-east1", "europe-west2"} <= unpriced
    assert not priced & unpriced
    assert all(offer.zone for offer in offers)
