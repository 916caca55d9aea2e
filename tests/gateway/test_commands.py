"""Conformance: what each command does and answers."""

from __future__ import annotations

import pytest

from peerd.testing import eventually
from tests.gateway.beanstalk_connection import BeanstalkConnection, elements, found, reserved
from tests.gateway.conftest import Connect

NOT_FOUND = b"NOT_FOUND\r\n"
TIMED_OUT = b"TIMED_OUT\r\n"
DELETED = b"DELETED\r\n"
STATES = ("ready", "delayed", "buried")


def put_in_state(connection: BeanstalkConnection, state: str, body: bytes = b"x", priority: int = 0) -> int:
    """A job in the used tube, which this connection must watch and which must be empty if the job is to be buried."""
    job_id = connection.put(body, priority=priority, delay=100 if state == "delayed" else 0)
    if state == "buried":
        assert connection.ask(b"reserve-job %d\r\n" % job_id) == reserved(job_id, body)
        assert connection.ask(b"bury %d %d\r\n" % (job_id, priority)) == b"BURIED\r\n"
    return job_id


def wait_until_waiting(watcher: BeanstalkConnection, number: int, tube: bytes = b"default") -> None:
    eventually(lambda: watcher.tube(tube)["current-waiting"] == str(number), every=0.002)


# ---------------------------------------------------------------- put, use


def test_put_answers_with_ids_that_grow(connect: Connect) -> None:
    one, other = connect(), connect()
    given = [one.put(), other.put(), one.put(), other.put()]
    assert given == sorted(set(given))


def test_put_uses_default_until_another_tube_is_used(connection: BeanstalkConnection) -> None:
    first = connection.put()
    assert connection.ask(b"use other\r\n") == b"USING other\r\n"
    second = connection.put()
    assert [connection.job(first)["tube"], connection.job(second)["tube"]] == ["default", "other"]


def test_an_id_is_never_given_twice(connection: BeanstalkConnection) -> None:
    first = connection.put()
    assert connection.ask(b"delete %d\r\n" % first) == DELETED
    assert connection.put() > first


def test_a_job_that_is_put_with_a_delay_is_delayed(connection: BeanstalkConnection) -> None:
    job_id = connection.put(delay=100)
    assert connection.job(job_id)["state"] == "delayed"
    assert connection.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT


def test_use_does_not_watch(connection: BeanstalkConnection) -> None:
    connection.use(b"other")
    connection.put()
    assert connection.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT


# ---------------------------------------------------------------- reserve


def test_reserve_waits_until_a_job_is_put(connect: Connect) -> None:
    waiting, other = connect(), connect()
    waiting.send(b"reserve\r\n")
    wait_until_waiting(other, 1)
    assert waiting.answer_that_came() is None
    job_id = other.put(b"at last")
    assert waiting.receive() == reserved(job_id, b"at last")


def test_reserve_with_timeout_0_answers_at_once(connection: BeanstalkConnection) -> None:
    assert connection.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT
    job_id = connection.put()
    assert connection.ask(b"reserve-with-timeout 0\r\n") == reserved(job_id)


def test_reserve_with_timeout_gives_a_job_that_comes_in_time(connect: Connect) -> None:
    waiting, other = connect(), connect()
    waiting.send(b"reserve-with-timeout 100\r\n")
    wait_until_waiting(other, 1)
    job_id = other.put()
    assert waiting.receive() == reserved(job_id)


def test_reserve_with_timeout_1_answers_after_a_second(connect: Connect) -> None:
    waiting, other = connect(), connect()
    waiting.send(b"reserve-with-timeout 1\r\n")
    wait_until_waiting(other, 1)
    assert waiting.answer_that_came() is None
    assert waiting.receive() == TIMED_OUT
    assert other.tube()["current-waiting"] == "0"


def test_a_reserved_job_is_given_to_nobody_else(connect: Connect) -> None:
    holder, other = connect(), connect()
    holder.put()
    holder.reserve()
    assert other.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT


