from __future__ import annotations

import asyncio
import math
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import pytest

from peerd.domain.errors import InvalidTask
from peerd.gateway import client as clients
from peerd.gateway.client import AddedJob, JobClientError, JobConnectionLost, MessageRefused, connect, connect_async
from peerd.gateway.json import messages, replies
from peerd.gateway.json.messages import AddJob, ErrorCode, GetJob, RefusedMessage
from peerd.gateway.json.parser import MessageParser
from peerd.testing import eventually_async

Answer = Callable[[Any], bytes | None]
"""What is sent for a message; None closes the connection."""


class ScriptedGateway:
    """Answers the messages of one client after another as a test says."""

    def __init__(self, answer: Answer) -> None:
        self.messages: list[Any] = []
        self.ended = threading.Event()
        """Whether a client has closed its connection."""
        self._answer = answer
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listening.getsockname()[1]

    def serve(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                connection, _ = self.listening.accept()
                with connection, suppress(ConnectionError):
                    self._converse(connection)
                self.ended.set()

    def _converse(self, connection: socket.socket) -> None:
        parser = MessageParser(65535)
        while data := connection.recv(65536):
            parser.feed(data)
            for message in parser.messages():
                self.messages.append(message)
                reply = self._answer(message)
                if reply is None:
                    return
                connection.sendall(reply)


@contextmanager
def scripted_gateway(answer: Answer) -> Iterator[ScriptedGateway]:
    gateway = ScriptedGateway(answer)
    with gateway.listening, ThreadPoolExecutor(1) as pool:
        pool.submit(gateway.serve)
        yield gateway
        gateway.listening.shutdown(socket.SHUT_RDWR)


class AwaitedClient:
    """The awaited client, whose calls a test can make as those of the blocking one."""

    def __init__(self, client: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._client, self._loop = client, loop

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._client, name)
        return lambda *arguments, **options: self._loop.run_until_complete(call(*arguments, **options))


@contextmanager
def connect_awaited(port: int, **options: Any) -> Iterator[Any]:
    with closing(asyncio.new_event_loop()) as loop:
        client = AwaitedClient(loop.run_until_complete(connect_async(port, **options)), loop)
        with closing(client):
            yield client


@pytest.fixture(params=[connect, connect_awaited], ids=["blocking", "awaited"])
def open_client(request: pytest.FixtureRequest) -> Any:
    return request.param


OpenClient = Callable[..., AbstractContextManager[Any]]


def as_usual(message: Any) -> bytes:
    """The replies of a gateway that has the job 17 for everybody."""
    if isinstance(message, AddJob):
        return replies.job_added(message.id, 17, created=message.unique is None)
    if isinstance(message, GetJob):
        return replies.job_taken(message.id, 17, message.wanted[0], b'{"a":[1]}')
    return replies.confirmation(message.id)


def test_every_option_is_sent(open_client: OpenClient) -> None:
    @dataclass
    class Page:
        url: str

    with scripted_gateway(as_usual) as gateway, open_client(gateway.port, token="hidden") as client:
        added = client.add_job(
            Page("a"), queue="q", priority=5, delay="1m", ttr=1.5, unique="k", unique_for="1h", max_attempts=3, name="n"
        )
        assert (added, client.add_job({"a": [1]})) == (AddedJob(17, created=False), AddedJob(17, created=True))
        client.add_job(1, unique_for="forever", unique="k", ttr=None)
        assert client.get_job("a", "b", wait="1.5s").value == {"a": [1]}
        client.notify(17, result={"n": 1})
        client.touch(17, 0.5, "half")
        client.fail(17, "no route", retry="10s")
        client.fail(retry=False)
        client.fail()
        client.release(delay=0.5)
        auth, first, _, second, get, notify, touch, *failed, release = gateway.messages
        assert auth == messages.ShowToken(id=1, token="hidden")
        assert bytes(first.job) == b'{"url":"a"}'
        assert (first.queue, first.priority, first.delay, first.ttr) == ("q", 5, 60, 2)
        assert (first.max_attempts, first.name, first.unique, first.unique_for) == (3, "n", "k", 3600)
        assert (second.unique_for, second.ttr) == ("forever", None)
        assert get == GetJob(id=5, queues=("a", "b"), wait=1.5)
        assert (notify.job_id, bytes(notify.result)) == (17, b'{"n":1}')
        assert touch == messages.TouchJob(id=7, job_id=17, progress=0.5, note="half")
        assert [(one.job_id, one.reason, one.retry) for one in failed] == [
            (17, "no route", 10), (None, None, False), (None, None, None),
        ]  # fmt: skip
        assert all(isinstance(one, messages.FailJob) for one in failed)
        assert release == messages.ReleaseJob(id=11, delay=1)


def test_a_job_of_another_program_is_a_value_too() -> None:
    values: dict[bytes, Any] = {b"null": None, b"1e999": math.inf, b"te": "te", b"\xff": b"\xff", b"": ""}
    bodies = iter(values)

    def give(message: Any) -> bytes:
        return replies.job_taken(message.id, 1, "q", next(bodies), 60)

    with scripted_gateway(give) as gateway, connect(gateway.port) as client:
        for value in values.values():
            assert client.get_job() == clients.TakenJob(id=1, value=value, queue="q", ttr=60)
        for job in (math.nan, object(), "\ud800"):
            with pytest.raises(InvalidTask, match="job"):
                client.add_job(job)
        with pytest.raises(ValueError, match="queue"):
            client.get_job("no spaces")
        assert len(gateway.messages) == len(values), "what cannot be sent is refused before"


def test_the_client_loads_no_more_than_it_needs() -> None:
    loaded = "import sys, peerd.gateway.client; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", loaded], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & {"sqlalchemy", "pydantic", "alembic", "structlog", "psutil", "typer", "rich"}


