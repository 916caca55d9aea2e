"""Steps and answers of the tests of commands: a job in a state, a client that waits."""

from __future__ import annotations

from peerd.testing import eventually
from tests.gateway.beanstalk_connection import BeanstalkConnection, reserved

NOT_FOUND = b"NOT_FOUND\r\n"
TIMED_OUT = b"TIMED_OUT\r\n"
DELETED = b"DELETED\r\n"
RESERVE_NOW = b"reserve-with-timeout 0\r\n"
STATES = ("ready", "delayed", "buried")


def put_in_state(connection: BeanstalkConnection, state: str, body: bytes = b"x", priority: int = 0) -> int:
    """A job in the used tube: ready, delayed, buried or reserved."""
    job_id = connection.put(body, priority=priority, delay=100 if state == "delayed" else 0)
    if state in ("buried", "reserved"):
        assert connection.ask(b"reserve-job %d\r\n" % job_id) == reserved(job_id, body)
    if state == "buried":
        assert connection.ask(b"bury %d %d\r\n" % (job_id, priority)) == b"BURIED\r\n"
    return job_id


def begin_to_wait(
    watcher: BeanstalkConnection, waiting: BeanstalkConnection, number: int = 1, tube: bytes = b"default"
) -> None:
    """Reserve on a connection, and return when so many clients wait on the tube."""
    waiting.send(b"reserve\r\n")
    wait_until_waiting(watcher, number, tube)


def wait_until_waiting(watcher: BeanstalkConnection, number: int, tube: bytes = b"default") -> None:
    eventually(lambda: watcher.tube(tube)["current-waiting"] == str(number), every=0.002)