def test_a_client_that_ends_its_side_while_it_waits_gets_timed_out(connect: Connect) -> None:
    waiting, other = connect(), connect()
    waiting.send(b"reserve\r\n")
    wait_until_waiting(other, 1)
    waiting.send_end()
    assert waiting.receive() == TIMED_OUT


def test_a_client_that_has_left_gets_no_job(connect: Connect) -> None:
    gone, other = connect(), connect()
    gone.send(b"reserve\r\n")
    wait_until_waiting(other, 1)
    gone.close()
    wait_until_waiting(other, 0)
    job_id = other.put()
    assert other.reserve() == job_id


# ---------------------------------------------------------------- reserve-job


@pytest.mark.parametrize("state", STATES)
def test_reserve_job_takes_a_job_that_is(connection: BeanstalkConnection, state: str) -> None:
    job_id = put_in_state(connection, state, b"body")
    assert connection.ask(b"reserve-job %d\r\n" % job_id) == reserved(job_id, b"body")
    assert connection.job(job_id)["state"] == "reserved"


def test_reserve_job_does_not_take_a_reserved_job_not_even_ones_own(connect: Connect) -> None:
    holder, other = connect(), connect()
    job_id = holder.put()
    holder.reserve()
    command = b"reserve-job %d\r\n" % job_id
    assert [holder.ask(command), other.ask(command)] == [NOT_FOUND, NOT_FOUND]


def test_reserve_job_ignores_the_watch_list_and_the_pause(connect: Connect) -> None:
    producer, taker = connect(), connect()
    producer.use(b"elsewhere")
    job_id = producer.put()
    assert producer.ask(b"pause-tube elsewhere 100\r\n") == b"PAUSED\r\n"
    assert taker.ask(b"reserve-job %d\r\n" % job_id) == reserved(job_id)


# ---------------------------------------------------------------- delete


@pytest.mark.parametrize("state", STATES)
def test_anybody_deletes_a_job_that_is(connect: Connect, state: str) -> None:
    owner, other = connect(), connect()
    job_id = put_in_state(owner, state)
    assert other.ask(b"delete %d\r\n" % job_id) == DELETED
    assert owner.ask(b"peek %d\r\n" % job_id) == NOT_FOUND


def test_the_holder_deletes_a_reserved_job_and_nobody_else(connect: Connect) -> None:
    holder, other = connect(), connect()
    job_id = holder.put()
    holder.reserve()
    assert other.ask(b"delete %d\r\n" % job_id) == NOT_FOUND
    assert holder.ask(b"delete %d\r\n" % job_id) == DELETED
    assert holder.ask(b"delete %d\r\n" % job_id) == NOT_FOUND


# ---------------------------------------------------------------- release, bury, touch


def test_release_makes_a_job_ready_with_another_priority(connection: BeanstalkConnection) -> None:
    job_id = connection.put(priority=5)
    connection.reserve()
    assert connection.ask(b"release %d 7 0\r\n" % job_id) == b"RELEASED\r\n"
    shown = connection.job(job_id)
    assert (shown["state"], shown["pri"], shown["delay"], shown["releases"]) == ("ready", "7", "0", "1")


def test_release_with_a_delay_makes_a_job_delayed(connection: BeanstalkConnection) -> None:
    job_id = connection.put()
    connection.reserve()
    assert connection.ask(b"release %d 0 100\r\n" % job_id) == b"RELEASED\r\n"
    shown = connection.job(job_id)
    assert (shown["state"], shown["delay"]) == ("delayed", "100")
    assert connection.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT


def test_release_wakes_a_client_that_waits(connect: Connect) -> None:
    holder, waiting = connect(), connect()
    job_id = holder.put()
    holder.reserve()
    waiting.send(b"reserve\r\n")
    wait_until_waiting(holder, 1)
    assert holder.ask(b"release %d 0 0\r\n" % job_id) == b"RELEASED\r\n"
    assert waiting.receive() == reserved(job_id)


def test_bury_puts_a_reserved_job_aside_with_another_priority(connection: BeanstalkConnection) -> None:
    job_id = connection.put(priority=5)
    connection.reserve()
    assert connection.ask(b"bury %d 9\r\n" % job_id) == b"BURIED\r\n"
    shown = connection.job(job_id)
    assert (shown["state"], shown["pri"], shown["buries"]) == ("buried", "9", "1")
    assert connection.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT


