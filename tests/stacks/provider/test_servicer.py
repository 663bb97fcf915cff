from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pulumi.provider.experimental import provider as engine

from provisioner.errors import CapacityError, InternalBug, Rejected, UsageError
from stacks import failures
from stacks.failures import Attempt
from stacks.provider.lifeline import Lifeline
from stacks.provider.plugin import GpuprovProvider
from stacks.provider.servicer import error_text, failure_of
from stacks.provider.session import PartialFailure, ProviderFailure
from stacks.provider.values import plain_map, wrap_map
from tests.fakes.cloud import FakeCloud
from tests.fakes.mini_engine import program, urn

ATTEMPTS = (Attempt("aws/r1/a/g6.xlarge/spot", "capacity", "none left"),)


def test_each_failure_becomes_one_of_ours() -> None:
    cause = CapacityError("none left")
    partial = PartialFailure("i-1", {}, cause, ATTEMPTS)
    assert failure_of(partial) == (cause, ATTEMPTS, partial)
    assert failure_of(ProviderFailure(cause, ATTEMPTS)) == (cause, ATTEMPTS, None)
    assert failure_of(cause) == (cause, (), None)


def test_a_bug_keeps_its_traceback_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stacks.provider.servicer.gettempdir", lambda: str(tmp_path))
    with pytest.raises(KeyError) as caught:
        _break()
    found, _, _ = failure_of(caught.value)
    assert isinstance(found, InternalBug)
    (log,) = tmp_path.glob("*.log")
    assert str(log) in str(found)
    assert "test_servicer.py" in log.read_text()
    assert "test_servicer.py" not in str(found)
    monkeypatch.setattr("stacks.provider.servicer.gettempdir", lambda: str(tmp_path / "absent"))
    assert "could not be kept" in str(failure_of(KeyError("zone"))[0])


def _break() -> None:
    raise KeyError("zone")


def test_texts_for_people_and_for_gpuprov(monkeypatch: pytest.MonkeyPatch) -> None:
    error = Rejected("no such image", remedy="pin another")
    text = error_text(error, ATTEMPTS)
    assert text == "no such image; pin another\n  aws/r1/a/g6.xlarge/spot: capacity none left"
    monkeypatch.setenv(failures.MARKS_VARIABLE, "1")
    decoded = failures.decode(error_text(error, ATTEMPTS))
    assert decoded is not None
    assert (decoded.error.kind, decoded.attempts) == ("rejected", ATTEMPTS)


def run(call: Any) -> Any:
    loop = asyncio.new_event_loop()  # `asyncio.run` would leave the thread without a loop, which programs in tests need
    try:
        return loop.run_until_complete(call)
    finally:
        loop.close()


@pytest.fixture
def plugin(home: Path) -> GpuprovProvider:
    return GpuprovProvider(home, Lifeline(), lambda *_: None, lambda *_: None)


def configure(plugin: GpuprovProvider, cloud: str | None = None, **variables: str) -> str:
    args = wrap_map({"cloud": cloud})
    answer = run(plugin.configure(engine.ConfigureRequest(variables, args, accept_secrets=True, accept_resources=True)))
    assert (answer.accept_secrets, answer.accept_resources, answer.supports_preview) == (True, False, True)
    assert plugin._sessions
    return plugin._provider


def test_the_cloud_comes_from_the_configuration_then_the_environment_then_is_the_sandbox(
    plugin: GpuprovProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert configure(plugin) == "sandbox"
    monkeypatch.setenv("GPUPROV_CLOUD", "gcp")
    assert configure(plugin, "sandbox") == "sandbox"
    with monkeypatch.context() as patch:
        patch.setattr("stacks.provider.plugin.open_cloud", lambda *_: FakeCloud())
        assert configure(plugin) == "gcp"
    assert configure(plugin, "sandbox") == "sandbox"
    assert configure(plugin, **{"gpuprov:config:cloud": "sandbox"}) == "sandbox"
    with pytest.raises(UsageError, match="no cloud 'azure'"):
        configure(plugin, "azure")


def test_each_cloud_settings_of_a_spec_open_the_cloud_once(
    plugin: GpuprovProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []
    monkeypatch.setattr(
        "stacks.provider.plugin.open_cloud", lambda _n, _h, s, *_: opened.append(s) or FakeCloud(name="aws")
    )
    configure(plugin, "aws")
    for vpc in ("vpc-1", "vpc-2", "vpc-1"):
        workload = {"name": "chat", "task": "serve", "aws": {"vpc": vpc, "image": "ami-1"}}
        news = wrap_map({**program(workload=workload)})
        made = run(plugin.create(engine.CreateRequest(urn("launch"), news, 0, preview=False)))
        assert plain_map(made.properties)["cloudSettings"] == {"vpc": vpc}
        run(plugin.delete(engine.DeleteRequest(urn("launch"), made.resource_id, made.properties, 0)))
    assert opened == [None, {"vpc": "vpc-1"}, {"vpc": "vpc-2"}]


def test_a_wrong_configuration_is_told_before_anything_runs(plugin: GpuprovProvider) -> None:
    def failures_of(cloud: Any) -> list[str]:
        request = engine.CheckRequest("urn", {}, wrap_map({"cloud": cloud}), b"")
        return [failure.property for failure in run(plugin.check_config(request)).failures or []]

    assert failures_of("azure") == ["cloud"]
    assert failures_of("gcp") == []
    assert failures_of(None) == []


def test_unknown_types_and_requests_before_the_configuration_are_refused(plugin: GpuprovProvider) -> None:
    request = engine.CheckRequest("urn:pulumi:dev::chat::gpuprov:index:Cluster::c", {}, {}, b"")
    with pytest.raises(UsageError, match="before it was configured"):
        run(plugin.check(request))
    configure(plugin)
    with pytest.raises(UsageError, match="no resource type gpuprov:index:Cluster"):
        run(plugin.check(request))


def test_an_import_is_refused_with_the_way_that_works(plugin: GpuprovProvider) -> None:
    configure(plugin)
    request = engine.ReadRequest("urn:pulumi:dev::chat::gpuprov:index:GpuInstance::gpu", "i-1", {}, {})
    with pytest.raises(UsageError, match="cannot be imported by id"):
        run(plugin.read(request))


def test_another_cloud_is_a_change_of_the_configuration(plugin: GpuprovProvider) -> None:
    before, after = wrap_map({"cloud": "sandbox"}), wrap_map({"cloud": "aws"})
    assert run(plugin.diff_config(engine.DiffRequest("urn", "id", before, after, []))).changes
    assert not run(plugin.diff_config(engine.DiffRequest("urn", "id", before, before, []))).changes
