"""Cases of the lifecycle rules."""

from __future__ import annotations

from datetime import timedelta

from policies.facts import UNKNOWN
from tests.policies.builders import TRAINING, spec
from tests.policies.cases.common import UNCHECKED, Cases

LIFECYCLE = {
    "idle-rule": Cases(
        passes=(spec(), spec({"lifecycle.idle.after": "auto"}), spec({"lifecycle.pattern": "steady"})),
        fails=(
            spec({"lifecycle.idle.after": "off"}),
            spec({"lifecycle.idle.after": "3h"}),
            spec({"lifecycle.pattern": "steady", "lifecycle.idle.after": "off"}),
        ),
        boundary=(spec({"lifecycle.idle.after": "60m"}), spec({"lifecycle.idle.after": "3601s"})),
        unknowns=(
            spec(unknown=("lifecycle.idle.after",)),
            spec(unknown=("lifecycle.pattern",)),
            spec(workload=UNKNOWN),
        ),
        parameters={"max_idle": timedelta(hours=1)},
    ),
    "lifetime-limit": Cases(
        passes=(spec(), spec({"lifecycle.max_lifetime": "1h"}), spec({"lifecycle.max_lifetime": "24h"})),
        fails=(
            spec({"lifecycle.max_lifetime": "off"}),
            spec({"lifecycle.max_lifetime": "2d"}),
            spec({"lifecycle.pattern": "steady", "lifecycle.max_lifetime": "off"}),
        ),
        boundary=(spec({"lifecycle.max_lifetime": "1d"}), spec({"lifecycle.max_lifetime": "86401s"})),
        unknowns=(spec(unknown=("lifecycle.max_lifetime",)), spec(workload=UNKNOWN)),
        parameters={"max_lifetime": timedelta(days=1)},
    ),
    "stopped-limit": Cases(
        passes=(spec(), spec({"lifecycle.stopped": ...}), spec({"lifecycle.stopped.terminate_after": "1h"})),
        fails=tuple(spec({"lifecycle.stopped.terminate_after": text}) for text in ("31d", "60d", "365d")),
        boundary=(
            spec({"lifecycle.stopped.terminate_after": "30d"}),
            spec({"lifecycle.stopped.terminate_after": "2592001s"}),
        ),
        unknowns=(spec(unknown=("lifecycle.stopped",)), spec(workload=UNKNOWN)),
    ),
    "training-checkpoint": Cases(
        passes=tuple(spec({"training.checkpoint.every": text}, base=TRAINING) for text in ("5m", "1h", "4h")),
        fails=(
            spec(UNCHECKED, base=TRAINING),
            spec({"training.checkpoint": {"resumable": True}}, base=TRAINING),
            spec({"training.checkpoint.every": "1d"}, base=TRAINING),
        ),
        boundary=(
            spec({"training.checkpoint.every": "4h"}, base=TRAINING),
            spec({"training.checkpoint.every": "14401s"}, base=TRAINING),
        ),
        unknowns=(spec(base=TRAINING, unknown=("training.checkpoint.every",)), spec(base=TRAINING, workload=UNKNOWN)),
    ),
    "keep-failed": Cases(
        passes=(spec(), spec({"lifecycle.keep_failed": False}), spec(base=TRAINING)),
        fails=(
            spec({"lifecycle.keep_failed": True}),
            spec({"lifecycle": {"keep_failed": True}}, base=TRAINING),
            spec({"lifecycle.keep_failed": True, "lifecycle.pattern": "steady"}),
        ),
        boundary=(spec({"lifecycle.keep_failed": False}), spec({"lifecycle.keep_failed": True})),
        unknowns=(spec(unknown=("lifecycle.keep_failed",)),),
    ),
}