def test_touch_gives_the_whole_ttr_again(connection: BeanstalkConnection) -> None:
    job_id = connection.put(ttr=100)
    connection.reserve()
    assert connection.ask(b"touch %d\r\n" % job_id) == b"TOUCHED\r\n"
    assert int(connection.job(job_id)["time-left"]) in (99, 100)


OF_THE_HOLDER = [b"release %d 0 0\r\n", b"bury %d 0\r\n", b"touch %d\r\n"]


@pytest.mark.parametrize("command", OF_THE_HOLDER, ids=["release", "bury", "touch"])
@pytest.mark.parametrize("state", STATES)
def test_what_only_a_holder_may_do_is_not_found_for_a_job_that_is(
    connection: BeanstalkConnection, state: str, command: bytes
) -> None:
    job_id = put_in_state(connection, state)
    assert connection.ask(command % job_id) == NOT_FOUND
    assert connection.job(job_id)["state"] == state


@pytest.mark.parametrize("command", OF_THE_HOLDER, ids=["release", "bury", "touch"])
def test_what_only_a_holder_may_do_is_not_found_for_others(connect: Connect, command: bytes) -> None:
    holder, other = connect(), connect()
    job_id = holder.put()
    holder.reserve()
    assert other.ask(command % job_id) == NOT_FOUND
    assert holder.job(job_id)["state"] == "reserved"


# ---------------------------------------------------------------- watch, ignore


def test_watch_counts_the_watched_tubes(connection: BeanstalkConnection) -> None:
    assert connection.ask(b"watch a\r\n") == b"WATCHING 2\r\n"
    assert connection.ask(b"watch b\r\n") == b"WATCHING 3\r\n"


def test_to_watch_a_tube_twice_changes_nothing(connection: BeanstalkConnection) -> None:
    assert connection.ask_all(b"watch a\r\nwatch a\r\n", 2) == [b"WATCHING 2\r\n", b"WATCHING 2\r\n"]
    assert connection.ask(b"ignore a\r\n") == b"WATCHING 1\r\n"


def test_the_last_watched_tube_is_not_ignored(connection: BeanstalkConnection) -> None:
    assert connection.ask(b"ignore default\r\n") == b"NOT_IGNORED\r\n"
    assert connection.ask(b"watch a\r\n") == b"WATCHING 2\r\n"
    assert connection.ask(b"ignore default\r\n") == b"WATCHING 1\r\n"
    assert connection.ask(b"ignore a\r\n") == b"NOT_IGNORED\r\n"


def test_to_ignore_a_tube_that_is_not_watched_changes_nothing(connection: BeanstalkConnection) -> None:
    connection.ask(b"watch a\r\n")
    assert connection.ask(b"ignore b\r\n") == b"WATCHING 2\r\n"


def test_the_last_tube_stays_even_if_another_is_to_be_ignored(connection: BeanstalkConnection) -> None:
    answer = connection.ask(b"ignore never-watched\r\n")
    assert answer in (b"WATCHING 1\r\n", b"NOT_IGNORED\r\n")
    assert elements(connection.ask(b"list-tubes-watched\r\n")) == ["default"]


def test_an_ignored_tube_gives_no_job(connection: BeanstalkConnection) -> None:
    connection.put()
    connection.ask_all(b"watch a\r\nignore default\r\n", 2)
    assert connection.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT


# ---------------------------------------------------------------- peek


@pytest.mark.parametrize("state", STATES)
def test_peek_shows_a_job_that_is(connect: Connect, state: str) -> None:
    owner, other = connect(), connect()
    job_id = put_in_state(owner, state, b"look")
    assert other.ask(b"peek %d\r\n" % job_id) == found(job_id, b"look")


def test_peek_shows_a_job_that_another_has_reserved(connect: Connect) -> None:
    owner, other = connect(), connect()
    job_id = owner.put(b"look")
    owner.reserve()
    assert other.ask(b"peek %d\r\n" % job_id) == found(job_id, b"look")


