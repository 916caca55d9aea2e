"""Metrics in Prometheus's format: of the cluster, as the tables have it, and of the node that serves them.

Those of the cluster are read at most once in `KEEP` seconds and process, however many ask. Each node that serves the
API has the same figures, so one of them is scraped, and nothing is summed over nodes.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any, Final

import msgspec
from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from peerd.domain.alert import CONDITIONS
from peerd.domain.lifecycle import Status
from peerd.operate.alerts import MAX_PAGE
from peerd.operate.client import AioClient
from peerd.operate.diagnostics.finding import Finding, Level, Verdict, verdict_on
from peerd.storage.checking import COPY, QUEUE, REMOVE, VERIFY
from peerd.storage.overview import DiskCondition, StorageOverview
from peerd.store.alerts import AlertRecord
from peerd.store.files.risks import RISKS
from peerd.store.nodes import Node
from peerd.store.processes import ProcessRecord
from peerd.store.queue_states import QueueState
from peerd.web.dependencies import AioClientDependency, ViewerOfAllDependency
from peerd.web.node_metrics import expose_node_metrics
from peerd.web.problems import documented

KEEP: Final = 5.0
"""Seconds."""
MOST_TASKS: Final = 500
"""Running tasks of storage that are counted."""

router = APIRouter(prefix="/metrics", tags=["metrics"])


class ClusterSnapshot(msgspec.Struct, frozen=True):
    """What is shown, and how long the database took for it, in seconds."""

    now: datetime
    queues: list[QueueState]
    nodes: list[Node]
    processes: list[ProcessRecord]
    alerts: list[AlertRecord]
    findings: list[Finding]
    storage: StorageOverview | None
    storage_tasks: list[str]
    seconds: float


class SnapshotReader:
    """Reads the cluster, and keeps the result for a while. Those that ask at the same time wait for one reading."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._read_at = -KEEP
        self._snapshot: ClusterSnapshot | None = None

    async def read(self, client: AioClient) -> ClusterSnapshot:
        """The latest snapshot, which is at most `KEEP` seconds old."""
        async with self._lock:
            if self._snapshot is None or time.monotonic() - self._read_at >= KEEP:
                started = time.monotonic()
                now, queues = await client.now(), await client.queues.list()
                nodes, processes = await client.nodes.list(), await client.nodes.processes()
                alerts = (await client.alerts.list(on=True, limit=MAX_PAGE)).items
                findings = (await client.statistics.overview()).findings
                storage = await client.files.overview() if await client.files.are_used() else None
                tasks = [] if storage is None else await _running_storage_tasks(client)
                self._read_at = time.monotonic()
                seconds = self._read_at - started
                self._snapshot = ClusterSnapshot(
                    now, queues, nodes, processes, alerts, findings, storage, tasks, seconds
                )
            return self._snapshot


