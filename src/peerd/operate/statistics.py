"""The time series of attempts and of waiting tasks: what ran, how it ended, how long it waited and ran.

All of it is read from the tables `statistics` and `depths`, which do not grow with the table `tasks`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.attempt_totals import AttemptTotals
from peerd.domain.column_condition import parse_status
from peerd.domain.errors import InvalidFilter, NotPermitted
from peerd.domain.lifecycle import Status
from peerd.domain.quoting import quoted
from peerd.operate import validation
from peerd.operate.error_groups import read_error_groups
from peerd.operate.figures import AttemptFigures, ErrorGroups, Overview, SeriesPoint, StatisticsRow
from peerd.operate.operations import Mode, OperationGroup, Query, operation
from peerd.operate.overview import read_overview
from peerd.operate.rest import rest
from peerd.store.attempt_series import (
    MOST_GROUPS,
    BucketFilter,
    Dimension,
    Group,
    greatest_groups,
    sum_tiles,
)
from peerd.store.nodes import get_node_id
from peerd.store.queue_states import ALL_QUEUES, DepthPoint, latest_counts, list_depths
from peerd.store.schema.tables import nodes
from peerd.store.schema.types import now
from peerd.store.tasks.counts import TaskCounts
from peerd.store.time_series import (
    HOUR,
    MINUTE,
    SAMPLE,
    STEPS,
    TEN_MINUTES,
    Tile,
    bucket_start,
    step_for,
    tiles,
)

Rows = list[StatisticsRow]
SeriesPoints = list[SeriesPoint]
DepthPoints = list[DepthPoint]

DIMENSIONS: Final[dict[str, tuple[Dimension, ...]]] = {
    "total": (),
    "queue": ("queue",),
    "handler": ("queue", "name"),
    "node": ("node_id",),
}
"""The words for what attempts can be grouped by."""
LONGEST: Final = 366 * 86_400.0
"""Seconds that can be looked back."""
MOST_OF_SERIES: Final = 100


class StatisticsOperations(OperationGroup[Mode]):
    """``client.statistics``. What names a node raises `NodeNotFound` where no node has the name.

    An actor that is restricted to some queues gets the figures of these, if it asks for what has a queue.
    """

    subject = "statistics"

    @operation(in_queues=True, rest=rest("GET /statistics"))
    def summary(
        self,
        since: str | float = "1h",
        *,
        by: str = "queue",
        queue: str | None = None,
        name: str | None = None,
        node: str | None = None,
        against: str | float | None = None,
    ) -> Query[Rows]:
        """The attempts that have ended in some time, up to now.

        Args:
            since: seconds, or "1h"; from a minute to a year. It is extended to whole minutes; from an hour on to ten
                minutes, and from twelve hours on to hours.
            by: what they are grouped by: queue, handler, node or total.
            queue: only this queue's.
            name: only those of tasks with this name.
            node: only those on this node.
            against: compare them with those of as long a time that ended so much earlier, such as "1d".

        Raises:
            InvalidFilter: an argument is not valid, or there would be too many rows.
        """
        request = self._request("statistics.summary", since, by, queue, name, node)
        earlier = None if against is None else validation.time_span("against", against, MINUTE, LONGEST)
        return Query("read", _read_summary, request, earlier)

    @operation(in_queues=True, rest=rest("GET /errors"))
    def errors(
        self, since: str | float = "1d", *, queue: str | None = None, name: str | None = None
    ) -> Query[ErrorGroups]:
        """The attempts that failed in some time, up to now, in groups of one handler and one kind of error.

        It examines the newest 5,000 attempts that did not succeed.

        Args:
            since: seconds, or "1d"; from a minute to a year.
            queue: only this queue's.
            name: only those of tasks with this name.

        Raises:
            InvalidFilter: an argument is not valid.
        """
        request = self._request("statistics.errors", since, "handler", queue, name, None)
        return Query("read", read_error_groups, request.seconds, request.queues, request.name, self._masker)

    @operation(in_queues=True, rest=rest("GET /statistics/series"))
    def series(
        self,
        since: str | float = "1h",
        *,
        by: str = "total",
        step: str | float | None = None,
        queue: str | None = None,
        name: str | None = None,
        node: str | None = None,
        most: int | None = None,
    ) -> Query[SeriesPoints]:
        """Attempts as a time series: points by time, for each group in which an attempt has ended.

        Args:
            since: as for `summary`.
            by: as for `summary`.
            step: between two points: 1m, 10m or 1h; by default one for which a hundred points or two cover the time.
            queue: as for `summary`.
            name: as for `summary`.
            node: as for `summary`.
            most: groups at the most, from 1 to 100: those with the most attempts; by default all.

        Raises:
            InvalidFilter: an argument is not valid, or there would be too many points.
        """
        request = self._request("statistics.series", since, by, queue, name, node)
        at_most = None if most is None else validation.number("most", most, 1, MOST_OF_SERIES)
        points_every = step_for(request.seconds) if step is None else _step(step)
        return Query("read", _read_series, request, points_every, at_most)

    @operation(in_queues=True, rest=rest("GET /statistics/depths"))
    def depths(self, since: str | float = "1h", *, queue: str | None = None) -> Query[DepthPoints]:
        """How many unfinished tasks there were, and for how long the oldest pending one had been due, by time.

        A status without a point had no task at that moment. Beyond two hours the points are the greatest values of ten
        minutes, beyond two days of an hour.

        Args:
            since: as for `summary`.
            queue: only this queue's; by default those of all queues together.

        Raises:
            InvalidFilter: an argument is not valid.
        """
        seconds = validation.time_span("since", since, MINUTE, LONGEST)
        name = ALL_QUEUES if queue is None else validation.queue(queue)
        if queue is not None:
            self._require_queue("statistics.depths", name)
        elif self._actor.queues is not None:
            raise NotPermitted(self._actor.name, "statistics.depths", "it is of all queues; name one of its own")
        return Query("read", _read_depths, seconds, name)

    @operation(in_queues=True)
    def counts(self, *, queue: str | None = None, statuses: Sequence[str] | None = None) -> Query[TaskCounts]:
        """How many tasks there are of each status, at the cost of a look: unfinished ones as of the latest sample.

        Counts of unfinished tasks end at 10,000 for each queue. Of ended ones, those of the queue among the latest
        10,000 of their status.

        Args:
            queue: only this queue's; by default those of all queues that the actor may see.
            statuses: only of these; by default of each.

        Raises:
            InvalidFilter: an argument is not valid.
        """
        if queue is not None:
            self._require_queue("statistics.counts", validation.queue(queue))
        only = self._actor.queues if queue is None else [queue]
        wanted = list(Status) if statuses is None else [parse_status(one) for one in statuses]
        return Query("read", latest_counts, None if only is None else sorted(only), wanted)

    @operation(rest=rest("GET /overview"))
    def overview(self, *, max_wait: str | float = "1h") -> Query[Overview]:
        """Whether all is well, and why not; rates, failures, waits, slots and nodes, of the last ten minutes.

        Args:
            max_wait: how long the oldest pending task of a queue may have been due.
        """
        return Query("read", read_overview, validation.time_span("max_wait", max_wait, 0.0, LONGEST), self._masker)

    def _request(
        self, operation_name: str, since: str | float, by: str, queue: str | None, name: str | None, node: str | None
    ) -> SeriesRequest:
        if by not in DIMENSIONS:
            raise InvalidFilter("by", f"{quoted(by)} is none of {', '.join(DIMENSIONS)}")
        seconds = validation.time_span("since", since, MINUTE, LONGEST)
        queues = None if self._actor.queues is None else tuple(sorted(self._actor.queues))
        if queue is not None:
            self._require_queue(operation_name, validation.queue(queue))
            queues = (queue,)
        return SeriesRequest(
            seconds=seconds,
            by=DIMENSIONS[by],
            queues=queues,
            name=validation.text_or_none("name", name),
            node=validation.text_or_none("node", node),
        )


class SeriesRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for."""

    seconds: float
    by: tuple[Dimension, ...]
    queues: tuple[str, ...] | None
    name: str | None
    node: str | None

    def wanted(self, connection: Connection) -> list[BucketFilter]:
        """The filters, one for each queue, with the id of the node."""
        node_id = None if self.node is None else get_node_id(connection, self.node)
        queues = (None,) if self.queues is None else self.queues
        return [BucketFilter(queue=queue, name=self.name, node_id=node_id) for queue in queues]


