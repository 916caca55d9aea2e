"""The overview of a cluster: the figures of the last ten minutes, the latest sample of the queues, and what is wrong.

It takes six statements, none of which reads tasks.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.attempt_totals import AttemptTotals
from peerd.domain.duration import format_duration
from peerd.domain.lifecycle import Status
from peerd.operate.figures import AttemptFigures, NodeFigures, Overview, QueueFigures
from peerd.store.nodes.loads import count_slots
from peerd.store.nodes.nodes import Node, list_nodes
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import queues
from peerd.store.statistics.depths import ALL_QUEUES, DepthPoint, latest_depths
from peerd.store.statistics.reading import sum_tiles
from peerd.store.statistics.steps import MINUTE, tiles

WINDOW: Final = 600.0
"""Seconds."""
MANY_FAILURES: Final = 0.1
"""The share of failures that is a problem, of at least `MIN_ATTEMPTS`."""
MIN_ATTEMPTS: Final = 20
UNSERVED_AFTER: Final = 60.0
"""Seconds for which a task may wait in a queue that no process has ever served."""
SAMPLE_LATE_AFTER: Final = 600.0
"""Seconds after which the latest sample is too old, even of a cluster in which nothing happens."""


def read_overview(connection: Connection, max_wait: float) -> Overview:
    """The overview as of now.

    Args:
        connection: of any transaction.
        max_wait: seconds for which the oldest pending task of a queue may have been due.
    """
    moment = connection.execute(sa.select(now())).scalar_one()
    parts = tiles(moment - timedelta(seconds=WINDOW), moment, MINUTE)
    seconds = (moment - parts[0].since).total_seconds()
    of_queues: dict[str, AttemptTotals] = defaultdict(AttemptTotals)
    of_nodes: dict[int, AttemptTotals] = defaultdict(AttemptTotals)
    for (queue, node_id), totals in sum_tiles(connection, parts, ("queue", "node_id")).items():
        of_queues[queue].merge(totals)
        of_nodes[node_id].merge(totals)
    total = AttemptTotals()
    for totals in of_queues.values():
        total.merge(totals)
    sample = latest_depths(connection)
    found_queues = _queues(connection, sample, of_queues, seconds)
    found_nodes = _nodes(list_nodes(connection), count_slots(connection), of_nodes, seconds)
    whole = _counts(sample, ALL_QUEUES)
    sampled_at = sample[0].at if sample else None
    return Overview(
        now=moment,
        sampled_at=sampled_at,
        problems=[
            *_problems_of_nodes(found_nodes),
            *_problems_of_sample(sampled_at, moment),
            *(problem for queue in found_queues for problem in _problems_of_queue(queue, max_wait)),
        ],
        figures=AttemptFigures.of(total, seconds),
        counts=whole[0],
        at_least=whole[1],
        oldest=whole[2],
        slots=sum(node.slots for node in found_nodes if node.state in {"active", "draining"}),
        queues=found_queues,
        nodes=found_nodes,
    )


def _queues(
    connection: Connection, sample: Sequence[DepthPoint], attempts: dict[str, AttemptTotals], seconds: float
) -> list[QueueFigures]:
    open_again = sa.and_(queues.c.paused_until.is_not(None), queues.c.paused_until <= now())
    is_paused = sa.and_(queues.c.paused, sa.not_(open_again))
    known = {
        row.name: bool(row.paused) for row in connection.execute(sa.select(queues.c.name, is_paused.label("paused")))
    }
    by_queue: dict[str, list[DepthPoint]] = defaultdict(list)
    for point in sample:
        by_queue[point.queue].append(point)
    found = []
    for name in sorted({*known, *attempts, *by_queue} - {ALL_QUEUES}):
        counts, at_least, oldest = _counts(by_queue.get(name, ()), name)
        found.append(
            QueueFigures(
                name=name,
                known=name in known,
                paused=known.get(name, False),
                counts=counts,
                at_least=at_least,
                oldest=oldest,
                figures=AttemptFigures.of(attempts[name], seconds) if name in attempts else None,
            )
        )
    return found


def _counts(sample: Sequence[DepthPoint], queue: str) -> tuple[dict[Status, int], list[Status], float | None]:
    """The counts of a queue in a sample, those that end at their limit, and the age of its oldest pending task."""
    points = [point for point in sample if point.queue == queue]
    counts = {point.status: point.count for point in points if point.count}
    oldest = next((point.oldest for point in points if point.oldest is not None), None)
    return counts, [point.status for point in points if point.at_least], oldest


def _nodes(
    found: Sequence[Node], slots: dict[int, int], attempts: dict[int, AttemptTotals], seconds: float
) -> list[NodeFigures]:
    figures = []
    for node in found:
        state = _state(node)
        has = slots.get(node.id, 0) if node.active else 0
        busy = attempts[node.id].busy / seconds if node.id in attempts else 0.0
        utilisation = min(1.0, busy / has) if has else None
        figures.append(NodeFigures(name=node.name, state=state, slots=has, busy=busy, utilisation=utilisation))
    return figures


def _state(node: Node) -> str:
    if node.incarnation is None:
        return "stopped"
    if not node.active:
        return "silent"
    return "draining" if node.draining else "active"


def _problems_of_nodes(found: Sequence[NodeFigures]) -> Iterator[str]:
    states = Counter(node.state for node in found)
    if not states["active"] + states["draining"]:
        yield "no node is active: no task runs"
    for node in found:
        if node.state == "silent":
            yield f"node {node.name} is silent: its heartbeats ended without a stop"


def _problems_of_sample(sampled_at: datetime | None, moment: datetime) -> Iterator[str]:
    if sampled_at is not None and (moment - sampled_at).total_seconds() > SAMPLE_LATE_AFTER:
        age = format_duration(round((moment - sampled_at).total_seconds()))
        yield f"tasks were counted {age} ago: the first node has no manager, or its [statistics] are not enabled"


def _problems_of_queue(queue: QueueFigures, max_wait: float) -> Iterator[str]:
    pending = queue.counts.get(Status.PENDING, 0)
    age = queue.oldest or 0.0
    if pending and not queue.paused and not queue.known and age > UNSERVED_AFTER:
        yield f"tasks wait in {queue.name}, which no worker process has ever served"
    elif pending and not queue.paused and age > max_wait:
        yield f"tasks of {queue.name} wait: the oldest has been due for {format_duration(round(age))}"
    figures = queue.figures
    if figures is not None and figures.failure_share is not None:
        judged = figures.done + figures.failures
        if judged >= MIN_ATTEMPTS and figures.failure_share > MANY_FAILURES:
            yield f"{figures.failure_share:.0%} of the last {judged:,} attempts of {queue.name} failed"
