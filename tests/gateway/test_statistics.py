"""Conformance: the answers of `stats`, `stats-tube` and `stats-job`: their members, in order, and what these count."""

from __future__ import annotations

import re
import socket
import time

import pytest

from peerd.testing import eventually
from tests.gateway.beanstalk_connection import BeanstalkConnection
from tests.gateway.conftest import Connect
from tests.gateway.job_steps import STATES, put_in_state, wait_until_waiting

OF_A_JOB = [
    "id", "tube", "state", "pri", "age", "delay", "ttr", "time-left", "file", "reserves", "timeouts", "releases",
    "buries", "kicks",
]  # fmt: skip
OF_A_TUBE = [
    "name", "current-jobs-urgent", "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed",
    "current-jobs-buried", "total-jobs", "current-using", "current-watching", "current-waiting", "cmd-delete",
    "cmd-pause-tube", "pause", "pause-time-left",
]  # fmt: skip
OF_A_SERVER = [
    "current-jobs-urgent", "current-jobs-ready", "current-jobs-reserved", "current-jobs-delayed",
    "current-jobs-buried", "cmd-put", "cmd-peek", "cmd-peek-ready", "cmd-peek-delayed", "cmd-peek-buried",
    "cmd-reserve", "cmd-reserve-with-timeout", "cmd-delete", "cmd-release", "cmd-use", "cmd-watch", "cmd-ignore",
    "cmd-bury", "cmd-kick", "cmd-touch", "cmd-stats", "cmd-stats-job", "cmd-stats-tube", "cmd-list-tubes",
    "cmd-list-tube-used", "cmd-list-tubes-watched", "cmd-pause-tube", "job-timeouts", "total-jobs", "max-job-size",
    "current-tubes", "current-connections", "current-producers", "current-workers", "current-waiting",
    "total-connections", "pid", "version", "rusage-utime", "rusage-stime", "uptime", "binlog-oldest-index",
    "binlog-current-index", "binlog-records-migrated", "binlog-records-written", "binlog-max-size", "draining",
    "id", "hostname", "os", "platform",
]  # fmt: skip
COUNTED = {
    b"put 0 0 60 1\r\nx\r\n": "cmd-put",
    b"peek 1\r\n": "cmd-peek",
    b"peek-ready\r\n": "cmd-peek-ready",
    b"peek-delayed\r\n": "cmd-peek-delayed",
    b"peek-buried\r\n": "cmd-peek-buried",
    b"reserve\r\n": "cmd-reserve",
    b"reserve-with-timeout 0\r\n": "cmd-reserve-with-timeout",
    b"delete 0\r\n": "cmd-delete",
    b"release 0 0 0\r\n": "cmd-release",
    b"use default\r\n": "cmd-use",
    b"watch default\r\n": "cmd-watch",
    b"ignore nowhere\r\n": "cmd-ignore",
    b"bury 0 0\r\n": "cmd-bury",
    b"kick 0\r\n": "cmd-kick",
    b"touch 0\r\n": "cmd-touch",
    b"stats-job 0\r\n": "cmd-stats-job",
    b"stats-tube default\r\n": "cmd-stats-tube",
    b"list-tubes\r\n": "cmd-list-tubes",
    b"list-tube-used\r\n": "cmd-list-tube-used",
    b"list-tubes-watched\r\n": "cmd-list-tubes-watched",
    b"pause-tube default 0\r\n": "cmd-pause-tube",
}
NOT_COUNTED = [
    b"put 0 0 60 x\r\n", b"delete x\r\n", b"use -\r\n", b"kick x\r\n", b"list-tubes x\r\n", b"peek-readyx\r\n",
]  # fmt: skip


def shown_state(connection: BeanstalkConnection, job_id: int) -> str:
    return connection.job(job_id)["state"]


# ---------------------------------------------------------------- stats-job


def test_stats_job_has_these_members_in_this_order(connection: BeanstalkConnection) -> None:
    assert list(connection.job(connection.put())) == OF_A_JOB


@pytest.mark.since_beanstalkd_1_13("the tube is not in quotation marks")
def test_stats_job_is_this_text(connection: BeanstalkConnection) -> None:
    connection.use(b"some-tube")
    job_id = connection.put(priority=7, ttr=60)
    body = (
        f'---\nid: {job_id}\ntube: "some-tube"\nstate: ready\npri: 7\nage: 0\ndelay: 0\nttr: 60\ntime-left: 0\n'
        "file: 0\nreserves: 0\ntimeouts: 0\nreleases: 0\nburies: 0\nkicks: 0\n"
    ).encode()
    assert connection.ask(b"stats-job %d\r\n" % job_id) == b"OK %d\r\n%b\r\n" % (len(body), body)


