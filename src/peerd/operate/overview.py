"""The overview of a cluster: the figures of the last ten minutes, the latest sample of the queues, and the verdict.

The figures take six statements, and none of them reads tasks. `peerd.operate.diagnostics.verdict` judges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.attempt_totals import AttemptTotals
from peerd.domain.lifecycle import Status
from peerd.domain.quoting import Masker
from peerd.operate.diagnostics import examine_database
from peerd.operate.diagnostics.finding import Finding, mask_findings, verdict_on
from peerd.operate.diagnostics.verdict import ClusterState, examine_state
from peerd.operate.figures import AttemptFigures, NodeFigures, Overview, QueueFigures
from peerd.store.attempt_series import sum_tiles
from peerd.store.nodes import Node, count_slots, list_nodes
from peerd.store.queue_states import ALL_QUEUES, DepthPoint, depth_points, latest_depths, sample_depths
from peerd.store.schema.tables import queues
from peerd.store.schema.types import now
from peerd.store.time_series import MINUTE, tiles

WINDOW: Final = 600.0
"""Seconds."""


def read_overview(
    connection: Connection,
    max_wait: float,
    masker: Masker | None = None,
    *,
    max_update: float = 30.0,
    sample: Sequence[DepthPoint] | None = None,
) -> Overview:
    """The overview as of now.

    Args:
        connection: of any transaction.
        max_wait: seconds for which the oldest pending task of a queue may have been due.
        masker: of the values that the actor must not see.
        max_update: seconds without a touch after which a running task is frozen.
        sample: of the queues; by default the latest that a manager has written.
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
    sample = latest_depths(connection) if sample is None else sample
    found_queues = _queues(connection, sample, of_queues, seconds)
    nodes = list_nodes(connection)
    found_nodes = _nodes(nodes, count_slots(connection), of_nodes, seconds)
    whole = _counts(sample, ALL_QUEUES)
    sampled_at = sample[0].at if sample else None
    state = ClusterState(
        now=moment, nodes=nodes, queues=found_queues, sampled_at=sampled_at, max_wait=max_wait, max_update=max_update
    )
    findings = mask_findings(examine_state(connection, state), masker)
    return Overview(
        now=moment,
        sampled_at=sampled_at,
        verdict=verdict_on(findings),
        findings=findings,
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
        has = slots.get(node.id, 0) if node.active else 0
        busy = attempts[node.id].busy / seconds if node.id in attempts else 0.0
        utilisation = min(1.0, busy / has) if has else None
        figures.append(NodeFigures(name=node.name, state=node.state, slots=has, busy=busy, utilisation=utilisation))
    return figures


def examine(connection: Connection, max_update: float, masker: Masker | None) -> list[Finding]:
    """All findings, of the database and of the cluster.

    Args:
        connection: in a transaction that only reads.
        max_update: seconds without a touch after which a running task is frozen.
        masker: of the values that the actor must not see.
    """
    sample = depth_points(connection, sample_depths(connection))
    overview = read_overview(connection, 3_600.0, masker, max_update=max_update, sample=sample)
    return [*examine_database(connection), *overview.findings]
