"""Actions of users: they enqueue and change tasks, by the functions of the API and by SQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.engine import Connection

from peerd.domain.errors import PeerdError
from peerd.domain.task import NewTask
from peerd.store.enqueue.enqueue import enqueue
from peerd.store.nodes.nodes import set_draining
from peerd.store.queues import pause, resume
from peerd.store.tasks import actions
from tests.simulation.plan import ONLY_NEW, QUEUES, PlannedEvent
from tests.simulation.versions import body_of

if TYPE_CHECKING:
    from tests.simulation.world import World


def apply(world: World, one: PlannedEvent) -> None:
    try:
        _do(world, one)
    except PeerdError as error:
        world.note(f"refused: {error}")


def restore_service(world: World) -> None:
    for queue in QUEUES:
        world.by_hand("resume", resume, queue)
    for name in sorted({node.name for node in world.nodes}):
        try:
            world.by_hand("undrain", set_draining, name, draining=False)
        except PeerdError:
            continue  # it was never registered


def _do(world: World, one: PlannedEvent) -> None:
    match one.what:
        case "enqueue":
            _enqueue(world, one)
        case "insert by hand":
            _insert(world, one)
        case "cancel" | "retry" | "delete" | "move" | "move by hand":
            _to_a_task(world, one)
        case "pause":
            world.by_hand("pause", pause, _queue(one))
        case "resume":
            world.by_hand("resume", resume, _queue(one))
        case "drain":
            world.by_hand("drain", set_draining, _node(world, one), draining=True)
        case "undrain":
            world.by_hand("undrain", set_draining, _node(world, one), draining=False)


def _enqueue(world: World, one: PlannedEvent) -> None:
    variant = int(one.extent * 1000) % 10
    options: dict[str, Any] = {}
    match variant:
        case 0:
            options["start_in"] = 60.0 * one.extent
        case 1:
            options["finish_in"] = 20.0 + 200.0 * one.extent
        case 2:
            options["priority"] = 50
        case 3:
            options["unique_key"] = "only"
        case 4:
            options["max_attempts"] = 1
        case 5:
            options["timeout"] = 30.0
    new = NewTask(queue=_queue(one), name=one.handler, body=_body(one), limit_key=_key(world, one), **options)
    world.accepted(world.by_hand("enqueue", enqueue, new).id)


def _insert(world: World, one: PlannedEvent) -> None:
    """As another language would: with a start ahead, and as pending all the same."""
    columns = {"queue": _queue(one), "name": one.handler, "body": _body(one), "key": _key(world, one)}
    at = None if one.extent < 0.5 else world.database_text(ago=-30.0)

    def insert(connection: Connection) -> None:
        names = "queue, name, body, limit_key, start_at"
        statement = f"INSERT INTO tasks ({names}) VALUES (:queue, :name, :body, :key, :start_at)"
        connection.execute(text(statement), {**columns, "start_at": at})

    world.by_hand("insert", insert)


def _to_a_task(world: World, one: PlannedEvent) -> None:
    ids = sorted(world.rules.rows)
    if not ids:
        return
    task_id = ids[int(one.target * len(ids))]
    match one.what:
        case "cancel":
            world.by_hand("cancel", actions.cancel, task_id)
        case "retry":
            world.history.retried_by_hand.add(task_id)
            world.by_hand("retry", actions.retry, task_id)
        case "delete":
            world.history.deleted_by_hand.add(task_id)
            world.by_hand("delete", actions.delete, task_id)
        case "move":
            needs_new_code = world.rules.rows[task_id].name in ONLY_NEW
            to = world.nodes[0].name if needs_new_code else _node(world, one)
            world.by_hand("move", actions.move, task_id, None if one.extent < 0.3 else to)
        case "move by hand":
            world.by_hand("move by hand", _moved_by_hand(task_id))


def _moved_by_hand(task_id: int) -> Callable[[Connection], None]:
    """The UPDATE of docs/operations.md, for a task that runs."""

    def move(connection: Connection) -> None:
        change = "UPDATE tasks SET node_id = NULL, status = 'pending', lease = lease + 1"
        connection.execute(text(f"{change} WHERE id = :id AND status = 'working'"), {"id": task_id})

    return move


def _queue(one: PlannedEvent) -> str:
    return QUEUES[int(one.extent * 10_000) % len(QUEUES)]


def _key(world: World, one: PlannedEvent) -> str | None:
    return world.plan.keys[int(one.target * 10_000) % len(world.plan.keys)]


def _node(world: World, one: PlannedEvent) -> str:
    return world.nodes[int(one.extent * len(world.nodes))].name


def _body(one: PlannedEvent) -> str:
    return body_of(one.handler, 1.0 + 150.0 * one.extent**2)