@pytest.mark.parametrize("state", STATES)
def test_stats_job_names_the_state(connection: BeanstalkConnection, state: str) -> None:
    assert shown_state(connection, put_in_state(connection, state)) == state


def test_the_time_that_is_left_is_rounded_down_and_0_for_what_is_ready_or_buried(
    connection: BeanstalkConnection,
) -> None:
    ready, buried = connection.put(), put_in_state(connection, "buried")
    delayed, held = connection.put(delay=100), connection.put(ttr=50)
    connection.ask(b"reserve-job %d\r\n" % held)
    left = {job_id: int(connection.job(job_id)["time-left"]) for job_id in (ready, buried, delayed, held)}
    assert (left[ready], left[buried], left[delayed], left[held]) == (0, 0, 99, 49)


def test_the_age_of_a_job_counts_whole_seconds(connection: BeanstalkConnection) -> None:
    before = time.monotonic()
    job_id = connection.put()
    after = time.monotonic()

    def age() -> int:
        asked = time.monotonic()
        shown = int(connection.job(job_id)["age"])
        assert asked - after - 1.05 < shown < time.monotonic() - before + 0.05
        return shown

    age()
    assert eventually(age)
    assert age()


def test_every_count_of_a_job_grows_with_its_command(connection: BeanstalkConnection) -> None:
    job_id = connection.put()
    steps = [
        b"reserve-job %d\r\n", b"release %d 0 0\r\n", b"reserve-job %d\r\n", b"bury %d 0\r\n", b"kick-job %d\r\n",
        b"reserve-job %d\r\n", b"release %d 0 100\r\n", b"kick-job %d\r\n", b"reserve-job %d\r\n", b"bury %d 5\r\n",
    ]  # fmt: skip
    for step in steps:
        assert not connection.ask(step % job_id).startswith(b"NOT")
    shown = connection.job(job_id)
    counts = {name: shown[name] for name in ("reserves", "timeouts", "releases", "buries", "kicks")}
    assert counts == {"reserves": "4", "timeouts": "0", "releases": "2", "buries": "2", "kicks": "2"}


# ---------------------------------------------------------------- stats-tube


def test_stats_tube_has_these_members_in_this_order(connection: BeanstalkConnection) -> None:
    assert list(connection.tube()) == OF_A_TUBE


@pytest.mark.since_beanstalkd_1_13("the name is not in quotation marks")
def test_stats_tube_is_this_text(connection: BeanstalkConnection) -> None:
    connection.use(b"some-tube")
    connection.put(priority=1023)
    connection.put(priority=1024)
    connection.put(delay=100)
    body = (
        b'---\nname: "some-tube"\ncurrent-jobs-urgent: 1\ncurrent-jobs-ready: 2\ncurrent-jobs-reserved: 0\n'
        b"current-jobs-delayed: 1\ncurrent-jobs-buried: 0\ntotal-jobs: 3\ncurrent-using: 1\ncurrent-watching: 0\n"
        b"current-waiting: 0\ncmd-delete: 0\ncmd-pause-tube: 0\npause: 0\npause-time-left: 0\n"
    )
    assert connection.ask(b"stats-tube some-tube\r\n") == b"OK %d\r\n%b\r\n" % (len(body), body)


def test_stats_tube_counts_the_jobs_of_each_state(connection: BeanstalkConnection) -> None:
    connection.watch_only(b"t")
    connection.use(b"t")
    put_in_state(connection, "buried")
    for _ in range(2):
        connection.put()
        connection.reserve()
    for _ in range(3):
        connection.put(delay=100)
    for priority in (0, 1023, 1024, 1025):
        connection.put(priority=priority)
    shown = connection.tube(b"t")
    counts = {name.removeprefix("current-jobs-"): shown[name] for name in OF_A_TUBE if "-jobs-" in name}
    assert counts == {"urgent": "2", "ready": "4", "reserved": "2", "delayed": "3", "buried": "1"}
    assert shown["total-jobs"] == "10"


def test_only_ready_jobs_are_urgent(connection: BeanstalkConnection) -> None:
    connection.use(b"t")
    put_in_state(connection, "delayed")
    put_in_state(connection, "buried")
    connection.ask(b"reserve-job %d\r\n" % connection.put())
    assert connection.tube(b"t")["current-jobs-urgent"] == "0"


def test_stats_tube_counts_those_who_use_watch_and_wait(connect: Connect) -> None:
    user, both, waiting, other = (connect() for _ in range(4))
    user.use(b"t")
    both.use(b"t")
    both.ask(b"watch t\r\n")
    waiting.watch_only(b"t")
    waiting.send(b"reserve\r\n")
    wait_until_waiting(other, 1, b"t")
    shown = other.tube(b"t")
    assert (shown["current-using"], shown["current-watching"], shown["current-waiting"]) == ("2", "2", "1")


