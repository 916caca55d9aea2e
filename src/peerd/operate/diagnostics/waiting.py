"""Why tasks of a queue wait, by counting the first ones: a few statements, and each ends at a limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.config.problems import suggest_similar
from peerd.domain.lifecycle import Status
from peerd.domain.units import format_duration
from peerd.operate.diagnostics.finding import Finding, Level
from peerd.store.audit import DONE, AuditFilter, list_entries
from peerd.store.known_handlers import count_unknown_handlers
from peerd.store.limits import LimitState, list_limits
from peerd.store.nodes import Node, NodeLoad, list_nodes, read_serving_loads
from peerd.store.queues import QueueBacklog, has_jobs_of_clients, known_queues, measure_backlog, pending_nodes
from peerd.store.schema.tables import queues, tasks
from peerd.store.schema.types import now
from peerd.store.tasks.conditions import ASIDE_KINDS

MAX_COUNTED: Final = 1_000
"""Counting ends here, so that an examination does not read a million rows."""
STALLED_AFTER: Final = 60.0
"""Seconds: an idle worker takes a task within 12.5 s, even without the doorbell."""
MOST_NODES: Final = 20
"""Nodes whose pinned tasks are counted."""


class WaitingTasks(msgspec.Struct, frozen=True):
    """What is known of the pending tasks of a queue.

    Attributes:
        queue: its name.
        now: the database's time.
        by_node: those that only a node may take, by its id; of 0 those that any may.
    """

    queue: str
    now: datetime
    by_node: Mapping[int, QueueBacklog]

    def some(self, backlog: QueueBacklog) -> str:
        """The number of some of them, and the number of all.

        >>> waiting = WaitingTasks("mail", datetime.min, {0: QueueBacklog(3, None), 7: QueueBacklog(1, None)})
        >>> waiting.some(waiting.by_node[7])
        'mail: 1 of 4 waiting tasks is'
        """
        total = sum(one.count for one in self.by_node.values())
        verb = "is" if backlog.count == 1 else "are"
        return f"{self.queue}: {_number(backlog.count)} of {_number(total)} waiting tasks {verb}"


def why_tasks_wait(connection: Connection, queue: str) -> list[Finding]:
    """What keeps the pending tasks of a queue from being claimed; empty where none waits, or they are about to be."""
    moment = connection.execute(sa.select(now())).scalar_one()
    ids = pending_nodes(connection, queue, MOST_NODES)
    waiting = WaitingTasks(queue, moment, {one: measure_backlog(connection, queue, MAX_COUNTED, one) for one in ids})
    row = connection.execute(sa.select(queues).where(queues.c.name == queue)).first()
    if row is not None and row.paused and (row.paused_until is None or row.paused_until > moment):
        return [_pause(connection, waiting, row.updated_at, row.paused_until)]
    if not ids:
        return []
    if row is None and not has_jobs_of_clients(connection, queue):
        return [_unserved(connection, waiting)]
    nodes, loads = {node.id: node for node in list_nodes(connection)}, read_serving_loads(connection, queue)
    reached = [_limit(limit) for limit in list_limits(connection, queue) if _is_reached(limit)]
    found = reached
    for node_id, backlog in waiting.by_node.items():
        if node_id and (node_id not in nodes or not nodes[node_id].active):
            found = [*found, _pinned_to_gone(waiting, node_id, nodes.get(node_id), backlog)]
        elif not reached:
            serving = [load for load in loads if not node_id or load.name == nodes[node_id].name]
            found = [*found, *_slots(connection, waiting, nodes.get(node_id), backlog, serving)]
    return found


def unknown_handlers(connection: Connection, queue: str | None = None) -> Iterator[Finding]:
    """Tasks whose handler or arguments no process knows."""
    for unknown in count_unknown_handlers(connection):
        if queue in (None, unknown.queue):
            message = (
                f"{count_text(unknown.count)} waiting for code that knows handler {unknown.name!r} of queue "
                f"{unknown.queue} and its arguments: {unknown.error}"
            )
            remedy = "start or reload a node whose code knows them; or: peerd tasks cancel, if they are a mistake"
            about = {"queue": unknown.queue, "handler": unknown.name}
            yield Finding(Level.WARNING, "unknown tasks", message, remedy, about)


def later_tasks(connection: Connection, queue: str) -> Iterator[Finding]:
    """Tasks whose time has not come: those that start later, and those that have failed and are tried again."""
    moment = connection.execute(sa.select(now())).scalar_one()
    for status, words in ((Status.SCHEDULED, "scheduled"), (Status.FAILURE, "tried again after a failure")):
        first = ASIDE_KINDS[status].first(queue, tasks.c.due_at, limit=MAX_COUNTED).subquery()
        count, due_at = connection.execute(sa.select(sa.func.count(), sa.func.min(first.c.due_at))).one()
        if count:
            due = "now" if due_at <= moment else f"in {format_roughly(due_at - moment)}"
            about = {"queue": queue, "status": str(status)}
            yield Finding(Level.NOTE, "queues", f"{count_text(count)} {words}, the next one {due}", "", about)


def _pause(connection: Connection, waiting: WaitingTasks, since: datetime, until: datetime | None) -> Finding:
    wanted = AuditFilter(operation="queues.pause", target_kind="queue", target=waiting.queue)
    entry = next(
        (one for one in list_entries(connection, wanted, after=None, limit=1).items if one.outcome == DONE), None
    )
    by, since = ("", since) if entry is None else (f" by {entry.actor}", entry.at)
    end = "until it is resumed" if until is None else f"for another {format_roughly(until - waiting.now)}"
    message = f"{waiting.queue} was paused{by} {format_roughly(waiting.now - since)} ago, {end}"
    about = {"queue": waiting.queue}
    return Finding(Level.NOTE, "queues", message, f"peerd queues resume {waiting.queue}", about)


def _unserved(connection: Connection, waiting: WaitingTasks) -> Finding:
    name = waiting.queue
    count = sum(backlog.count for backlog in waiting.by_node.values())
    message = f"{count_text(count)} waiting in {name}, which no worker process has ever served"
    remedy = f"start a node with a worker of it; or cancel them: peerd tasks cancel --queue {name}"
    remedy = " ".join(filter(None, [suggest_similar(name, known_queues(connection)), remedy]))
    return Finding(Level.PROBLEM, "queues", message, remedy, {"queue": name})


def _pinned_to_gone(waiting: WaitingTasks, node_id: int, node: Node | None, backlog: QueueBacklog) -> Finding:
    pinned = f"{waiting.some(backlog)} pinned to"
    if node is None:
        remedy = "with SQL, set node_id to NULL in the pending ones: no node has this id"
        return Finding(Level.PROBLEM, "pinned tasks", f"{pinned} node {node_id}, which is gone", remedy)
    since = "" if node.checked_at is None else f" for {format_roughly(waiting.now - node.checked_at)}"
    remedy = f"start it, or: peerd tasks move --queue {waiting.queue} --node {node.name} --status pending --to-any"
    about = {"queue": waiting.queue, "node": node.name}
    return Finding(Level.PROBLEM, "pinned tasks", f"{pinned} {node.name}, {node.state}{since}", remedy, about)


def _is_reached(limit: LimitState) -> bool:
    return bool(limit.full_keys) or (
        limit.key != "*" and not limit.allows(limit.running_now or 0, limit.starts_now or 0)
    )


def _limit(limit: LimitState) -> Finding:
    whose = f"the key {limit.key} of {limit.queue}" if limit.key else limit.queue
    message = f"the limit of {whose} is reached: {limit.running_now or 0:,} run, {limit.starts_now or 0:,} have started"
    if limit.full_keys:
        message = f"{limit.queue}: the limit of each key is reached by {limit.full_keys:,} of them"
    return Finding(Level.NOTE, "limits", message, f"peerd limits list {limit.queue}", {"queue": limit.queue})


def _slots(
    connection: Connection, waiting: WaitingTasks, node: Node | None, backlog: QueueBacklog, loads: Sequence[NodeLoad]
) -> Iterator[Finding]:
    """Whether a node serves the queue and has a free slot, for tasks that some node could take."""
    waited = waiting.now - (backlog.since or waiting.now)
    wait = f"{waiting.some(backlog)} due, the first for {format_roughly(waited)}"
    slots, running = sum(load.slots for load in loads), sum(load.running for load in loads)
    where = ", ".join(f"{load.slots:,} on {load.name}" for load in loads)
    level, cause = Level.WARNING, f"{slots - running:,} of {slots:,} slots are free ({where})"
    remedy = "see the log of these nodes"
    if not slots and has_jobs_of_clients(connection, waiting.queue):
        cause, remedy = "no queue client has reserved them", "see that one is connected, and watches the queue"
    elif not slots:
        cause = (
            "no process" + ("" if node is None else f" on {node.name}, to which they are pinned,") + " serves the queue"
        )
        remedy = "start a worker of it, or end a drain (peerd nodes undrain)"
    elif running >= slots:
        level, cause = Level.NOTE, f"all {slots:,} slots are taken ({where})"
        remedy = "add processes (peerd scale) or nodes; put urgent tasks into a queue with workers of its own"
    if level is Level.NOTE or waited > timedelta(seconds=STALLED_AFTER):
        yield Finding(level, "queues", f"{wait}; {cause}", remedy, {"queue": waiting.queue})


def count_text(count: int) -> str:
    """A number of tasks as the beginning of a sentence.

    >>> count_text(1), count_text(1_000)
    ('1 task is', '1,000 or more tasks are')
    """
    if count == 1:
        return "1 task is"
    return f"{count:,}{' or more' if count >= MAX_COUNTED else ''} tasks are"


def format_roughly(span: timedelta) -> str:
    """A span of time in whole minutes: what is read again each second shall not change each second.

    >>> format_roughly(timedelta(seconds=587)), format_roughly(timedelta(seconds=9))
    ('9m', 'a minute')
    """
    minutes = span // timedelta(minutes=1)
    return format_duration(60 * minutes) if minutes >= 2 else "a minute"


def _number(count: int) -> str:
    return f"{count:,}{'+' if count >= MAX_COUNTED else ''}"