def _step(value: str | float) -> int:
    seconds = validation.time_span("step", value, MINUTE, HOUR)
    if seconds not in STEPS:
        raise InvalidFilter("step", f"{quoted(value)} is none of 1m, 10m and 1h")
    return int(seconds)


def _read_summary(connection: Connection, request: SeriesRequest, against: float | None) -> Rows:
    moment = connection.execute(sa.select(now())).scalar_one()
    step = MINUTE if request.seconds < HOUR else TEN_MINUTES if request.seconds < 12 * HOUR else HOUR
    found = _sum(connection, request, tiles(moment - timedelta(seconds=request.seconds), moment, step), moment)
    before: dict[Group, AttemptFigures] = {}
    if against is not None:
        earlier = _earlier_tile(moment - timedelta(seconds=against), request.seconds, against)
        nothing = AttemptFigures.of(AttemptTotals(), request.seconds)
        before = dict.fromkeys(found, nothing) | _sum(connection, request, [earlier], earlier.until)
    names = _node_names(connection, request.by)
    return [
        StatisticsRow(**_labels(request.by, key, names), figures=figures, before=before.get(key))
        for key, figures in found.items()
    ]


def _earlier_tile(until: datetime, seconds: float, against: float) -> Tile:
    """A time that is past, in the buckets that are still kept of it, at least one."""
    step = step_for(seconds + against)
    end = bucket_start(until, step)
    return Tile(step, bucket_start(end - timedelta(seconds=max(seconds, step)), step), end)


