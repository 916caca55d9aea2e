"""The state of the cluster: what needs a person, from all that knows of it, said once. Each page and command has it.

It is cheap enough to be read every few seconds: it goes by the latest sample of the queues, and reads tasks only of the
queues that are late, and of others a bounded number by an index.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.alert import ABOUT_DISKS, ABOUT_QUEUES, OF_STORAGE, AlertKind
from peerd.domain.lifecycle import Status
from peerd.domain.units import format_duration
from peerd.operate.diagnostics.finding import Finding, Level
from peerd.operate.diagnostics.waiting import (
    MAX_COUNTED,
    STALLED_AFTER,
    count_text,
    format_roughly,
    unknown_handlers,
    why_tasks_wait,
)
from peerd.operate.figures import QueueFigures
from peerd.storage.conditions import BRING_BACK, read_conditions
from peerd.storage.overview import is_storage_used
from peerd.store.alerts import AlertFilter, AlertRecord, list_alerts
from peerd.store.attempt_series import BucketFilter, sum_buckets
from peerd.store.nodes import Node
from peerd.store.schema.migrate import read_schema_version
from peerd.store.schema.tables import alerts, tasks
from peerd.store.schema.types import seconds_from_now
from peerd.store.tasks.conditions import by_index, is_closing_as, is_working
from peerd.store.time_series import MINUTE, tiles

FAILING_WITHIN: Final = 150.0
"""Seconds since the last report of a loop that fails: it is reported once a minute."""
MANY_FAILURES: Final = 0.1
"""The share of failures that is worth a warning, of at least `MIN_ATTEMPTS`."""
MIN_ATTEMPTS: Final = 20
SAMPLE_LATE_AFTER: Final = 600.0
"""Seconds after which the latest sample is too old, even of a cluster in which nothing happens."""
MOST_QUEUES: Final = 5
"""Queues whose tasks are read; of more, their number is told."""
MILD_ALERTS: Final = (AlertKind.BACKLOG, AlertKind.LONG_READ_VIEW, AlertKind.COPIES_AT_RISK, AlertKind.DISK_FULL)
"""Those that are a warning; others are a problem."""
REMEDIES: Final[dict[str, str]] = {
    AlertKind.DATABASE_AWAY: "see the database server's log, and the network between it and the node",
    AlertKind.LONG_READ_VIEW: "end the oldest transaction: peerd doctor names its session",
}
DEFAULT_REMEDY: Final = "docs/alerts.md has what each kind of alert asks for; of files: peerd files at-risk"


class ClusterState(msgspec.Struct, frozen=True, kw_only=True):
    """What is examined.

    Attributes:
        now: the database's time.
        nodes, queues: all of them.
        sampled_at: when the tasks of the queues were counted; None: never.
        max_wait: seconds for which the oldest pending task of a queue may have been due.
        max_update: seconds without a touch after which a running task is frozen.
    """

    now: datetime
    nodes: Sequence[Node]
    queues: Sequence[QueueFigures]
    sampled_at: datetime | None
    max_wait: float
    max_update: float


def examine_state(connection: Connection, state: ClusterState) -> list[Finding]:
    """All findings, the worst first; what an earlier source has said about something is not said again by a later."""
    found: list[Finding] = []
    for source in SOURCES:
        earlier = len(found)
        for finding in source(connection, state):
            said = (place for place in range(earlier) if _is_said(finding, found[place]))
            if (place := next(said, None)) is None:
                found.append(finding)
            elif finding.level.weight > found[place].level.weight:
                found[place] = msgspec.structs.replace(found[place], level=finding.level)
    return sorted(found, key=lambda finding: -finding.level.weight)


def _is_said(finding: Finding, earlier: Finding) -> bool:
    """A queue whose tasks wait for a node is said with both: an alert about either of them is the same fact."""
    is_part = earlier.about.keys() == {"queue", "node"} and finding.about.items() <= earlier.about.items()
    return bool(finding.about) and (is_part or finding.about == earlier.about)


def silent_nodes(_: Connection, state: ClusterState) -> Iterator[Finding]:
    """Nodes that run, by their rows, and send no heartbeat."""
    active = sum(node.active for node in state.nodes)
    silent = [node for node in state.nodes if node.state == "silent"]
    if not active:
        waits = any(queue.counts.get(Status.PENDING) for queue in state.queues)
        level = Level.PROBLEM if waits or silent else Level.WARNING
        yield Finding(level, "nodes", "no node is active: no task runs", "start one: peerd up")
    elif not silent:
        yield Finding(Level.OK, "nodes", f"{active} active, none silent")
    remedy = "check the machine and its log; start it again with peerd up, or, if it is gone, peerd nodes forget"
    for node in silent:
        since = "" if node.checked_at is None else f" for {format_roughly(state.now - node.checked_at)}"
        message = f"{node.name} has been silent{since}; its tasks go to others"
        yield Finding(Level.PROBLEM, "nodes", message, remedy, {"node": node.name})


def late_queues(connection: Connection, state: ClusterState) -> Iterator[Finding]:
    """Queues whose tasks wait for long, and why; those that are paused."""
    late = [queue for queue in state.queues if queue.paused or _age(queue) > STALLED_AFTER]
    late.sort(key=lambda queue: (queue.paused, -_age(queue)))
    for queue in late[:MOST_QUEUES]:
        raised = {Level.NOTE: Level.WARNING} if _age(queue) > state.max_wait and not queue.paused else {}
        for finding in why_tasks_wait(connection, queue.name):
            yield msgspec.structs.replace(finding, level=raised.get(finding.level, finding.level))
    if others := late[MOST_QUEUES:]:
        level = Level.NOTE if others[0].paused else Level.WARNING
        yield Finding(level, "queues", f"{len(others):,} more are paused, or their tasks wait", "peerd queues list")


def _age(queue: QueueFigures) -> float:
    """Seconds for which the oldest pending task has been due."""
    return (queue.oldest or 0.0) if queue.counts.get(Status.PENDING) else 0.0


def failing_queues(connection: Connection, state: ClusterState) -> Iterator[Finding]:
    """Queues with many failed attempts in the last ten minutes."""
    for queue in state.queues:
        figures = queue.figures
        if figures is None or figures.failure_share is None or figures.failure_share <= MANY_FAILURES:
            continue
        if (judged := figures.done + figures.failures) >= MIN_ATTEMPTS:
            message = f"{figures.failure_share:.0%} of the last {judged:,} attempts of {queue.name} failed"
            if worst := _failures_by_handler(connection, queue.name, state.now).most_common(1):
                message += f", {worst[0][1]:,} of them of {worst[0][0] or '(no name)'}"
            about = {"queue": queue.name, "status": str(Status.DEAD)}
            remedy = f"see what fails: peerd errors --queue {queue.name}"
            yield Finding(Level.WARNING, "failures", message, remedy, about)


def _failures_by_handler(connection: Connection, queue: str, now: datetime) -> Counter[str]:
    found: Counter[str] = Counter()
    for tile in tiles(now - timedelta(seconds=600.0), now, MINUTE):
        rows = sum_buckets(connection, tile, ("name",), BucketFilter(queue=queue))
        found.update({name: totals.failures for (name,), totals in rows})
    return found


def dead_tasks(connection: Connection, _: ClusterState) -> Iterator[Finding]:
    """Tasks that are dead."""
    dead = _count(connection, "tasks_closing", is_closing_as(Status.DEAD))
    if not dead:
        yield Finding(Level.OK, "dead tasks", "none")
        return
    remedy = "peerd tasks list --status dead; then peerd tasks retry, or delete"
    about = {"status": str(Status.DEAD)}
    yield Finding(Level.WARNING, "dead tasks", f"{count_text(dead)} dead, and kept for inspection", remedy, about)


def frozen_tasks(connection: Connection, state: ClusterState) -> Iterator[Finding]:
    """Running tasks without a touch, which a living manager would have rescued; reservations last to their deadline."""
    seconds = 2 * state.max_update
    last = sa.func.coalesce(tasks.c.deadline_at, tasks.c.checked_at, tasks.c.updated_at)
    frozen = _count(connection, "tasks_claim", is_working(), last < seconds_from_now(-seconds))
    if not frozen:
        yield Finding(Level.OK, "running tasks", "all are being touched")
        return
    message = f"{count_text(frozen)} not touched for {format_duration(seconds)}, and no node takes them back"
    remedy = "start a node: its manager does that"
    yield Finding(Level.PROBLEM, "running tasks", message, remedy, {"status": str(Status.WORKING)})


def alerts_that_are_on(connection: Connection, _: ClusterState) -> Iterator[Finding]:
    """Conditions that have raised alerts, and last."""
    for alert in list_alerts(connection, AlertFilter(on=True), after=None, limit=50).items:
        level = Level.WARNING if alert.kind in MILD_ALERTS else Level.PROBLEM
        yield Finding(level, alert.kind, alert.text, REMEDIES.get(alert.kind, DEFAULT_REMEDY), _about_alert(alert))


def _about_alert(alert: AlertRecord) -> dict[str, str]:
    if alert.kind == AlertKind.PINNED_TASKS and isinstance(nodes := alert.data.get("nodes"), list) and nodes:
        return {"node": str(nodes[0])}
    for kind, kinds in (("disk", ABOUT_DISKS), ("queue", ABOUT_QUEUES), ("node", [AlertKind.INACTIVE_NODES])):
        if alert.kind in kinds and alert.subject:
            return {kind: alert.subject}
    return {"storage": "files"} if alert.kind in OF_STORAGE else {"alert": alert.kind}


def failing_components(connection: Connection, _: ClusterState) -> Iterator[Finding]:
    """Loops of processes that fail again and again."""
    is_failing = (alerts.c.kind == AlertKind.EXCEPTION, alerts.c.last_seen_at > seconds_from_now(-FAILING_WITHIN))
    found = sa.select(alerts.c.node, alerts.c.text).where(*is_failing, alerts.c.times > 1, alerts.c.subject != "")
    remedy = "the log of the node has each failure; what does not depend on it goes on"
    for failing in connection.execute(found.order_by(alerts.c.node, alerts.c.subject)):
        about = {"node": failing.node, "alert": str(AlertKind.EXCEPTION)}
        yield Finding(Level.PROBLEM, "components", f"on {failing.node}: {failing.text}", remedy, about)


def older_nodes(connection: Connection, state: ClusterState) -> Iterator[Finding]:
    """Nodes with older code than the tables."""
    schema = read_schema_version(connection)
    for node in state.nodes:
        if schema is not None and node.active and node.revision is not None and node.revision < schema.revision:
            message = f"{node.name} (peerd {node.version or '?'}) is older than the tables; it may go on"
            yield Finding(Level.NOTE, "versions", message, "upgrade it when it suits", {"node": node.name})


def old_sample(_: Connection, state: ClusterState) -> Iterator[Finding]:
    """Tasks that no manager counts any more."""
    if state.sampled_at is not None and (state.now - state.sampled_at).total_seconds() > SAMPLE_LATE_AFTER:
        message = f"tasks were counted {format_roughly(state.now - state.sampled_at)} ago"
        remedy = "see that the first node has a manager, and that its [statistics] are enabled"
        yield Finding(Level.WARNING, "statistics", message, remedy)


SOURCES: Final[tuple[Callable[[Connection, ClusterState], Iterator[Finding]], ...]] = (
    silent_nodes,
    late_queues,
    failing_queues,
    dead_tasks,
    frozen_tasks,
    lambda connection, _: unknown_handlers(connection),
    lambda connection, _: iter(_storage_findings(connection)),
    alerts_that_are_on,
    failing_components,
    older_nodes,
    old_sample,
)


def _count(connection: Connection, index: str, *conditions: sa.ColumnElement[bool]) -> int:
    """How many tasks, up to `MAX_COUNTED`."""
    some = by_index(sa.select(tasks.c.id).where(*conditions), index).limit(MAX_COUNTED).subquery()
    return connection.execute(sa.select(sa.func.count()).select_from(some)).scalar_one()


def _storage_findings(connection: Connection) -> list[Finding]:
    """Files and disks."""
    if not is_storage_used(connection):
        return []
    overview, conditions = read_conditions(connection)
    files = {"storage": "files"}
    found = [
        Finding(
            Level.WARNING if one.kind is AlertKind.DISK_FULL else Level.PROBLEM,
            "storage",
            one.text,
            one.remedy,
            files if one.disk is None else {"disk": str(one.disk)},
        )
        for one in conditions
    ]
    if overview.away is not None and not overview.away.files.files:
        found.append(Finding(Level.WARNING, "storage", overview.away.text, BRING_BACK, files))
    return found or [Finding(Level.OK, "storage", "all disks can be used, and no file has lacked copies for long")]
