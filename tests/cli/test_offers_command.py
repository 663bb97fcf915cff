"""``gpuprov offers`` and ``gpuprov prices show`` from outside."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from provisioner.catalog.files import BUNDLED
from provisioner.cli.main import run


def document(capsys: pytest.CaptureFixture[str], *arguments: str, exit_code: int = 0) -> dict[str, Any]:
    assert run([*arguments, "--format", "json"]) == exit_code
    parsed = json.loads(capsys.readouterr().out)
    assert isinstance(parsed, dict)
    return parsed


def test_json_is_one_document_with_contracted_forms(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(
        capsys, "offers", "--gpu", "L4", "--region", "us-east-1", "--capacity", "on-demand", "--limit", "3"
    )
    assert found["schema"] == "gpuprov.offers/1"
    assert found["catalog"]["digest"].startswith("sha256:")
    assert found["total"] > 3
    assert len(found["offers"]) == 3
    first = found["offers"][0]
    assert first["instance_type"] == "g6f.large"
    assert first["price_usd_per_hour"] == "0.202"
    assert first["price_as_of"] == "2026-07-20"
    assert (first["gpu"], first["gpus_per_instance"]) == ("L4", 0.125)
    assert first["gpu_memory_usable_bytes"] < first["gpu_memory_api_bytes"] < first["gpu_memory_nominal_bytes"]
    assert found["excluded"] == []


def test_json_has_no_ages_and_is_the_same_twice(capsys: pytest.CaptureFixture[str]) -> None:
    outputs = []
    for _ in range(2):
        assert run(["offers", "--gpu", "T4", "--cloud", "gcp", "--format", "json"]) == 0
        captured = capsys.readouterr()
        outputs.append(captured.out)
        assert "days old" in captured.err
        assert "old" not in captured.out
    assert outputs[0] == outputs[1]


def test_an_unknown_price_is_null_and_last(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "offers", "--instance-type", "p5e.48xlarge")
    prices = [offer["price_usd_per_hour"] for offer in found["offers"]]
    assert prices[-1] is None
    assert None not in prices[: prices.index(None)]
    assert "0" not in prices


def test_excluded_offers_come_with_codes_and_their_meaning(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "offers", "--instance-type", "p3.2xlarge", "--excluded")
    assert found["offers"] == []
    assert {code for one in found["excluded"] for code in one["codes"]} == {
        "status_not_listed",
        "not_offered_here",
        "not_offered_2026_10",
    }
    assert run(["offers", "--instance-type", "p3.2xlarge", "--excluded"]) == 0
    captured = capsys.readouterr()
    assert "kept out: status_not_listed" in captured.out
    assert "status_not_listed: the cloud's newest listing" in captured.err
    assert "no offer matches" in captured.err


def test_a_table_shows_twenty_and_says_how_many_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["offers", "--gpu", "H100"]) == 0
    captured = capsys.readouterr()
    assert captured.out.count("x H100") == 20
    assert "20 of " in captured.err
    assert "USD/h" in captured.out


def test_quiet_leaves_only_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--quiet", "offers", "--gpu", "H100", "--limit", "1"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert captured.out.count("x H100") == 1


def test_max_price_is_money_per_hour(capsys: pytest.CaptureFixture[str]) -> None:
    found = document(capsys, "offers", "--gpu", "L4", "--capacity", "on-demand", "--max-price", "0.21 USD/h")
    assert found["total"] > 0
    assert all(float(offer["price_usd_per_hour"]) <= 0.21 for offer in found["offers"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--gpu", "A100"), "A100-40GB or A100-80GB"),
        (("--gpu", "L41"), "nearest: L4"),
        (("--region", "us-est-1"), "us-east-1"),
        (("--instance-type", "g6.xlrg"), "g6.xlarge"),
        (("--max-price", "3"), "12.50 USD/h"),
        (("--max-price", "3 USD/month"), "12.50 USD/h"),
        (("--limit", "0"), "--limit"),
        (("--cloud", "azure"), "aws"),
        (("--catalog", "/nowhere"), "no such catalog directory"),
    ],
)
def test_a_wrong_argument_is_exit_2_with_a_remedy(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    assert run(["offers", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("error: ")
    assert words in captured.err


def test_a_broken_catalog_names_the_cell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "catalog"
    shutil.copytree(BUNDLED, target)
    path = target / "prices.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("on_demand,0.8048,", "on_demand,free,"), encoding="utf-8")
    failure = document(capsys, "offers", "--catalog", str(target), exit_code=2)
    assert failure["schema"] == "gpuprov.error/1"
    assert failure["where"].startswith(f"{path}:")
    assert "price_usd_per_hour" in failure["message"]


def test_the_environment_names_the_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "catalog"
    shutil.copytree(BUNDLED, target)
    path = target / "prices.csv"
    old, new = "aws,g6.xlarge,us-east-1,*,on_demand,0.8048,", "aws,g6.xlarge,us-east-1,*,on_demand,0.79,"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    monkeypatch.setenv("GPUPROV_CATALOG", str(target))
    found = document(
        capsys, "offers", "--instance-type", "g6.xlarge", "--region", "us-east-1", "--capacity", "on-demand"
    )
    assert {offer["price_usd_per_hour"] for offer in found["offers"]} == {"0.79"}


def test_prices_show_gives_dates_in_json_and_ages_to_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prices", "show", "--cloud", "aws", "--format", "json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["schema"] == "gpuprov.prices/1"
    spot = [one for one in found["sources"] if one["kind"] == "spot"]
    assert [(one["as_of"], one["rows"]) for one in spot] == [("2026-02-01", 573)]
    assert "days old" not in captured.out
    assert "aws spot from aws_skypilot_2026_02: 2026-02-01 (" in captured.err


def test_prices_show_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prices", "show", "--cloud", "gcp"]) == 0
    assert "gcp_karpenter_2026_08" in capsys.readouterr().out


def test_prices_of_an_unknown_cloud_are_exit_2_with_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["prices", "show", "--cloud", "nimbus"]) == 2
    assert "runpod" in capsys.readouterr().err
