"""Keys of the contract that are read and kept but not acted on yet; a later step that builds one deletes its line."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from provisioner.workload.tree import Node, node_at

PENDING: Mapping[str, str] = MappingProxyType(
    {
        "gcp.project": "the Google cloud",
        "gcp.network": "the Google cloud",
        "gcp.subnetwork": "the Google cloud",
        "gcp.service_account": "the Google cloud",
        "gcp.image": "the Google cloud",
    }
)
"""Dotted key -> what will act on it. Keys below one of these are covered by it."""


def pending_warnings(root: Node) -> tuple[str, ...]:
    """One warning per written key whose feature is not built yet, in the order of the table."""
    return tuple(
        f"{key} is accepted but has no effect yet (later: {what})"
        for key, what in PENDING.items()
        if node_at(root, tuple(key.split("."))) is not None
    )
