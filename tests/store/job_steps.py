"""What tests do with the jobs of queue clients."""

from __future__ import annotations

from functools import partial
from typing import Any

from peerd.domain.task import NewTask
from peerd.store import enqueue
from peerd.store.jobs import holding, reserving, statistics
from peerd.store.jobs.holding import Bury, Release
from peerd.store.jobs.reserving import ReservedJob
from peerd.store.jobs.statistics import JobState
from peerd.store.outcomes import ClaimId
from peerd.store.take.claimer import Claimer
from tests.store.world import World

UINT32 = 2**32 - 1
TTR = 60


def put(world: World, tube: str = "q", pri: int = 0, **fields: Any) -> int:
    return put_all(world, [NewTask(queue=tube, priority=65_536 - pri, **{"ttr": TTR, "delay": 0, **fields})])[0]


def put_all(world: World, new: list[NewTask]) -> list[int]:
    return [one.id for one in world.run_group(enqueue.put, new)]


def reserve(world: World, claimer: Claimer, limit: int = 1) -> list[ReservedJob]:
    return world.run_group(reserving.reserve, claimer, limit, TTR, durable=False)


def reserve_one(world: World, claimer: Claimer) -> ReservedJob:
    [job] = reserve(world, claimer)
    return job


def reserved_ids(world: World, claimer: Claimer, limit: int = 1) -> list[int]:
    return [job.id for job in reserve(world, claimer, limit)]


def release(world: World, claimer: Claimer, *releases: Release) -> set[ClaimId]:
    return world.run_group(holding.release, claimer.process_id, releases)


def bury(world: World, claimer: Claimer, *buries: Bury) -> set[ClaimId]:
    return world.run_group(holding.bury, claimer.process_id, buries)


def delete(world: World, claimer: Claimer, *held: ClaimId, keep: frozenset[ClaimId] = frozenset()) -> set[ClaimId]:
    operation = partial(holding.delete_held, keep=keep)
    return world.run_group(operation, claimer.process_id, held)


def state(world: World, job_id: int) -> JobState | None:
    found = world.read(statistics.job_statistics, job_id)
    return None if found is None else found.state
