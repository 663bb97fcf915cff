"""What attempts of a launch leave for later plans."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from provisioner.catalog.files import SUPPLY
from provisioner.clouds.cloud import Placement
from provisioner.vocabulary import CapacityType
from stacks.failures import Attempt
from stacks.supply import remember, supply_code

AT = datetime(2026, 11, 30, 14, 15, tzinfo=UTC)
KEY = "aws/us-east-1/use1-az1/g6.xlarge/on-demand"
ICE = "InsufficientInstanceCapacity"


def kept(folder):
    path = folder / SUPPLY
    return path.read_text().splitlines()[1:] if path.exists() else []


def test_refusals_and_grants_of_a_real_cloud_are_kept(tmp_path):
    attempts = [
        Attempt(KEY, "capacity", f"{ICE}: no capacity in us-east-1a"),
        Attempt(KEY.replace("az1", "az2"), "created", "i-0abc"),
    ]
    assert remember("aws", attempts, AT, folder=tmp_path) is None
    assert kept(tmp_path) == [
        f"aws,us-east-1,use1-az1,g6.xlarge,on-demand,refused,{ICE},,2026-11-30T14:15:00Z",
        "aws,us-east-1,use1-az2,g6.xlarge,on-demand,granted,,,2026-11-30T14:15:00Z",
    ]


@pytest.mark.parametrize(
    "attempt",
    [
        Attempt(KEY, "capacity", "no subnet of vpc-1 is in use1-az1"),
        Attempt(KEY, "capacity", "InsufficientFreeAddressesInSubnet: none left"),
        Attempt(KEY, "capacity", "i-0abc was taken back while it started (terminated)"),
        Attempt(KEY, "quota", "VcpuLimitExceeded: too many"),
        Attempt(KEY, "skipped", f"{ICE}: told of another"),
        Attempt(KEY, "adopted", "i-0abc"),
        Attempt("no key", "created", "i-0abc"),
    ],
)
def test_what_says_nothing_about_supply_is_not_kept(tmp_path, attempt):
    assert remember("aws", [attempt], AT, folder=tmp_path) is None
    assert kept(tmp_path) == []


def test_nothing_of_the_sandbox_is_kept(tmp_path):
    remember("sandbox", [Attempt(KEY, "created"), Attempt(KEY, "capacity", f"{ICE}: none")], AT, folder=tmp_path)
    assert kept(tmp_path) == []


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    text = remember("aws", [Attempt(KEY, "created")], AT, folder=blocked)
    assert text is not None
    assert "could not be kept" in text
    (tmp_path / SUPPLY).mkdir()  # the folder can be written, the file cannot
    assert "could not be kept" in (remember("aws", [Attempt(KEY, "created")], AT, folder=tmp_path) or "")


@pytest.mark.parametrize("zone", ["use1-az1", None])
@pytest.mark.parametrize("capacity", list(CapacityType))
def test_a_placement_is_read_back_from_its_key(zone, capacity):
    place = Placement("aws", "us-east-1", zone, "g6.xlarge", capacity)
    assert Placement.of_key(place.key) == place


@pytest.mark.parametrize("text", ["", "a/b/c/d", "a/b/c/d/free", "a/b/c/d/spot/e"])
def test_another_text_is_no_placement(text):
    assert Placement.of_key(text) is None


def test_a_code_stands_in_front():
    assert supply_code(f"{ICE}: none") == ICE
    assert supply_code(f"why: {ICE}: none") is None
