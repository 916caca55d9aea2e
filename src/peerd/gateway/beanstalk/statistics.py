"""The replies to stats, stats-job and stats-tube: what the table knows and this process has counted, and its YAML.

The YAML is what beanstalkd 1.13 prints, byte for byte. It writes its keys in one order, and texts of unknown content in
quotes; clients parse it by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from sqlalchemy.engine import Connection

from peerd.gateway.beanstalk import replies
from peerd.gateway.beanstalk.commands import COUNTERS, to_client_priority
from peerd.gateway.engine import Engine
from peerd.gateway.session import GatewayState
from peerd.gateway.tubes import TableCounts, Tube
from peerd.store import jobs
from peerd.store.jobs.types import JobStatistics, TubeCounts

Statistic = int | float | str | bool
"""A float is a time in seconds that is printed with microseconds."""

JOB_KEYS: Final = (
    "id", "tube", "state", "pri", "age", "delay", "ttr", "time-left", "file", "reserves", "timeouts", "releases",
    "buries", "kicks",
)  # fmt: skip
"""What stats-job reports. The state is ready, reserved, delayed or buried."""

TUBE_KEYS: Final = (
    "name", "current-jobs-urgent", "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed",
    "current-jobs-buried", "total-jobs", "current-using", "current-watching", "current-waiting", "cmd-delete",
    "cmd-pause-tube", "pause", "pause-time-left",
)  # fmt: skip
"""What stats-tube reports."""

COMMAND_KEYS: Final = (
    "cmd-put", "cmd-peek", "cmd-peek-ready", "cmd-peek-delayed", "cmd-peek-buried", "cmd-reserve",
    "cmd-reserve-with-timeout", "cmd-delete", "cmd-release", "cmd-use", "cmd-watch", "cmd-ignore", "cmd-bury",
    "cmd-kick", "cmd-touch", "cmd-stats", "cmd-stats-job", "cmd-stats-tube", "cmd-list-tubes", "cmd-list-tube-used",
    "cmd-list-tubes-watched", "cmd-pause-tube",
)  # fmt: skip
"""The counters of commands among the statistics of the server: those of `commands.COUNTERS`."""

LOG_KEYS: Final = (
    "binlog-oldest-index", "binlog-current-index", "binlog-records-migrated", "binlog-records-written",
    "binlog-max-size",
)  # fmt: skip
"""What beanstalkd reports of its log."""

SERVER_KEYS: Final = (
    "current-jobs-urgent", "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed", "current-jobs-buried",
    *COMMAND_KEYS,
    "job-timeouts", "total-jobs", "max-job-size", "current-tubes", "current-connections", "current-producers",
    "current-workers", "current-waiting", "total-connections", "pid", "version", "rusage-utime", "rusage-stime",
    "uptime",
    *LOG_KEYS,
    "draining", "id", "hostname", "os", "platform",
)  # fmt: skip
"""What stats reports. ``rusage-*`` are seconds (float), ``draining`` is a bool, ``id`` is 16 hexadecimal digits."""

QUOTED: Final = frozenset({"tube", "name", "version", "hostname", "os", "platform"})
MAY_BE_MISSING: Final = frozenset({*COUNTERS.values(), *LOG_KEYS, "file"})


def job_statistics(values: Mapping[str, Statistic]) -> bytes:
    """The YAML of stats-job, of a value for each of `JOB_KEYS`; ``file`` is 0 unless given.

    Raises KeyError where any other value is missing, as the two functions below do.
    """
    return _yaml(JOB_KEYS, values)


def tube_statistics(values: Mapping[str, Statistic]) -> bytes:
    """The YAML of stats-tube, of a value for each of `TUBE_KEYS`; counters of commands are 0 unless given."""
    return _yaml(TUBE_KEYS, values)


def server_statistics(values: Mapping[str, Statistic]) -> bytes:
    """The YAML of stats, of a value for each of `SERVER_KEYS`; counters and `LOG_KEYS` are 0 unless given."""
    return _yaml(SERVER_KEYS, values)


def tube_list(tubes: Iterable[str]) -> bytes:
    r"""The YAML of list-tubes and list-tubes-watched.

    >>> tube_list(["default", "mail"])
    b'---\n- default\n- mail\n'
    """
    return "".join(["---\n", *(f"- {tube}\n" for tube in tubes)]).encode()


def _yaml(keys: tuple[str, ...], values: Mapping[str, Statistic]) -> bytes:
    lines = [f"{key}: {_scalar(key, values)}\n" for key in keys]
    return "".join(["---\n", *lines]).encode()


def _scalar(key: str, values: Mapping[str, Statistic]) -> str:
    value = values.get(key, 0) if key in MAY_BE_MISSING else values[key]
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6f}"
    return f'"{value}"' if key in QUOTED else str(value)


# ---------------------------------------------------------------- values


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
    return replies.ok(tube_statistics({**counted, **values}))


def reply_to_stats(state: GatewayState, found: tuple[Numbers, list[str]]) -> bytes:
    """The reply to stats."""
    values, with_jobs = found
    counted = {name: number for name, number in state.commands.items() if name is not None}
    tubes = {*state.engine.tubes.needed(), *with_jobs}
    return replies.ok(server_statistics({**state.statistics(), **counted, **values, "current-tubes": len(tubes)}))


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
    return replies.ok(job_statistics(values))


def _numbers(counts: TubeCounts) -> Numbers:
    return {
        "current-jobs-urgent": counts.urgent,
        "current-jobs-ready": counts.ready,
        "current-jobs-reserved": counts.reserved,
        "current-jobs-delayed": counts.delayed,
        "current-jobs-buried": counts.buried,
    }
