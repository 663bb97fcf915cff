"""Which command made which call, and whether the printed policy of that command allows it.

A command is known by the application id of its SDK (``AWS_SDK_UA_APP_ID``), which its engine and its plugin inherit. Calls without
one are of the tests themselves.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from provisioner.clouds.aws import rights
from tests.fakes import aws_rules, iam
from tests.fakes.aws import Call

VARIABLE = "AWS_SDK_UA_APP_ID"
Used = tuple[str, str, str]
"""Document, statement and action."""
_STATE = {"s3": "GPUPROV_BACKEND=s3://BUCKET", "kms": "GPUPROV_SECRETS_PROVIDER=awskms://KEY"}
"""Service -> the option whose rights its calls need."""


def purpose_of(command: str) -> str:
    """The purpose whose policy a command has to do with."""
    return next(purpose for purpose, commands in rights.COMMANDS.items() if command in commands)


def every_right() -> Iterator[Used]:
    """All that the documents allow, statement by statement."""
    for name, document in {**rights.policies(), **rights.options()}.items():
        for statement in document["Statement"] if document else ():
            for action in statement["Action"]:
                yield name, statement["Sid"], action


class Journal:
    """What the commands of one test asked of the account. Safe to write from several threads."""

    def __init__(self) -> None:
        self.refused: list[str] = []
        """Calls that the command's policy does not allow, in words."""
        self.used: set[Used] = set()
        self._documents: Mapping[str, Any] = {**rights.policies(), **rights.options()}
        self._lock = threading.Lock()

    def note(self, call: Call) -> None:
        """Judge one call by what the account holds at this moment."""
        if not call.agent:
            return
        found = [(ask, *self._judge(call, ask)) for ask in iam.asks(call, tags_of)]
        with self._lock:
            for ask, document, statements in found:
                self.used.update((document, statement, ask.action) for statement in statements)
                if not statements:
                    self.refused.append(f"`{call.agent}` makes {ask}, which the policy {document!r} does not allow")

    def _judge(self, call: Call, ask: iam.Ask) -> tuple[str, list[str]]:
        name = _STATE.get(call.service) or purpose_of(call.agent)
        document = self._documents[name]
        if call.service == "s3":
            document = _filled(document, "BUCKET", str(call.parameters["Bucket"]))
        if call.service == "kms":
            document = _filled(document, "KEY", str(call.parameters.get("KeyId", "KEY")))
        return name, iam.allowing(document, ask)


def _filled(document: Mapping[str, Any], word: str, value: str) -> dict[str, Any]:
    """A document with its word in capitals filled in."""
    statements = [
        {**one, "Resource": [text.replace(word, value) for text in one["Resource"]]} for one in document["Statement"]
    ]
    return {**document, "Statement": statements}


def tags_of(region: str, object_id: str) -> Mapping[str, str]:
    """Tags of an object of the emulated account."""
    request = aws_rules.RULES.spot_requests.get(object_id)
    if request is not None:
        return {tag["Key"]: tag["Value"] for tag in request["Tags"]}
    return dict(aws_rules.backend(region).tags.get(object_id, {}))


def unused(seen: Iterable[Used]) -> set[Used]:
    """Rights that nothing used."""
    return set(every_right()) - set(seen)


_UPDATE = os.environ.get("GPUPROV_UPDATE_GOLDEN") == "1"
RECORD = Path(__file__).parents[1] / "e2e" / "aws_rights.json"
"""Test -> the rights that its commands used, so that their union can be told without a run of all of them."""


def read_record() -> dict[str, list[Used]]:
    """Test -> rights, as recorded with the last ``GPUPROV_UPDATE_GOLDEN=1``."""
    found = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return {test: [(one[0], one[1], one[2]) for one in rights_used] for test, rights_used in found.items()}


def keep_record(test: str, journal: Journal) -> None:
    """Check that a test still uses what its record says; with ``GPUPROV_UPDATE_GOLDEN=1`` record it anew.

    More than the record says is no fault: what depends on the moment is not in it for ever, and is allowed all the same.
    """
    record = read_record()
    if _UPDATE:
        record[test] = sorted(journal.used)
        lines = (f"  {json.dumps(name)}: {_listed(used)}" for name, used in sorted(record.items()))
        RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        return
    missing = set(record.get(test, ())) - journal.used
    assert not missing, f"{test} no longer uses {sorted(missing)}: run it with GPUPROV_UPDATE_GOLDEN=1"


def _listed(used: Iterable[Used]) -> str:
    return "[\n" + ",\n".join(f"    {json.dumps(one)}" for one in used) + "\n  ]"
