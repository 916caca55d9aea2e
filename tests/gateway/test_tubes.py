"""Conformance: `watch`, `ignore`, `pause-tube`, the lists of tubes, and how long a tube lives."""

from __future__ import annotations

from tests.gateway.beanstalk_connection import BeanstalkConnection, elements, reserved
from tests.gateway.conftest import Connect
from tests.gateway.job_steps import NOT_FOUND, RESERVE_NOW, STATES, TIMED_OUT, begin_to_wait, put_in_state

# ---------------------------------------------------------------- watch, ignore, lists


def test_what_is_watched_is_a_list_without_repetition_that_is_never_empty(connection: BeanstalkConnection) -> None:
    for command, answer in (
        (b"ignore default", b"NOT_IGNORED"),
        (b"watch b", b"WATCHING 2"),
        (b"watch b", b"WATCHING 2"),
        (b"watch a", b"WATCHING 3"),
        (b"list-tubes-watched", b"OK 22\r\n---\n- default\n- b\n- a\n"),
        (b"ignore never-watched", b"WATCHING 3"),
        (b"ignore b", b"WATCHING 2"),
        (b"ignore default", b"WATCHING 1"),
        (b"ignore a", b"NOT_IGNORED"),
        (b"list-tube-used", b"USING default"),
        (b"use u", b"USING u"),
        (b"list-tube-used", b"USING u"),
        (b"list-tubes", b"OK 22\r\n---\n- default\n- a\n- u\n"),
        (b"pause-tube nowhere 1", b"NOT_FOUND"),
        (b"stats-tube nowhere", b"NOT_FOUND"),
    ):
        assert connection.ask(command + b"\r\n") == answer + b"\r\n", command


# ---------------------------------------------------------------- pause-tube


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


# ---------------------------------------------------------------- the life of tubes


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
    holder.ask_all(b"use t\r\nwatch t\r\nignore default\r\n", 3)
    producer.ask_all(b"use t\r\nwatch t\r\nignore default\r\n", 3)
    assert holder.tube(b"default")["current-using"] == "0"


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
