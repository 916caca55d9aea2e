"""Examinations of the cluster: states that need a person, on each database."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.config.reading.suggestions import suggest_similar
from peerd.domain.alert import AlertKind
from peerd.domain.duration import format_duration
from peerd.domain.lifecycle import Status
from peerd.operate.diagnostics.finding import Finding, Level
from peerd.operate.diagnostics.storage import storage_findings
from peerd.store.nodes.known_handlers import count_unknown_handlers
from peerd.store.queues import (
    has_jobs_of_clients,
    has_working_task,
    known_queues,
    measure_backlog,
    pending_queues,
)
from peerd.store.schema.revisions import read_schema_version
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import alerts, limits, nodes, queues, tasks
from peerd.store.tasks.conditions import PENDING_WITH_KEY, PENDING_WITHOUT_KEY, by_index, is_working, status_is

MAX_COUNTED = 1_000
"""Counting ends here, so that an examination does not read a million rows."""
STALLED_AFTER = 60.0
"""Seconds: an idle worker takes a task within 12.5 s, even without the doorbell."""
FAILING_WITHIN = 150.0
"""Seconds since the last report of a loop that fails: it is reported once a minute."""


def examinations(max_update: float) -> list[Callable[[Connection], list[Finding]]]:
    """All of them, for this limit of seconds without a touch."""

    def frozen(connection: Connection) -> list[Finding]:
        """Frozen tasks."""
        return frozen_tasks(connection, max_update)

    queues = (unserved_queues, unknown_tasks, dead_tasks, paused_queues)
    return [silent_nodes, older_nodes, failing_components, frozen, pinned_tasks, *queues, storage_findings]


def silent_nodes(connection: Connection) -> list[Finding]:
    """Nodes that run, by their rows, and send no heartbeat."""
    silent = (
        sa.select(nodes.c.name).where(nodes.c.incarnation.is_not(None), sa.not_(nodes.c.active)).order_by(nodes.c.name)
    )
    names = list(connection.execute(silent).scalars())
    alive = connection.execute(sa.select(sa.func.count()).where(nodes.c.active)).scalar_one()
    if not names:
        return [Finding(Level.OK, "nodes", f"{alive} active, none silent")]
    message = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} silent; their tasks go to others"
    remedy = "check the machine and its log; start it again with peerd up, or, if it is gone, peerd nodes forget"
    return [Finding(Level.PROBLEM, "nodes", message, remedy)]


def failing_components(connection: Connection) -> list[Finding]:
    """Loops of processes that fail again and again."""
    is_failing = (alerts.c.kind == AlertKind.EXCEPTION, alerts.c.last_seen_at > seconds_from_now(-FAILING_WITHIN))
    found = sa.select(alerts.c.node, alerts.c.text).where(*is_failing, alerts.c.times > 1, alerts.c.subject != "")
    remedy = "the log of the node has each failure; what does not depend on it goes on"
    return [
        Finding(Level.PROBLEM, "components", f"on {failing.node}: {failing.text}", remedy)
        for failing in connection.execute(found.order_by(alerts.c.node, alerts.c.subject))
    ]


def older_nodes(connection: Connection) -> list[Finding]:
    """Nodes with older code than the tables."""
    schema = read_schema_version(connection)
    if schema is None:
        return []
    older = sa.select(nodes.c.name, nodes.c.version).where(nodes.c.active, nodes.c.revision < schema.revision)
    return [
        Finding(
            Level.NOTE,
            "versions",
            f"{name} (peerd {version or '?'}) is older than the tables; it may go on",
            "upgrade it when it suits",
        )
        for name, version in connection.execute(older.order_by(nodes.c.name))
    ]


def frozen_tasks(connection: Connection, max_update: float) -> list[Finding]:
    """Running tasks without a touch, which a living manager would have rescued; reservations last to their deadline."""
    twice = seconds_from_now(-2 * max_update)
    last = sa.func.coalesce(tasks.c.deadline_at, tasks.c.checked_at, tasks.c.updated_at)
    frozen = _count(connection, status_is(Status.WORKING), last < twice)
    if not frozen:
        return [Finding(Level.OK, "running tasks", "all are being touched")]
    message = f"{_count_text(frozen)} not touched for {format_duration(2 * max_update)}, and no node takes them back"
    return [Finding(Level.PROBLEM, "running tasks", message, "start a node: its manager does that")]


def pinned_tasks(connection: Connection) -> list[Finding]:
    """Pending tasks that are pinned to a node that is not active."""
    waiting = (
        sa.select(tasks.c.node_id, nodes.c.name, sa.func.count(), sa.func.min(tasks.c.id))
        .join_from(tasks, nodes, tasks.c.node_id == nodes.c.id, isouter=True)
        .where(status_is(Status.PENDING), tasks.c.lane != 0, tasks.c.node_id.is_not(None))
        .where(sa.or_(nodes.c.id.is_(None), sa.not_(nodes.c.active)))
        .group_by(tasks.c.node_id, nodes.c.name)
        .order_by(nodes.c.name, tasks.c.node_id)
    )
    return [_pinned_finding(*row) for row in connection.execute(waiting)]


def _pinned_finding(node_id: int, name: str | None, count: int, first: int) -> Finding:
    message = f"{_count_text(count)} waiting for {name or f'node {node_id}'}, which is not there"
    remedy = f"start it, or: peerd tasks move --node {name} --status pending --to-any"
    if name is None:
        remedy = (
            f"no node has this id: peerd tasks move {first} --to-any, for one; "
            "for all of them with SQL, set node_id to NULL in the pending ones"
        )
    return Finding(Level.PROBLEM, "pinned tasks", message, remedy)


def unserved_queues(connection: Connection) -> list[Finding]:
    """Queues with pending tasks that no process claims."""
    known = known_queues(connection)
    limited = set(connection.execute(sa.select(limits.c.queue)).scalars())
    closed = set(connection.execute(_paused()).scalars())
    found = []
    for name in pending_queues(connection, MAX_COUNTED):
        if name not in known and not has_jobs_of_clients(connection, name):
            found.append(_unserved_finding(connection, name, known))
        elif name not in closed | limited:
            found += _stalled_findings(connection, name)
    return found


def _unserved_finding(connection: Connection, name: str, known: Sequence[str]) -> Finding:
    count = _count(connection, sa.or_(PENDING_WITHOUT_KEY.of(sa.literal(name)), PENDING_WITH_KEY.of(sa.literal(name))))
    message = f"{_count_text(count)} waiting in {name}, which no worker process has ever served"
    remedy = f"start a node with a worker of it; or cancel them: peerd tasks cancel --queue {name}"
    return Finding(Level.PROBLEM, "queues", message, " ".join(filter(None, [suggest_similar(name, known), remedy])))


def _stalled_findings(connection: Connection, name: str) -> list[Finding]:
    """A queue whose first tasks have waited for long while none of it runs: its workers may be gone."""
    waiting = measure_backlog(connection, name, MAX_COUNTED, STALLED_AFTER)
    if waiting.since is None:
        return []
    waited = (connection.execute(sa.select(now())).scalar_one() - waiting.since).total_seconds()
    message = f"{_count_text(waiting.count)} waiting in {name}, the first for {format_duration(round(waited))}"
    if has_working_task(connection, name):
        return _busy_findings(connection, name, message)
    served_by = "a queue client of it" if has_jobs_of_clients(connection, name) else "a worker of it"
    remedy = f"see that a node with {served_by} is up, is not draining, and is not busy with other queues"
    return [Finding(Level.WARNING, "queues", f"{message}, and none of this queue runs", remedy)]


def _busy_findings(connection: Connection, name: str, message: str) -> list[Finding]:
    """A queue whose running tasks have all run for long: their handlers may wait for tasks that find no slot."""
    begun = sa.select(sa.func.max(tasks.c.worker_started_at)).where(is_working(), tasks.c.queue == name)
    latest = connection.execute(by_index(begun, "tasks_claim")).scalar_one()
    if latest is None or latest > connection.execute(sa.select(seconds_from_now(-STALLED_AFTER))).scalar_one():
        return []
    message += ", and those that run have taken all slots since then"
    remedy = "if their handlers wait for results of other tasks, give those tasks a queue with workers of its own"
    return [Finding(Level.NOTE, "queues", message, remedy)]


def unknown_tasks(connection: Connection) -> list[Finding]:
    """Tasks whose handler or arguments no process knows."""
    return [
        Finding(
            Level.WARNING,
            "unknown tasks",
            f"{_count_text(unknown.count)} waiting for code that knows handler {unknown.name!r} of queue "
            f"{unknown.queue} and its arguments: {unknown.error}",
            "start or reload a node whose code knows them; or: peerd tasks cancel, if they are a mistake",
        )
        for unknown in count_unknown_handlers(connection)
    ]


def dead_tasks(connection: Connection) -> list[Finding]:
    """Tasks that are dead."""
    dead = _count(connection, status_is(Status.DEAD))
    if not dead:
        return [Finding(Level.OK, "dead tasks", "none")]
    remedy = "peerd tasks list --status dead; then peerd tasks retry, or delete"
    return [Finding(Level.WARNING, "dead tasks", f"{_count_text(dead)} kept for inspection", remedy)]


def paused_queues(connection: Connection) -> list[Finding]:
    """Paused queues."""
    return [
        Finding(Level.NOTE, "queues", f"{name} is paused", f"peerd queues resume {name}")
        for name in connection.execute(_paused()).scalars()
    ]


def _paused() -> sa.Select[str]:
    still = sa.or_(queues.c.paused_until.is_(None), queues.c.paused_until > now())
    return sa.select(queues.c.name).where(queues.c.paused, still).order_by(queues.c.name)


def _count(connection: Connection, *conditions: sa.ColumnElement[bool]) -> int:
    """How many tasks, up to `MAX_COUNTED`."""
    some = sa.select(tasks.c.id).where(*conditions).limit(MAX_COUNTED).subquery()
    return connection.execute(sa.select(sa.func.count()).select_from(some)).scalar_one()


def _count_text(count: int) -> str:
    if count == 1:
        return "1 task is"
    return f"{count:,}{' or more' if count >= MAX_COUNTED else ''} tasks are"
