"""Conformance: what `stats`, `stats-tube` and `stats-job` count. All members are in tests/unit/gateway."""

from __future__ import annotations

import re
import socket
import time

from peerd.gateway.protocols.beanstalk.statistics import COMMAND_KEYS
from peerd.testing import eventually
from tests.gateway.beanstalk_connection import BeanstalkConnection
from tests.gateway.conftest import Connect
from tests.gateway.job_steps import STATES, begin_to_wait, put_in_state

COUNTED = (
    b"put 0 0 60 1\r\nx\r\n", b"peek 1\r\n", b"peek-ready\r\n", b"peek-delayed\r\n", b"peek-buried\r\n", b"reserve\r\n",
    b"reserve-with-timeout 0\r\n", b"delete 0\r\n", b"release 0 0 0\r\n", b"use default\r\n", b"watch default\r\n",
    b"ignore nowhere\r\n", b"bury 0 0\r\n", b"kick 0\r\n", b"touch 0\r\n", b"stats-job 0\r\n",
    b"stats-tube default\r\n", b"list-tubes\r\n", b"list-tube-used\r\n", b"list-tubes-watched\r\n",
    b"pause-tube default 0\r\n", b"stats\r\n",
)  # fmt: skip
NOT_COUNTED = (
    b"put 0 0 60 x\r\n", b"delete x\r\n", b"use -\r\n", b"kick x\r\n", b"list-tubes x\r\n", b"peek-readyx\r\n",
)  # fmt: skip


def jobs_of(shown: dict[str, str]) -> dict[str, str]:
    """How many jobs are in each state."""
    prefix = "current-jobs-"
    return {name.removeprefix(prefix): value for name, value in shown.items() if name.startswith(prefix)}


# ---------------------------------------------------------------- stats-job


def test_the_time_that_is_left_is_rounded_down_and_0_for_what_is_ready_or_buried(
    connection: BeanstalkConnection,
) -> None:
    began = time.monotonic()
    ready, buried = connection.put(), put_in_state(connection, "buried")
    delayed, held = connection.put(delay=100), connection.put(ttr=50)
    connection.ask(b"reserve-job %d\r\n" % held)
    left = [int(connection.job(job_id)["time-left"]) for job_id in (ready, buried, delayed, held)]
    took = time.monotonic() - began
    assert left[:2] == [0, 0]
    assert 99 - took <= left[2] <= 99
    assert 49 - took <= left[3] <= 49


def test_the_age_of_a_job_counts_whole_seconds(connection: BeanstalkConnection) -> None:
    before = time.monotonic()
    job_id = connection.put()
    after = time.monotonic()

    def age() -> int:
        asked = time.monotonic()
        shown = int(connection.job(job_id)["age"])
        assert asked - after - 1.05 < shown < time.monotonic() - before + 0.05
        return shown

    assert eventually(age)


def test_every_count_of_a_job_grows_with_its_command(connection: BeanstalkConnection) -> None:
    job_id = connection.put()
    for step in (
        b"reserve-job %d\r\n", b"release %d 0 0\r\n", b"reserve-job %d\r\n", b"bury %d 0\r\n", b"kick-job %d\r\n",
        b"reserve-job %d\r\n", b"release %d 0 100\r\n", b"kick-job %d\r\n", b"reserve-job %d\r\n", b"bury %d 5\r\n",
    ):  # fmt: skip
        assert not connection.ask(step % job_id).startswith(b"NOT"), step
    shown = connection.job(job_id)
    counts = {name: shown[name] for name in ("reserves", "timeouts", "releases", "buries", "kicks")}
    assert counts == {"reserves": "4", "timeouts": "0", "releases": "2", "buries": "2", "kicks": "2"}


# ---------------------------------------------------------------- stats-tube


