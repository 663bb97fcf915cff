"""Creates that a crash cut off: the engine keeps them as pending and never drops one by itself.

They are resolved, never just cleared. On ``up`` the engine runs the create again, and the plugin finds by tag, by its journal
or by the same token what the first try made: the resource is in the state then, and the entry says nothing any more. An entry
of a resource that the program no longer has is looked up in the cloud.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from provisioner.errors import Leaked
from stacks.deploy import Session
from stacks.inventory import Standing, describe
from stacks.state import GPU_INSTANCE, StackState


def settle(session: Session, provider: str, standing: Standing | None = None) -> StackState | None:
    """Drop the pending creates that are resolved: the state holds the resource now, or nothing can have been made.

    Args:
        session: the stack under its lock.
        provider: where it is.
        standing: what the cloud holds for the stack; needed to drop a machine's entry without a machine in the state.

    Returns:
        The state after it.
    """
    state = session.state()
    if state is None or not state.pending_creates:
        return state
    resolved = resolved_urns(state, standing)
    if resolved and session.edit(lambda deployment: drop(deployment, resolved), provider):
        session.watch.say(f"resolved {len(resolved)} creation(s) that an earlier run did not finish")
        return session.state()
    return state


def resolved_urns(state: StackState, standing: Standing | None = None) -> frozenset[str]:
    """URNs of the pending creates that can be dropped without losing sight of anything.

    A launch and a volume make nothing in a cloud: what is not in the state never was. A machine's entry goes when the state
    holds the machine, or when the cloud was asked and shows nothing that the state does not hold.
    """
    held = {resource.urn for resource in state.resources if not resource.is_doomed}
    safe = standing is not None and not standing.unknown_to(state)
    return frozenset(
        entry.urn for entry in state.pending_creates if entry.urn in held or entry.type != GPU_INSTANCE or safe
    )


def drop(deployment: dict[str, Any], urns: frozenset[str]) -> bool:
    """Take the pending creates of ``urns`` out of a deployment document; says whether there were any."""
    before = deployment.get("pending_operations") or []
    after = [entry for entry in before if not _is_create_of(entry, urns)]
    deployment["pending_operations"] = after
    return len(after) != len(before)


def _is_create_of(entry: Mapping[str, Any], urns: frozenset[str]) -> bool:
    return entry.get("type") == "creating" and entry.get("resource", {}).get("urn") in urns


def has_cut_machine(state: StackState | None) -> bool:
    """Whether a machine may exist that the state does not hold."""
    return state is not None and any(entry.type == GPU_INSTANCE for entry in state.pending_creates)


def leftovers(standing: Standing, state: StackState | None, stack: str) -> Leaked | None:
    """The error for objects that bill and that the state does not hold; ``None`` where there are none."""
    unknown = standing.unknown_to(state)
    if not unknown:
        return None
    names = "; ".join(describe(entry) for entry in unknown)
    return Leaked(f"this bills and the state does not hold it: {names}", remedy=f"run `gpuprov down {stack}` again")