def test_refusals_leave_the_connection_as_it_is_and_one_without_an_id_is_raised(open_client: OpenClient) -> None:
    refusals: dict[type, tuple[ErrorCode, str, str | None]] = {
        messages.ShowToken: (ErrorCode.UNAUTHORIZED, "the token is wrong", "auth"),
        GetJob: (ErrorCode.NO_WORK, replies.NO_WORK_TEXT, "get_job"),
        messages.NotifyDone: (ErrorCode.NOT_HELD, "no", "cmd"),
        AddJob: (ErrorCode.QUEUE_FULL, "no", "cmd"),
    }

    def refuse(message: Any) -> bytes:
        code, problem, cmd = refusals.get(type(message), (ErrorCode.MALFORMED, "that was no JSON", None))
        message_id = message.id if type(message) in refusals else None
        return replies.error_reply(RefusedMessage(code=code, problem=problem, cmd=cmd, id=message_id), code, problem)

    with scripted_gateway(refuse) as gateway:
        with pytest.raises(MessageRefused, match="the token is wrong"), open_client(gateway.port, token="x"):
            pass
        with open_client(gateway.port) as client:
            with pytest.raises(clients.NoWork, match=r"^get_job: No work to do$"):
                client.get_job()
            with pytest.raises(clients.JobNotHeld):
                client.notify()
            with pytest.raises(MessageRefused) as refused:
                client.add_job(1)
            assert (refused.value.code, type(refused.value)) == ("queue_full", MessageRefused)
            with pytest.raises(JobClientError, match="that was no JSON"):
                client.touch()


def test_a_gateway_that_is_not_there_or_goes_away_is_a_clear_error(open_client: OpenClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(clients.GatewayUnreachable, match=rf"127.0.0.1:{port}: .*refused"), open_client(port):
        pass
    with pytest.raises(clients.GatewayUnreachable, match="/nowhere"):
        connect(unix="/nowhere")
    with scripted_gateway(lambda _: None) as gateway, open_client(gateway.port) as client:
        for _ in range(2):
            with pytest.raises(JobConnectionLost, match="the gateway has closed it"):
                client.get_job()
        client.close()
        client.close()
        with pytest.raises(ConnectionError):
            client.notify()


def test_a_gateway_that_does_not_reply_and_a_program_that_is_none_are_clear_errors(open_client: OpenClient) -> None:
    with scripted_gateway(lambda _: b"") as gateway, open_client(gateway.port, timeout=0.05) as client:
        with pytest.raises(clients.ReplyTimeout, match="did not reply to get_job within 60ms"):
            client.get_job(wait=0.01)
        with pytest.raises(JobConnectionLost, match="no reply to get_job"):
            client.notify()
        assert open_client is not connect or gateway.ended.wait(10)
    for garbage in (b"HTTP/1.1 400 Bad Request\r\n", b"[]\n", b'{"id":{}}\n', b"\xff\n"):
        with scripted_gateway(Mock(return_value=garbage)) as gateway, open_client(gateway.port) as client:
            error = clients.InvalidReply if open_client is connect else JobClientError
            with pytest.raises(error, match="does not speak"):
                client.add_job(1)


def test_two_threads_at_once_are_refused() -> None:
    asked, go_on = threading.Event(), threading.Event()

    def wait_for_the_test(message: Any) -> bytes:
        asked.set()
        go_on.wait(10)
        return as_usual(message)

    with scripted_gateway(wait_for_the_test) as gateway, connect(gateway.port) as client:
        other = threading.Thread(target=client.get_job)
        other.start()
        assert asked.wait(10)
        with pytest.raises(RuntimeError, match="another thread"):
            client.notify()
        go_on.set()
        other.join(10)
        client.notify()


def test_an_interrupted_call_closes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_gateway(as_usual) as gateway, connect(gateway.port) as client:
        monkeypatch.setattr(client._exchange, "read", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            client.get_job()
        with pytest.raises(JobConnectionLost, match="get_job was interrupted"):
            client.get_job()
        assert gateway.ended.wait(10)


async def test_the_calls_of_many_tasks_share_a_connection_and_get_their_own_replies() -> None:
    def number_of(message: Any) -> bytes:
        asked_by_nobody = b'{"id":"x","ok":true}\n'
        return asked_by_nobody + replies.job_added(message.id, int(bytes(message.job)), created=True)

    with scripted_gateway(number_of) as gateway:
        async with await connect_async(gateway.port) as client:
            added = await asyncio.gather(*(client.add_job(number) for number in range(1, 200)))
            assert [one.id for one in added] == list(range(1, 200))
    with scripted_gateway(lambda message: b"" if isinstance(message, AddJob) else None) as gateway:
        async with await connect_async(gateway.port) as client:
            results = await asyncio.gather(client.add_job(1), client.get_job(wait=60), return_exceptions=True)
            assert [type(result) for result in results] == [JobConnectionLost] * 2, "it goes away"


async def test_a_job_that_comes_for_a_cancelled_call_is_given_back() -> None:
    waiting: list[Any] = []

    def answer_late(message: Any) -> bytes:
        if isinstance(message, GetJob):
            waiting.append(message)
            return b""
        return b"".join(as_usual(late) for late in waiting) + as_usual(message)

    with scripted_gateway(answer_late) as gateway:
        async with await connect_async(gateway.port) as client:
            call = asyncio.create_task(client.get_job(wait=60))
            await eventually_async(lambda: waiting)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await client.notify(5)
            await eventually_async(lambda: isinstance(gateway.messages[-1], messages.ReleaseJob))
            assert gateway.messages[-1].job_id == 17