def test_stats_tube_shows_the_pause(connection: BeanstalkConnection) -> None:
    before = int(connection.tube()["cmd-pause-tube"])
    connection.ask(b"pause-tube default 100\r\n")
    shown = connection.tube()
    assert (shown["pause"], shown["pause-time-left"]) == ("100", "99")
    assert int(shown["cmd-pause-tube"]) == before + 1
    connection.ask(b"pause-tube default 0\r\n")
    eventually(lambda: connection.tube()["pause"] == "0")


def test_stats_tube_shows_no_pause_once_it_has_ended(connection: BeanstalkConnection) -> None:
    connection.ask(b"pause-tube default 1\r\n")
    assert connection.tube()["pause"] == "1"
    eventually(lambda: (connection.tube()["pause"], connection.tube()["pause-time-left"]) == ("0", "0"))


def test_stats_tube_counts_deleted_jobs(connection: BeanstalkConnection) -> None:
    connection.use(b"t")
    for state in STATES:
        connection.ask(b"delete %d\r\n" % put_in_state(connection, state))
    assert connection.tube(b"t")["cmd-delete"] == "3"


def test_stats_tube_of_a_tube_that_does_not_exist_is_not_found(connection: BeanstalkConnection) -> None:
    assert connection.ask(b"stats-tube nowhere\r\n") == b"NOT_FOUND\r\n"


# ---------------------------------------------------------------- stats


def test_stats_has_these_members_in_this_order(connection: BeanstalkConnection) -> None:
    assert list(connection.statistics()) == OF_A_SERVER


@pytest.mark.since_beanstalkd_1_13("only the version is in quotation marks")
def test_the_texts_of_stats_are_in_quotation_marks(connection: BeanstalkConnection) -> None:
    lines = connection.ask(b"stats\r\n").decode().splitlines()
    quoted = [line.partition(": ")[0] for line in lines if line.endswith('"')]
    assert quoted == ["version", "hostname", "os", "platform"]


def test_the_values_of_stats_have_their_forms(connection: BeanstalkConnection) -> None:
    shown = connection.statistics()
    texts = {"version", "draining", "id", "hostname", "os", "platform", "rusage-utime", "rusage-stime"}
    assert all(value.isdigit() for name, value in shown.items() if name not in texts), shown
    assert re.fullmatch("[0-9a-f]{16}", shown["id"])
    assert re.fullmatch(r"\d+\.\d{6}", shown["rusage-utime"])
    assert shown["hostname"] == socket.gethostname()
    assert shown["draining"] == "false"
    assert shown["max-job-size"] == "65535"


def test_every_command_has_a_counter(connection: BeanstalkConnection) -> None:
    before = connection.statistics()
    for command in COUNTED:
        connection.ask(command)
    after = connection.statistics()
    grown = {name: int(after[name]) - int(before[name]) for name in OF_A_SERVER if name.startswith("cmd-")}
    assert grown == dict.fromkeys(COUNTED.values(), 1) | {"cmd-stats": 1}


def test_a_command_that_is_refused_for_its_format_is_not_counted(connection: BeanstalkConnection) -> None:
    before = connection.statistics()
    for command in NOT_COUNTED:
        assert connection.ask(command) == b"BAD_FORMAT\r\n"
    after = connection.statistics()
    assert [name for name in OF_A_SERVER if name.startswith("cmd-") and after[name] != before[name]] == ["cmd-stats"]


def test_stats_counts_jobs_of_all_tubes(connection: BeanstalkConnection) -> None:
    before = int(connection.statistics()["total-jobs"])
    for tube in (b"a", b"b"):
        connection.use(tube)
        for state in STATES:
            put_in_state(connection, state)
    shown = connection.statistics()
    counts = {name.removeprefix("current-jobs-"): shown[name] for name in OF_A_SERVER if "-jobs-" in name}
    assert counts == {"urgent": "2", "ready": "2", "reserved": "0", "delayed": "2", "buried": "2"}
    assert int(shown["total-jobs"]) == before + 6
    assert shown["current-tubes"] == "3"


def test_stats_counts_connections_by_what_they_have_done(connect: Connect) -> None:
    watcher, producer, worker, both = (connect() for _ in range(4))
    producer.put()
    worker.reserve()
    both.put()
    both.reserve()  # by now the server has accepted all four
    shown = watcher.statistics()
    before = int(shown["total-connections"])
    names = ("current-connections", "current-producers", "current-workers", "current-waiting")
    assert [shown[name] for name in names] == ["4", "2", "2", "0"]
    connect().ask(b"list-tube-used\r\n")
    assert int(watcher.statistics()["total-connections"]) == before + 1
    watcher.send(b"reserve\r\n")
    eventually(lambda: producer.statistics()["current-waiting"] == "1")