class ClusterCollector(Collector):
    """A snapshot as metrics."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        yield from _queue_metrics(self._snapshot.queues, self._snapshot.now)
        yield from _node_metrics(self._snapshot)
        yield _alert_metric(self._snapshot.alerts)
        yield from _verdict_metrics(self._snapshot.findings)
        if self._snapshot.storage is not None:
            yield from _storage_metrics(self._snapshot.storage, self._snapshot.storage_tasks)
        text = "Seconds that the database took for these metrics."
        yield GaugeMetricFamily("peerd_cluster_read_seconds", text, value=self._snapshot.seconds)


@router.get("", responses=documented(HTTPStatus.NOT_FOUND), response_class=Response)
async def node_metrics(request: Request, _: ViewerOfAllDependency) -> Response:
    """What the processes of this node have counted, for Prometheus; 503 while its agent does not answer."""
    body, content_type = await expose_node_metrics(
        getattr(request.state, "peerd", None), request.headers.get("accept", "")
    )
    return Response(body, media_type=content_type)


@router.get("/cluster", responses=documented(), response_class=Response)
async def cluster_metrics(request: Request, client: AioClientDependency, _: ViewerOfAllDependency) -> Response:
    """Queues, nodes and processes, for Prometheus.

    What is kept is shown to other actors, so each of them must be permitted to see all of it.
    """
    snapshot = await request.app.state.peerd_metrics.read(client)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ClusterCollector(snapshot))
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    return Response(encode(registry), media_type=content_type)


def _queue_metrics(queues: Sequence[QueueState], now: datetime) -> Iterator[Metric]:
    tasks = _gauge("peerd_queue_tasks", "Tasks of a queue; counting ends at 10,000.", "queue", "status")
    oldest = _gauge("peerd_queue_oldest_seconds", "For how long the oldest pending task has been due.", "queue")
    paused = _gauge("peerd_queue_paused", "Whether nothing is claimed from a queue.", "queue")
    for queue in queues:
        for status in Status:
            tasks.add_metric([queue.name, status], queue.counts.get(status, 0))
        since = queue.oldest_pending_at
        oldest.add_metric([queue.name], 0.0 if since is None else max(0.0, (now - since).total_seconds()))
        paused.add_metric([queue.name], queue.paused)
    yield from (tasks, oldest, paused)


def _node_metrics(snapshot: ClusterSnapshot) -> Iterator[Metric]:
    active = _gauge("peerd_node_active", "Whether the heartbeat of a node is recent.", "node")
    draining = _gauge("peerd_node_draining", "Whether a node claims no tasks.", "node")
    silence = _gauge("peerd_node_silence_seconds", "Time since the latest heartbeat of a node.", "node")
    running = _gauge("peerd_processes", "Processes that have not ended.", "node", "kind", "role")
    names = {node.id: node.name for node in snapshot.nodes}
    for node in snapshot.nodes:
        active.add_metric([node.name], node.active)
        draining.add_metric([node.name], node.draining)
        if node.checked_at is not None:
            silence.add_metric([node.name], max(0.0, (snapshot.now - node.checked_at).total_seconds()))
    kinds = Counter((names.get(one.node_id, str(one.node_id)), one.kind, one.role) for one in snapshot.processes)
    for labels, count in kinds.items():
        running.add_metric(list(labels), count)
    yield from (active, draining, silence, running)


def _alert_metric(alerts: Sequence[AlertRecord]) -> Metric:
    """Each kind that can be on has a value, so that a rule for it finds 0, too."""
    on: Metric = _gauge("peerd_alerts_on", "Conditions that are on, of those that raise alerts.", "kind")
    counts = Counter(alert.kind for alert in alerts)
    for kind in sorted({*CONDITIONS, *counts}):
        on.add_sample("peerd_alerts_on", {"kind": kind}, counts[kind])
    return on


def _verdict_metrics(found: Sequence[Finding]) -> Iterator[Metric]:
    verdict = list(Verdict).index(verdict_on(found))
    yield GaugeMetricFamily("peerd_verdict", "Whether all is well: 0 green, 1 yellow, 2 red.", value=verdict)
    findings = _gauge("peerd_findings", "What needs a look, as peerd status lists it.", "severity")
    for level in (Level.NOTE, Level.WARNING, Level.PROBLEM):
        findings.add_metric([level], sum(finding.level is level for finding in found))
    yield findings


async def _running_storage_tasks(client: AioClient) -> list[str]:
    """The handlers of the tasks of storage that run."""
    found = await client.tasks.page(queue=QUEUE, status=Status.WORKING, limit=MOST_TASKS, bodies=False)
    return [task.name or "" for task in found.items]


def _storage_metrics(storage: StorageOverview, tasks: Sequence[str]) -> Iterator[Metric]:
    copies = _gauge("peerd_disk_copies", "Copies on a disk, as a manager has counted them.", "disk", "node", "state")
    sizes = _gauge("peerd_disk_copy_bytes", "Bytes of copies on a disk, as counted.", "disk", "node", "state")
    size = _gauge("peerd_disk_size_bytes", "Bytes of a disk.", "disk", "node")
    free = _gauge("peerd_disk_free_bytes", "Bytes that can be written to a disk, without its reserve.", "disk", "node")
    usable = _gauge("peerd_disk_usable", "Whether a disk is reported, and without a problem.", "disk", "node")
    for disk in storage.disks:
        if disk.condition is DiskCondition.LOST:
            continue
        labels = [str(disk.id), disk.node or ""]
        size.add_metric(labels, disk.size)
        free.add_metric(labels, disk.room)
        usable.add_metric(labels, disk.condition is DiskCondition.ONLINE and disk.problem is None)
        for state, count in disk.counts.items():
            copies.add_metric([*labels, state], count.copies)
            sizes.add_metric([*labels, state], count.bytes)
    at_risk = _gauge("peerd_files_at_risk", "Files with fewer copies than wanted; counting ends at 10,000.", "health")
    for health in RISKS:
        at_risk.add_metric([health], sum(count.files for count in storage.risks if count.health == health))
    running = _gauge("peerd_storage_tasks_running", "Tasks of storage that run.", "task")
    found = Counter(tasks)
    for name in (COPY, REMOVE, VERIFY):
        running.add_metric([name], found[name])
    text = "Whether nothing is repaired, because the disks of too many nodes are away at once."
    brake = GaugeMetricFamily("peerd_storage_repair_brake", text, value=bool(storage.braked))
    yield from (copies, sizes, size, free, usable, at_risk, running, brake)


def _gauge(name: str, text: str, *labels: str) -> Any:
    return GaugeMetricFamily(name, text, labels=labels)
