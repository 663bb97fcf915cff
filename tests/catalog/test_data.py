"""The bundled data itself: types, joins, and figures that a broken row would break."""

from __future__ import annotations

import csv
from collections import defaultdict
from datetime import date
from decimal import Decimal
from itertools import pairwise

import pytest

from provisioner.catalog.check import check_files, read_schema
from provisioner.catalog.files import BUNDLED, CLASSES, OPTIONAL, OWN, REQUIRED, bundled_files
from provisioner.catalog.instance_prices import ANY
from provisioner.catalog.outliers import price_outliers
from provisioner.catalog.snapshot import Catalog
from provisioner.units import MIB
from provisioner.vocabulary import CapacityType

COLLECTED = "2026-11-30"


def read(name: str) -> list[dict[str, str]]:
    with (BUNDLED / name).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


FACT_FILES = sorted({*REQUIRED, *OPTIONAL, CLASSES} - {"sources.csv", "suspect_reasons.csv", "join_exceptions.csv"})


def test_every_cell_has_its_type_and_every_reference_its_row() -> None:
    check_files(bundled_files())


def test_the_schema_lists_exactly_the_bundled_files_and_their_columns() -> None:
    schema = read_schema()
    assert set(schema) - set(OWN) == {path.name for path in BUNDLED.glob("*.csv")} - {"schema.csv"}
    assert set(OWN) < set(schema)
    for name, columns in schema.items():
        if name in OWN:
            continue
        header = (BUNDLED / name).read_text(encoding="utf-8").split("\n", 1)[0].split(",")
        assert header == [column.name for column in columns], name


@pytest.mark.parametrize("name", FACT_FILES)
def test_every_row_has_a_known_source_and_a_date(name: str) -> None:
    sources = {row["source"] for row in read("sources.csv")}
    rows = read(name)
    assert rows
    for row in rows:
        assert set(row["source"].split(";")) <= sources
        assert date.fromisoformat(row["as_of"]) <= date.fromisoformat(COLLECTED)


def test_every_gpu_model_has_exactly_one_class() -> None:
    classes = read(CLASSES)
    assert sorted(row["gpu_model"] for row in classes) == sorted(row["gpu_model"] for row in read("gpus.csv"))
    assert len({row["gpu_model"] for row in classes}) == len(classes)


def test_a_class_has_one_memory_size_but_for_the_exception_that_its_notes_explain(catalog: Catalog) -> None:
    explained = {row["gpu_model"] for row in read(CLASSES) if row["notes"]}
    for name, models in catalog.gpu_classes.items():
        sizes = {catalog.gpus[model].memory_nominal_bytes for model in models if model not in explained}
        assert len(sizes) == 1, name
    assert explained == {"H100-NVL"}


def test_usable_memory_is_below_the_label(catalog: Catalog) -> None:
    for gpu in catalog.gpus.values():
        if gpu.memory_usable_bytes is not None:
            assert gpu.memory_usable_bytes < gpu.memory_nominal_bytes, gpu.model
    for instance in catalog.instances.values():
        if instance.gpu_memory_usable_bytes is not None:
            assert instance.gpu_memory_nominal_bytes is not None
            assert instance.gpu_memory_usable_bytes < instance.gpu_memory_nominal_bytes, instance.name


def test_usable_memory_is_the_lowest_reading_where_one_was_taken(catalog: Catalog) -> None:
    lowest: dict[str, float] = {}
    for row in read("gpu_memory_readings.csv"):
        if row["meter"] in ("cuda_total", "rocm_pool"):
            lowest[row["gpu_model"]] = min(lowest.get(row["gpu_model"], float("inf")), float(row["memory_mib"]))
    assert len(lowest) > 10
    for model, mib in lowest.items():
        usable = catalog.gpus[model].memory_usable_bytes
        assert usable is not None
        assert abs(usable - mib * MIB) <= MIB, model


@pytest.mark.parametrize(
    ("model", "figures"),
    [
        ("L4", (24576, 22888, 23034, 22559)),
        ("A10G", (24576, 22888, 23028, 22589)),
        ("L40S", (49152, 45776, 46068, 45466)),
        ("H100-SXM", (81920, 81920, 81559, 81080)),
        ("T4", (16384, 16384, 15360, 14909)),
        ("B200-SXM", (184320, 183359, 183359, 182630)),
    ],
)
def test_the_figures_of_each_source_of_disagreement_are_kept_apart(
    catalog: Catalog, model: str, figures: tuple[int, ...]
) -> None:
    """MiB by the label, the EC2 API, nvidia-smi, and as a CUDA process sees it."""
    gpu = catalog.gpus[model]
    found = (gpu.memory_nominal_bytes, gpu.memory_api_bytes, gpu.memory_nvidia_smi_bytes, gpu.memory_usable_bytes)
    assert found == tuple(figure * MIB for figure in figures)


def test_capability_words_agree_with_compute_capability(catalog: Catalog) -> None:
    for gpu in catalog.gpus.values():
        if gpu.cuda_supported:
            assert gpu.compute_capability is not None
            assert gpu.bf16_supported == (gpu.compute_capability >= (8, 0)), gpu.model
            assert gpu.fp8_supported == (gpu.compute_capability >= (8, 9)), gpu.model
            assert gpu.fp4_supported == (gpu.compute_capability >= (10, 0)), gpu.model
        for word, rate in gpu.flop_per_s.items():
            assert 1e9 < rate < 1e17, (gpu.model, word)


