from __future__ import annotations

from collections.abc import Mapping

import pytest

from peerd.gateway.protocols.beanstalk import statistics
from peerd.gateway.protocols.beanstalk.statistics import Statistic

JOB: Mapping[str, Statistic] = {
    "id": 2**64 - 1, "tube": "mail", "state": "reserved", "pri": 1024, "age": 5, "delay": 1, "ttr": 60, "time-left": 55,
    "reserves": 1, "timeouts": 2, "releases": 3, "buries": 4, "kicks": 5,
}  # fmt: skip
TUBE: Mapping[str, Statistic] = {
    "name": "mail", "current-jobs-urgent": 1, "current-jobs-ready": 2, "current-jobs-reserved": 3,
    "current-jobs-delayed": 4, "current-jobs-buried": 5, "total-jobs": 6, "current-using": 7, "current-watching": 8,
    "current-waiting": 9, "cmd-delete": 10, "cmd-pause-tube": 11, "pause": 12, "pause-time-left": 13,
}  # fmt: skip
SERVER: Mapping[str, Statistic] = {
    "current-jobs-urgent": 1, "current-jobs-ready": 2, "current-jobs-reserved": 3, "current-jobs-delayed": 4,
    "current-jobs-buried": 5, "cmd-put": 6, "job-timeouts": 7, "total-jobs": 8, "max-job-size": 65535,
    "current-tubes": 9, "current-connections": 10, "current-producers": 11, "current-workers": 12,
    "current-waiting": 13, "total-connections": 14, "pid": 15, "version": "1.13",
    "rusage-utime": 0.5, "rusage-stime": 12.0, "uptime": 16,
    "draining": False, "id": "00ff00ff00ff00ff", "hostname": "one", "os": "#1 SMP", "platform": "x86_64",
}  # fmt: skip


def test_statistics_of_a_job_and_of_a_tube_and_lists_of_tubes() -> None:
    assert statistics.tube_list(["default", "w", "u"]) == b"---\n- default\n- w\n- u\n"
    assert statistics.tube_list([]) == b"---\n"
    assert statistics.job_statistics(JOB) == (
        b'---\nid: 18446744073709551615\ntube: "mail"\nstate: reserved\npri: 1024\nage: 5\ndelay: 1\nttr: 60\n'
        b"time-left: 55\nfile: 0\nreserves: 1\ntimeouts: 2\nreleases: 3\nburies: 4\nkicks: 5\n"
    )
    assert statistics.tube_statistics(TUBE) == (
        b'---\nname: "mail"\ncurrent-jobs-urgent: 1\ncurrent-jobs-ready: 2\ncurrent-jobs-reserved: 3\n'
        b"current-jobs-delayed: 4\ncurrent-jobs-buried: 5\ntotal-jobs: 6\ncurrent-using: 7\ncurrent-watching: 8\n"
        b"current-waiting: 9\ncmd-delete: 10\ncmd-pause-tube: 11\npause: 12\npause-time-left: 13\n"
    )


def test_statistics_of_a_server() -> None:
    assert statistics.server_statistics(SERVER) == (
        b"---\ncurrent-jobs-urgent: 1\ncurrent-jobs-ready: 2\ncurrent-jobs-reserved: 3\ncurrent-jobs-delayed: 4\n"
        b"current-jobs-buried: 5\ncmd-put: 6\ncmd-peek: 0\ncmd-peek-ready: 0\ncmd-peek-delayed: 0\ncmd-peek-buried: 0\n"
        b"cmd-reserve: 0\ncmd-reserve-with-timeout: 0\ncmd-delete: 0\ncmd-release: 0\ncmd-use: 0\ncmd-watch: 0\n"
        b"cmd-ignore: 0\ncmd-bury: 0\ncmd-kick: 0\ncmd-touch: 0\ncmd-stats: 0\ncmd-stats-job: 0\ncmd-stats-tube: 0\n"
        b"cmd-list-tubes: 0\ncmd-list-tube-used: 0\ncmd-list-tubes-watched: 0\ncmd-pause-tube: 0\njob-timeouts: 7\n"
        b"total-jobs: 8\nmax-job-size: 65535\ncurrent-tubes: 9\ncurrent-connections: 10\ncurrent-producers: 11\n"
        b'current-workers: 12\ncurrent-waiting: 13\ntotal-connections: 14\npid: 15\nversion: "1.13"\n'
        b"rusage-utime: 0.500000\nrusage-stime: 12.000000\nuptime: 16\nbinlog-oldest-index: 0\n"
        b"binlog-current-index: 0\nbinlog-records-migrated: 0\nbinlog-records-written: 0\nbinlog-max-size: 0\n"
        b'draining: false\nid: 00ff00ff00ff00ff\nhostname: "one"\nos: "#1 SMP"\nplatform: "x86_64"\n'
    )


def test_a_statistic_that_is_missing_is_an_error_and_a_counter_that_is_missing_is_zero() -> None:
    with pytest.raises(KeyError):
        statistics.job_statistics({"id": 1})
    assert b"cmd-delete: 0\n" in statistics.tube_statistics({key: 1 for key in TUBE if not key.startswith("cmd-")})
