"""What limits promise: so many tasks of a key, or of a queue, run at once, and so many start in a period."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from tests.simulation.history import forbid
from tests.simulation.observer import ObservedTask
from tests.simulation.plan import PlannedLimit

if TYPE_CHECKING:
    from tests.simulation.world import World

EACH_KEY = "*"
WHOLE_QUEUE = ""


class LimitRules:
    """Judges claims by the limits of the plan; rates between two steps of the database's clock, by which they go."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._limits = {(limit.queue, limit.key): limit for limit in world.plan.limits}
        self._starts: list[tuple[float, datetime, ObservedTask]] = []

    def judge(self, started: Collection[ObservedTask], rows: Collection[ObservedTask]) -> None:
        """Judge what one step has claimed."""
        if not (started and self._limits):
            return
        self._starts += [(self._world.now, self._now(), row) for row in started]
        for row in started:
            for limit in self._limits_of(row):
                running = _running(limit, row, rows)
                is_full = limit.running is not None and running > limit.running
                forbid(is_full, "no more tasks run at once than a limit allows", limit, running, row)
                self._world.history.count("claims at a limit", int(running == limit.running))
                if limit.starts is not None:
                    recent = self._recent(limit, row)
                    is_over = recent > limit.starts
                    forbid(is_over, "no more tasks start in a period than a limit allows", limit, recent, row)
                    self._world.history.count("claims at a rate", int(recent == limit.starts))

    def leaves_room(self, row: ObservedTask, rows: Collection[ObservedTask]) -> bool:
        """Whether the limits let a task start now. After a step of the clock the answer is uncertain for a rate."""
        return all(
            (limit.running is None or _running(limit, row, rows) < limit.running)
            and (limit.starts is None or (not self._world.clock_stepped_at and self._recent(limit, row) < limit.starts))
            for limit in self._limits_of(row)
        )

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


def _running(limit: PlannedLimit, row: ObservedTask, rows: Collection[ObservedTask]) -> int:
    return sum(one.status == "working" and _is_alike(limit, row, one) for one in rows)


def _is_alike(limit: PlannedLimit, row: ObservedTask, other: ObservedTask) -> bool:
    return other.queue == row.queue and (limit.key == WHOLE_QUEUE or other.limit_key == row.limit_key)
