"""Conformance: tubes, and what `stats`, `stats-tube` and `stats-job` count. All members are in tests/unit/gateway."""

from __future__ import annotations

import socket
import time

from peerd.gateway.beanstalk.commands import COUNTERS
from peerd.testing import eventually
from tests.gateway.beanstalk_connection import (
    NOT_FOUND,
    RESERVE_NOW,
    STATES,
    TIMED_OUT,
    BeanstalkConnection,
    begin_to_wait,
    elements,
    members,
    put_in_state,
    reserved,
)
from tests.gateway.conftest import Connect


def test_what_is_watched_is_a_list_without_repetition_that_is_never_empty(connection: BeanstalkConnection) -> None:
    for command, answer in (
        (b"ignore default", b"NOT_IGNORED"), (b"watch b", b"WATCHING 2"), (b"watch b", b"WATCHING 2"),
        (b"watch a", b"WATCHING 3"), (b"list-tubes-watched", b"OK 22\r\n---\n- default\n- b\n- a\n"),
        (b"ignore never-watched", b"WATCHING 3"), (b"ignore b", b"WATCHING 2"), (b"ignore default", b"WATCHING 1"),
        (b"ignore a", b"NOT_IGNORED"), (b"use u", b"USING u"), (b"list-tube-used", b"USING u"),
        (b"list-tubes", b"OK 22\r\n---\n- default\n- a\n- u\n"), (b"pause-tube nowhere 1", b"NOT_FOUND"),
        (b"stats-tube nowhere", b"NOT_FOUND"),
    ):  # fmt: skip
        assert connection.ask(command + b"\r\n") == answer + b"\r\n", command


def test_a_paused_tube_gives_no_job_until_its_pause_ends_and_other_tubes_do(connection: BeanstalkConnection) -> None:
    job_id = connection.put()
    assert connection.ask(b"pause-tube default 1\r\n") == b"PAUSED\r\n"
    assert connection.ask(b"reserve-with-timeout 5\r\n") == reserved(job_id)
    paused = connection.put(b"paused")
    connection.ask_all(b"pause-tube default 100\r\nwatch other\r\nuse other\r\n", 3)
    job_id = connection.put(b"not paused", priority=100)
    assert connection.reserve() == job_id
    assert connection.ask(RESERVE_NOW) == TIMED_OUT
    assert connection.ask(b"reserve-job %d\r\n" % paused) == reserved(paused, b"paused")


def test_those_who_wait_are_woken_when_a_pause_ends_and_not_before(connect: Connect) -> None:
    owner, waiting = connect(), connect()
    for seconds, end in ((100, b"pause-tube default 0\r\n"), (1, b"list-tube-used\r\n")):
        owner.ask(b"pause-tube default %d\r\n" % seconds)
        begin_to_wait(owner, waiting)
        job_id = owner.put()
        if seconds > 1:
            assert owner.tube()["current-jobs-ready"] == "1"
            assert waiting.answer_that_came() is None
        owner.ask(end)
        assert waiting.receive() == reserved(job_id)


def test_a_tube_lives_while_it_is_used_or_watched(connect: Connect) -> None:
    client, other = connect(), connect()
    for begin, count, end in (
        (b"use t\r\n", "current-using", b"use default\r\n"),
        (b"watch t\r\n", "current-watching", b"ignore t\r\n"),
    ):
        client.ask(begin)
        assert other.tube(b"t")[count] == "1"
        client.ask(end)
        assert other.ask(b"stats-tube t\r\n") == NOT_FOUND
        assert elements(other.ask(b"list-tubes\r\n")) == ["default"]


def test_a_tube_lives_while_it_holds_a_job(connect: Connect) -> None:
    producer, holder = connect(), connect()
    for state in (*STATES, "reserved"):
        producer.use(b"t")
        job_id = put_in_state(producer, state)
        if state == "ready":
            holder.ask(b"reserve-job %d\r\n" % job_id)
        producer.use(b"default")
        assert elements(holder.ask(b"list-tubes\r\n")) == ["default", "t"], state
        one = producer if state == "reserved" else holder
        assert one.ask(b"delete %d\r\n" % job_id) == b"DELETED\r\n"
        assert elements(holder.ask(b"list-tubes\r\n")) == ["default"], state