def test_prices_are_positive_and_never_looked_up_as_zero(catalog: Catalog) -> None:
    for offer in (*catalog.offers(), *(one.offer for one in catalog.excluded_offers())):
        assert offer.price_usd_per_hour is None or offer.price_usd_per_hour > 0, offer.key


def test_spot_is_no_dearer_than_on_demand_unless_flagged(catalog: Catalog) -> None:
    compared = 0
    for cloud in ("aws", "gcp"):
        for (name, region), places in catalog.instance_prices(cloud).items():
            on_demand = places.get((ANY, CapacityType.ON_DEMAND))
            for (_, capacity), price in places.items():
                if capacity is not CapacityType.SPOT or on_demand is None:
                    continue
                compared += 1
                if price.amount_usd > on_demand.amount_usd * Decimal("1.0001"):
                    assert "spot_above_on_demand" in price.suspect, (name, region)
                elif price.amount_usd > on_demand.amount_usd * Decimal("0.999"):
                    assert {"spot_equals_on_demand", "spot_above_on_demand"} & set(price.suspect), (name, region)
    assert compared > 900


def test_more_gpus_of_a_family_never_cost_less(catalog: Catalog) -> None:
    compared = 0
    for cloud in ("aws", "gcp"):
        cheapest: dict[tuple[object, ...], dict[float, Decimal]] = defaultdict(dict)
        for (name, region), places in catalog.instance_prices(cloud).items():
            instance = catalog.instances[cloud, name]
            if instance.kind != "gpu":
                continue
            gpus = instance.gpu_count * instance.gpu_fraction
            for place, price in places.items():
                sizes = cheapest[instance.family, instance.gpu_model, region, place]
                sizes[gpus] = min(price.amount_usd, sizes.get(gpus, price.amount_usd))
        for key, sizes in cheapest.items():
            ordered = sorted(sizes)
            for small, large in pairwise(ordered):
                compared += 1
                assert sizes[large] > sizes[small], (key, small, large)
    assert compared > 300


def test_no_bundled_price_is_an_outlier_against_its_like(catalog: Catalog) -> None:
    for cloud in ("aws", "gcp"):
        assert price_outliers(cloud, catalog.instance_prices(cloud), catalog.instances) == frozenset()


@pytest.mark.parametrize(
    ("cloud", "name", "region", "usd"),
    [
        ("aws", "g6.xlarge", "us-east-1", "0.8048"),
        ("aws", "g6f.large", "us-east-1", "0.202"),
        ("aws", "g5.xlarge", "us-east-1", "1.006"),
        ("aws", "g6e.xlarge", "us-east-1", "1.861"),
        ("aws", "p4d.24xlarge", "us-east-1", "21.957642"),
        ("aws", "p5.48xlarge", "us-east-1", "55.04"),
        ("aws", "p5en.48xlarge", "us-east-1", "63.296"),
        ("gcp", "g2-standard-4", "us-central1", "0.706832"),
        ("gcp", "g4-standard-48", "us-central1", "4.49993"),
        ("gcp", "a2-highgpu-1g", "us-central1", "3.67339"),
        ("gcp", "a2-ultragpu-1g", "us-central1", "5.0688"),
        ("gcp", "a3-highgpu-8g", "us-central1", "88.49"),
    ],
)
def test_p3_golden_prices_within_half_a_percent(catalog: Catalog, cloud: str, name: str, region: str, usd: str) -> None:
    """P3: prices read by hand from the vendors' lists of 2026-07 and 2026-08."""
    found = {
        offer.price_usd_per_hour
        for offer in catalog.offers([cloud])
        if (offer.instance.name, offer.region, offer.capacity_type) == (name, region, "on-demand")
    }
    assert len(found) == 1
    (price,) = found
    assert price is not None
    assert abs(price / Decimal(usd) - 1) < Decimal("0.005")


def test_interruption_bands_are_shares(catalog: Catalog) -> None:
    assert catalog.interruption_band("aws", "g6.xlarge", "ap-northeast-1") == (0.2, 1.0)
    assert catalog.interruption_band("aws", "g6.xlarge", "ap-south-1") == (0.1, 0.15)
    assert catalog.interruption_band("gcp", "g2-standard-4", "us-central1") is None
    for row in read("spot_interruption.csv"):
        band = catalog.interruption_band(row["cloud"], row["instance_type"], row["region"])
        assert band is not None
        assert 0 <= band[0] < band[1] <= 1


def test_types_without_any_price_are_those_that_the_exceptions_name(catalog: Catalog) -> None:
    priced = {(row["cloud"], row["instance_type"]) for row in read("prices.csv")}
    excused = {tuple(row["key"].split(" ", 1)) for row in read("join_exceptions.csv")}
    unpriced = {key for key, instance in catalog.instances.items() if instance.attached is None} - priced
    assert unpriced
    assert unpriced <= excused
