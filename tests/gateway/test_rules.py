"""Conformance: rules of several commands: order, waiting, deadlines, the ends of connections and of tubes."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest

from peerd.testing import eventually
from tests.gateway.beanstalk_connection import BeanstalkConnection, elements, reserved
from tests.gateway.conftest import Connect
from tests.gateway.job_steps import NOT_FOUND, STATES, TIMED_OUT, put_in_state, wait_until_waiting

DEADLINE_SOON = b"DEADLINE_SOON\r\n"
MARGIN = 1.0
"""Seconds before a deadline at which DEADLINE_SOON is due."""
LATENESS = 5.0
"""Seconds by which a timer may be late here, where other processes use the machine too; a poll comes after ten."""


# ---------------------------------------------------------------- order


def test_jobs_come_by_priority_then_by_id(connection: BeanstalkConnection) -> None:
    given = {priority: connection.put(priority=priority) for priority in (5, 1, 4294967295, 1024, 0)}
    younger = connection.put(priority=1)
    order = [given[0], given[1], younger, given[5], given[1024], given[4294967295]]
    assert [connection.reserve() for _ in order] == order


def test_the_order_goes_over_all_watched_tubes(connect: Connect) -> None:
    producer, consumer = connect(), connect()
    given = []
    for tube, priority in ((b"a", 3), (b"b", 2), (b"c", 3), (b"a", 1), (b"b", 3)):
        producer.use(tube)
        given.append((priority, producer.put(priority=priority)))
    consumer.watch_only(b"c", b"a", b"b")
    assert [consumer.reserve() for _ in given] == [job_id for _, job_id in sorted(given)]


def test_a_released_job_comes_before_younger_ones_of_its_priority(connection: BeanstalkConnection) -> None:
    first, second, third = connection.put(), connection.put(), connection.put()
    assert connection.reserve() == first
    connection.ask(b"release %d 0 0\r\n" % first)
    assert [connection.reserve() for _ in range(3)] == [first, second, third]


@pytest.mark.parametrize("again", [b"use brief\r\n", b"watch brief\r\n"])
def test_a_tube_that_ends_with_its_last_job_begins_anew_with_the_next_command(connect: Connect, again: bytes) -> None:
    producer, other = connect(), connect()
    producer.ask(b"use brief\r\n")
    job = producer.put()
    producer.ask(b"use default\r\n")
    other.send(b"delete %d\r\n%bstats-tube brief\r\n" % (job, again))
    assert other.receive() == b"DELETED\r\n"
    assert other.receive() in (b"USING brief\r\n", b"WATCHING 2\r\n")
    shown = other.receive()
    assert b"total-jobs: 0\n" in shown
    assert b"cmd-delete: 0\n" in shown


def test_a_job_goes_to_one_who_waits_before_the_next_command_even_after_a_kick(connect: Connect) -> None:
    producer, worker = connect(), connect()
    worker.send(b"reserve\r\n")
    eventually(lambda: producer.statistics()["current-waiting"] == "1")
    producer.send(b"kick 1\r\nput 0 0 60 1\r\na\r\nstats-tube default\r\n")
    assert producer.receive() == b"KICKED 0\r\n"
    assert producer.receive().startswith(b"INSERTED ")
    assert b"current-jobs-reserved: 1\n" in producer.receive()
    assert worker.receive().startswith(b"RESERVED ")


def test_a_kicked_job_comes_before_younger_ones_of_its_priority(connection: BeanstalkConnection) -> None:
    first, second = put_in_state(connection, "buried"), connection.put()
    connection.ask(b"kick 1\r\n")
    assert [connection.reserve(), connection.reserve()] == [first, second]


def test_a_delayed_job_comes_by_its_id_when_its_delay_has_ended(connection: BeanstalkConnection) -> None:
    first, second = connection.put(delay=1), connection.put()
    eventually(lambda: connection.job(first)["state"] == "ready")
    assert [connection.reserve(), connection.reserve()] == [first, second]


def test_a_released_job_takes_its_place_by_its_new_priority(connection: BeanstalkConnection) -> None:
    first, second = connection.put(priority=1), connection.put(priority=2)
    assert connection.reserve() == first
    connection.ask(b"release %d 3 0\r\n" % first)
    assert [connection.reserve(), connection.reserve()] == [second, first]


# ---------------------------------------------------------------- waiting


@pytest.mark.unpredictable_on_beanstalkd("who is served first depends on how many were served before")
def test_those_who_wait_longest_are_served_first(connect: Connect) -> None:
    producer, *waiting = (connect() for _ in range(5))
    for number, one in enumerate(waiting, 1):
        one.send(b"reserve\r\n")
        wait_until_waiting(producer, number)
    jobs = [producer.put() for _ in waiting]
    assert [one.receive() for one in waiting] == [reserved(job_id) for job_id in jobs]


def test_one_put_wakes_one_of_those_who_wait(connect: Connect) -> None:
    producer, *waiting = (connect() for _ in range(3))
    for number, one in enumerate(waiting, 1):
        one.send(b"reserve\r\n")
        wait_until_waiting(producer, number)
    job_id = producer.put()
    wait_until_waiting(producer, 1)
    came = eventually(lambda: [answer for one in waiting if (answer := one.answer_that_came())])
    assert came == [reserved(job_id)]


def test_a_client_waits_at_all_tubes_that_it_watches(connect: Connect) -> None:
    producer, waiting = connect(), connect()
    waiting.watch_only(b"a", b"b")
    waiting.send(b"reserve\r\n")
    wait_until_waiting(producer, 1, b"a")
    assert producer.tube(b"b")["current-waiting"] == "1"
    producer.use(b"b")
    job_id = producer.put()
    assert waiting.receive() == reserved(job_id)
    assert producer.tube(b"a")["current-waiting"] == "0"


def test_nobody_who_watches_other_tubes_is_woken(connect: Connect) -> None:
    producer, other, right = connect(), connect(), connect()
    other.watch_only(b"other")
    right.watch_only(b"right")
    other.send(b"reserve\r\n")
    wait_until_waiting(producer, 1, b"other")
    right.send(b"reserve\r\n")
    wait_until_waiting(producer, 1, b"right")
    producer.use(b"right")
    job_id = producer.put()
    assert right.receive() == reserved(job_id)
    assert other.answer_that_came() is None


def test_a_delayed_job_wakes_a_client_when_its_delay_ends(connect: Connect) -> None:
    producer, waiting = connect(), connect()
    waiting.send(b"reserve\r\n")
    wait_until_waiting(producer, 1)
    began = time.monotonic()
    job_id = producer.put(delay=1)
    assert waiting.answer_that_came() is None
    assert waiting.receive() == reserved(job_id)
    assert 1.0 <= time.monotonic() - began < 1.0 + LATENESS


def test_two_hundred_clients_get_a_job_each(connect: Connect) -> None:
    producer, *waiting = (connect() for _ in range(201))
    for one in waiting:
        one.send(b"reserve\r\n")
    wait_until_waiting(producer, 200)
    answers = producer.ask_all(b"put 0 0 60 1\r\nx\r\n" * 200, 200)
    jobs = sorted(int(answer.split()[1]) for answer in answers)
    assert sorted(int(one.receive().split()[1]) for one in waiting) == jobs


def test_of_many_clients_that_reserve_at_once_each_gets_other_jobs(connect: Connect) -> None:
    producer, *clients = (connect() for _ in range(31))
    jobs = sorted(int(answer.split()[1]) for answer in producer.ask_all(b"put 0 0 60 1\r\nx\r\n" * 600, 600))
    for client in clients:
        client.send(b"reserve\r\n" * 20)
    taken = {client: [int(client.receive().split()[1]) for _ in range(20)] for client in clients}
    assert sorted(job_id for some in taken.values() for job_id in some) == jobs
    for client, some in taken.items():
        client.send(b"".join(b"delete %d\r\n" % job_id for job_id in some))
    assert {client.receive() for client in clients for _ in range(20)} == {b"DELETED\r\n"}
    assert producer.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT


def test_of_many_clients_that_delete_the_same_job_one_succeeds(connect: Connect) -> None:
    producer, *clients = (connect() for _ in range(21))
    for _ in range(20):
        job_id = producer.put()
        for client in clients:
            client.send(b"delete %d\r\n" % job_id)
        answers = sorted(client.receive() for client in clients)
        assert answers == [b"DELETED\r\n"] + [NOT_FOUND] * 19


def test_of_many_clients_that_take_the_same_job_by_its_id_one_succeeds(connect: Connect) -> None:
    producer, *clients = (connect() for _ in range(21))
    job_id = producer.put()
    for client in clients:
        client.send(b"reserve-job %d\r\n" % job_id)
    answers = sorted(client.receive() for client in clients)
    assert answers == [NOT_FOUND] * 19 + [reserved(job_id)]


# ---------------------------------------------------------------- deadlines


@pytest.mark.unpredictable_on_beanstalkd("now and then it overlooks the end of a TTR")
def test_a_job_whose_ttr_has_ended_is_ready_again_and_counts_a_timeout(connection: BeanstalkConnection) -> None:
    job_id = connection.put(ttr=1, delay=0)
    connection.reserve()
    began = time.monotonic()
    eventually(lambda: connection.job(job_id)["state"] == "ready")
    assert time.monotonic() - began < 1.0 + LATENESS
    shown = connection.job(job_id)
    assert (shown["timeouts"], shown["releases"], shown["reserves"]) == ("1", "0", "1")
    assert connection.ask(b"delete %d\r\n" % job_id) == b"DELETED\r\n"


@pytest.mark.unpredictable_on_beanstalkd("now and then it overlooks the end of a TTR")
def test_a_ttr_that_ends_counts_in_the_statistics(connection: BeanstalkConnection) -> None:
    before = int(connection.statistics()["job-timeouts"])
    job_id = connection.put(ttr=1)
    connection.reserve()
    eventually(lambda: connection.job(job_id)["state"] == "ready")
    eventually(lambda: int(connection.statistics()["job-timeouts"]) == before + 1)


@pytest.mark.unpredictable_on_beanstalkd("now and then it overlooks the end of a TTR")
def test_a_job_whose_ttr_has_ended_goes_to_one_who_waits(connect: Connect) -> None:
    slow, waiting = connect(), connect()
    job_id = slow.put(ttr=1)
    slow.reserve()
    began = time.monotonic()
    waiting.send(b"reserve\r\n")
    assert waiting.receive() == reserved(job_id)
    assert 0.9 <= time.monotonic() - began < 1.0 + LATENESS
    assert slow.ask(b"delete %d\r\n" % job_id) == NOT_FOUND
    assert slow.ask(b"touch %d\r\n" % job_id) == NOT_FOUND


@pytest.mark.unpredictable_on_beanstalkd("now and then it overlooks the end of a TTR")
def test_the_end_of_a_ttr_does_not_delay_a_job_again(connection: BeanstalkConnection) -> None:
    job_id = connection.put(ttr=1, delay=100)
    assert connection.ask(b"reserve-job %d\r\n" % job_id) == reserved(job_id)
    eventually(lambda: connection.job(job_id)["state"] == "ready")
    assert connection.job(job_id)["delay"] == "100"


def test_a_touched_job_stays_reserved_for_another_ttr(connection: BeanstalkConnection) -> None:
    job_id = connection.put(ttr=2)
    connection.reserve()
    assert connection.ask(b"reserve-with-timeout 5\r\n") == DEADLINE_SOON
    assert connection.ask(b"touch %d\r\n" % job_id) == b"TOUCHED\r\n"
    touched = time.monotonic()
    assert connection.ask(b"reserve-with-timeout 5\r\n") == DEADLINE_SOON
    assert time.monotonic() - touched >= 2 - MARGIN - 0.05
    assert connection.job(job_id)["state"] == "reserved"


@pytest.mark.parametrize("command", [b"reserve\r\n", b"reserve-with-timeout 0\r\n", b"reserve-with-timeout 9\r\n"])
def test_a_reserve_within_the_last_second_of_a_ttr_is_told_that_its_deadline_is_soon(
    connection: BeanstalkConnection, command: bytes
) -> None:
    connection.put(ttr=1)
    connection.reserve()
    assert connection.ask(command) == DEADLINE_SOON


def test_a_reserve_that_waits_is_told_when_the_last_second_begins(connection: BeanstalkConnection) -> None:
    connection.put(ttr=2)
    connection.reserve()
    began = time.monotonic()
    assert connection.ask(b"reserve\r\n") == DEADLINE_SOON
    assert 2 - MARGIN - 0.05 <= time.monotonic() - began < 2 - MARGIN + LATENESS


def test_a_job_that_is_ready_comes_before_deadline_soon(connection: BeanstalkConnection) -> None:
    connection.put(ttr=1)
    connection.reserve()
    job_id = connection.put()
    assert connection.ask(b"reserve\r\n") == reserved(job_id)
    assert connection.ask(b"reserve\r\n") == DEADLINE_SOON


def test_reserve_job_is_not_told_of_a_deadline(connection: BeanstalkConnection) -> None:
    connection.put(ttr=1)
    connection.reserve()
    job_id = connection.put(delay=100)
    assert connection.ask(b"reserve-job %d\r\n" % job_id) == reserved(job_id)


def test_others_are_not_told_of_a_deadline(connect: Connect) -> None:
    holder, other = connect(), connect()
    holder.put(ttr=1)
    holder.reserve()
    assert other.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT


# ---------------------------------------------------------------- the end of a connection


@pytest.mark.parametrize("how", ["close", "quit", "end"])
def test_the_jobs_of_a_connection_that_ends_are_ready_again_and_count_nothing(connect: Connect, how: str) -> None:
    holder, other = connect(), connect()
    jobs = [holder.put(priority=number) for number in range(3)]
    for _ in jobs:
        holder.reserve()
    if how == "close":
        holder.close()
    elif how == "quit":
        holder.send(b"quit\r\n")
    else:
        holder.send_end()
    for job_id in jobs:
        assert other.ask(b"reserve-with-timeout 1\r\n") == reserved(job_id)
        shown = other.job(job_id)
        assert (shown["timeouts"], shown["releases"], shown["reserves"]) == ("0", "0", "2")


def test_the_jobs_of_a_connection_that_ends_go_to_those_who_wait(connect: Connect) -> None:
    holder, waiting = connect(), connect()
    job_id = holder.put()
    holder.reserve()
    waiting.send(b"reserve\r\n")
    wait_until_waiting(holder, 1)
    began = time.monotonic()
    holder.close()
    assert waiting.receive() == reserved(job_id)
    assert time.monotonic() - began < LATENESS


def test_a_delayed_job_that_its_holder_leaves_is_ready(connect: Connect) -> None:
    holder, other = connect(), connect()
    job_id = holder.put(delay=100)
    holder.ask(b"reserve-job %d\r\n" % job_id)
    holder.close()
    assert other.ask(b"reserve-with-timeout 1\r\n") == reserved(job_id)


def test_a_body_that_is_never_finished_is_no_job(connect: Connect) -> None:
    gone, other = connect(), connect()
    gone.send(b"put 0 0 60 10\r\nhalf")
    gone.close()
    eventually(lambda: other.statistics()["current-connections"] == "1")
    assert other.ask(b"peek-ready\r\n") == NOT_FOUND


# ---------------------------------------------------------------- the life of tubes


def test_a_tube_lives_while_it_is_used(connect: Connect) -> None:
    user, other = connect(), connect()
    user.use(b"t")
    assert other.tube(b"t")["current-using"] == "1"
    user.use(b"default")
    assert other.ask(b"stats-tube t\r\n") == NOT_FOUND
    assert elements(other.ask(b"list-tubes\r\n")) == ["default"]


def test_a_tube_lives_while_it_is_watched(connect: Connect) -> None:
    watcher, other = connect(), connect()
    watcher.ask(b"watch t\r\n")
    assert other.tube(b"t")["current-watching"] == "1"
    watcher.ask(b"ignore t\r\n")
    assert other.ask(b"stats-tube t\r\n") == NOT_FOUND


@pytest.mark.parametrize("state", STATES)
def test_a_tube_lives_while_it_holds_a_job_that_is(connect: Connect, state: str) -> None:
    with connect() as producer:
        producer.use(b"t")
        job_id = put_in_state(producer, state)
    other = connect()
    eventually(lambda: other.tube(b"t")["current-using"] == "0")
    assert elements(other.ask(b"list-tubes\r\n")) == ["default", "t"]
    assert other.ask(b"delete %d\r\n" % job_id) == b"DELETED\r\n"
    assert elements(other.ask(b"list-tubes\r\n")) == ["default"]


def test_a_tube_lives_while_a_job_of_it_is_reserved(connect: Connect) -> None:
    producer, holder = connect(), connect()
    producer.use(b"t")
    job_id = producer.put()
    holder.ask(b"reserve-job %d\r\n" % job_id)
    producer.use(b"default")
    assert producer.tube(b"t")["current-jobs-reserved"] == "1"
    holder.ask(b"delete %d\r\n" % job_id)
    assert producer.ask(b"stats-tube t\r\n") == NOT_FOUND


def test_the_default_tube_lives_for_ever(connection: BeanstalkConnection) -> None:
    connection.ask_all(b"use t\r\nwatch t\r\nignore default\r\n", 3)
    assert connection.tube(b"default")["current-using"] == "0"


def test_a_pause_ends_with_its_tube(connect: Connect) -> None:
    watcher, other = connect(), connect()
    watcher.ask_all(b"watch t\r\npause-tube t 100\r\nignore t\r\n", 3)
    assert other.ask(b"stats-tube t\r\n") == NOT_FOUND
    other.ask_all(b"watch t\r\nuse t\r\n", 2)
    job_id = other.put()
    assert other.ask(b"reserve-with-timeout 0\r\n") == reserved(job_id)


def test_the_counts_of_a_tube_end_with_it(connection: BeanstalkConnection) -> None:
    connection.use(b"t")
    connection.ask(b"delete %d\r\n" % connection.put())
    assert (connection.tube(b"t")["total-jobs"], connection.tube(b"t")["cmd-delete"]) == ("1", "1")
    connection.ask_all(b"use default\r\nuse t\r\n", 2)
    assert (connection.tube(b"t")["total-jobs"], connection.tube(b"t")["cmd-delete"]) == ("0", "0")


def test_many_tubes_are_listed_and_forgotten(connect: Connect) -> None:
    other = connect()
    with ExitStack() as open_connections:
        for number in range(50):
            open_connections.enter_context(connect()).use(b"tube-%d" % number)
        names = ["default", *(f"tube-{number}" for number in range(50))]
        assert elements(other.ask(b"list-tubes\r\n")) == names
    eventually(lambda: elements(other.ask(b"list-tubes\r\n")) == ["default"])
