"""The replies to stats, stats-job and stats-tube: what the table knows and this process has counted, as YAML.

The YAML is what beanstalkd 1.13 prints, byte for byte. beanstalkd writes its keys in one order, in which the
values stand here, and texts of unknown content in quotes; clients parse it by hand.
"""

from __future__ import annotations

import os
import platform
import resource
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Final

from sqlalchemy.engine import Connection

from peerd.gateway.beanstalk import VERSION, replies
from peerd.gateway.beanstalk.commands import COUNTERS, to_client_priority
from peerd.gateway.gateway import Gateway
from peerd.gateway.tubes import TableCounts, Tube
from peerd.store.jobs.free import TubePause, pause_state
from peerd.store.jobs.statistics import JobStatistics, TubeCounts, tubes_with_jobs

Statistic = int | float | str | bool
"""A float is a time in seconds that is printed with microseconds."""

LOG_KEYS: Final = (
    "binlog-oldest-index", "binlog-current-index", "binlog-records-migrated", "binlog-records-written",
    "binlog-max-size",
)  # fmt: skip
"""What beanstalkd reports of its log, which is not here: 0."""

QUOTED: Final = frozenset({"tube", "name", "version", "hostname", "os", "platform"})


def read_tube(connection: Connection, counted: TableCounts, name: str) -> tuple[TubeCounts, TubePause]:
    """The jobs of a tube, and its pause."""
    return counted.count(connection, name), pause_state(connection, name)


def read_server(connection: Connection, counted: TableCounts) -> tuple[TubeCounts, list[str]]:
    """All jobs, and the tubes that have jobs."""
    return counted.count(connection, None), tubes_with_jobs(connection)


def reply_to_stats_job(found: JobStatistics | None) -> bytes:
    """The reply to stats-job."""
    if found is None:
        return replies.NOT_FOUND
    values: dict[str, Statistic] = {
        "id": found.id,
        "tube": found.queue,
        "state": found.state,
        "pri": to_client_priority(found.priority),
        "age": found.age,
        "delay": found.delay,
        "ttr": found.ttr or 0,
        "time-left": found.time_left,
        "file": 0,  # of beanstalkd's log
        "reserves": found.reserves,
        "timeouts": found.timeouts,
        "releases": found.releases,
        "buries": found.buries,
        "kicks": found.kicks,
    }
    return replies.ok(_yaml(values))


def reply_to_stats_tube(gateway: Gateway, name: str, found: tuple[TubeCounts, TubePause]) -> bytes:
    """The reply to stats-tube; a tube without jobs that no connection needs is not found."""
    counts, pause = found
    tube = gateway.tubes.get(name)
    has_jobs = bool(counts.ready or counts.reserved or counts.delayed or counts.buried)
    if not has_jobs and (tube is None or not tube.is_needed):
        return replies.NOT_FOUND
    tube = tube or Tube(name)
    values: dict[str, Statistic] = {
        "name": name,
        **_numbers(counts),
        "total-jobs": tube.puts,
        "current-using": tube.using,
        "current-watching": tube.watching,
        "current-waiting": gateway.ready.waiters.count(name),
        "cmd-delete": tube.deletes,
        "cmd-pause-tube": tube.pauses,
        "pause": pause.seconds,
        "pause-time-left": pause.left,
    }
    return replies.ok(_yaml(values))


def reply_to_stats(gateway: Gateway, found: tuple[TubeCounts, list[str]]) -> bytes:
    """The reply to stats."""
    counts, with_jobs = found
    usage, system = resource.getrusage(resource.RUSAGE_SELF), platform.uname()
    values: dict[str, Statistic] = {
        **_numbers(counts),
        **{name: gateway.commands[name] for name in COUNTERS.values()},
        "job-timeouts": gateway.ends.timeouts,
        "total-jobs": gateway.puts.total,
        "max-job-size": gateway.settings.max_job_size,
        "current-tubes": len({*gateway.tubes.needed(), *with_jobs}),
        "current-connections": gateway.connections,
        "current-producers": gateway.producers,
        "current-workers": gateway.workers,
        "current-waiting": gateway.ready.waiters.total,
        "total-connections": gateway.total_connections,
        "pid": os.getpid(),
        "version": VERSION,
        "rusage-utime": usage.ru_utime,
        "rusage-stime": usage.ru_stime,
        "uptime": int(time.monotonic() - gateway.started_at),
        **dict.fromkeys(LOG_KEYS, 0),
        "draining": gateway.refuses_puts,
        "id": gateway.id,
        "hostname": socket.gethostname(),
        "os": system.version,
        "platform": system.machine,
    }
    return replies.ok(_yaml(values))


def tube_list(tubes: Iterable[str]) -> bytes:
    r"""The YAML of list-tubes and list-tubes-watched.

    >>> tube_list(["default", "mail"])
    b'---\n- default\n- mail\n'
    """
    return "".join(["---\n", *(f"- {tube}\n" for tube in tubes)]).encode()


def _numbers(counts: TubeCounts) -> Mapping[str, int]:
    return {
        "current-jobs-urgent": counts.urgent,
        "current-jobs-ready": counts.ready,
        "current-jobs-reserved": counts.reserved,
        "current-jobs-delayed": counts.delayed,
        "current-jobs-buried": counts.buried,
    }


def _yaml(values: Mapping[str, Statistic]) -> bytes:
    return "".join(["---\n", *(f"{key}: {_scalar(key, value)}\n" for key, value in values.items())]).encode()


def _scalar(key: str, value: Statistic) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.6f}"
    return f'"{value}"' if key in QUOTED else str(value)
