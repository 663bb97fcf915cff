"""Loading: identity, override directories, and errors at their place."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.catalog.files import BUNDLED, CLASSES, OPTIONAL, REQUIRED
from provisioner.catalog.snapshot import Catalog, load_catalog
from provisioner.errors import Position, UsageError

Edit = Callable[[str, str, str], int]


def test_the_digest_is_over_the_bytes_of_the_data(catalog: Catalog) -> None:
    total = hashlib.sha256()
    for name in sorted((*REQUIRED, *OPTIONAL, CLASSES)):
        content = (BUNDLED / name).read_bytes()
        total.update(f"{name}\0{len(content)}\0".encode() + content)
    assert catalog.digest == f"sha256:{total.hexdigest()}"


def test_a_copy_of_the_files_is_the_same_catalog(catalog: Catalog, directory: Path) -> None:
    copy = load_catalog(directory)
    assert copy.digest == catalog.digest
    assert copy.as_of == catalog.as_of == "2026-08-03"
    assert copy.offers() == catalog.offers()


def test_any_byte_changes_the_digest(catalog: Catalog, directory: Path, edit: Edit) -> None:
    edit("billing_rules.csv", "runs to max-run-duration, max 7 days", "runs to max-run-duration, max 8 days")
    assert load_catalog(directory).digest != catalog.digest


def test_the_environment_names_a_directory(
    directory: Path, edit: Edit, catalog: Catalog, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    edit("prices.csv", "aws,g6.xlarge,us-east-1,*,on_demand,0.8048,", "aws,g6.xlarge,us-east-1,*,on_demand,0.8,")
    monkeypatch.setenv("GPUPROV_CATALOG", str(directory))
    assert load_catalog().digest == load_catalog(directory).digest != catalog.digest
    monkeypatch.setenv("GPUPROV_CATALOG", str(tmp_path / "nowhere"))
    with pytest.raises(UsageError, match="no such catalog directory"):
        load_catalog()
    assert load_catalog(directory).as_of == "2026-08-03"
    monkeypatch.setenv("GPUPROV_CATALOG", "")
    assert load_catalog().digest == catalog.digest


def test_as_of_is_the_newest_price(directory: Path, edit: Edit) -> None:
    edit(
        "prices.csv",
        "aws,g6.xlarge,us-east-1,*,on_demand,0.8048,none,aws_karpenter_2026_07,2026-07-20,",
        "aws,g6.xlarge,us-east-1,*,on_demand,0.8048,none,aws_karpenter_2026_07,2026-11-29,",
    )
    assert load_catalog(directory).as_of == "2026-11-29"


@pytest.mark.parametrize("name", REQUIRED)
def test_a_missing_file_is_named(directory: Path, name: str) -> None:
    (directory / name).unlink()
    with pytest.raises(UsageError, match=f"the catalog has no {re.escape(name)}") as refusal:
        load_catalog(directory)
    assert refusal.value.exit_code == 2
    assert str(directory / name) in str(refusal.value)


def test_optional_files_may_be_missing(directory: Path, catalog: Catalog) -> None:
    for name in OPTIONAL:
        (directory / name).unlink()
    assert load_catalog(directory).offers() == catalog.offers()


def test_a_catalog_without_classes_takes_the_bundled_ones_and_an_unknown_model_is_its_own_class(
    directory: Path, edit: Edit
) -> None:
    (directory / CLASSES).unlink()
    path = directory / "gpus.csv"
    text = path.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.startswith("L4,"))
    path.write_text(text + line.replace("L4,", "L5-Next,", 1) + "\n", encoding="utf-8")
    changed = load_catalog(directory)
    assert changed.resolve_gpu("l5-next") == ("L5-Next",)
    assert changed.gpus["L5-Next"].gpu_class == "L5-Next"
    assert "H100-PCIe" in changed.resolve_gpu("H100")


@pytest.mark.parametrize(
    ("change", "column", "problem"),
    [
        (("prices.csv", "us-east-1,*,on_demand,0.8048,", "us-east-1,*,on_demand,0.80.48,"), "price_usd_per_hour", "not a number"),
        (("prices.csv", "us-east-1,*,on_demand,0.8048,", "us-east-1,*,on_demand,0,"), "price_usd_per_hour", "more than 0"),
        (("prices.csv", "us-east-1,*,on_demand,0.8048,", "us-east-1,*,on_demand,-1,"), "price_usd_per_hour", "below 0"),
        (("prices.csv", "us-east-1,*,on_demand,0.8048,", "us-east-1,*,on_demand,nan,"), "price_usd_per_hour", "not a number"),
        (("prices.csv", "us-east-1,*,on_demand,0.8048,", "us-east-1,*,on_demand,,"), "price_usd_per_hour", "empty"),
        (("prices.csv", "aws,g6.xlarge,us-east-1,*,on_demand,", "aws,g6.xlarge,us-east-1,*,rent,"), "purchase_model", "not one of"),
        (("prices.csv", "aws,g6.xlarge,us-east-1,*,on_demand,", "aws,g6.xxl,us-east-1,*,on_demand,"), "instance_type", "not in instances.csv"),
        (("gpus.csv", "\nL4,NVIDIA,gpu,", "\nL4,NVIDIA,toaster,"), "kind", "not one of"),
        (("instances.csv", "\naws,g6.xlarge,g6,gpu,L4,1,", "\naws,g6.xlarge,g6,gpu,L4,one,"), "gpu_count", "not a whole number"),
        (("instances.csv", "\naws,g6.xlarge,g6,gpu,L4,1,", "\naws,g6.xlarge,g6,gpu,L4,0,"), "gpu_count", "no cpu_host"),
        (("instances.csv", "\naws,g6.xlarge,g6,gpu,L4,1,1,", "\naws,g6.xlarge,g6,gpu,L4,2,0.5,"), "gpu_fraction", "only of one GPU"),
        (("instances.csv", "\naws,g6.xlarge,g6,gpu,L4,1,", "\naws,g6.xlarge,g6,gpu,,1,"), "gpu_model", "no cpu_host"),
        (("spot_interruption.csv", "aws,g6.xlarge,ap-south-1,76,10,15,stale,", "aws,g6.xlarge,ap-south-1,76,10,15,odd,"), "suspect_reason", "not in suspect_reasons.csv"),
        (("misc_prices.csv", "aws,nat_gateway,us-east-1,0.045,hour,infracost_2024_07,2024-07-01", "aws,nat_gateway,us-east-1,0.045,hour,infracost_2024_07,2024-07-32"), "as_of", "not a date"),
        (("misc_prices.csv", "aws,nat_gateway,us-east-1,0.045,hour,infracost_2024_07", "aws,nat_gateway,us-east-1,0.045,hour,hearsay"), "source", "not in sources.csv"),
        (("misc_prices.csv", "aws,nat_gateway,", "aws, nat_gateway,"), "item", "spaces"),
    ],
)  # fmt: skip
def test_a_broken_cell_is_an_error_at_its_place(
    directory: Path, edit: Edit, change: tuple[str, str, str], column: str, problem: str
) -> None:
    name, old, new = change
    if old.startswith("us-east-1"):
        old, new = f"aws,g6.xlarge,{old}", f"aws,g6.xlarge,{new}"
    line = edit(name, old, new) + old.startswith("\n")
    with pytest.raises(UsageError, match=f"column '{column}'.*{re.escape(problem)}") as refusal:
        load_catalog(directory)
    where = refusal.value.where
    assert isinstance(where, Position)
    assert (where.file, where.line) == (str(directory / name), line)
    text = (directory / name).read_text(encoding="utf-8").split("\n")
    header, row = text[0].split(","), text[line - 1]
    index = header.index(column)
    assert '"' not in row
    assert where.column == len(",".join(row.split(",")[:index])) + 1 + (index > 0)


def test_positions_count_quoted_cells_as_one(directory: Path, edit: Edit) -> None:
    line = edit(
        "quotas.csv",
        '"All P4, P3 and P2 Spot Instance Requests",vCPU,per region',
        '"All P4, P3 and P2 Spot Instance Requests",,per region',
    )
    with pytest.raises(UsageError, match="column 'unit': empty") as refusal:
        load_catalog(directory)
    where = refusal.value.where
    assert isinstance(where, Position)
    row = (directory / "quotas.csv").read_text(encoding="utf-8").split("\n")[line - 1]
    assert where.line == line
    assert row[where.column - 1 :].startswith(",per region")


def test_a_row_of_the_wrong_width_is_an_error(directory: Path, edit: Edit) -> None:
    line = edit("prices.csv", "aws,g6.xlarge,us-east-1,*,on_demand,", "aws,g6.xlarge,us-east-1,*,on_demand,,")
    with pytest.raises(UsageError, match="14 cells where the header has 13") as refusal:
        load_catalog(directory)
    assert f"prices.csv:{line}:1" in str(refusal.value)


def test_the_same_key_twice_is_an_error_that_names_both_lines(directory: Path) -> None:
    path = directory / "misc_prices.csv"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join([*lines, lines[1], ""]), encoding="utf-8")
    with pytest.raises(UsageError, match="as line 2: aws, nat_gateway, us-east-1") as refusal:
        load_catalog(directory)
    assert f"misc_prices.csv:{len(lines) + 1}:1" in str(refusal.value)


def test_a_missing_column_is_named(directory: Path, edit: Edit) -> None:
    edit("prices.csv", "purchase_model", "purchase")
    with pytest.raises(UsageError, match="no column 'purchase_model'"):
        load_catalog(directory)


def test_columns_are_found_by_name_and_further_ones_are_free(directory: Path, catalog: Catalog) -> None:
    path = directory / "misc_prices.csv"
    rows = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    path.write_text("\n".join(",".join([*reversed(row), "extra"]) for row in rows) + "\n", encoding="utf-8")
    changed = load_catalog(directory)
    assert changed.public_ip_price("aws") == catalog.public_ip_price("aws")


def test_a_file_that_is_not_utf8_is_refused_at_its_line(directory: Path) -> None:
    path = directory / "misc_prices.csv"
    head, rest = path.read_bytes().split(b"gcp,external_ipv4_in_use_standard_vm", 1)
    path.write_bytes(head + b"gcp,\xffexternal_ipv4" + rest)
    line = head.count(b"\n") + 1
    with pytest.raises(UsageError, match="not UTF-8") as refusal:
        load_catalog(directory)
    assert f"misc_prices.csv:{line}:1" in str(refusal.value)


def test_a_byte_order_mark_and_blank_lines_are_fine(directory: Path, catalog: Catalog) -> None:
    path = directory / "misc_prices.csv"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n") + b"\r\n")
    assert load_catalog(directory).public_ip_price("gcp") == catalog.public_ip_price("gcp")


def test_an_unclosed_quote_is_an_error(directory: Path, edit: Edit) -> None:
    edit("misc_prices.csv", "spot 0.0025", '"spot 0.0025')
    with pytest.raises(UsageError, match=r"misc_prices\.csv:"):
        load_catalog(directory)


def test_an_empty_file_is_an_error(directory: Path) -> None:
    (directory / "prices.csv").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match=r"prices\.csv:1:1: no column"):
        load_catalog(directory)


def test_a_directory_where_a_file_should_be(directory: Path) -> None:
    (directory / "prices.csv").unlink()
    (directory / "prices.csv").mkdir()
    with pytest.raises(UsageError, match=r"the catalog has no prices\.csv"):
        load_catalog(directory)


def test_what_a_catalog_gives_cannot_be_changed(catalog: Catalog) -> None:
    with pytest.raises(TypeError):
        catalog.gpus["L4"] = catalog.gpus["T4"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        catalog.gpus["L4"].vendor = "me"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        catalog.offers()[0].zone = "z"  # type: ignore[misc]


def test_the_catalog_imports_nothing_heavy() -> None:
    code = (
        "import sys; from provisioner.catalog.snapshot import load_catalog; load_catalog().offers();"
        "print(sorted({name.split('.')[0] for name in sys.modules} & set(sys.argv[1:])))"
    )
    heavy = ["pydantic", "yaml", "click", "rich", "boto3", "google", "grpc", "pulumi", "numpy", "difflib", "statistics"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_user_without_a_home_folder_has_the_bundled_catalog(monkeypatch):
    """A pipeline may run under a number that has no name; `plan` must not mind."""

    def nobody():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr("pathlib.Path.home", nobody)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert load_catalog().origin.kind == "bundled"


@pytest.mark.parametrize("cell", ["9" * 5000, "1e999", "1e-999", "1e99999999", "inf", "nan", "\u0663", "1_000", "0x10"])
@pytest.mark.parametrize(
    ("file", "column"),
    [
        ("instances.csv", "gpu_count"),
        ("instances.csv", "ram_gib"),
        ("instances.csv", "vcpu"),
        ("gpus.csv", "memory_nominal_mib"),
        ("prices.csv", "price_usd_per_hour"),
    ],
)
def test_a_number_beyond_reason_is_an_error_at_its_place(directory: Path, file: str, column: str, cell: str) -> None:
    path = directory / file
    header, first, rest = path.read_text(encoding="utf-8").split("\n", 2)
    cells = first.split(",")
    cells[header.split(",").index(column)] = cell
    path.write_text("\n".join([header, ",".join(cells), rest]), encoding="utf-8")
    with pytest.raises(UsageError) as caught:
        load_catalog(directory)
    assert isinstance(caught.value.where, Position)
    assert (caught.value.where.file, caught.value.where.line) == (str(path), 2)
    assert column in caught.value.message
    assert len(caught.value.message) < 120
