"""Rules of nodes and queues."""

from __future__ import annotations

from typing import Any

from peerd.domain.errors import NodeReplaced
from tests.model.reference.state import ModelNode, ModelQueue, ModelState


def register(state: ModelState, name: str, incarnation: str, replaces: str | None, node_id: int | None) -> int | None:
    node = state.nodes.get(name)
    if node is None:
        assert node_id is not None
        times: dict[str, Any] = dict.fromkeys(("started_at", "checked_at", "created_at"), state.now)
        state.nodes[name] = ModelNode(id=node_id, name=name, incarnation=incarnation, **times)
        return node_id
    if node.incarnation != replaces:
        return None
    node.incarnation, node.active = incarnation, True
    node.started_at = node.checked_at = state.now
    return node.id


def heartbeat_process(state: ModelState, process_id: int) -> bool:
    if process_id in state.beats:
        state.beats[process_id] = state.now
    return process_id in state.beats


def beat(state: ModelState, name: str, incarnation: str) -> bool:
    """Go on; whether it has been asked to drain."""
    node = state.nodes[name]
    if node.incarnation != incarnation:
        raise NodeReplaced(name)
    node.active, node.checked_at = True, state.now
    return node.draining


def leave(state: ModelState, name: str, incarnation: str) -> None:
    node = state.nodes[name]
    if node.incarnation == incarnation:
        node.incarnation, node.active, node.checked_at = None, False, state.now


def deactivate_silent(state: ModelState, silence: float) -> list[str]:
    silent = [node for node in state.nodes.values() if node.active and node.checked_at < state.later(-silence)]
    for node in silent:
        node.active = False
    return sorted(node.name for node in silent)


def pause(state: ModelState, name: str, duration: float | None) -> None:
    until = None if duration is None else state.later(duration)
    row = state.queues.setdefault(
        name, ModelQueue(name=name, paused=True, paused_until=until, created_at=state.now, updated_at=state.now)
    )
    row.paused, row.paused_until, row.updated_at = True, until, state.now


def resume(state: ModelState, name: str) -> None:
    row = state.queues.get(name)
    if row is not None:
        row.paused, row.paused_until, row.updated_at = False, None, state.now
