"""Reasons and grouped rejections."""

from __future__ import annotations

from provisioner.planner.explain import GROUPS_SHOWN, group_rejections, refusal_of
from provisioner.planner.plan import Rejection


def rejection(name: str, filter_name: str, needed: str | None = None, available: str | None = None) -> Rejection:
    return Rejection(f"aws/*/*/{name}/*", filter_name, "because", needed, available)


def test_groups_are_by_filter_with_the_nearest_miss():
    groups = group_rejections(
        [
            rejection("a", "memory", "90.0 GiB per GPU", "20.0 GiB usable"),
            rejection("b", "memory", "21.0 GiB per GPU", "20.0 GiB usable"),
            rejection("b", "memory", "40.0 GiB per GPU", "20.0 GiB usable"),
            rejection("c", "cloud", "aws", "gcp"),
        ]
    )
    assert [(group.filter, group.instance_types) for group in groups] == [("memory", ("a", "b")), ("cloud", ("c",))]
    assert groups[0].example.offer == "aws/*/*/b/*"


def test_unknown_filter_names_come_last_as_they_are():
    groups = group_rejections([rejection("a", "zebra"), rejection("a", "memory", "1", "2")])
    assert [group.words for group in groups] == ["too little GPU memory", "zebra"]


def test_what_came_furthest_is_read_first_and_named_first():
    """One offer over the budget says more than eighty that are too small."""
    found = [rejection(f"t{number}", "memory", "9 GiB", "8 GiB") for number in range(80)]
    found += [rejection("b", "budget", "100 USD/run", "120 USD/run"), rejection("c", "runtime")]
    assert [group.filter for group in group_rejections(found)] == ["budget", "memory", "runtime"]


def test_a_person_reads_about_ten_lines(serve, plan_of):
    groups = group_rejections(plan_of(serve()).rejections)
    assert len(groups) <= GROUPS_SHOWN + 2
    assert sum(len(group.instance_types) for group in groups) > 50


def test_refusal_names_causes_not_requirements(serve, plan_of):
    text = refusal_of(plan_of(serve(inference={"concurrency": 64}, placement={"gpus": ["L4"], "max_gpus": 1})))
    assert text.startswith("nothing fits case: ")
    assert "too little GPU memory" in text
    assert "other GPU than asked for" not in text


def test_reasons_of_a_single_gpu(serve, plan_of):
    reasons = plan_of(serve()).choice.reasons
    assert reasons[0].startswith("needs ")
    assert "usable on" in reasons[0]
    assert any("instance types that meet everything" in reason for reason in reasons)
    assert any("one GPU holds a copy" in reason for reason in reasons)
    assert any("bound by memory-bandwidth" in reason for reason in reasons)


def test_reasons_of_a_copy_over_several_gpus(serve, plan_of):
    spec = serve(model={"id": "meta-llama/Llama-3.1-70B-Instruct"}, placement={"gpus": ["A100-80GB"]})
    assert any("GPUs over NVLink: no single GPU on offer holds it" in reason for reason in plan_of(spec).choice.reasons)


def test_capacity_as_asked_for(serve, plan_of):
    reasons = plan_of(serve(placement={"capacity": "on-demand"})).choice.reasons
    assert "on-demand, as asked for" in reasons