def test_peek_of_a_state_looks_at_the_used_tube(connection: BeanstalkConnection) -> None:
    for state in STATES:
        put_in_state(connection, state)
    connection.use(b"other")
    for state in STATES:
        assert connection.ask(b"peek-%b\r\n" % state.encode()) == NOT_FOUND


def test_peek_ready_shows_the_lowest_priority_then_the_oldest(connection: BeanstalkConnection) -> None:
    connection.put(b"late", priority=2)
    first = connection.put(b"first", priority=1)
    connection.put(b"second", priority=1)
    assert connection.ask(b"peek-ready\r\n") == found(first, b"first")


def test_peek_delayed_shows_the_job_that_is_due_first(connection: BeanstalkConnection) -> None:
    connection.put(b"later", delay=200)
    soonest = connection.put(b"soonest", delay=100)
    connection.put(b"latest", delay=300)
    assert connection.ask(b"peek-delayed\r\n") == found(soonest, b"soonest")


def test_peek_buried_shows_the_job_that_was_buried_first(connection: BeanstalkConnection) -> None:
    low, high = connection.put(priority=9), connection.put(priority=1)
    for job_id, priority in ((low, 9), (high, 1)):
        connection.ask(b"reserve-job %d\r\n" % job_id)
        connection.ask(b"bury %d %d\r\n" % (job_id, priority))
    assert connection.ask(b"peek-buried\r\n") == found(low)


# ---------------------------------------------------------------- kick, kick-job


def test_kick_takes_buried_jobs_in_the_order_of_their_burial(connection: BeanstalkConnection) -> None:
    jobs = [connection.put(priority=9 - number) for number in range(3)]
    for job_id in reversed(jobs):
        connection.ask(b"reserve-job %d\r\n" % job_id)
        connection.ask(b"bury %d 0\r\n" % job_id)
    assert connection.ask(b"kick 2\r\n") == b"KICKED 2\r\n"
    assert [connection.job(job_id)["state"] for job_id in jobs] == ["buried", "ready", "ready"]


def test_kick_leaves_delayed_jobs_alone_while_there_are_buried_ones(connection: BeanstalkConnection) -> None:
    delayed, buried = connection.put(delay=100), put_in_state(connection, "buried")
    assert connection.ask(b"kick 10\r\n") == b"KICKED 1\r\n"
    assert [connection.job(delayed)["state"], connection.job(buried)["state"]] == ["delayed", "ready"]


def test_kick_takes_delayed_jobs_that_are_due_first(connection: BeanstalkConnection) -> None:
    jobs = {delay: connection.put(delay=delay) for delay in (300, 100, 200)}
    assert connection.ask(b"kick 2\r\n") == b"KICKED 2\r\n"
    assert {delay: connection.job(job_id)["state"] for delay, job_id in jobs.items()} == {
        100: "ready",
        200: "ready",
        300: "delayed",
    }


def test_kick_looks_at_the_used_tube_alone(connection: BeanstalkConnection) -> None:
    put_in_state(connection, "buried")
    connection.use(b"other")
    assert connection.ask(b"kick 10\r\n") == b"KICKED 0\r\n"


def test_a_kicked_job_keeps_its_priority_and_its_delay_and_counts_the_kick(connection: BeanstalkConnection) -> None:
    job_id = connection.put(priority=5, delay=100)
    assert connection.ask(b"kick 1\r\n") == b"KICKED 1\r\n"
    shown = connection.job(job_id)
    assert (shown["state"], shown["pri"], shown["delay"], shown["kicks"]) == ("ready", "5", "100", "1")


def test_kick_wakes_a_client_that_waits(connect: Connect) -> None:
    kicker, waiting = connect(), connect()
    job_id = kicker.put(delay=100)
    waiting.send(b"reserve\r\n")
    wait_until_waiting(kicker, 1)
    assert kicker.ask(b"kick 1\r\n") == b"KICKED 1\r\n"
    assert waiting.receive() == reserved(job_id)


