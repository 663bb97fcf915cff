"""Cases of the sizing rules."""

from __future__ import annotations

from dataclasses import replace

from policies.facts import UNKNOWN, Subject
from provisioner.planner.judge import OfferFit
from provisioner.sizing.layout import Layout
from provisioner.units import GIB
from provisioner.vocabulary import Fit
from tests.policies.builders import candidate, fit, placement
from tests.policies.cases.common import NO_FIT, NOT_KNOWN, SPLIT, Cases, plan

SIZING = {
    "under-sized": Cases(
        passes=(
            placement(),
            placement(candidate(), candidate(key="failover[1]")),
            placement(candidate(fit=fit(19 * GIB, 21 * GIB))),
        ),
        fails=(
            placement(candidate(fit=NO_FIT)),
            placement(candidate(), candidate(key="failover[1]", fit=NO_FIT)),
            placement(plan=plan("nothing-fits", ("memory", "30.0 GiB per GPU", "20.3 GiB usable")), candidates=()),
            placement(candidate(fit=OfferFit(Fit.DOES_NOT_FIT, None, None, ("g6.xlarge has no GPU",), None))),
            placement(candidate(layout=Layout(replicas=3), instances=2)),
        ),
        boundary=(placement(candidate(fit=fit(20 * GIB))), placement(candidate(fit=fit(20 * GIB + 1)))),
        unknowns=(
            placement(NOT_KNOWN),
            placement(candidate(instance_type="p9.new", fit=None)),
            placement(candidates=UNKNOWN),
            placement(workload=UNKNOWN),
            placement(candidate(layout=Layout(replicas=2), instances=UNKNOWN)),
        ),
    ),
    "no-offer": Cases(
        passes=(placement(plan=replace(plan("fits"), choice=candidate())),) * 3,
        fails=(
            placement(plan=plan("nothing-fits", ("max-price", None, None)), candidates=()),
            placement(plan=plan("nothing-fits", ("region", None, None)), candidates=()),
            placement(plan=plan("nothing-fits", ("memory", "30", "20"), ("budget", None, None)), candidates=()),
        ),
        boundary=(
            placement(plan=replace(plan("borderline"), choice=candidate())),
            placement(plan=plan("nothing-fits", ("deadline", None, None)), candidates=()),
        ),
        unknowns=(),
    ),
    "borderline": Cases(
        passes=(placement(), placement(candidate(fit=fit(1 * GIB))), placement(candidate(fit=fit(10 * GIB, 19 * GIB)))),
        fails=(
            placement(candidate(fit=fit(18 * GIB, 21 * GIB))),
            placement(candidate(fit=fit(20 * GIB, 30 * GIB))),
            placement(candidate(), candidate(key="failover[1]", fit=fit(19 * GIB, 21 * GIB))),
        ),
        boundary=(
            placement(candidate(fit=fit(18 * GIB, 20 * GIB))),
            placement(candidate(fit=fit(18 * GIB, 20 * GIB + 1))),
        ),
        unknowns=(placement(NOT_KNOWN), placement(candidates=UNKNOWN)),
    ),
    "thin-headroom": Cases(
        passes=(placement(candidate(fit=fit(10 * GIB))), placement(candidate(fit=fit(18 * GIB))), placement()),
        fails=(
            placement(candidate(fit=fit(20 * GIB))),
            placement(candidate(fit=fit(20 * GIB - 1))),
            placement(candidate(fit=fit(19 * GIB + GIB // 2))),
        ),
        boundary=(
            placement(candidate(fit=fit(95, usable=100))),
            placement(candidate(fit=fit(96, usable=100))),
        ),
        unknowns=(placement(NOT_KNOWN),),
        parameters={"min_fraction": 0.05},
    ),
    "tensor-parallel-divisible": Cases(
        passes=tuple(placement(layout_objections=()) for _ in range(3)),
        fails=(
            placement(layout_objections=("64 heads do not divide by 6",), degrees_possible=(1, 2, 4, 8)),
            placement(layout_objections=("a", "b")),
            placement(layout_objections=("8 KV heads do not divide by 3",)),
        ),
        boundary=(placement(layout_objections=()), placement(layout_objections=("32 heads do not divide by 3",))),
        unknowns=(placement(layout_objections=UNKNOWN),),
    ),
    "tensor-parallel-pcie": Cases(
        passes=(
            placement(candidate(instance_type="p5.48xlarge", fit=fit(layout=SPLIT))),
            placement(candidate(instance_type="p4d.24xlarge", fit=fit(layout=SPLIT))),
            placement(candidate(instance_type="p4de.24xlarge", fit=fit(layout=Layout(tensor_parallel=8)))),
        ),
        fails=(
            placement(candidate(instance_type="g6.12xlarge", fit=fit(layout=SPLIT))),
            placement(candidate(instance_type="g5.12xlarge", fit=fit(layout=SPLIT))),
            placement(candidate(instance_type="g6e.48xlarge", fit=fit(layout=Layout(tensor_parallel=8)))),
        ),
        boundary=(
            placement(candidate(instance_type="p5.48xlarge", fit=fit(layout=Layout(tensor_parallel=2)))),
            placement(candidate(instance_type="g6.12xlarge", fit=fit(layout=Layout(tensor_parallel=2)))),
        ),
        unknowns=(placement(NOT_KNOWN),),
    ),
    "host-memory": Cases(
        passes=(
            placement(candidate(fit=fit(weights=5 * GIB))),
            placement(candidate(instance_type="g6.2xlarge")),
            placement(candidate(instance_type="g6.48xlarge", fit=fit(weights=100 * GIB))),
        ),
        fails=(
            placement(candidate(fit=fit(weights=17 * GIB))),
            placement(candidate(instance_type="g5.xlarge", fit=fit(weights=18 * GIB))),
            placement(candidate(instance_type="g6.12xlarge", fit=fit(weights=50 * GIB, layout=SPLIT))),
        ),
        boundary=(
            placement(candidate(fit=fit(weights=16 * GIB))),
            placement(candidate(fit=fit(weights=16 * GIB + 1))),
        ),
        unknowns=(placement(NOT_KNOWN),),
        parameters={"factor": 1.0},
    ),
    "disk-size": Cases(
        passes=(
            placement(candidate(disk_bytes=100 * GIB)),
            placement(candidate(disk_bytes=200 * GIB, fit=fit(weights=100 * GIB))),
            placement(candidate(disk_bytes=60 * GIB)),
        ),
        fails=(
            placement(candidate(disk_bytes=8 * GIB)),
            placement(candidate(disk_bytes=100 * GIB, fit=fit(weights=131 * GIB))),
            placement(candidate(disk_bytes=100 * GIB, fit=fit(weights=35 * GIB, layout=SPLIT))),
        ),
        boundary=(placement(candidate(disk_bytes=35 * GIB)), placement(candidate(disk_bytes=35 * GIB - 1))),
        unknowns=(placement(candidate(disk_bytes=UNKNOWN)), placement(NOT_KNOWN)),
        parameters={"factor": 1.0},
    ),
    "over-provisioned": Cases(
        passes=(
            placement(),
            placement(candidate(fit=fit(6 * GIB))),
            placement(candidate(instance_type="g6.12xlarge", fit=fit(layout=SPLIT))),
        ),
        fails=(
            placement(candidate(fit=fit(2 * GIB))),
            placement(candidate(instance_type="g6.48xlarge")),
            placement(candidate(instance_type="p5.48xlarge")),
        ),
        boundary=(
            placement(candidate(fit=fit(5 * GIB))),
            placement(candidate(fit=fit(5 * GIB - 1))),
        ),
        unknowns=(placement(NOT_KNOWN),),
    ),
}


def _context_limit() -> Cases:
    from provisioner.sizing.models import find_model

    shape = find_model("meta-llama/Meta-Llama-3-8B-Instruct")
    limit = shape.max_context_tokens
    assert limit is not None

    def asked(tokens: int) -> Subject:
        return placement(shape=shape, changes={"inference.context_tokens": tokens})

    return Cases(
        passes=(asked(1), asked(limit // 2), asked(limit)),
        fails=(asked(limit + 1), asked(limit * 2), asked(131_073)),
        boundary=(asked(limit), asked(limit + 1)),
        unknowns=(placement(shape=UNKNOWN), placement(workload=UNKNOWN)),
    )


SIZING["context-limit"] = _context_limit()
