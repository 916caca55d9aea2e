"""The clients of the JSON protocol: one whose calls block, and one whose calls are awaited."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from contextlib import suppress
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
from peerd.gateway.json.messages import GetJob, Message, ReleaseJob, ShowToken

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
            return self._send_and_receive(number, data, message.cmd, wait)
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


# ---------------------------------------------------------------- awaited calls


async def connect_async(
    port: int = DEFAULT_PORT,
    host: str = DEFAULT_HOST,
    *,
    unix: str | None = None,
    token: str | None = None,
    tls: ssl.SSLContext | None = None,
    timeout: float = DEFAULT_TIMEOUT,  # noqa: ASYNC109 - it is kept for all calls
) -> AsyncJobClient:
    """Connect to a gateway; see `connect`, whose arguments and errors are the same.

    ``async with await connect_async() as client:`` closes it at the end.
    """
    address = unix or f"{host}:{port}"
    try:
        async with asyncio.timeout(timeout):
            if unix is None:
                reader, writer = await asyncio.open_connection(host, port, ssl=tls)
            else:
                hostname = None if tls is None else host
                reader, writer = await asyncio.open_unix_connection(unix, ssl=tls, server_hostname=hostname)
    except OSError as error:
        raise GatewayUnreachable(address, describe(error)) from error
    client = AsyncJobClient(reader, writer, address, timeout)
    if token is not None:
        try:
            await client.show_token(token)
        except BaseException:
            await client.close()
            raise
    return client


class AsyncJobClient:
    """A connection to a gateway, which `connect_async` makes.

    Many tasks of one event loop may use it at once: their messages are sent without waiting for each other, but
    only one get_job at a time is sent. A call that is cancelled leaves the connection as it is; a job that comes
    for it nevertheless is released.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str, timeout: float
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._address = address
        self._timeout = timeout
        self._exchange = Exchange(address)
        self._loop = asyncio.get_running_loop()
        self._replies: dict[int | str, asyncio.Future[Reply]] = {}
        self._get_job = asyncio.Lock()
        self._cancelled_until = 0.0
        """When the gateway has answered a get_job that was cancelled here, at the latest."""
        self._ended = ""
        self._receiver = self._loop.create_task(self._receive(), name="peerd job client")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the connection; jobs that it holds go back to their queues. It may be called again."""
        self._end("it was closed here")
        self._receiver.cancel()
        await asyncio.wait([self._receiver])
        with suppress(OSError):
            await self._writer.wait_closed()

    # ---------------------------------------------------------------- jobs

    async def add_job(self, job: object, **options: Unpack[JobOptions]) -> AddedJob:
        """Put a job into a queue, and wait until it is committed; see `JobClient.add_job`."""
        return (await self._request(add_job_message(job, options))).added()

    async def get_job(self, *queues: str, wait: Duration = 0) -> TakenJob:
        """Take the best job of some queues; see `JobClient.get_job`."""
        message = get_job_message(queues, wait)
        async with self._get_job:
            return (await self._request(message, message.wait or 0.0)).taken()

    async def notify(self, job: JobOrId = None, *, result: object = None) -> None:
        """Report a job done; see `JobClient.notify`."""
        (await self._request(notify_message(job, result))).check()

    async def touch(self, job: JobOrId = None, progress: float | None = None, note: str | None = None) -> None:
        """Renew the time to run of a job, and show its progress; see `JobClient.touch`."""
        (await self._request(touch_message(job, progress, note))).check()

    async def fail(self, job: JobOrId = None, reason: str = "", *, retry: Duration | None = None) -> None:
        """End an attempt without success; see `JobClient.fail`."""
        (await self._request(fail_message(job, reason, retry))).check()

    async def release(self, job: JobOrId = None, *, delay: Duration = 0) -> None:
        """Give a job back; see `JobClient.release`."""
        (await self._request(release_message(job, delay))).check()

    async def show_token(self, token: str) -> None:
        """Show the token that the gateway requires; `connect_async` does it."""
        (await self._request(ShowToken(token=token))).check()

    # ---------------------------------------------------------------- requests and replies

    async def _request(self, message: Message, wait: float = 0.0) -> Reply:
        """Send a message, and wait for its reply."""
        if self._ended:
            raise JobConnectionLost(self._address, self._ended)
        number, data = self._exchange.write(message)
        reply: asyncio.Future[Reply] = self._loop.create_future()
        self._replies[number] = reply
        now = self._loop.time()
        begins = max(now, self._cancelled_until) if isinstance(message, GetJob) else now
        until = begins + wait + self._timeout
        try:
            async with asyncio.timeout_at(until):
                self._writer.write(data)
                await self._writer.drain()
                return await reply
        except JobClientError:
            raise
        except TimeoutError as error:
            self._end(f"no reply to {message.cmd}")
            raise ReplyTimeout(self._address, message.cmd, until - now) from error
        except OSError as error:
            self._end(describe(error))
            raise JobConnectionLost(self._address, describe(error)) from error
        except asyncio.CancelledError:
            self._cancelled_until = max(self._cancelled_until, begins + wait)
            if reply.done() and not reply.cancelled() and reply.exception() is None:
                self._release_unclaimed(reply.result())  # it came in the moment of the cancellation
            raise
        finally:
            del self._replies[number]
            if reply.done() and not reply.cancelled():
                reply.exception()  # it is not reported as never retrieved

    async def _receive(self) -> None:
        reason = "the client could not read on"
        try:
            while data := await self._reader.read(RECEIVED_AT_ONCE):
                for reply in self._exchange.read(data):
                    self._deliver(reply)
            reason = "the gateway has closed it"
        except JobClientError as error:
            reason = str(error)
        except OSError as error:
            reason = describe(error)
        finally:
            self._end(reason)

    def _deliver(self, reply: Reply) -> None:
        future = None if reply.id is None else self._replies.get(reply.id)
        if future is not None and not future.done():
            future.set_result(reply)
        elif reply.id is None:
            reply.check()  # an error about no message in particular: the connection ends
        else:
            self._release_unclaimed(reply)

    def _release_unclaimed(self, reply: Reply) -> None:
        """Release the job of a get_job that was cancelled."""
        if reply.queue is not None and not self._ended:
            self._writer.write(self._exchange.write(ReleaseJob(job_id=reply.job_id))[1])

    def _end(self, reason: str) -> None:
        """Close the connection, and let the calls that wait for replies fail."""
        if self._ended:
            return
        self._ended = reason
        self._writer.close()
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(JobConnectionLost(self._address, reason))
