"""Conformance: `watch`, `ignore`, `pause-tube`, and the lists of tubes."""

from __future__ import annotations

from tests.gateway.beanstalk_connection import BeanstalkConnection, elements, reserved
from tests.gateway.conftest import Connect
from tests.gateway.job_steps import NOT_FOUND, TIMED_OUT, wait_until_waiting

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
