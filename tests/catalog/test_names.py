"""Names of GPUs in specs."""

from __future__ import annotations

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from provisioner.catalog.files import BUNDLED
from provisioner.catalog.names import ALIAS_SCOPES
from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.errors import UsageError

CATALOG = load_catalog()


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("T4", {"T4"}),
        ("L4", {"L4"}),
        ("L40S", {"L40S"}),
        ("A10G", {"A10G"}),
        ("V100-16GB", {"V100-PCIe-16", "V100-SXM2-16"}),
        ("V100-32GB", {"V100-SXM2-32"}),
        ("A100-40GB", {"A100-PCIe-40", "A100-SXM-40"}),
        ("A100-80GB", {"A100-PCIe-80", "A100-SXM-80"}),
        ("H100", {"H100-SXM", "H100-PCIe", "H100-NVL"}),
        ("H200", {"H200-SXM", "H200-NVL"}),
        ("B200", {"B200-SXM"}),
        ("B300", {"B300-SXM"}),
        ("GB200", {"GB200"}),
        ("RTX-PRO-6000", {"RTX-PRO-6000-Server", "RTX-PRO-6000-Workstation"}),
        ("MI300X", {"MI300X"}),
    ],
)
def test_a_class_means_every_form_factor(catalog: Catalog, name: str, models: set[str]) -> None:
    assert set(catalog.resolve_gpu(name)) == models


@pytest.mark.parametrize(
    ("name", "models"),
    [
        ("H100-SXM", ("H100-SXM",)),
        ("a100-sxm-80", ("A100-SXM-80",)),
        ("nvidia-l4", ("L4",)),
        ("nvidia-tesla-a100", ("A100-SXM-40",)),
        ("NVIDIA H100 80GB HBM3", ("H100-SXM",)),
        ("Tesla V100-SXM2-32GB", ("V100-SXM2-32",)),
        ("RTX PRO 6000", ("RTX-PRO-6000-Server", "RTX-PRO-6000-Workstation")),
    ],
)
def test_models_and_aliases_in_any_case(catalog: Catalog, name: str, models: tuple[str, ...]) -> None:
    assert catalog.resolve_gpu(name) == models
    assert catalog.resolve_gpu(name.upper()) == models


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("A100", "A100-40GB or A100-80GB"),
        ("v100", "V100-16GB or V100-32GB"),
        ("RTX-3060", "RTX-3060-12GB or RTX-3060-8GB"),
    ],
)
def test_a_name_of_several_sizes_is_refused_and_offers_them(catalog: Catalog, name: str, sizes: str) -> None:
    with pytest.raises(UsageError) as refusal:
        catalog.resolve_gpu(name)
    assert sizes in str(refusal.value)


def test_a_class_wins_over_an_alias(catalog: Catalog) -> None:
    # The EC2 API calls the SXM board "H100"; a spec that says H100 means any form factor.
    assert len(catalog.resolve_gpu("H100")) > 1


@pytest.mark.parametrize(("name", "nearest"), [("L41", "L4"), ("H10O", "H100"), ("A10-G", "A10G"), ("b20", "B200")])
def test_an_unknown_name_is_refused_with_the_nearest(catalog: Catalog, name: str, nearest: str) -> None:
    with pytest.raises(UsageError, match=f"unknown GPU.*\\b{nearest}\\b") as refusal:
        catalog.resolve_gpu(name)
    assert refusal.value.exit_code == 2


def test_a_name_like_nothing_is_refused_with_all_classes(catalog: Catalog) -> None:
    with pytest.raises(UsageError, match=r"known classes: .*L40S"):
        catalog.resolve_gpu("@@@@@@")


def test_every_alias_of_a_scope_for_people_resolves_or_offers_its_class(catalog: Catalog) -> None:
    with (BUNDLED / "gpu_aliases.csv").open(encoding="utf-8", newline="") as stream:
        aliases = [row for row in csv.DictReader(stream) if row["scope"] in ALIAS_SCOPES]
    assert len(aliases) > 40
    for row in aliases:
        if row["name"] in ("A100", "V100"):
            with pytest.raises(UsageError, match=catalog.gpus[row["gpu_model"]].gpu_class):
                catalog.resolve_gpu(row["name"])
        else:
            assert row["gpu_model"] in catalog.resolve_gpu(row["name"]), row


@given(st.sampled_from(sorted(CATALOG.gpus)), st.booleans(), st.sampled_from(["-", " ", "_"]))
def test_every_model_resolves_to_itself_or_to_the_class_that_bears_its_name(
    model: str, upper: bool, joint: str
) -> None:
    name = model.replace("-", joint)
    assert model in CATALOG.resolve_gpu(name.upper() if upper else name.lower())


@given(st.text(max_size=12))
def test_any_text_resolves_or_is_refused(name: str) -> None:
    try:
        found = CATALOG.resolve_gpu(name)
    except UsageError as error:
        refusal: UsageError | None = error
        found = ()
    else:
        refusal = None
    assert set(found) <= set(CATALOG.gpus)
    assert bool(found) != bool(refusal and refusal.remedy)
