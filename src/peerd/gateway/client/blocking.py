"""The client whose calls block."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from types import TracebackType
from typing import Final, Self, Unpack

from peerd.gateway.client.exchange import (
    AddedJob,
    Duration,
    Exchange,
    GatewayUnreachable,
    JobClientError,
    JobConnectionLost,
    JobOptions,
    JobOrId,
    Reply,
    ReplyTimeout,
    TakenJob,
    add_job_message,
    describe,
    fail_message,
    get_job_message,
    notify_message,
    release_message,
    touch_message,
)
from peerd.gateway.json.messages import Message, ShowToken, command_of

DEFAULT_PORT: Final = 11300
DEFAULT_HOST: Final = "127.0.0.1"
DEFAULT_TIMEOUT: Final = 10.0
"""Seconds for a connection, and for each reply."""
RECEIVED_AT_ONCE: Final = 256 * 1024


def connect(
    port: int = DEFAULT_PORT,
    host: str = DEFAULT_HOST,
    *,
    unix: str | None = None,
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> JobClient:
    """Connect to a gateway.

    Args:
        port: its TCP port.
        host: its host.
        unix: the path of its Unix socket, instead of both.
        token: shown first, where the gateway requires one.
        tls: for TLS; the certificate must be one for ``host``.
        timeout: seconds for the connection, and for each reply beyond the time that get_job waits.

    Raises:
        GatewayUnreachable: no program accepts connections there, or TLS failed.
        MessageRefused: the token is wrong.
    """
    address = unix or f"{host}:{port}"
    try:
        connection = _connect_tcp(port, host, timeout) if unix is None else _connect_unix(unix, timeout)
        if tls is not None:
            connection = _secured(connection, tls, host)
    except OSError as error:
        raise GatewayUnreachable(address, describe(error)) from error
    client = JobClient(connection, address, timeout)
    if token is not None:
        try:
            client.show_token(token)
        except BaseException:
            client.close()
            raise
    return client


def _connect_tcp(port: int, host: str, timeout: float) -> socket.socket:
    connection = socket.create_connection((host, port), timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _connect_unix(path: str, timeout: float) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.settimeout(timeout)
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _secured(connection: socket.socket, tls: ssl.SSLContext, host: str) -> ssl.SSLSocket:
    try:
        return tls.wrap_socket(connection, server_hostname=host)
    except BaseException:
        connection.close()
        raise


class JobClient:
    """A connection to a gateway, which `connect` makes; close it, or use it in a ``with`` statement.

    It is for one thread at a time. A call that ends before its reply has come, be it by a timeout or by
    KeyboardInterrupt, closes the connection, and with it the jobs that it holds go back to their queues.
    """

    def __init__(self, connection: socket.socket, address: str, timeout: float) -> None:
        self._socket = connection
        self._address = address
        self._timeout = timeout
        self._exchange = Exchange(address)
        self._in_use = threading.Lock()
        self._ended = ""
        """Why the connection has ended; empty while it has not."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; jobs that it holds go back to their queues. It may be called again."""
        self._end("it was closed here")

    # ---------------------------------------------------------------- jobs

    def add_job(self, job: object, **options: Unpack[JobOptions]) -> AddedJob:
        """Put a job into a queue, and wait until it is committed.

        Args:
            job: any JSON value, or what msgspec encodes as one: a date, a UUID, a dataclass.
            options: see `JobOptions`.

        Raises:
            InvalidTask, ValueError: it cannot be sent.
            MessageRefused: the gateway does not take it.
        """
        return self._request(add_job_message(job, options)).added()

    def get_job(self, *queues: str, wait: Duration = 0) -> TakenJob:
        """Take the best job of some queues; of ``default`` where none is named.

        Args:
            queues: their names.
            wait: for a job, if there is none.

        Raises:
            NoWork: there is none.
        """
        message = get_job_message(queues, wait)
        return self._request(message, message.wait or 0.0).taken()

    def notify(self, job: JobOrId = None, *, result: object = None) -> None:
        """Report a job done.

        Args:
            job: the job or its number; it may be left out while the connection holds only one.
            result: any JSON value; the job is then kept as done with it.

        Raises:
            JobNotHeld: this connection does not hold it.
        """
        self._request(notify_message(job, result)).check()

    def touch(self, job: JobOrId = None, progress: float | None = None, note: str | None = None) -> None:
        """Renew the time to run of a job, and show its progress, from 0 to 1, with a note. Raises JobNotHeld."""
        self._request(touch_message(job, progress, note)).check()

    def fail(self, job: JobOrId = None, reason: str = "", *, retry: Duration | None = None) -> None:
        """End an attempt without success.

        Args:
            job: as for `notify`.
            reason: for people.
            retry: until the next attempt; False if there is none, and None for a pause that grows with each failure.

        Raises:
            JobNotHeld: this connection does not hold it.
        """
        self._request(fail_message(job, reason, retry)).check()

    def release(self, job: JobOrId = None, *, delay: Duration = 0) -> None:
        """Give a job back, for others to take now or after a delay. Raises JobNotHeld."""
        self._request(release_message(job, delay)).check()

    def show_token(self, token: str) -> None:
        """Show the token that the gateway requires; `connect` does it. Raises MessageRefused."""
        self._request(ShowToken(token=token)).check()

    # ---------------------------------------------------------------- requests and replies

    def _request(self, message: Message, wait: float = 0.0) -> Reply:
        """Send a message, and wait for its reply."""
        if not self._in_use.acquire(blocking=False):
            raise RuntimeError("another thread uses this client; connect once in each thread")
        try:
            if self._ended:
                raise JobConnectionLost(self._address, self._ended)
            number, data = self._exchange.write(message)
            return self._send_and_receive(number, data, command_of(message), wait)
        finally:
            self._in_use.release()

    def _send_and_receive(self, number: int, data: bytes, cmd: str, wait: float) -> Reply:
        until = time.monotonic() + self._timeout + wait
        try:
            self._socket.settimeout(self._timeout)
            self._socket.sendall(data)
            return self._receive_reply(number, until)
        except JobClientError as error:
            self._end(str(error))
            raise
        except TimeoutError as error:
            self._end(f"no reply to {cmd}")
            raise ReplyTimeout(self._address, cmd, self._timeout + wait) from error
        except OSError as error:
            self._end(describe(error))
            raise JobConnectionLost(self._address, describe(error)) from error
        except BaseException as error:  # the reply would be taken for that to another message
            self._end(f"{cmd} was interrupted: {type(error).__name__}")
            raise

    def _receive_reply(self, number: int, until: float) -> Reply:
        while True:
            self._socket.settimeout(max(until - time.monotonic(), 0.001))
            for reply in self._receive():
                if reply.id == number or reply.id is None:  # an error without an id is about what was sent last
                    return reply

    def _receive(self) -> list[Reply]:
        data = self._socket.recv(RECEIVED_AT_ONCE)
        if not data:
            raise JobConnectionLost(self._address, "the gateway has closed it")
        return self._exchange.read(data)

    def _end(self, reason: str) -> None:
        if not self._ended:
            self._ended = reason
            self._socket.close()
