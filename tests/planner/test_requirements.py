"""Names in requirements are looked up; a wrong one says its key and what is near."""

from __future__ import annotations

from decimal import Decimal

import pytest

from provisioner.planner.requirements import KeyedSpecError, name_some, resolve_requirements


@pytest.mark.parametrize(
    ("placement", "key", "near"),
    [
        ({"regions": ["us-east-1", "us-esat-1"]}, "placement.regions[1]", "us-east-1"),
        ({"instance_types": ["g6.xlrge"]}, "placement.instance_types[0]", "g6.xlarge"),
        ({"gpus": ["L4", "H1000"]}, "placement.gpus[1]", "H100"),
        ({"exclude_gpus": ["TT4"]}, "placement.exclude_gpus[0]", "T4"),
    ],
)
def test_unknown_name_gives_key_and_nearest(serve, catalog, placement, key, near):
    with pytest.raises(KeyedSpecError) as caught:
        resolve_requirements(serve(placement=placement), catalog, None)
    assert caught.value.key == key
    assert near in (caught.value.remedy or "")


def test_a100_is_two_sizes(serve, catalog):
    with pytest.raises(KeyedSpecError) as caught:
        resolve_requirements(serve(placement={"gpus": ["A100"]}), catalog, None)
    assert "A100-40GB" in caught.value.remedy
    assert "A100-80GB" in caught.value.remedy


def test_class_means_all_form_factors(serve, catalog):
    found = resolve_requirements(serve(placement={"gpus": ["H100"]}), catalog, None)
    assert {"H100-SXM", "H100-PCIe"} <= found.gpu_models
    exact = resolve_requirements(serve(placement={"gpus": ["H100-SXM"]}), catalog, None)
    assert exact.gpu_models == {"H100-SXM"}


@pytest.mark.parametrize(
    ("provider", "clouds"), [(None, ("aws", "gcp")), ("sandbox", ("aws", "gcp")), ("aws", ("aws",)), ("gcp", ("gcp",))]
)
def test_provider_narrows_clouds(serve, catalog, provider, clouds):
    assert resolve_requirements(serve(), catalog, provider).clouds == clouds


def test_provider_that_leaves_nothing(serve, catalog):
    with pytest.raises(KeyedSpecError, match="leaves nothing") as caught:
        resolve_requirements(serve(placement={"clouds": ["aws"]}), catalog, "gcp")
    assert caught.value.key == "placement.clouds"


@pytest.mark.parametrize(
    ("placement", "key"),
    [
        ({"regions": ["us-east-1"]}, "placement.regions"),
        ({"instance_types": ["g6.xlarge"]}, "placement.instance_types"),
    ],
)
def test_names_of_another_cloud_only(serve, catalog, placement, key):
    with pytest.raises(KeyedSpecError, match="belongs to gcp") as caught:
        resolve_requirements(serve(placement=placement), catalog, "gcp")
    assert caught.value.key == key


def test_limits(finetune, catalog):
    found = resolve_requirements(
        finetune(placement={"max_gpus": 2, "max_price": "12 USD/h", "budget": "3000 USD/month", "deadline": "2d"}),
        catalog,
        None,
    )
    assert (found.max_gpus, found.max_price_usd_per_hour, found.deadline_hours) == (2, Decimal(12), 48.0)
    assert found.budget.amount_usd == Decimal(3000)
    assert found.has_price_limit
    assert not resolve_requirements(finetune(), catalog, None).has_price_limit


def test_name_some_counts_the_rest():
    assert name_some(["b", "a"]) == "a, b"
    assert name_some(str(number) for number in range(9)) == "0, 1, 2, 3, 4, 5 and 3 more"


@pytest.mark.parametrize("excluded", [["H200"], ["L4", "H200"]])
def test_excluding_all_that_is_asked_for_leaves_nothing(serve, catalog, excluded):
    with pytest.raises(KeyedSpecError, match=r"leaves nothing of placement\.gpus \(H200-SXM\)") as caught:
        resolve_requirements(serve(placement={"gpus": ["H200-SXM"], "exclude_gpus": excluded}), catalog, None)
    assert caught.value.key == "placement.exclude_gpus"
    assert caught.value.remedy


def test_excluding_some_of_what_is_asked_for_leaves_the_rest(serve, catalog):
    found = resolve_requirements(serve(placement={"gpus": ["H100"], "exclude_gpus": ["H100-PCIe"]}), catalog, None)
    assert found.gpu_models - found.excluded_gpu_models >= {"H100-SXM"}
