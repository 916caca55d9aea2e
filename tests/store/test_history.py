"""Done tasks of queues with a history of their own are purged by their age, and each task is read once for each age."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from peerd.config.settings import QueueSettings
from peerd.domain.lifecycle import Status
from peerd.manager.walks import RESTART_AFTER, HistoryWalk, make_walks
from peerd.store.chore_batches import LATE_COMMIT
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import seconds_from_now
from tests.store.world import World
from tests.support.server_kinds import ON_SERVERS

HOUR, DAY = 3600.0, 86_400.0
HISTORIES = {"long": QueueSettings(history=DAY), "short": QueueSettings(history=10.0)}


@dataclass
class Walking:
    """The walks of a manager, which a test lets go on."""

    world: World
    queues: Mapping[str, QueueSettings] = field(default_factory=lambda: HISTORIES)
    batch: int = 500
    now: float = 0.0
    read: int = 0

    def __post_init__(self) -> None:
        self.walks = make_walks(self.queues, HOUR, lambda: self.now)

    def one_pass(self) -> int:
        """Let each walk come to its end; how many tasks were deleted."""
        return sum(self.walk_on(walk) for walk in self.walks)

    def walk_on(self, walk: HistoryWalk) -> int:
        deleted, has_more = 0, True
        while has_more:
            step = self.world.run(walk.run, self.batch)
            self.read += step.read
            deleted += step.deleted
            has_more = walk.record(step, self.batch)
        return deleted


def ended(world: World, queue: str, ago: float, number: int = 1) -> None:
    """Tasks that were done so many seconds ago."""
    values = {"queue": queue, "status": str(Status.DONE), "finished_at": seconds_from_now(-ago)}
    world.run(lambda connection: [connection.execute(sa.insert(tasks).values(values)) for _ in range(number)])


def kept(world: World) -> dict[str, int]:
    grouped = sa.select(tasks.c.queue, sa.func.count()).group_by(tasks.c.queue)
    return {row[0]: row[1] for row in world.rows(grouped)}


def test_each_queue_is_purged_by_its_own_age_and_the_others_by_the_general_one(world: World) -> None:
    for queue in ("long", "short", "other"):
        for ago in (1.0, 60.0, 2 * HOUR, 2 * DAY):
            ended(world, queue, ago)
    for status in (Status.DEAD, Status.CANCELED, Status.BURIED, Status.PENDING):
        world.insert(queue="other statuses", status=str(status), finished_at=seconds_from_now(-DAY))
    assert Walking(world).one_pass() == 1 + 3 + 2
    assert kept(world) == {"long": 3, "short": 1, "other": 2, "other statuses": 4}
    values = {"status": "done", "finished_at": datetime.now(UTC) - timedelta(hours=2)}  # all at one moment
    world.execute(sa.insert(tasks), [{"queue": queue, **values} for queue in ("long", "other") for _ in range(30)])
    assert Walking(world, batch=4).one_pass() == 30
    assert kept(world)["long"] == 33


def test_what_is_kept_is_read_once_for_each_age_and_not_again(world: World) -> None:
    ended(world, "long", 2 * HOUR, 20)
    walking = Walking(world, batch=7)
    assert walking.one_pass() == 0
    assert walking.read == 2 * 20, "by the walks of an hour and of ten seconds; a day has not passed"
    walking.read = 0
    ended(world, "other", 1.5 * HOUR, 3)
    assert walking.one_pass() == 3
    assert walking.read == 2 * 3 - 3, "the walk of an hour has deleted them before the one of ten seconds came"
    assert kept(world) == {"long": 20}


def test_a_walk_stays_behind_what_may_still_be_committed(world: World) -> None:
    ended(world, "other", 20.0)
    walking = Walking(world)
    assert walking.one_pass() == 0
    ended(world, "short", 40.0)
    assert (walking.one_pass(), LATE_COMMIT > 40.0) == (1, True), "it appeared behind the one that was read"
    assert kept(world) == {"other": 1}


def test_what_appears_far_behind_a_walk_is_found_when_it_begins_anew(world: World) -> None:
    ended(world, "long", 2 * HOUR)
    walking = Walking(world)
    walking.one_pass()
    ended(world, "other", 3 * HOUR)
    assert walking.one_pass() == 0
    walking.now += RESTART_AFTER
    walking.one_pass()
    assert walking.one_pass() == 1
    assert kept(world) == {"long": 1}


@pytest.mark.parametrize("store", ON_SERVERS, indirect=True)
def test_a_locked_task_is_left_for_the_next_pass_and_holds_up_nothing(world: World) -> None:
    first = world.insert(queue="other", status="done", finished_at=seconds_from_now(-3 * HOUR))
    ended(world, "other", 2 * HOUR, 5)
    walking = Walking(world, batch=2)
    with world.locking(tasks, first):
        assert walking.one_pass() == 5
    assert walking.one_pass() == 1
    assert world.count() == 0


def test_a_step_that_was_not_committed_is_done_again(world: World) -> None:
    ended(world, "other", 2 * HOUR, 3)
    walk = Walking(world).walks[0]

    def fail_after(connection: sa.Connection) -> None:
        assert walk.run(connection, 500).deleted == 3
        raise RuntimeError("the commit failed")

    with pytest.raises(RuntimeError):
        world.run(fail_after)
    assert world.run(walk.run, 500).deleted == 3
