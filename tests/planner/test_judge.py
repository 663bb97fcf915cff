"""The fit on one named instance type, as the under-sized rule asks it."""

from __future__ import annotations

import pytest

from provisioner.errors import UsageError
from provisioner.planner.judge import offer_fit
from provisioner.sizing.layout import Layout
from provisioner.vocabulary import Fit

LLAMA_70B = {"id": "meta-llama/Llama-3.1-70B-Instruct"}


def test_fits_and_does_not(serve, catalog):
    fits = offer_fit(serve(), catalog, "aws", "us-east-1", "g6e.xlarge")
    assert (fits.fit, fits.gpu, fits.objections) == (Fit.FITS, "L40S", ())
    assert fits.layout == Layout()
    small = offer_fit(serve(model=LLAMA_70B), catalog, "aws", "us-east-1", "g6e.xlarge")
    assert small.fit is Fit.DOES_NOT_FIT
    assert "usable of L40S" in small.objections[0]
    assert small.footprint.per_gpu.total_bytes > small.footprint.usable_bytes


def test_best_layout_is_taken(serve, catalog):
    found = offer_fit(serve(model=LLAMA_70B), catalog, "aws", "us-east-1", "p4de.24xlarge")
    assert found.fit is Fit.FITS
    assert found.layout.tensor_parallel in (2, 4, 8)


def test_a_stated_layout_is_judged_as_it_is(serve, catalog):
    spec = serve(model=LLAMA_70B)
    alone = offer_fit(spec, catalog, "aws", "us-east-1", "p4de.24xlarge", Layout())
    assert alone.fit is Fit.DOES_NOT_FIT
    odd = offer_fit(spec, catalog, "aws", "us-east-1", "p4de.24xlarge", Layout(tensor_parallel=6))
    assert odd.fit is Fit.DOES_NOT_FIT
    assert any("do not divide by tensor_parallel 6" in objection for objection in odd.objections)
    wide = offer_fit(spec, catalog, "aws", "us-east-1", "g6e.12xlarge", Layout(tensor_parallel=8))
    assert any("a copy takes 8 GPUs, g6e.12xlarge has 4" in objection for objection in wide.objections)
    copies = offer_fit(serve(), catalog, "aws", "us-east-1", "g6e.xlarge", Layout(replicas=5))
    assert copies.fit is Fit.FITS


@pytest.mark.parametrize(
    ("sections", "name", "words"),
    [
        ({}, "trn1.2xlarge", "runtime of their own"),
        ({"model": {"weights": "bf16"}}, "g4dn.12xlarge", "no bf16"),
        ({"inference": {"tensor_parallel": 4}}, "g6e.xlarge", "no layout of the model"),
    ],
)
def test_what_keeps_it_from_running(serve, catalog, sections, name, words):
    found = offer_fit(serve(**sections), catalog, "aws", "us-east-1", name)
    assert found.fit is Fit.DOES_NOT_FIT
    assert any(words in objection for objection in found.objections)


def test_type_without_a_gpu(serve, catalog):
    found = offer_fit(serve(), catalog, "gcp", "us-central1", "n1-standard-8")
    assert (found.fit, found.gpu) == (Fit.DOES_NOT_FIT, None)


def test_unknown_type(serve, catalog):
    with pytest.raises(UsageError, match=r"no instance type 'g99\.xlarge' of aws"):
        offer_fit(serve(), catalog, "aws", "us-east-1", "g99.xlarge")


def test_requirements_do_not_matter(serve, catalog):
    """A plan is judged by memory, not by whether its author changed the price limit since."""
    spec = serve(placement={"max_price": "0.01 USD/h", "gpus": ["H100"], "regions": ["us-west-2"]})
    assert offer_fit(spec, catalog, "aws", "eu-central-1", "g6e.xlarge").fit is Fit.FITS


def test_a_plan_and_the_rule_agree(serve, plan_of, catalog):
    plan = plan_of(serve())
    for offer in plan.failover:
        found = offer_fit(serve(), catalog, offer.cloud, offer.region, offer.instance_type, offer.layout)
        assert found.fit is Fit.FITS
