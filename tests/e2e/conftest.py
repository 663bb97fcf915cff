"""A fresh home with the installed commands for each end-to-end test."""

from __future__ import annotations

import pytest

from tests.clouds.conftest import load_models_once
from tests.e2e.account import Account
from tests.e2e.bench import Bench
from tests.fakes.aws import FakeAws
from tests.fakes.aws_journal import Journal, keep_record

_PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Keep whether a test has passed, for what is looked at after it."""
    report = yield
    if call.when == "call":
        item.stash[_PASSED] = report.passed
    return report


@pytest.fixture
def bench(tmp_path):
    """A home of its own, with a data disk in its spec."""
    return Bench(tmp_path / "bench", extra="storage: {data: 50GiB}")


@pytest.fixture
def make_bench(tmp_path):
    """Further homes."""
    return lambda name="other", **options: Bench(tmp_path / f"bench-{name}", **options)


@pytest.fixture(scope="module")
def aws_server():
    """One emulated account a module; ``fake`` empties it."""
    made = FakeAws().start()
    yield made
    made.stop()


@pytest.fixture
def fake(aws_server, monkeypatch, request):
    """An empty emulated account that the commands reach: what each calls must be allowed by the policy that is printed for it."""
    aws_server.reset()
    for name, value in aws_server.environment.items():
        monkeypatch.setenv(name, value)
    journal = Journal()
    aws_server.journal = journal.note
    yield aws_server
    aws_server.journal = lambda _call: None
    assert journal.refused == []
    if request.node.stash.get(_PASSED, False):
        keep_record(request.node.nodeid.removeprefix("tests/e2e/"), journal)


@pytest.fixture
def account(fake, home, monkeypatch, capsys):
    """The account with machines put into it, and commands in this process."""
    import botocore.session

    # Each session would read the SDK's description of EC2 again, 3 MB of JSON.
    monkeypatch.setattr(botocore.session, "create_loader", load_models_once)
    return Account(fake, home, monkeypatch, capsys)
