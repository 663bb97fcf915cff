"""Why a machine is stopped or gone, in one line for people."""

from __future__ import annotations

from collections.abc import Mapping

from provisioner import tags
from provisioner.clouds.cloud import End, Ended

_GONE: Mapping[End, str] = {
    End.TAKEN_BACK: "the cloud took it back",
    End.CALLED: "a call to the cloud ended it, by a person, a script or a service of the account",
    End.FROM_INSIDE: "its own system shut it down; its console does not tell why any more",
    End.RETIRED: "the cloud ended it with its host",
    End.NO_CAPACITY: "the cloud had no capacity to start it",
    End.FAILED: "the cloud could not bring it up",
}
_STOPPED: Mapping[End, str] = {
    End.TAKEN_BACK: "the cloud took its capacity back; `gpuprov start` starts it when there is room",
    End.FROM_INSIDE: "its own system shut it down; `gpuprov start` starts it",
    End.RETIRED: "the cloud stopped it, since its host is taken out of service; `gpuprov start` starts it on another host",
    End.NO_CAPACITY: "the cloud had no capacity to start it; try again later: `gpuprov start`",
    End.FAILED: "the cloud could not bring it up; `gpuprov start` tries again, and says why not",
}
"""Without ``CALLED``: a machine that its owner has stopped is no riddle."""
_WAITS = "EC2 took its capacity back, and alone starts it again when its pool has room; `gpuprov down` ends it"
"""Source: EC2 user guide, "Behavior of Spot Instance interruptions"; a machine of GCE is its owner's to start."""


def words(ended: Ended | None, cloud: str, *, is_gone: bool) -> str | None:
    """What is told of a machine that is gone or stopped, with what to do; ``None`` where there is nothing to tell."""
    text = None if ended is None else (_GONE if is_gone else _STOPPED).get(ended.how)
    if ended is not None and ended.how is End.TAKEN_BACK and cloud == "aws" and not is_gone:
        text = _WAITS
    if ended is None or text is None:
        return None
    since = f" at {tags.format_time(ended.at)}" if ended.at is not None else ""
    verb = "ended" if is_gone else "stopped"
    return f"{verb}{since}: {text}{'; `gpuprov up` makes a new one' if is_gone else ''}"
