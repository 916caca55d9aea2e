"""Examinations of the cluster: what waits for a person, on each database."""

from __future__ import annotations

from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.duration import format_duration
from peerd.domain.lifecycle import Status
from peerd.operate.checkup.finding import Finding, Level
from peerd.store.clock import now, seconds_from_now
from peerd.store.revisions import schema_of
from peerd.store.search import status_is
from peerd.store.tables import nodes, queues, tasks

MANY = 1_000
"""Counting ends here: a doctor must not read a million rows."""


def examinations(max_update: float) -> list[Callable[[Connection], list[Finding]]]:
    """All of them."""

    def frozen(connection: Connection) -> list[Finding]:
        """Frozen tasks."""
        return frozen_tasks(connection, max_update)

    return [silent_nodes, older_nodes, frozen, pinned_tasks, dead_tasks, paused_queues]


def silent_nodes(connection: Connection) -> list[Finding]:
    """Nodes that should be there and are not."""
    silent = (
        sa.select(nodes.c.name).where(nodes.c.incarnation.is_not(None), sa.not_(nodes.c.active)).order_by(nodes.c.name)
    )
    names = list(connection.execute(silent).scalars())
    alive = connection.execute(sa.select(sa.func.count()).where(nodes.c.active)).scalar_one()
    if not names:
        return [Finding(Level.OK, "nodes", f"{alive} active, none silent")]
    message = f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} silent; their tasks go to others"
    return [Finding(Level.PROBLEM, "nodes", message, "look at the machine and its log; start it again with peerd up")]


def older_nodes(connection: Connection) -> list[Finding]:
    """Nodes that run with older code than the tables are written for."""
    schema = schema_of(connection)
    if schema is None:
        return []
    older = sa.or_(nodes.c.revision.is_(None), nodes.c.revision < schema.revision)
    running = sa.select(nodes.c.name, nodes.c.version, nodes.c.revision).where(nodes.c.active, older)
    return [_older(*row) for row in connection.execute(running.order_by(nodes.c.name))]


def _older(name: str, version: str | None, revision: str | None) -> Finding:
    who = f"{name} (peerd {version or '?'})"
    if revision is None:
        message = f"{who} is older than the tables, and can start no process anew"
        return Finding(Level.WARNING, "versions", message, "upgrade it, and start it again")
    return Finding(Level.NOTE, "versions", f"{who} is older than the tables; it may go on", "upgrade it when it suits")


def frozen_tasks(connection: Connection, max_update: float) -> list[Finding]:
    """Running tasks that nobody touches: a living manager would have taken them back."""
    twice = seconds_from_now(-2 * max_update)
    frozen = _count(
        connection, status_is(Status.WORKING), sa.func.coalesce(tasks.c.checked_at, tasks.c.updated_at) < twice
    )
    if not frozen:
        return [Finding(Level.OK, "running tasks", "all are being touched")]
    message = f"{_words(frozen)} not touched for {format_duration(2 * max_update)}, and no node takes them back"
    return [Finding(Level.PROBLEM, "running tasks", message, "start a node: its manager does that")]


def pinned_tasks(connection: Connection) -> list[Finding]:
    """Tasks that wait for a node which is not there."""
    waiting = (
        sa.select(nodes.c.name, sa.func.count())
        .join_from(tasks, nodes, tasks.c.node_id == nodes.c.id)
        .where(status_is(Status.PENDING), tasks.c.lane != 0, sa.not_(nodes.c.active))
        .group_by(nodes.c.name)
        .order_by(nodes.c.name)
    )
    return [
        Finding(
            Level.PROBLEM,
            "pinned tasks",
            f"{_words(count)} waiting for {name}, which is not there",
            f"start it, or: peerd tasks move --node {name} --status pending --to-any",
        )
        for name, count in connection.execute(waiting)
    ]


def dead_tasks(connection: Connection) -> list[Finding]:
    """Tasks that failed for good."""
    dead = _count(connection, status_is(Status.DEAD))
    if not dead:
        return [Finding(Level.OK, "dead tasks", "none")]
    remedy = "peerd tasks list --status dead; then peerd tasks retry, or delete"
    return [Finding(Level.WARNING, "dead tasks", f"{_words(dead)} kept for you to look at", remedy)]


def paused_queues(connection: Connection) -> list[Finding]:
    """Queues that nobody may take from."""
    still = sa.or_(queues.c.paused_until.is_(None), queues.c.paused_until > now())
    paused = sa.select(queues.c.name).where(queues.c.paused, still).order_by(queues.c.name)
    return [
        Finding(Level.NOTE, "queues", f"{name} is paused", f"peerd queues resume {name}")
        for name in connection.execute(paused).scalars()
    ]


def _count(connection: Connection, *conditions: sa.ColumnElement[bool]) -> int:
    """How many tasks, up to `MANY`."""
    some = sa.select(tasks.c.id).where(*conditions).limit(MANY).subquery()
    return connection.execute(sa.select(sa.func.count()).select_from(some)).scalar_one()


def _words(count: int) -> str:
    if count == 1:
        return "1 task is"
    return f"{count:,}{' or more' if count >= MANY else ''} tasks are"
