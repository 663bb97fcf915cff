"""Hygiene rules: who owns a machine, and whether the gate can size it."""

from __future__ import annotations

from collections.abc import Iterator

from policies.facts import MachineFacts, PlacementFacts, SpecFacts, Unknown
from policies.parameters import Parameter
from policies.rule import Level, Outcome, Rule, Setting, Severity, failed, passed, unknown
from provisioner.tags import WORKLOAD
from provisioner.workload.kinds import Listing, Text

TAG_KEY = Text("a tag key", "team", r"[^\x00-\x1f\x7f]+", 128)
OWNER_KEYS = ("owner", "team", "gpuprov:owner", "gpuprov-owner")


def owner_tag(facts: SpecFacts | MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """A person or a team answers for the machine."""
    wanted: tuple[str, ...] = setting.parameters["keys"]
    tags = facts.tags
    remedy = f"add the tag {wanted[0]}"
    if isinstance(tags, Unknown):
        yield unknown("tags", f"the tags of {facts.name} are not known yet", remedy)
        return
    keys = {key.lower() for key in wanted}
    found = [value for name, value in tags.items() if name.lower() in keys and value != ""]
    if any(not isinstance(value, Unknown) for value in found):
        yield passed("tags")
    elif found:
        yield unknown("tags", f"whose {facts.name} is, is not known yet", remedy)
    else:
        yield failed("tags", f"nothing says whose {facts.name} is: no tag {' or '.join(wanted[:2])}", remedy)


def required_tags(facts: SpecFacts | MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """The tags that the organisation asks for are there."""
    wanted: tuple[str, ...] = setting.parameters["keys"]
    tags = facts.tags
    if isinstance(tags, Unknown):
        yield unknown("tags", f"the tags of {facts.name} are not known yet", "write them as constants")
        return
    for key in wanted:
        if key in tags:
            yield passed(f"tags.{key}")
        else:
            yield failed("tags", f"{facts.name} lacks the tag {key}", f"add the tag {key}", identity=key)


def unsized_resource(facts: MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """A GPU machine names the workload that it is for, so that its size can be judged."""
    del setting
    key = "workload_path"
    remedy = f"add the tag {WORKLOAD} with the path of its workload.yaml, relative to the project"
    if isinstance(facts.has_gpu, Unknown):
        yield unknown(
            "instance_type", f"whether {facts.name} has a GPU is not known yet", "write its type as a constant"
        )
    elif not facts.has_gpu:
        return
    elif isinstance(facts.workload_path, Unknown):
        yield unknown(key, f"the tag {WORKLOAD} of {facts.name} is not known yet", remedy)
    elif facts.workload_path is None:
        yield failed(
            key, f"the sizing rules do not apply to {facts.name}: no tag {WORKLOAD} names its workload", remedy
        )
    else:
        yield passed(key)


def workload_tag(facts: MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """The workload that a machine names is a spec that can be read."""
    del setting
    key = "workload_path"
    if isinstance(facts.workload_path, Unknown):
        message = f"the tag {WORKLOAD} of {facts.name} is not known yet, so its size cannot be judged"
        yield unknown(key, message, "write the path of the spec as a constant")
    elif facts.workload_path is None:
        return
    elif facts.workload_error is not None:
        message = f"the tag {WORKLOAD} of {facts.name} names no readable spec: {facts.workload_error}"
        yield failed(key, message, "write the path of its workload.yaml, relative to the project")
    else:
        yield passed(key)


def plan_intact(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """The spec inside a saved plan is the one that the plan was made from."""
    del setting
    if facts.digest_stated is None:
        return
    key = "workload.digest"
    if isinstance(facts.digest_found, Unknown):
        yield unknown(key, "the spec inside the plan is not known", "make the plan again with `gpuprov plan`")
    elif facts.digest_found != facts.digest_stated:
        yield failed(
            key,
            "the spec inside the plan is not the one that it was made from",
            "make the plan again with `gpuprov plan`",
        )
    else:
        yield passed(key)


def plan_figures(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """The figures that a saved plan states are those that come out of sizing and catalog."""
    del setting
    if isinstance(facts.figures, Unknown):
        yield unknown(
            "footprint", f"the figures of {facts.name} are not known", "make the plan again with `gpuprov plan`"
        )
        return
    for figure in facts.figures:
        if isinstance(figure.found, Unknown):
            message = f"whether {figure.name} of {figure.stated} is right is not known"
            yield unknown(figure.key, message, "make the plan again with `gpuprov plan`", identity=figure.key)
        elif figure.stated == figure.found:
            yield passed(figure.key)
        else:
            stated, found = figure.stated or "nothing", figure.found or "not known"
            message = f"the plan states {stated} as {figure.name}; computed again it is {found}"
            yield failed(figure.key, message, "make the plan again with `gpuprov plan`", identity=figure.key)


def plan_catalog(facts: PlacementFacts, setting: Setting) -> Iterator[Outcome]:
    """A saved plan was made from the catalog that it is judged with."""
    del setting
    key = "catalog.digest"
    if facts.catalog_stated is None:
        return
    remedy = "make the plan again with `gpuprov plan`, or judge it with its own catalog (--catalog)"
    if isinstance(facts.catalog_found, Unknown) or facts.catalog_found is None:
        yield unknown(key, "the digest of this catalog is not known", remedy)
    elif facts.catalog_found == facts.catalog_stated:
        yield passed(key)
    else:
        message = "the plan was made from another catalog than this one: its offers and prices may have changed"
        yield failed(key, message, remedy)


RULES = (
    Rule(
        "owner-tag",
        "hygiene",
        "Someone owns each machine",
        "A bill or an incident without an owner is answered by nobody.",
        Severity.LOW,
        (SpecFacts, MachineFacts),
        owner_tag,
        level=Level.ADVISORY,
        parameters=(Parameter("keys", Listing(TAG_KEY), OWNER_KEYS, "tags of which one is enough, in any case"),),
    ),
    Rule(
        "required-tags",
        "hygiene",
        "The organisation's tags are there",
        "Cost allocation by tag works only where every machine has the tag.",
        Severity.LOW,
        (SpecFacts, MachineFacts),
        required_tags,
        level=Level.ADVISORY,
        parameters=(Parameter("keys", Listing(TAG_KEY), (), "tags that must all be there; none = nothing is asked"),),
    ),
    Rule(
        "unsized-resource",
        "hygiene",
        "GPU machines name their workload",
        "Without the workload nobody can tell whether the machine is too small, or four times too large.",
        Severity.LOW,
        (MachineFacts,),
        unsized_resource,
        level=Level.ADVISORY,
    ),
    Rule(
        "workload-tag",
        "hygiene",
        "The workload that a machine names can be read",
        "A tag that leads nowhere would silently switch off the sizing rules.",
        Severity.HIGH,
        (MachineFacts,),
        workload_tag,
    ),
    Rule(
        "plan-intact",
        "hygiene",
        "Saved plans are as they were made",
        "A plan that was edited by hand no longer says what its spec asks for.",
        Severity.HIGH,
        (PlacementFacts,),
        plan_intact,
        waivable=False,
    ),
    Rule(
        "plan-figures",
        "hygiene",
        "Saved plans state what comes out again",
        "Reviewers read the figures of a plan, not its arithmetic: an edited footprint or price misleads them even where the offer holds.",
        Severity.MEDIUM,
        (PlacementFacts,),
        plan_figures,
        level=Level.ADVISORY,
    ),
    Rule(
        "plan-catalog",
        "hygiene",
        "Saved plans are made from the catalog in use",
        "Prices and offers move; a plan of an older catalog may name what is dearer or gone.",
        Severity.LOW,
        (PlacementFacts,),
        plan_catalog,
        level=Level.ADVISORY,
    ),
)