@pytest.mark.parametrize("state", ["delayed", "buried"])
def test_kick_job_makes_a_job_ready_that_is(connect: Connect, state: str) -> None:
    owner, other = connect(), connect()
    job_id = put_in_state(owner, state)
    other.use(b"elsewhere")
    assert other.ask(b"kick-job %d\r\n" % job_id) == b"KICKED\r\n"
    shown = owner.job(job_id)
    assert (shown["state"], shown["kicks"]) == ("ready", "1")


def test_kick_job_does_not_find_a_job_that_is_ready_or_reserved(connection: BeanstalkConnection) -> None:
    job_id = connection.put()
    assert connection.ask(b"kick-job %d\r\n" % job_id) == NOT_FOUND
    connection.reserve()
    assert connection.ask(b"kick-job %d\r\n" % job_id) == NOT_FOUND


# ---------------------------------------------------------------- pause-tube


def test_a_paused_tube_gives_no_job_until_its_pause_ends(connection: BeanstalkConnection) -> None:
    job_id = connection.put()
    assert connection.ask(b"pause-tube default 1\r\n") == b"PAUSED\r\n"
    assert connection.ask(b"reserve-with-timeout 0\r\n") == TIMED_OUT
    assert connection.ask(b"reserve-with-timeout 5\r\n") == reserved(job_id)


def test_a_pause_of_0_ends_the_pause_and_wakes_those_who_wait(connect: Connect) -> None:
    owner, waiting = connect(), connect()
    owner.ask(b"pause-tube default 100\r\n")
    job_id = owner.put()
    waiting.send(b"reserve\r\n")
    wait_until_waiting(owner, 1)
    assert waiting.answer_that_came() is None
    assert owner.ask(b"pause-tube default 0\r\n") == b"PAUSED\r\n"
    assert waiting.receive() == reserved(job_id)


def test_a_job_that_is_put_into_a_paused_tube_wakes_nobody(connect: Connect) -> None:
    owner, waiting = connect(), connect()
    owner.ask(b"pause-tube default 1\r\n")
    waiting.send(b"reserve\r\n")
    wait_until_waiting(owner, 1)
    job_id = owner.put()
    assert owner.tube()["current-jobs-ready"] == "1"
    assert waiting.answer_that_came() is None
    assert waiting.receive() == reserved(job_id)


def test_the_other_tubes_of_a_client_give_jobs_while_one_is_paused(connection: BeanstalkConnection) -> None:
    connection.put(b"paused")
    connection.ask_all(b"pause-tube default 100\r\nwatch other\r\nuse other\r\n", 3)
    job_id = connection.put(b"not paused", priority=100)
    assert connection.reserve() == job_id


def test_the_pause_of_a_tube_that_does_not_exist_is_not_found(connection: BeanstalkConnection) -> None:
    assert connection.ask(b"pause-tube nowhere 1\r\n") == NOT_FOUND


# ---------------------------------------------------------------- lists


def test_list_tubes_names_every_tube_in_order_of_creation(connection: BeanstalkConnection) -> None:
    connection.ask_all(b"watch w\r\nuse u\r\n", 2)
    assert elements(connection.ask(b"list-tubes\r\n")) == ["default", "w", "u"]


def test_list_tubes_is_a_list_of_yaml(connection: BeanstalkConnection) -> None:
    connection.ask_all(b"watch w\r\nuse u\r\n", 2)
    assert connection.ask(b"list-tubes\r\n") == b"OK 22\r\n---\n- default\n- w\n- u\n\r\n"


def test_list_tubes_watched_is_the_watch_list_in_order(connection: BeanstalkConnection) -> None:
    connection.ask_all(b"watch b\r\nwatch a\r\n", 2)
    assert connection.ask(b"list-tubes-watched\r\n") == b"OK 22\r\n---\n- default\n- b\n- a\n\r\n"


def test_list_tube_used_is_the_used_tube(connection: BeanstalkConnection) -> None:
    assert connection.ask(b"list-tube-used\r\n") == b"USING default\r\n"
    connection.use(b"u")
    assert connection.ask(b"list-tube-used\r\n") == b"USING u\r\n"
