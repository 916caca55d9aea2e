"""Conformance: what `stats`, `stats-tube` and `stats-job` count. All members are in tests/unit/gateway."""

from __future__ import annotations

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


# ---------------------------------------------------------------- stats-tube


def test_stats_tube_counts_the_jobs_of_each_state_and_stats_those_of_all_tubes(connection: BeanstalkConnection) -> None:
    total = int(connection.statistics()["total-jobs"])
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
    connection.use(b"other")
    put_in_state(connection, "buried")
    shown = connection.statistics()
    assert jobs_of(shown) == {"urgent": "2", "ready": "4", "reserved": "2", "delayed": "3", "buried": "2"}
    assert (int(shown["total-jobs"]) - total, shown["current-tubes"]) == (14, "3")


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
