"""Stop or terminate: the whole table of clouds, markets and kinds of disk."""

from __future__ import annotations

import pytest

from provisioner.reaper.ending import DISKS, ending
from provisioner.vocabulary import CapacityType

STOPS = {
    ("aws", "on-demand", "network"),
    ("aws", "on-demand", "local"),
    ("aws", "reserved", "network"),
    ("aws", "reserved", "local"),
    ("gcp", "on-demand", "network"),
    ("gcp", "spot", "network"),
    ("gcp", "reserved", "network"),
}


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
@pytest.mark.parametrize("market", list(CapacityType))
@pytest.mark.parametrize("disk", DISKS)
def test_each_cell_stops_where_it_can_and_says_why(cloud, market, disk):
    found = ending(cloud, market, disk)
    assert (found.how == "stop") == ((cloud, str(market), disk) in STOPS)
    assert found.reason


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
@pytest.mark.parametrize("market", list(CapacityType))
@pytest.mark.parametrize("disk", DISKS)
def test_the_spec_may_terminate_anything_and_stop_spot_of_aws_beside_what_stops_by_itself(cloud, market, disk):
    assert ending(cloud, market, disk, "terminate").how == "terminate"
    persistent = {("aws", "spot", "network"), ("aws", "spot", "local")}
    assert (ending(cloud, market, disk, "stop").how == "stop") == ((cloud, str(market), disk) in STOPS | persistent)


@pytest.mark.parametrize("disk", DISKS)
def test_a_market_that_is_not_known_is_stopped_unless_the_spec_says_otherwise(disk):
    found = ending("aws", None, disk)
    assert (found.how, "not known" in found.reason) == ("stop", True)
    assert ending("aws", None, disk, "terminate").how == "terminate"
