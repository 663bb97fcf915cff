"""Security groups (on GCP: firewall rules): closed but for the given sources and ports, free of charge."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from sqlite3 import Row

from provisioner.clouds.cloud import Placement
from provisioner.clouds.sandbox.call import Call, Effect
from provisioner.clouds.sandbox.errors import rejected
from provisioner.clouds.sandbox.identifiers import new_id
from provisioner.clouds.sandbox.prices import Market
from provisioner.tags import STACK

KIND = "security-group"


@dataclass(frozen=True, slots=True)
class Rules:
    """Who may reach which ports."""

    cidrs: tuple[str, ...]
    ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SecurityGroup:
    """One group that exists."""

    id: str
    cloud: str
    region: str
    tags: Mapping[str, str]
    rules: Rules
    created_us: int


def ensure(call: Call, placement: Placement, tags: Mapping[str, str], rules: Rules, market: Market) -> str:
    """Id of the group with these tags in the region; made, or its rules brought in line, where needed.

    Raises:
        Rejected: an unknown region, or no tags to know the group by.
    """
    if not tags:
        raise rejected("bad-value", placement.cloud, "a security group needs tags to be found by")
    if not market.zones(placement.cloud, placement.region):
        raise rejected("bad-value", placement.cloud, f"there is no region {placement.region}")
    text = json.dumps({"cidrs": sorted(set(rules.cidrs)), "ports": sorted(set(rules.ports))})
    for group in read_all(call):
        if (group.cloud, group.region) == (placement.cloud, placement.region) and tags.items() <= group.tags.items():
            return _with_rules(call, group.id, text)
    group_id = new_id(placement.cloud, KIND, f"{tags.get(STACK, 'gpuprov')}-ingress")
    call.connection.execute(
        "INSERT INTO security_groups (id, cloud, region, tags, rules, created_us) VALUES (?, ?, ?, ?, ?, ?)",
        (group_id, placement.cloud, placement.region, json.dumps(dict(tags), sort_keys=True), text, call.now_us),
    )
    call.note(Effect.CREATED, group_id)
    return group_id


def delete(call: Call, placement: Placement, group_id: str) -> None:
    """Delete a group that no machine uses; one that is gone is fine.

    Raises:
        Rejected: a machine that still exists uses it.
    """
    if not _exists(call, placement.cloud, placement.region, group_id):
        return
    user = call.connection.execute(
        "SELECT id FROM instances WHERE security_group = ? AND ended_us IS NULL ORDER BY seq LIMIT 1", (group_id,)
    ).fetchone()
    if user is not None:
        raise rejected("group-in-use", placement.cloud, f"{group_id} is used by {user['id']}", "end that machine first")
    remove(call, group_id)
    call.note(Effect.REMOVED, group_id)


def remove(call: Call, group_id: str) -> None:
    """Take a group away, used or not."""
    call.connection.execute("UPDATE security_groups SET ended_us = ? WHERE id = ?", (call.now_us, group_id))


def require(call: Call, cloud: str, region: str, group_id: str) -> None:
    """Refuse a group that does not exist in a region.

    Raises:
        Rejected: there is none with this id.
    """
    if not _exists(call, cloud, region, group_id):
        raise rejected("no-group", cloud, f"there is no security group {group_id} in {region}")


def set_tags(call: Call, group: SecurityGroup, tags: Mapping[str, str]) -> None:
    """Write tags of a group."""
    merged = json.dumps({**group.tags, **tags}, sort_keys=True)
    call.connection.execute("UPDATE security_groups SET tags = ? WHERE id = ?", (merged, group.id))
    call.note(Effect.CHANGED, group.id)


def load(call: Call, group_id: str) -> SecurityGroup | None:
    """The group with an id, if it exists."""
    row = call.connection.execute(
        "SELECT * FROM security_groups WHERE id = ? AND ended_us IS NULL", (group_id,)
    ).fetchone()
    return None if row is None else _from_row(row)


def read_all(call: Call) -> list[SecurityGroup]:
    """All groups that exist, oldest first."""
    rows = call.connection.execute("SELECT * FROM security_groups WHERE ended_us IS NULL ORDER BY seq")
    return [_from_row(row) for row in rows]


def _with_rules(call: Call, group_id: str, rules: str) -> str:
    changed = call.connection.execute(
        "UPDATE security_groups SET rules = ? WHERE id = ? AND rules <> ?", (rules, group_id, rules)
    )
    if changed.rowcount:
        call.note(Effect.CHANGED, group_id)
    return group_id


def _exists(call: Call, cloud: str, region: str, group_id: str) -> bool:
    group = load(call, group_id)
    return group is not None and (group.cloud, group.region) == (cloud, region)


def _from_row(row: Row) -> SecurityGroup:
    rules = json.loads(row["rules"])
    return SecurityGroup(
        id=row["id"],
        cloud=row["cloud"],
        region=row["region"],
        tags=json.loads(row["tags"]),
        rules=Rules(tuple(rules["cidrs"]), tuple(rules["ports"])),
        created_us=row["created_us"],
    )