def test_the_pause_and_the_counts_of_a_tube_end_with_it(connect: Connect) -> None:
    watcher, other = connect(), connect()
    watcher.ask_all(b"watch t\r\npause-tube t 100\r\nignore t\r\n", 3)
    assert other.ask(b"stats-tube t\r\n") == NOT_FOUND
    for again in (b"use t\r\n", b"watch t\r\n"):
        other.ask_all(b"use t\r\nwatch t\r\n", 2)
        first, second = other.put(), other.put()
        assert other.reserve() == first
        other.ask_all(b"delete %d\r\nignore t\r\nuse default\r\n" % first, 3)
        assert (other.tube(b"t")["total-jobs"], other.tube(b"t")["cmd-delete"]) == ("2", "1")
        shown = other.ask_all(b"delete %d\r\n%bstats-tube t\r\n" % (second, again), 3)[2]  # one batch of operations
        assert b"total-jobs: 0\n" in shown
        assert b"cmd-delete: 0\n" in shown
        other.ask_all(b"ignore t\r\nuse default\r\n", 2)


COUNTED = (
    b"put 0 0 60 1\r\nx\r\n", b"peek 1\r\n", b"peek-ready\r\n", b"peek-delayed\r\n", b"peek-buried\r\n", b"reserve\r\n",
    b"reserve-with-timeout 0\r\n", b"delete 0\r\n", b"release 0 0 0\r\n", b"use default\r\n", b"watch default\r\n",
    b"ignore nowhere\r\n", b"bury 0 0\r\n", b"kick 0\r\n", b"touch 0\r\n", b"stats-job 0\r\n",
    b"stats-tube default\r\n", b"list-tubes\r\n", b"list-tube-used\r\n", b"list-tubes-watched\r\n",
    b"pause-tube default 0\r\n", b"stats\r\n",
)  # fmt: skip
NOT_COUNTED = b"put 0 0 60 x\r\n", b"delete x\r\n", b"list-tubes x\r\n"


def jobs_of(shown: dict[str, str]) -> dict[str, str]:
    """How many jobs are in each state."""
    prefix = "current-jobs-"
    return {name.removeprefix(prefix): value for name, value in shown.items() if name.startswith(prefix)}


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


def test_the_time_that_is_left_is_less_than_all_of_it_in_the_moment_in_which_it_begins(
    connection: BeanstalkConnection,
) -> None:
    held = put_in_state(connection, "reserved")
    asked = {
        "time-left": b"touch %d\r\nstats-job %d\r\n" % (held, held),
        "pause-time-left": b"pause-tube default 60\r\nstats-tube default\r\n",
    }
    for name, commands in [*asked.items()] * 100:
        began = time.monotonic()
        _, answer = connection.ask_all(commands, 2)
        took = time.monotonic() - began
        assert 59 - took <= int(members(answer)[name]) <= 59, name
    assert connection.ask(b"pause-tube default 0\r\n") == b"PAUSED\r\n"


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
    grown = {name: int(after[name]) - int(before[name]) for name in COUNTERS.values()}
    assert grown == {f"cmd-{command.split()[0].decode()}": 1 for command in COUNTED}


def test_stats_counts_connections_by_what_they_have_done(connect: Connect) -> None:
    watcher, producer, worker, both = (connect() for _ in range(4))
    producer.put()
    worker.reserve()
    both.put()
    both.reserve()  # by now the server has accepted all four
    shown = watcher.statistics()
    assert shown["hostname"] == socket.gethostname()
    before = int(shown["total-connections"])
    names = ("current-connections", "current-producers", "current-workers", "current-waiting")
    assert [shown[name] for name in names] == ["4", "2", "2", "0"]
    connect().ask(b"list-tube-used\r\n")
    assert int(watcher.statistics()["total-connections"]) == before + 1
    begin_to_wait(producer, watcher)
    assert producer.statistics()["current-waiting"] == "1"
