"""Supply rules: what was judged is what runs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from policies.facts import UNKNOWN, MachineFacts, SpecFacts, Unknown
from policies.rule import Level, Outcome, Rule, Setting, Severity, failed, passed, unknown

_DIGEST = re.compile(r".*@sha256:[0-9a-f]{64}")
MOVING_TAGS = frozenset({"latest", "nightly", "main", "master", "dev", "edge", "head"})
"""Tags that are moved to each new build; no tag means ``latest``."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


def image_digest(facts: SpecFacts, setting: Setting) -> Iterator[Outcome]:
    """A container image is named by its digest, so that what was judged is what runs."""
    del setting
    run = facts.read("run")
    if run in (None, "auto"):
        return
    image = facts.read("run.image")
    if image is UNKNOWN:
        yield unknown("run.image", "the image is not known yet", "write it in run.image")
    elif image is not None and not _DIGEST.fullmatch(image):
        message = f"{image} may be another image tomorrow: it has no digest"
        yield failed(
            "run.image", message, f"write {image.partition('@')[0]}@sha256:..., from `docker buildx imagetools inspect`"
        )
    elif image is not None:
        yield passed("run.image")


def image_version(facts: SpecFacts, setting: Setting) -> Iterator[Outcome]:
    """A container image names a version at least: a digest, or a tag that is not moved to each new build."""
    del setting
    if facts.read("run") in (None, "auto"):
        return
    image = facts.read("run.image")
    if image is UNKNOWN:
        yield unknown("run.image", "the image is not known yet", "write it in run.image")
    elif image is not None:
        name = image.rpartition("/")[2]
        tag = name.partition(":")[2]
        if "@" in name or (tag and tag.lower() not in MOVING_TAGS):
            yield passed("run.image")
        else:
            message = f"{image} is whatever was built last{'' if tag else ': it has no tag'}"
            yield failed("run.image", message, "write the version that was tested, best with its @sha256 digest")


def machine_image(facts: MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """A machine image is named exactly, not by a family that moves."""
    del setting
    if facts.image is None:
        return
    if isinstance(facts.image, Unknown):
        yield unknown("image", f"the image of {facts.name} is looked up when it is made", "write the image's id")
    elif "/family/" in facts.image or facts.image.startswith("resolve:ssm:") or facts.image.endswith("-latest"):
        yield failed("image", f"{facts.image} names a moving image", "write the id of one image")
    else:
        yield passed("image")


def model_revision(facts: SpecFacts, setting: Setting) -> Iterator[Outcome]:
    """Weights from a public hub are named by commit: a branch may change under a running fleet."""
    del setting
    source = facts.read("model.source")
    if source is None:
        return
    if source is UNKNOWN:
        yield unknown("model.source", "the source of the weights is not known yet", "write it in model.source")
        return
    if not source.startswith("hf://"):
        return
    revision = source.partition("@")[2]
    if _COMMIT.fullmatch(revision):
        yield passed("model.source")
    else:
        message = f"the weights come from {'the branch ' + revision if revision else 'the default branch'}"
        yield failed("model.source", message, "add @ and the full commit id of the revision that was tested")


RULES = (
    Rule(
        "image-digest",
        "security",
        "Container images are pinned by digest",
        "A tag can be moved: the image that was reviewed is not the one that runs.",
        Severity.MEDIUM,
        (SpecFacts,),
        image_digest,
        level=Level.ADVISORY,
    ),
    Rule(
        "image-version",
        "security",
        "Container images name a version",
        "Without a version each start may run another build, untested and unreviewed.",
        Severity.MEDIUM,
        (SpecFacts,),
        image_version,
    ),
    Rule(
        "machine-image",
        "security",
        "Machine images are named exactly",
        "A moving image changes driver and CUDA versions under a workload.",
        Severity.LOW,
        (MachineFacts,),
        machine_image,
        level=Level.ADVISORY,
    ),
    Rule(
        "model-revision",
        "security",
        "Weights are named by commit",
        "A branch on a hub can be changed by its owner, or by whoever took the owner's account.",
        Severity.LOW,
        (SpecFacts,),
        model_revision,
        level=Level.ADVISORY,
    ),
)
