"""An account whose people may not ask every region: what is elsewhere is shown, kept and ended all the same."""

from __future__ import annotations

import json

import pytest

from provisioner.cli.main import run
from provisioner.errors import CredentialsError
from stacks.clouds import list_within
from stacks.inventory import look


@pytest.fixture
def denied(aws_rig):
    """A machine in us-east-1, and a policy that denies eu-west-1."""
    aws_rig.running()
    aws_rig.fake.inject("DescribeInstances", "UnauthorizedOperation", region="eu-west-1", times=99)
    return aws_rig


def test_a_region_matters_only_where_the_stack_may_have_something(denied):
    stack_id = denied.request().tags["gpuprov:stack-id"]
    shown = look(denied.cloud, (stack_id,), {"us-east-1"})
    assert {entry.kind for entry in shown.objects} >= {"instance", "volume"}
    for regions in ((), {"us-east-1", "eu-west-1"}):
        with pytest.raises(CredentialsError, match="UnauthorizedOperation"):
            list_within(denied.cloud, regions)


def test_reap_looks_after_the_regions_that_answer_and_says_which_do_not(denied, capsys):
    assert run(["reap", "--cloud", "aws", "--report", "--format", "json"]) == 3
    shown = capsys.readouterr()
    document = json.loads(shown.out)
    assert [entry["region"] for entry in document["objects"]] == ["us-east-1"]
    assert document["unlisted_regions"] == ["eu-west-1"]
    assert document["error"]["code"] == 3
    assert shown.err.count("error:") == 1
    assert "eu-west-1 could not be listed, so nothing was changed there" in shown.err


def test_gc_never_calls_an_account_clean_that_it_could_not_list(aws_rig, capsys):
    aws_rig.fake.inject("DescribeInstances", "UnauthorizedOperation", times=99, region="eu-west-1")
    assert run(["gc", "--cloud", "aws"]) == 3
    shown = capsys.readouterr()
    assert shown.out == "nothing to remove in what could be listed\n"
    assert "eu-west-1 could not be listed" in shown.err
