"""Conformance: rules of several commands: order, waiting, deadlines, and the ends of connections."""

from __future__ import annotations

import time

import pytest

from peerd.gateway import ready_jobs
from peerd.testing import eventually
from tests.gateway.beanstalk_connection import (
    DELETED,
    NOT_FOUND,
    BeanstalkConnection,
    begin_to_wait,
    put_in_state,
    reserved,
)
from tests.gateway.conftest import Connect

DEADLINE_SOON = b"DEADLINE_SOON\r\n"
MARGIN = 1.0
"""Seconds before a deadline at which DEADLINE_SOON is due."""
LATENESS = 5.0
"""Seconds by which a timer may be late here, where other processes use the machine too; a poll comes after ten."""


def test_jobs_come_by_priority_then_by_id_whatever_became_of_them_before(connection: BeanstalkConnection) -> None:
    given = {priority: connection.put(priority=priority) for priority in (5, 1, 1024, 2)}
    released, put_back = connection.put(priority=0), connection.put(priority=0)
    assert [connection.reserve(), connection.reserve()] == [released, put_back]
    kicked = put_in_state(connection, "buried", priority=5)
    undelayed = connection.put(priority=5, delay=1)
    younger = [connection.put(priority=priority) for priority in (1, 5)]
    connection.ask_all(b"release %d 5 0\r\nrelease %d 3 0\r\nkick 1\r\n" % (released, put_back), 3)
    eventually(lambda: connection.job(undelayed)["state"] == "ready")
    order = [given[1], younger[0], given[2], put_back, given[5], released, kicked, undelayed, younger[1], given[1024]]
    assert [connection.reserve() for _ in order] == order


def test_a_job_goes_to_one_who_waits_before_the_next_command_even_after_a_kick(connect: Connect) -> None:
    producer, worker = connect(), connect()
    begin_to_wait(producer, worker)
    producer.send(b"kick 1\r\nput 0 0 60 1\r\na\r\nstats-tube default\r\n")
    assert producer.receive() == b"KICKED 0\r\n"
    assert producer.receive().startswith(b"INSERTED ")
    assert b"current-jobs-reserved: 1\n" in producer.receive()
    assert worker.receive().startswith(b"RESERVED ")