def test_stats_tube_counts_the_jobs_of_each_state(connection: BeanstalkConnection) -> None:
    connection.use(b"t")
    for state, number in (("buried", 1), ("reserved", 2), ("delayed", 3)):
        for _ in range(number):
            put_in_state(connection, state)
    assert jobs_of(connection.tube(b"t")) == {
        "urgent": "0", "ready": "0", "reserved": "2", "delayed": "3", "buried": "1",
    }  # fmt: skip
    for priority in (0, 1023, 1024, 1025):
        connection.put(priority=priority)
    for state in STATES:
        connection.ask(b"delete %d\r\n" % put_in_state(connection, state))
    shown = connection.tube(b"t")
    assert jobs_of(shown) == {"urgent": "2", "ready": "4", "reserved": "2", "delayed": "3", "buried": "1"}
    assert (shown["total-jobs"], shown["cmd-delete"]) == ("13", "3")


def test_stats_tube_counts_those_who_use_watch_and_wait(connect: Connect) -> None:
    user, both, waiting, other = (connect() for _ in range(4))
    user.use(b"t")
    both.use(b"t")
    both.ask(b"watch t\r\n")
    waiting.watch_only(b"t")
    begin_to_wait(other, waiting, tube=b"t")
    shown = other.tube(b"t")
    assert (shown["current-using"], shown["current-watching"], shown["current-waiting"]) == ("2", "2", "1")


def test_stats_tube_shows_the_pause_until_it_ends(connection: BeanstalkConnection) -> None:
    before, began = int(connection.tube()["cmd-pause-tube"]), time.monotonic()
    connection.ask(b"pause-tube default 100\r\n")
    shown = connection.tube()
    assert shown["pause"] == "100"
    assert 99 - (time.monotonic() - began) <= int(shown["pause-time-left"]) <= 99
    assert int(shown["cmd-pause-tube"]) == before + 1
    for seconds in (0, 1):
        connection.ask(b"pause-tube default %d\r\n" % seconds)
        eventually(lambda: (connection.tube()["pause"], connection.tube()["pause-time-left"]) == ("0", "0"))


# ---------------------------------------------------------------- stats


def test_the_values_of_stats_have_their_forms(connection: BeanstalkConnection) -> None:
    shown = connection.statistics()
    lines = connection.ask(b"stats\r\n").decode().splitlines()
    quoted = [line.partition(": ")[0] for line in lines if line.endswith('"')]
    assert quoted == ["version", "hostname", "os", "platform"]
    texts = {*quoted, "draining", "id", "rusage-utime", "rusage-stime"}
    assert all(value.isdigit() for name, value in shown.items() if name not in texts), shown
    assert re.fullmatch("[0-9a-f]{16}", shown["id"])
    assert re.fullmatch(r"\d+\.\d{6}", shown["rusage-utime"])
    assert shown["hostname"] == socket.gethostname()
    assert (shown["draining"], shown["max-job-size"]) == ("false", "65535")


def test_every_command_has_a_counter_and_what_is_refused_for_its_format_is_not_counted(
    connection: BeanstalkConnection,
) -> None:
    before = connection.statistics()
    for command in COUNTED[:-1]:
        connection.ask(command)
    for command in NOT_COUNTED:
        assert connection.ask(command) == b"BAD_FORMAT\r\n"
    after = connection.statistics()
    grown = {name: int(after[name]) - int(before[name]) for name in COMMAND_KEYS}
    assert grown == {f"cmd-{command.split()[0].decode()}": 1 for command in COUNTED}


def test_stats_counts_jobs_of_all_tubes(connection: BeanstalkConnection) -> None:
    before = int(connection.statistics()["total-jobs"])
    for tube in (b"a", b"b"):
        connection.use(tube)
        for state in STATES:
            put_in_state(connection, state)
    shown = connection.statistics()
    assert jobs_of(shown) == {"urgent": "2", "ready": "2", "reserved": "0", "delayed": "2", "buried": "2"}
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
    begin_to_wait(producer, watcher)
    assert producer.statistics()["current-waiting"] == "1"