def _sum(
    connection: Connection, request: SeriesRequest, parts: list[Tile], until: datetime
) -> dict[Group, AttemptFigures]:
    seconds = (until - parts[0].since).total_seconds()
    found = sum_tiles(connection, parts, request.by, request.wanted(connection))
    return {key: AttemptFigures.of(totals, seconds) for key, totals in found.items()}


def _read_series(connection: Connection, request: SeriesRequest, step: int, most: int | None) -> SeriesPoints:
    moment = connection.execute(sa.select(now())).scalar_one()
    parts = tiles(moment - timedelta(seconds=request.seconds), moment, step)
    wanted = request.wanted(connection)
    groups: list[Group] = []
    if most is not None and request.by:
        groups = greatest_groups(connection, parts, request.by, wanted, most)
        if not groups:
            return []
    found = sum_tiles(connection, parts, ("at", *request.by), wanted, groups)
    names = _node_names(connection, request.by)
    coarse = parts[0].step
    return [
        SeriesPoint(
            at=at,
            **_labels(request.by, tuple(key), names),
            figures=AttemptFigures.of(totals, _elapsed(at, coarse, moment)),
        )
        for (at, *key), totals in found.items()
    ]


def _elapsed(at: datetime, step: int, moment: datetime) -> float:
    """The seconds of a point: of the last one, those that have passed."""
    return min(float(step), max(1.0, (moment - at).total_seconds()))


def _read_depths(connection: Connection, seconds: float, queue: str) -> DepthPoints:
    moment = connection.execute(sa.select(now())).scalar_one()
    step = {MINUTE: SAMPLE}.get(step_for(seconds), step_for(seconds))
    return list_depths(connection, step, moment - timedelta(seconds=seconds), queue, MOST_GROUPS)


def _node_names(connection: Connection, by: tuple[Dimension, ...]) -> dict[int, str]:
    if "node_id" not in by:
        return {}
    return {row.id: row.name for row in connection.execute(sa.select(nodes.c.id, nodes.c.name))}


def _labels(by: tuple[Dimension, ...], key: tuple[Any, ...], names: dict[int, str]) -> dict[str, str]:
    labels = dict(zip(by, key, strict=True))
    if "node_id" in labels:
        node_id = labels.pop("node_id")
        labels["node"] = names.get(node_id, f"node {node_id}")
    return labels