def test_a_large_kick_is_done_in_parts_between_which_others_are_served(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    kicker, other = connect(), connect()
    monkeypatch.setattr(ready_jobs, "KICK_PART", 5)
    for _ in range(12):
        put_in_state(kicker, "buried")
    kicker.ask_all(b"put 0 1000 60 0\r\n\r\n" * 1000, 1000)
    assert kicker.ask_all(b"kick 3\r\nkick 4294967295\r\n", 2) == [b"KICKED 3\r\n", b"KICKED 9\r\n"]
    kicker.send(b"kick 4294967295\r\nstats-tube default\r\n")
    served = 0
    while (answer := kicker.answer_that_came()) is None:
        other.put()
        served += 1
    assert answer == b"KICKED 1000\r\n"
    assert b"current-jobs-delayed: 0\n" in kicker.receive()
    assert served > 5


def test_those_who_wait_longest_are_served_first_and_one_put_wakes_one(connect: Connect) -> None:
    producer, *waiting = (connect() for _ in range(5))
    for number, one in enumerate(waiting, 1):
        begin_to_wait(producer, one, number)
    for place, one in enumerate(waiting):
        job_id = producer.put()
        assert one.receive() == reserved(job_id)
        assert producer.tube()["current-waiting"] == str(3 - place)


def test_a_client_waits_at_all_tubes_that_it_watches_and_at_no_other(connect: Connect) -> None:
    producer, waiting, other = connect(), connect(), connect()
    waiting.watch_only(b"a", b"b")
    other.watch_only(b"other")
    begin_to_wait(producer, other, tube=b"other")
    begin_to_wait(producer, waiting, tube=b"a")
    assert producer.tube(b"b")["current-waiting"] == "1"
    producer.use(b"b")
    job_id = producer.put()
    assert waiting.receive() == reserved(job_id)
    assert producer.tube(b"a")["current-waiting"] == "0"
    assert other.answer_that_came() is None


def test_a_delayed_job_wakes_a_client_when_its_delay_ends(connect: Connect) -> None:
    producer, waiting = connect(), connect()
    begin_to_wait(producer, waiting)
    began = time.monotonic()
    job_id = producer.put(delay=1)
    assert waiting.receive() == reserved(job_id)
    assert 1.0 <= time.monotonic() - began < 1.0 + LATENESS


def test_of_many_clients_one_deletes_or_takes_a_job(connect: Connect) -> None:
    producer, *clients = (connect() for _ in range(21))
    for _ in range(10):
        for command, done in ((b"reserve-job %d\r\n", b"RESERVED"), (b"delete %d\r\n", b"DELETED")):
            job_id = producer.put()
            for client in clients:
                client.send(command % job_id)
            answers = sorted(client.receive().split()[0] for client in clients)
            assert answers == sorted([b"NOT_FOUND"] * 19 + [done])


def test_a_job_whose_ttr_has_ended_goes_to_one_who_waits_and_counts_a_timeout(connect: Connect) -> None:
    slow, waiting = connect(), connect()
    before = int(slow.statistics()["job-timeouts"])
    began = time.monotonic()
    job_id = slow.put(ttr=1, delay=100)
    slow.ask(b"reserve-job %d\r\n" % job_id)
    waiting.send(b"reserve\r\n")
    assert waiting.receive() == reserved(job_id)
    assert 1.0 <= time.monotonic() - began < 1.0 + LATENESS
    assert slow.ask_all(b"delete %d\r\ntouch %d\r\n" % (job_id, job_id), 2) == [NOT_FOUND, NOT_FOUND]
    eventually(lambda: waiting.job(job_id)["state"] == "ready")
    shown = waiting.job(job_id)
    assert {name: shown[name] for name in ("delay", "timeouts", "releases", "reserves")} == {
        "delay": "100", "timeouts": "2", "releases": "0", "reserves": "2",
    }  # fmt: skip
    eventually(lambda: int(slow.statistics()["job-timeouts"]) == before + 2)


def test_one_who_waits_is_told_when_the_last_second_of_a_ttr_begins(connection: BeanstalkConnection) -> None:
    began = time.monotonic()
    connection.put(ttr=2)
    connection.reserve()
    assert connection.ask(b"reserve\r\n") == DEADLINE_SOON
    assert 2.0 - MARGIN <= time.monotonic() - began < 2.0 - MARGIN + LATENESS


def test_a_touched_job_stays_reserved_for_another_ttr(connection: BeanstalkConnection) -> None:
    job_id = connection.put(ttr=4)
    connection.reserve()
    eventually(lambda: int(connection.job(job_id)["time-left"]) < 3)
    assert int(connection.job(job_id)["age"]) >= 1
    touched = time.monotonic()
    assert connection.ask(b"touch %d\r\n" % job_id) == b"TOUCHED\r\n"
    assert connection.ask(b"reserve-with-timeout 9\r\n") == DEADLINE_SOON
    assert time.monotonic() - touched >= 4.0 - MARGIN - 0.05


def test_the_jobs_of_a_connection_that_ends_are_ready_again_and_count_nothing(connect: Connect) -> None:
    other = connect()
    for end in ("close", "quit", "end of input"):
        holder = connect()
        jobs = [holder.put(priority=1), holder.put(priority=2), holder.put(priority=3, delay=100)]
        holder.ask_all(b"".join(b"reserve-job %d\r\n" % job_id for job_id in jobs), 3)
        begin_to_wait(holder, other)
        if end == "close":
            holder.close()
        elif end == "quit":
            holder.send(b"quit\r\n")
        else:
            holder.send_end()
        assert other.receive(LATENESS) in [reserved(job_id) for job_id in jobs]
        for _ in jobs[1:]:
            assert other.ask(b"reserve-with-timeout 5\r\n").startswith(b"RESERVED "), end
        for job_id in jobs:
            shown = other.job(job_id)
            assert (shown["timeouts"], shown["releases"], shown["reserves"]) == ("0", "0", "2"), end
            assert other.ask(b"delete %d\r\n" % job_id) == DELETED
