"""Secrecy rules: disks are encrypted, and secrets stand nowhere in plain text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from policies.facts import UNKNOWN, Disk, DiskFacts, Known, MachineFacts, SpecFacts, Unknown
from policies.rule import Level, Outcome, Rule, Setting, Severity, failed, passed, unknown
from policies.secrets import Found, find_secret, find_secret_in_text


def root_encryption(facts: MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """The disk that a machine boots from is encrypted."""
    del setting
    if isinstance(facts.disks, Unknown):
        yield unknown(
            "disks", f"whether the disks of {facts.name} are encrypted is not known yet", "set encrypted = true on each"
        )
        return
    for disk in facts.disks:
        if disk.role == "root":
            yield _judge_encryption(facts.name, disk)


def data_encryption(facts: MachineFacts | DiskFacts, setting: Setting) -> Iterator[Outcome]:
    """Disks for data and checkpoints are encrypted."""
    del setting
    disks: Known[tuple[Disk, ...]] = (facts.disk,) if isinstance(facts, DiskFacts) else facts.disks
    if isinstance(disks, Unknown):
        yield unknown(
            "disks", f"whether the disks of {facts.name} are encrypted is not known yet", "set encrypted = true on each"
        )
        return
    for disk in disks:
        if disk.role != "root":
            yield _judge_encryption(facts.name, disk)


def _judge_encryption(name: str, disk: Disk) -> Outcome:
    key = f"{disk.key}.encrypted"
    what = "root disk" if disk.role == "root" else "data disk"
    if isinstance(disk.encrypted, Unknown) or disk.encrypted is None:
        message = f"{name} does not say whether its {what} is encrypted; the account's default decides"
        return unknown(key, message, "set encrypted = true", identity=disk.key, stays=disk.encrypted is None)
    if disk.encrypted:
        return passed(key)
    return failed(key, f"the {what} of {name} is not encrypted", "set encrypted = true", identity=disk.key)


def customer_key(facts: MachineFacts | DiskFacts, setting: Setting) -> Iterator[Outcome]:
    """Disks are encrypted with a key that the organisation holds."""
    del setting
    disks: Known[tuple[Disk, ...]] = (facts.disk,) if isinstance(facts, DiskFacts) else facts.disks
    if isinstance(disks, Unknown):
        yield unknown("disks", f"the keys of the disks of {facts.name} are not known yet", "set kms_key_id on each")
        return
    for disk in disks:
        key = f"{disk.key}.customer_key"
        if isinstance(disk.customer_key, Unknown):
            yield unknown(
                key,
                f"the key of a disk of {facts.name} is not known yet",
                "set kms_key_id to a constant",
                identity=disk.key,
            )
        elif disk.customer_key:
            yield passed(key)
        else:
            yield failed(key, f"a disk of {facts.name} uses the provider's key", "set kms_key_id", identity=disk.key)


def secret_in_env(facts: SpecFacts, setting: Setting) -> Iterator[Outcome]:
    """Environment and command hold references to secrets, never secrets."""
    del setting
    run = facts.read("run")
    entries = facts.read_entries("run.env") if run not in (None, "auto") else {}
    if isinstance(entries, Unknown):
        yield unknown("run.env", "the environment is not known yet", "write it in run.env")
        return
    for name, value in entries.items():
        yield _judge_variable(name, value)
    if run in (None, "auto"):
        return
    command = facts.read("run.command")
    if command is UNKNOWN:
        yield unknown("run.command", "the command is not known yet", "write it in run.command")
        return
    for index, argument in enumerate(command or ()):
        yield _judge_argument(f"run.command[{index}]", command, index, argument)


def _judge_variable(name: str, value: Any) -> Outcome:
    key = f"run.env.{name}"
    remedy = f"write {name}: {{secret: aws-secretsmanager:NAME}} or {{secret: gcp-secretmanager:NAME}}, and revoke the value that was shown"
    if value is UNKNOWN:
        return unknown(key, f"the value of {name} is not known yet", remedy, identity=key)
    if isinstance(value, str) and (found := find_secret(name, value)):
        return failed(key, f"{name} holds {found.what}", remedy, identity=key, hidden=found.values)
    return passed(key)


def _judge_argument(key: str, command: tuple[str, ...], index: int, argument: str) -> Outcome:
    before = command[index - 1] if index else ""
    name = before if before.startswith("-") and "=" not in before else ""
    found = find_secret_in_text(argument) or (find_secret(name, argument) if name else None)
    if found is None:
        return passed(key)
    remedy = "put the secret in run.env as {secret: aws-secretsmanager:NAME} and let the program read it there; revoke the value"
    return failed(
        key,
        f"argument {index + 1} of the command holds {found.what}",
        remedy,
        identity="run.command",
        hidden=found.values,
    )


def secret_in_user_data(facts: MachineFacts, setting: Setting) -> Iterator[Outcome]:
    """User-data, start-up scripts and metadata hold no secret: every process on the machine can read them."""
    del setting
    remedy = "let the machine fetch the secret with its role from a secret store; revoke the value"
    if isinstance(facts.texts, Unknown):
        yield unknown("texts", f"the user-data of {facts.name} is not known yet", remedy)
        return
    for key, text in facts.texts.items():
        place = f"texts.{key}"
        known = text if isinstance(text, str) else ""
        found = find_secret_in_text(known) or find_secret(key, known)
        if key in facts.sensitive_texts:
            found = Found("a value that the program marks as secret", (known, *(found.values if found else ())))
        if found:
            message = f"{key} of {facts.name} holds {found.what}"
            yield failed(place, message, remedy, identity=key, hidden=found.values)
        elif isinstance(text, Unknown):
            yield unknown(place, f"{key} of {facts.name} is not known yet", remedy, identity=key)
        else:
            yield passed(place)


def secret_in_tags(facts: SpecFacts | MachineFacts | DiskFacts, setting: Setting) -> Iterator[Outcome]:
    """Tags hold no secret: anyone who may list machines can read them."""
    del setting
    tags = facts.tags
    remedy = "remove the tag and revoke the value"
    if isinstance(tags, Unknown):
        yield unknown("tags", f"the tags of {facts.name} are not known yet", "write them as constants")
        return
    for name, value in tags.items():
        if isinstance(value, Unknown):
            yield unknown(f"tags.{name}", f"the tag {name} is not known yet", remedy, identity=name)
        elif found := find_secret(name, value):
            yield failed(
                f"tags.{name}", f"the tag {name} holds {found.what}", remedy, identity=name, hidden=found.values
            )
        else:
            yield passed(f"tags.{name}")


RULES = (
    Rule(
        "root-encryption",
        "security",
        "Root disks are encrypted",
        "Weights, caches and logs on a root disk outlive the machine in snapshots and returned hardware.",
        Severity.HIGH,
        (MachineFacts,),
        root_encryption,
    ),
    Rule(
        "data-encryption",
        "security",
        "Data disks are encrypted",
        "Training data and checkpoints are what a copied disk would give away.",
        Severity.HIGH,
        (MachineFacts, DiskFacts),
        data_encryption,
    ),
    Rule(
        "customer-key",
        "security",
        "Disks use a key of the organisation",
        "A key of one's own can be revoked and its use is logged.",
        Severity.LOW,
        (MachineFacts, DiskFacts),
        customer_key,
        level=Level.DISABLED,
    ),
    Rule(
        "secret-in-env",
        "security",
        "Environment and command hold no secret",
        "Specs are committed and plans are pasted into reviews: a secret in one is a leaked secret.",
        Severity.CRITICAL,
        (SpecFacts,),
        secret_in_env,
        waivable=False,
    ),
    Rule(
        "secret-in-user-data",
        "security",
        "User-data and metadata hold no secret",
        "Every process on the machine and everyone who may describe it can read them.",
        Severity.CRITICAL,
        (MachineFacts,),
        secret_in_user_data,
        waivable=False,
    ),
    Rule(
        "secret-in-tags",
        "security",
        "Tags hold no secret",
        "Tags show up in bills, inventories and logs.",
        Severity.CRITICAL,
        (SpecFacts, MachineFacts, DiskFacts),
        secret_in_tags,
        waivable=False,
    ),
)
