"""Cases of the hygiene rules."""

from __future__ import annotations

from typing import Any

from policies.facts import UNKNOWN, Figure, PlacementFacts
from tests.policies.builders import gcp, machine, placement, spec
from tests.policies.cases.common import Cases


def stated(value: str | None, found: Any) -> PlacementFacts:
    sound = Figure(key="verdict", name="verdict", stated="fits", found="fits")
    return placement(figures=(sound, Figure(key="choice.x", name="x", stated=value, found=found)))


def made_from(catalog: str, found: Any) -> PlacementFacts:
    return placement(catalog_stated=catalog, catalog_found=found)


HYGIENE = {
    "owner-tag": Cases(
        passes=(spec(), machine(), spec(tags={"Team": "search"}), machine(tags={"gpuprov-owner": "ana"})),
        fails=(spec(tags={}), machine(tags={"Name": "gpu"}), spec(tags={"owner": ""})),
        boundary=(spec(tags={"owner": "a"}), spec(tags={"owners": "a"})),
        unknowns=(machine(tags=UNKNOWN), spec(tags=UNKNOWN)),
    ),
    "required-tags": Cases(
        passes=(spec(), machine(tags={"team": "a", "owner": "b", "x": "y"}), spec(tags={"team": "", "owner": ""})),
        fails=(spec(tags={}), machine(tags={"team": "a"}), spec(tags={"owner": "a"})),
        boundary=(spec(tags={"team": "a", "owner": "b"}), spec(tags={"team": "a", "Owner": "b"})),
        unknowns=(machine(tags=UNKNOWN),),
        parameters={"keys": ("team", "owner")},
    ),
    "unsized-resource": Cases(
        passes=(machine(), gcp(), machine(workload_path="a/b.yaml")),
        fails=(
            machine(workload_path=None),
            gcp(workload_path=None),
            machine(workload_path=None, instance_type="p5.48xlarge"),
        ),
        boundary=(machine(workload_path="w"), machine(workload_path=None)),
        unknowns=(machine(workload_path=UNKNOWN), machine(has_gpu=UNKNOWN)),
    ),
    "workload-tag": Cases(
        passes=(machine(), gcp(), machine(workload_path="a/b.yaml")),
        fails=tuple(
            machine(workload_error=error) for error in ("no such file", "workload.yaml:3:1: unknown key", "not UTF-8")
        ),
        boundary=(machine(workload_error=None), machine(workload_error="")),
        unknowns=(machine(workload_path=UNKNOWN),),
    ),
    "plan-intact": Cases(
        passes=tuple(placement(digest_stated=digest, digest_found=digest) for digest in ("sha256:a", "sha256:b", "")),
        fails=tuple(placement(digest_stated="sha256:a", digest_found=digest) for digest in ("sha256:b", None, "")),
        boundary=(
            placement(digest_stated="sha256:aa", digest_found="sha256:aa"),
            placement(digest_stated="sha256:aa", digest_found="sha256:ab"),
        ),
        unknowns=(placement(digest_stated="sha256:a", digest_found=UNKNOWN),),
    ),
    "plan-figures": Cases(
        passes=(stated("2 GiB", "2 GiB"), stated("1 GiB", "1 GiB"), stated(None, None)),
        fails=(stated("1 GiB", "20 GiB"), stated("0.1 USD/h", None), stated(None, "0.1 USD/h")),
        boundary=(
            stated("1.0 GiB (1073741824 bytes)", "1.0 GiB (1073741824 bytes)"),
            stated("1.0 GiB (1073741824 bytes)", "1.0 GiB (1073741825 bytes)"),
        ),
        unknowns=(placement(figures=UNKNOWN), stated("1 GiB", UNKNOWN)),
    ),
    "plan-catalog": Cases(
        passes=(made_from("sha256:a", "sha256:a"), made_from("sha256:b", "sha256:b"), made_from("x", "x")),
        fails=(made_from("sha256:a", "sha256:b"), made_from("", "sha256:b"), made_from("sha256:A", "sha256:a")),
        boundary=(made_from("sha256:a", "sha256:a"), made_from("sha256:a", "sha256:aa")),
        unknowns=(made_from("sha256:a", UNKNOWN), made_from("sha256:a", None)),
    ),
}
