"""Reading files: what cannot be read, warnings, positions, and a model's config.json."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from provisioner.errors import Position, SpecError
from provisioner.workload.keys import all_keys
from provisioner.workload.load import Loaded, load, parse
from provisioner.workload.pending import PENDING
from provisioner.workload.spec import Workload
from provisioner.workload.tree import dotted

Read = Callable[[str | bytes], Loaded]
SERVE = "version: 1\nname: case\ntask: serve\nmodel: {id: a/b}\n"
SPECS = Path(__file__).parent / "specs"


def test_a_file_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="No such file") as caught:
        load(tmp_path / "none.yaml")
    assert caught.value.where == str(tmp_path / "none.yaml")
    assert caught.value.remedy


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="directory"):
        load(tmp_path)


def test_a_path_that_no_file_can_have() -> None:
    with pytest.raises(SpecError, match="cannot read"):
        load(Path("a\0b"))


def test_content_without_a_file() -> None:
    assert parse(SERVE.encode(), Path("x.yaml")).workload.name == "case"
    with pytest.raises(SpecError) as caught:
        parse(b"version: 2", Path("x.yaml"))
    assert str(caught.value.where) == "x.yaml:1:1" or str(caught.value.where) == "x.yaml:1:10"


def test_positions_are_shown_with_the_path_as_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("w.yaml").write_text(SERVE + "placement:\n  gpus: [L4, T4]\n")
    loaded = load(Path("w.yaml"))
    assert loaded.path == Path("w.yaml")
    assert loaded.position("placement.gpus[1]") == Position("w.yaml", 6, 14)
    assert loaded.position("placement.gpus") == Position("w.yaml", 6, 3)
    assert loaded.position("placement.gpus[7]") == Position("w.yaml", 6, 3)
    assert loaded.position("placement.max_gpus") == Position("w.yaml", 5, 1)
    assert loaded.position("inference.context_tokens") == Position("w.yaml", 1, 1)
    assert loaded.position("model.id") == Position("w.yaml", 4, 13)


def test_nothing_is_warned_of_where_all_is_built(read: Read) -> None:
    assert read(SERVE + "storage: {data: 1GiB}\nplacement: {gpus: [L4]}\ntags: {a: b}\n").warnings == ()


def test_every_key_that_comes_later_is_named_once() -> None:
    warned = [warning.split(" ")[0] for path in sorted(SPECS.glob("*.yaml")) for warning in load(path).warnings]
    serve = [warning.split(" ")[0] for warning in load(SPECS / "serve.yaml").warnings]
    assert len(serve) == len(set(serve))
    assert set(PENDING) <= set(warned)


def test_the_table_of_what_comes_later_names_real_keys() -> None:
    assert set(PENDING) <= {dotted(key) for key in all_keys(Workload)}


def test_a_config_is_read_beside_the_spec_and_becomes_part_of_it(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 64,
        "rope_theta": 500000.0,
        "rms_norm_eps": 1e-05,
        "a": None,
    }
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    spec = tmp_path / "workload.yaml"
    spec.write_text(SERVE.replace("id: a/b", "config: ./m/config.json"))
    workload = load(spec).workload
    assert workload.model.config == config
    document = json.loads(json.dumps(workload.to_document()))
    assert Workload.from_document(document).digest == workload.digest
    spec.write_text(SERVE.replace("id: a/b", "config: m"))
    assert load(spec).workload.digest == workload.digest
    assert load(spec).position("model.config.hidden_size").line == 4


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        (b"", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[1]", "holds no JSON object"),
        (b"{}", "an empty one"),
        (b'{"a": NaN}', "not finite"),
        (b'{"a": ' + b"1" * 5000 + b"}", "is not JSON"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, "is not JSON"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "is not JSON"),
        (b" " * (2**20 + 1), "larger than 1 MiB"),
    ],
)
def test_a_config_that_is_none(content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    spec = tmp_path / "workload.yaml"
    spec.write_text(SERVE.replace("id: a/b", "config: config.json"))
    with pytest.raises(SpecError, match=message) as caught:
        load(spec)
    assert isinstance(caught.value.where, Position)
    assert (caught.value.where.file, caught.value.where.line) == (str(spec), 4)
    assert caught.value.remedy


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/stdin", '"a\\0b"', "''", "5", "[a]", "true"])
def test_a_config_that_is_no_path_of_a_file(path: str, tmp_path: Path) -> None:
    spec = tmp_path / "workload.yaml"
    spec.write_text(SERVE.replace("id: a/b", f"config: {path}"))
    with pytest.raises(SpecError) as caught:
        load(spec)
    assert isinstance(caught.value.where, Position)
    assert caught.value.where.line == 4
