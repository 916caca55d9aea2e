"""Rules of nodes and queues."""

from __future__ import annotations

from datetime import datetime

from peerd.domain.errors import NodeReplaced
from tests.model.reference.state import ModelNode, ModelQueue, ModelState, later


def register(
    state: ModelState, name: str, incarnation: str, replaces: str | None, node_id: int | None, now: datetime
) -> int | None:
    node = state.nodes.get(name)
    if node is None:
        assert node_id is not None
        state.nodes[name] = ModelNode(
            id=node_id, name=name, incarnation=incarnation, started_at=now, checked_at=now, created_at=now
        )
        return node_id
    if node.incarnation != replaces:
        return None
    node.incarnation, node.active = incarnation, True
    node.started_at = node.checked_at = now
    return node.id


def heartbeat_process(state: ModelState, process_id: int, now: datetime) -> bool:
    if process_id in state.beats:
        state.beats[process_id] = now
    return process_id in state.beats


def beat(state: ModelState, name: str, incarnation: str, now: datetime) -> bool:
    """Go on; whether it has been asked to drain."""
    node = state.nodes[name]
    if node.incarnation != incarnation:
        raise NodeReplaced(name)
    node.active, node.checked_at = True, now
    return node.draining


def leave(state: ModelState, name: str, incarnation: str, now: datetime) -> None:
    node = state.nodes[name]
    if node.incarnation == incarnation:
        node.incarnation, node.active, node.checked_at = None, False, now


def deactivate_silent(state: ModelState, silence: float, now: datetime) -> list[str]:
    silent = [node for node in state.nodes.values() if node.active and node.checked_at < later(now, -silence)]
    for node in silent:
        node.active = False
    return sorted(node.name for node in silent)


def pause(state: ModelState, name: str, duration: float | None, now: datetime) -> None:
    until = None if duration is None else later(now, duration)
    row = state.queues.setdefault(
        name, ModelQueue(name=name, paused=True, paused_until=until, created_at=now, updated_at=now)
    )
    row.paused, row.paused_until, row.updated_at = True, until, now


def resume(state: ModelState, name: str, now: datetime) -> None:
    row = state.queues.get(name)
    if row is not None:
        row.paused, row.paused_until, row.updated_at = False, None, now
