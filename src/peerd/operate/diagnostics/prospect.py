"""When the waiting tasks of a queue are gone, if it goes on as in the last minutes: an estimate, said as one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Status
from peerd.domain.quoting import Masker
from peerd.operate.diagnostics.finding import Finding, Level, mask_findings
from peerd.operate.diagnostics.waiting import format_roughly, later_tasks, unknown_handlers, why_tasks_wait
from peerd.store.queue_states import ALL_QUEUES, DepthPoint, list_pending
from peerd.store.schema.types import now

WINDOW: Final = 600.0
"""Seconds that are looked back."""
SHORTEST: Final = 60.0
"""Seconds over which a rate is measured, at the least."""
LATEST: Final = 120.0
"""Seconds after which the last sample tells nothing of now."""
MOST_SAMPLES: Final = 6_000
"""Samples of all queues; of more, the newest ones."""


class Prospect(msgspec.Struct, frozen=True, kw_only=True):
    """How the number of waiting tasks changes.

    Attributes:
        waiting: tasks at the latest sample.
        per_minute: how many more there are each minute; less than 0: fewer.
        seconds: over which that was measured.
        gone_in: seconds until none waits, at this rate; None: there are more and more.
    """

    waiting: int
    per_minute: float
    seconds: float
    gone_in: float | None

    @property
    def end(self) -> str:
        """When none waits, for a cell of a table.

        >>> Prospect(waiting=31, per_minute=-2.1, seconds=480.0, gone_in=886.0).end
        'in about 14m'
        """
        return "growing" if self.gone_in is None else f"in about {format_roughly(timedelta(seconds=self.gone_in))}"

    @property
    def sentence(self) -> str:
        """For people.

        >>> Prospect(waiting=31, per_minute=-2.1, seconds=480.0, gone_in=886.0).sentence
        '31 wait: gone in about 14m, if they go on falling by 2.1/min, as in the last 8m'
        """
        over = f"as in the last {format_roughly(timedelta(seconds=self.seconds))}"
        if self.gone_in is None:
            return f"{self.waiting:,} wait: they grow by {self.per_minute:,.1f}/min, {over}"
        return f"{self.waiting:,} wait: gone {self.end}, if they go on falling by {-self.per_minute:,.1f}/min, {over}"


class QueueWait(msgspec.Struct, frozen=True, kw_only=True):
    """Why tasks of a queue wait; and the estimate of their end, where there can be one."""

    reasons: list[Finding]
    prospect: Prospect | None


def explain_wait(connection: Connection, queue: str, masker: Masker | None) -> QueueWait:
    """What keeps the tasks of a queue, those included whose time has not come, and when none waits."""
    found = [*why_tasks_wait(connection, queue), *unknown_handlers(connection, queue), *later_tasks(connection, queue)]
    found.sort(key=lambda finding: -finding.level.weight)
    is_blocked = any(finding.level is Level.PROBLEM for finding in found)
    prospect = None if is_blocked else read_prospects(connection, {queue}).get(queue)
    return QueueWait(reasons=mask_findings(found, masker), prospect=prospect)


def read_prospects(connection: Connection, only: Collection[str] | None = None) -> dict[str, Prospect]:
    """The prospects of some queues, or of all, where the samples of the last ten minutes tell one."""
    moment = connection.execute(sa.select(now())).scalar_one()
    by_queue: dict[str, list[DepthPoint]] = defaultdict(list)
    for point in list_pending(connection, moment - timedelta(seconds=WINDOW), only, MOST_SAMPLES):
        by_queue[point.queue].append(point)
    latest = max((points[-1].at for points in by_queue.values()), default=moment)
    found = {queue: prospect_of(points, moment) for queue, points in by_queue.items() if points[-1].at == latest}
    return {queue: prospect for queue, prospect in found.items() if prospect is not None and queue != ALL_QUEUES}


def prospect_of(points: Sequence[DepthPoint], moment: datetime) -> Prospect | None:
    """The prospect by the samples of a queue, the newest last: since their peak, if they have fallen since then.

    So a thousand tasks that were put five minutes ago are no growth. None: they do not tell, or the fall has ended.
    """
    pending = [point for point in points if point.status is Status.PENDING]
    if not pending or any(point.at_least for point in pending) or (moment - pending[-1].at).total_seconds() > LATEST:
        return None
    last = pending[-1]
    peak = max(pending, key=lambda point: (point.count, point.at))
    first = peak if peak is not last else pending[0]
    seconds = (last.at - first.at).total_seconds()
    change = last.count - first.count
    before = [point for point in pending if (last.at - point.at).total_seconds() >= max(SHORTEST, seconds / 3)]
    if seconds < SHORTEST or not change or (change < 0 and before[-1].count <= last.count):
        return None  # or they fall no longer
    gone_in = -last.count * seconds / change if change < 0 else None
    return Prospect(waiting=last.count, per_minute=60 * change / seconds, seconds=seconds, gone_in=gone_in)
