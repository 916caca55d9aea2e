"""A raw connection to a server that speaks the beanstalkd protocol: bytes out, whole answers in, nothing hidden."""

from __future__ import annotations

import re
import select
import socket
from typing import Final, Self

from peerd.testing import eventually

PATIENCE: Final = 10.0
"""Seconds within which an answer must come that is due at once; no test waits as long if the server is right."""
WITH_BODY: Final = re.compile(rb"(?:OK|(?:RESERVED|FOUND) \d+) (\d+)\r\n")
Address = tuple[str, int] | str
"""A host with its port, or the path of a Unix socket."""


class BeanstalkConnection:
    """One connection."""

    def __init__(self, address: Address) -> None:
        if isinstance(address, str):
            self._socket = socket.socket(socket.AF_UNIX)
            try:
                self._socket.connect(address)
            except OSError:
                self._socket.close()
                raise
        else:
            self._socket = socket.create_connection(address, PATIENCE)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are; in one packet if they are few."""
        self._socket.sendall(data)

    def receive(self, timeout: float = PATIENCE) -> bytes:
        """The next whole answer, with its body.

        Raises:
            TimeoutError: none came in time; the text says what came.
            ConnectionError: the server has closed the connection.
        """
        while (answer := self._next_answer()) is None:
            self._read_more(timeout)
        return answer

    def ask(self, data: bytes, timeout: float = PATIENCE) -> bytes:
        self.send(data)
        return self.receive(timeout)

    def ask_all(self, data: bytes, number: int) -> list[bytes]:
        self.send(data)
        return [self.receive() for _ in range(number)]

    def answer_that_came(self) -> bytes | None:
        """The next whole answer if it has come already.

        Raises:
            ConnectionError: the server has closed the connection.
        """
        while (answer := self._next_answer()) is None and select.select([self._socket], [], [], 0)[0]:
            self._read_more(PATIENCE)
        return answer

    def ends(self, timeout: float = PATIENCE) -> bytes:
        """Wait until the server closes the connection; what it sent before."""
        try:
            while True:
                self._read_more(timeout)
        except ConnectionError:
            return self._received

    def send_end(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()

    def _read_more(self, timeout: float) -> None:
        self._socket.settimeout(timeout)
        try:
            more = self._socket.recv(1 << 20)
        except TimeoutError:
            raise TimeoutError(f"no answer within {timeout:g} s after {self._received!r}") from None
        if not more:
            raise ConnectionResetError(f"the server closed the connection after {self._received!r}")
        self._received += more

    def _next_answer(self) -> bytes | None:
        """Take the first whole answer from what was received."""
        end = self._received.find(b"\r\n") + 2
        if end < 2:
            return None
        if head := WITH_BODY.match(self._received):
            end += int(head[1]) + 2
            if len(self._received) < end:
                return None
        answer, self._received = self._received[:end], self._received[end:]
        return answer

    def put(self, body: bytes = b"x", *, priority: int = 0, delay: int = 0, ttr: int = 60) -> int:
        """Put a job; its id."""
        answer = self.ask(b"put %d %d %d %d\r\n%b\r\n" % (priority, delay, ttr, len(body), body))
        assert answer.startswith(b"INSERTED "), answer
        return int(answer.split()[1])

    def use(self, tube: bytes) -> None:
        assert self.ask(b"use %b\r\n" % tube) == b"USING %b\r\n" % tube

    def watch_only(self, *tubes: bytes) -> None:
        for tube in tubes:
            self.ask(b"watch %b\r\n" % tube)
        assert self.ask(b"ignore default\r\n") == b"WATCHING %d\r\n" % len(tubes)

    def reserve(self) -> int:
        """Reserve a job that is ready; its id."""
        answer = self.ask(b"reserve-with-timeout 0\r\n")
        assert answer.startswith(b"RESERVED "), answer
        return int(answer.split()[1])

    def statistics(self, command: bytes = b"stats") -> dict[str, str]:
        """The members of an answer of `stats`, `stats-tube` or `stats-job`, without quotation marks."""
        answer = self.ask(command + b"\r\n")
        assert answer.startswith(b"OK "), answer
        return members(answer)

    def job(self, job_id: int) -> dict[str, str]:
        return self.statistics(b"stats-job %d" % job_id)

    def tube(self, name: bytes = b"default") -> dict[str, str]:
        return self.statistics(b"stats-tube %b" % name)


def members(answer: bytes) -> dict[str, str]:
    """The members of a YAML mapping as these servers write it."""
    lines = answer.decode().split("\r\n", 1)[1].splitlines()
    return {name: value.strip('"') for name, colon, value in (line.partition(": ") for line in lines) if colon}


def elements(answer: bytes) -> list[str]:
    """The elements of a YAML list as these servers write it."""
    lines = answer.decode().split("\r\n", 1)[1].splitlines()
    return [line.removeprefix("- ").strip('"') for line in lines if line.startswith("- ")]


def reserved(job_id: int, body: bytes = b"x") -> bytes:
    """The answer that gives a job."""
    return b"RESERVED %d %d\r\n%b\r\n" % (job_id, len(body), body)


def found(job_id: int, body: bytes = b"x") -> bytes:
    """The answer that shows a job."""
    return b"FOUND %d %d\r\n%b\r\n" % (job_id, len(body), body)


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
