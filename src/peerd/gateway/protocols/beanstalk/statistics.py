"""The YAML of stats, stats-job, stats-tube and the lists of tubes, byte for byte as beanstalkd 1.13 prints it.

beanstalkd writes its keys in one order, and texts of unknown content in quotes; clients parse it by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from peerd.gateway.protocols.beanstalk.commands import COUNTERS

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
