"""What limits promise: so many tasks of a key, or of a queue, run at once, and so many start in a period."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tests.simulation.history import InvariantViolation
from tests.simulation.observer import ObservedTask
from tests.simulation.plan import PlannedLimit

if TYPE_CHECKING:
    from tests.simulation.world import World

EACH_KEY = "*"
WHOLE_QUEUE = ""


class LimitRules:
    """Judges each committed state of the table, and each claim, by the limits of the plan.

    The rates are judged between two steps of the database's clock, by which they go."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._limits = {(limit.queue, limit.key): limit for limit in world.plan.limits}
        self._starts: list[tuple[float, datetime, ObservedTask]] = []

    def judge(self, claimed: Iterable[ObservedTask], rows: Iterable[ObservedTask]) -> None:
        started = list(claimed)
        if not (started and self._limits):
            return
        self._starts += [(self._world.now, self._now(), row) for row in started]
        working = [row for row in rows if row.status == "working"]
        for row in started:
            for limit in self._limits_of(row):
                self._judge_running(limit, row, working)
                self._judge_rate(limit, row)

    def leaves_room(self, row: ObservedTask, rows: Iterable[ObservedTask]) -> bool:
        """Whether the limits let a task start now. After a step of the clock the answer is uncertain for a rate."""
        working = [one for one in rows if one.status == "working"]
        return all(
            (limit.running is None or sum(_is_alike(limit, row, one) for one in working) < limit.running)
            and (limit.starts is None or (not self._world.clock_stepped_at and self._recent(limit, row) < limit.starts))
            for limit in self._limits_of(row)
        )

    def _judge_running(self, limit: PlannedLimit, row: ObservedTask, working: list[ObservedTask]) -> None:
        alike = [one.id for one in working if _is_alike(limit, row, one)]
        if limit.running is not None and len(alike) > limit.running:
            raise InvariantViolation("no more tasks run at once than a limit allows", f"{limit}: {alike} with {row}")
        self._world.history.count("claims at a limit", int(len(alike) == limit.running))

    def _judge_rate(self, limit: PlannedLimit, row: ObservedTask) -> None:
        if limit.starts is None:
            return
        recent = self._recent(limit, row)
        if recent > limit.starts:
            raise InvariantViolation(
                "no more tasks start in a period than a limit allows", f"{limit}: {recent} with {row}"
            )
        self._world.history.count("claims at a rate", int(recent == limit.starts))

    def _recent(self, limit: PlannedLimit, row: ObservedTask) -> int:
        """How many that a rate counts with this task have started within its period, since the clock was last set."""
        since = self._now() - timedelta(seconds=limit.period or 0.0)
        return sum(
            real >= self._world.clock_stepped_at and at > since and _is_alike(limit, row, one)
            for real, at, one in self._starts
        )

    def _limits_of(self, row: ObservedTask) -> list[PlannedLimit]:
        found = [self._limits.get((row.queue, WHOLE_QUEUE))]
        if row.limit_key is not None:
            each = self._limits.get((row.queue, EACH_KEY))
            found.append(self._limits.get((row.queue, row.limit_key), each))
        return [limit for limit in found if limit is not None]

    def _now(self) -> datetime:
        """The database's clock, in the milliseconds in which SQLite counts."""
        now = self._world.database_now()
        return now.replace(microsecond=now.microsecond // 1000 * 1000)


def _is_alike(limit: PlannedLimit, row: ObservedTask, other: ObservedTask) -> bool:
    return other.queue == row.queue and (limit.key == WHOLE_QUEUE or other.limit_key == row.limit_key)
