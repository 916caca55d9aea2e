"""Actions of users: they enqueue and change tasks, by the functions of the API and by SQL."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import text
from sqlalchemy.engine import Connection

from peerd.domain.bulk import BulkCancel, BulkDelete, BulkMove, BulkRetry
from peerd.domain.errors import PeerdError
from peerd.domain.task import NewTask
from peerd.store.enqueue import enqueue
from peerd.store.nodes import set_draining
from peerd.store.queues import pause, resume
from peerd.store.tasks.actions import act_on_task
from tests.simulation.plan import ONLY_NEW, QUEUES, PlannedEvent

if TYPE_CHECKING:
    from tests.simulation.world import World

INSERT: Final = "INSERT INTO tasks (queue, name, body, limit_key, start_at) VALUES (:queue, :name, :body, :key, :start)"
MOVE: Final = """UPDATE tasks SET node_id = NULL, status = 'pending', lease = lease + 1, deadline_at = NULL
    WHERE id = :id AND status = 'working'"""
"""That of docs/operations.md."""


def apply(world: World, one: PlannedEvent) -> None:
    """Do it; an action that is not possible is refused, as it is to users."""
    try:
        _do(world, one)
    except PeerdError as error:
        world.note(f"refused: {error}")


def restore_service(world: World) -> None:
    for queue in QUEUES:
        world.by_hand("resume", resume, queue)
    for name in sorted({node.name for node in world.nodes}):
        with suppress(PeerdError):  # it was never registered
            world.by_hand("undrain", set_draining, name, draining=False)


def _do(world: World, one: PlannedEvent) -> None:
    queue = QUEUES[int(one.extent * 10_000) % len(QUEUES)]
    node = world.nodes[int(one.extent * len(world.nodes))].name
    match one.what:
        case "enqueue" | "insert by hand":
            _add(world, one, queue)
        case "pause" | "resume":
            world.by_hand(one.what, {"pause": pause, "resume": resume}[one.what], queue)
        case "drain" | "undrain":
            world.by_hand(one.what, set_draining, node, draining=one.what == "drain")
        case _ if world.rules.rows:
            _to_a_task(world, one, node)


def _add(world: World, one: PlannedEvent, queue: str) -> None:
    key = world.plan.keys[int(one.target * 10_000) % len(world.plan.keys)]
    more = ', "by": 0.5' if one.handler == "grows" else ""  # which the old code does not know
    body = f'{{"seconds": {1.0 + 150.0 * one.extent**2:.3f}{more}}}'
    if one.what == "insert by hand":  # as another language would: with a start ahead, and as pending all the same
        start = None if one.extent < 0.5 else world.database_text(ago=-30.0)
        _execute(world, "insert", INSERT, queue=queue, name=one.handler, body=body, key=key, start=start)
        return
    variants: dict[int, dict[str, Any]] = {
        0: {"start_in": 60.0 * one.extent},
        1: {"finish_in": 20.0 + 200.0 * one.extent},
        2: {"priority": 50},
        3: {"unique_key": "only"},
        4: {"max_attempts": 1},
        5: {"timeout": 30.0},
    }
    options = variants.get(int(one.extent * 1000) % 10, {})
    new = NewTask(queue=queue, name=one.handler, body=body, limit_key=key, **options)
    world.judge(world.rules.judge_accepted, world.by_hand("enqueue", enqueue, new).id)


def _to_a_task(world: World, one: PlannedEvent, node: str) -> None:
    ids = sorted(world.rules.rows)
    task_id = ids[int(one.target * len(ids))]
    match one.what:
        case "cancel":
            world.by_hand("cancel", act_on_task, task_id, BulkCancel())
        case "retry":
            world.history.retried_by_hand.add(task_id)
            world.by_hand("retry", act_on_task, task_id, BulkRetry())
        case "delete":
            world.history.deleted_by_hand.add(task_id)
            world.by_hand("delete", act_on_task, task_id, BulkDelete())
        case "move":
            needs_new_code = world.rules.rows[task_id].name in ONLY_NEW
            to = world.nodes[0].name if needs_new_code else node
            world.by_hand("move", act_on_task, task_id, BulkMove(None if one.extent < 0.3 else to))
        case "move by hand":
            _execute(world, "move by hand", MOVE, id=task_id)


def _execute(world: World, what: str, sql: str, **values: object) -> None:
    def execute(connection: Connection) -> None:
        connection.execute(text(sql), values)

    world.by_hand(what, execute)
