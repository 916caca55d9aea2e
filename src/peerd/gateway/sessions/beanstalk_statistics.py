"""The values of stats, stats-tube and stats-job: what the table knows, and what this process has counted."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy.engine import Connection

from peerd.gateway.engine import Engine
from peerd.gateway.protocols.beanstalk import replies, statistics
from peerd.gateway.protocols.beanstalk.priorities import to_client_priority
from peerd.gateway.session import GatewayState
from peerd.gateway.tubes import TableCounts, Tube
from peerd.store import jobs
from peerd.store.jobs.types import JobStatistics, TubeCounts

Numbers = Mapping[str, int]


def read_tube(connection: Connection, counted: TableCounts, name: str) -> tuple[bool, Numbers]:
    """Whether a tube has jobs, and the values of stats-tube that the table knows."""
    counts = counted.of_tube(connection, name)
    pause = jobs.pause_state(connection, name)
    has_jobs = bool(counts.ready or counts.reserved or counts.delayed or counts.buried)
    return has_jobs, {**_numbers(counts), "pause": pause.seconds, "pause-time-left": pause.left}


def read_server(connection: Connection, counted: TableCounts) -> tuple[Numbers, list[str]]:
    """The values of stats that the table knows, and the tubes that have jobs."""
    return _numbers(counted.of_all(connection)), jobs.tubes_with_jobs(connection)


def reply_to_stats_tube(engine: Engine, name: str, found: tuple[bool, Numbers]) -> bytes:
    """The reply to stats-tube; a tube without jobs that no connection needs is not found."""
    has_jobs, values = found
    tube = engine.tubes.get(name)
    if not has_jobs and (tube is None or not tube.is_needed):
        return replies.NOT_FOUND
    tube = tube or Tube(name)
    counted: dict[str, int | str] = {
        "name": name,
        "total-jobs": tube.puts,
        "current-using": tube.using,
        "current-watching": tube.watching,
        "current-waiting": engine.ready.waiters.count(name),
        "cmd-delete": tube.deletes,
        "cmd-pause-tube": tube.pauses,
    }
    return replies.ok(statistics.tube_statistics({**counted, **values}))


def reply_to_stats(state: GatewayState, found: tuple[Numbers, list[str]]) -> bytes:
    """The reply to stats."""
    values, with_jobs = found
    counted = {name: number for name, number in state.commands.items() if name is not None}
    tubes = {*state.engine.tubes.needed(), *with_jobs}
    return replies.ok(
        statistics.server_statistics({**state.statistics(), **counted, **values, "current-tubes": len(tubes)})
    )


def reply_to_stats_job(found: JobStatistics | None) -> bytes:
    """The reply to stats-job."""
    if found is None:
        return replies.NOT_FOUND
    values: dict[str, int | str] = {
        "id": found.id,
        "tube": found.queue,
        "state": found.state,
        "pri": to_client_priority(found.priority),
        "age": found.age,
        "delay": found.delay,
        "ttr": found.ttr or 0,
        "time-left": found.time_left,
        "reserves": found.reserves,
        "timeouts": found.timeouts,
        "releases": found.releases,
        "buries": found.buries,
        "kicks": found.kicks,
    }
    return replies.ok(statistics.job_statistics(values))


def _numbers(counts: TubeCounts) -> Numbers:
    return {
        "current-jobs-urgent": counts.urgent,
        "current-jobs-ready": counts.ready,
        "current-jobs-reserved": counts.reserved,
        "current-jobs-delayed": counts.delayed,
        "current-jobs-buried": counts.buried,
    }
