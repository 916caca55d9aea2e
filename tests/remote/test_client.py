"""A client of a server beside that of the database: its jobs, what it lacks, its retries, its secrets."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import uvicorn

from peerd import Client, Job, JobCanceled, Task
from peerd.domain.errors import DatabaseUnavailable, InvalidTask, TaskNotFound
from peerd.domain.outcome import Done
from peerd.operate.job import JobTimeout
from peerd.operate.remote.errors import (
    DatabaseRequired,
    InvalidServer,
    ServerRequired,
    ServerUnreachable,
    TokenRefused,
)
from peerd.operate.remote.http import ServerConnection
from peerd.storage.transfer import node_http
from peerd.testing import eventually
from peerd.web import create_app
from tests.remote.conftest import Copies, ServedApp
from tests.support.forks import run_in_fork
from tests.support.served_api import QUIET, served
from tests.unit.operate.claiming_process import ClaimingProcess

TOKEN = "peerd_0123456789"


def test_a_job_is_waited_for(remote: Client, database_client: Client) -> None:
    job = remote.enqueue("quick")
    assert (job.created, job.status, remote.enqueue("quick", unique="a").created) == (True, "pending", True)
    with pytest.raises(JobTimeout):
        job.wait(0.01)
    ClaimingProcess(database_client.database).run(Done(result='{"output":7}'), "quick")
    assert job.result(10) == {"output": 7}
    canceled = remote.enqueue("quick")
    remote.tasks.cancel(canceled.id)
    with pytest.raises(JobCanceled):
        asyncio.run(remote.aio.result(canceled))


def test_one_client_serves_several_event_loops_and_threads(remote: Client) -> None:
    async def ask() -> list[Task]:
        return await asyncio.gather(*(remote.aio.tasks.get(1) for _ in range(40)))

    found = [task.status for _ in range(2) for task in asyncio.run(ask())]
    with ThreadPoolExecutor(4) as threads:
        found += [task.status for task in threads.map(remote.tasks.get, [1] * 40)]
    assert found == ["done"] * 120


def test_tasks_may_come_from_iterators(remote: Client) -> None:
    assert len(remote.enqueue_many(iter(["video", "mail"]))) == 2
    assert len(remote.enqueue_many(what=iter(["video", "mail"]))) == 2
    assert len(remote.enqueue_batch(tasks=(("video", {}) for _ in range(1)))) == 1


def test_what_needs_the_database_or_a_server_says_so(remote: Client, database_client: Client) -> None:
    with database_client.database.engine.connect() as connection:
        for call in (
            lambda: remote.database,
            lambda: remote.notifier,
            lambda: remote.ring("video"),
            lambda: remote.enqueue_in(connection, "video"),
            lambda: asyncio.run(remote.aio.enqueue_in(connection, "video")),  # type: ignore[arg-type]
        ):
            with pytest.raises(DatabaseRequired, match=r"needs the database.*http://127\.0\.0\.1"):
                call()
    with pytest.raises(ServerRequired, match=r"client\.events needs a server"):
        database_client.events()
    with pytest.raises(TypeError, match="token goes with the URL of a server"):
        Client("sqlite:////tmp/peerd-never.sqlite", token=TOKEN)


def test_a_wrong_server_is_refused_at_once_without_its_secrets() -> None:
    wrong: tuple[tuple[str, dict[str, Any], str], ...] = (
        ("http://user:hunter2@host", {}, "names a user"),
        *((url, {}, "write http") for url in ("http://", "http://host:99999", "http://host/?a=b", "http://ho st/")),
        *(("http://host", {"token": one}, "token has characters") for one in ("hunter2 hunter2", "")),
        ("http://host", {"timeout": 0}, "timeout"),
        ("https://host", {"ca": "/nowhere/hunter"}, "certificates"),
    )
    for url, given, problem in wrong:
        with pytest.raises(InvalidServer, match=problem) as caught:
            Client(url, **given)
        assert "hunter2" not in f"{caught.value}{vars(caught.value)}", url


def test_the_token_is_in_no_text_and_no_log(remote: Client, caplog: pytest.LogCaptureFixture, token: str) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(TaskNotFound) as caught:
        remote.tasks.get(99)
    lost = Client("http://127.0.0.1:1", token=token)
    with pytest.raises(ServerUnreachable) as unreachable:
        lost.tasks.get(1)
    texts = [caplog.text, repr(remote), repr(remote._mode), *map(repr, (caught.value, unreachable.value))]
    texts += [str(vars(unreachable.value)), repr(lost._mode.connection.address)]  # type: ignore[attr-defined]
    assert not [text for text in texts if token in text]


def test_the_token_is_sent_with_each_request_and_a_wrong_one_is_refused(
    served_app: ServedApp, remote: Client, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    made = lose_answers(monkeypatch, lambda _: False)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert remote.tasks.find(1) is not None
    for given in (TOKEN, None):
        with Client(served_app.address, token=given) as client, pytest.raises(TokenRefused) as caught:
            client.tasks.find(1)
        assert (caught.value.status, TOKEN in str(caught.value)) == (401, False)
    assert [one.headers.get("authorization") for one in made] == [f"Bearer {token}", f"Bearer {TOKEN}", None]


class MadeRequest(NamedTuple):
    """A request that was sent: its path and query, and its headers."""

    target: str
    headers: Mapping[str, str]


def lose_answers(monkeypatch: pytest.MonkeyPatch, is_lost: Callable[[int], bool]) -> list[MadeRequest]:
    """Lose the answers to some requests that the server has carried out; the requests from now on."""
    made: list[MadeRequest] = []
    exchange = node_http._exchange

    def lose(connection: Any, method: str, target: str, body: bytes, headers: Mapping[str, str]) -> HTTPResponse:
        made.append(MadeRequest(target, headers))
        number = len(made)
        response = exchange(connection, method, target, body, headers)
        if is_lost(number):
            response.read()
            raise ConnectionResetError("cut off")
        return response

    monkeypatch.setattr(node_http, "_exchange", lose)
    return made


def test_an_enqueue_whose_answer_is_lost_is_repeated_and_written_once(
    remote: Client, database_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sum(database_client.tasks.counts().values())
    made = lose_answers(monkeypatch, lambda number: number % 2 == 1)
    jobs: list[Job] = [remote.enqueue("a"), *remote.enqueue_many(["b", "c"]), *remote.enqueue_batch([("d", {})])]
    assert len(made) == 6
    assert [database_client.tasks.get(job.id).queue for job in jobs] == ["a", "b", "c", "d"]
    assert sum(database_client.tasks.counts().values()) == before + 4
    assert remote.tasks.find(jobs[0].id) is not None
    assert len(made) == 8


def test_a_server_takes_ten_thousand_tasks_in_a_call(remote: Client, database_client: Client) -> None:
    before = sum(database_client.tasks.counts().values())
    with pytest.raises(InvalidTask, match=r"there are 10,001; give at most 10,000 in a call"):
        remote.enqueue_many(["a"] * 10_001)
    with pytest.raises(InvalidTask, match="give at most"):
        remote.enqueue_batch([("a", {})] * 10_001)
    assert sum(database_client.tasks.counts().values()) == before


def test_an_action_whose_answer_is_lost_is_not_repeated(
    remote: Client, database_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = lose_answers(monkeypatch, lambda _: True)
    with pytest.raises(ServerUnreachable, match="cut off"):
        remote.tasks.cancel(5)
    assert len(made) == 1
    assert database_client.tasks.get(5).status == "canceled"
    with pytest.raises(DatabaseUnavailable):
        remote.tasks.find(5)
    assert len(made) == 4


def test_a_database_that_is_away_for_a_moment_is_asked_again(
    remote: Client, database_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert remote.tasks.find(1) is not None
    answers = iter([True, False, True, True, True])
    read = database_client.database.read

    def away(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if function.__name__ == "find" and next(answers):  # not the read of the token
            raise DatabaseUnavailable("gone")
        return read(function, *args, **kwargs)

    monkeypatch.setattr("peerd.operate.remote.http.MAX_PAUSE", 0.01)
    monkeypatch.setattr(database_client.database, "read", away)
    assert remote.tasks.find(1) is not None
    with pytest.raises(DatabaseUnavailable, match="the database does not answer: gone") as caught:
        remote.tasks.find(1)
    assert type(caught.value) is DatabaseUnavailable
    assert next(answers, None) is None


def test_a_forked_process_opens_connections_of_its_own(remote: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_http, "KEPT_FOR", 3600.0)  # a fork may take seconds where much else runs
    assert remote.tasks.find(1) is not None
    server: ServerConnection = remote._mode.connection  # type: ignore[attr-defined]
    [(parent, _)] = server._idle[server.url]

    def connections() -> list[HTTPConnection]:
        return [connection for connection, _ in server._idle[server.url]]

    def use_in_child() -> tuple[bool, bool, str]:
        found = remote.tasks.get(1).status
        again = asyncio.run(remote.aio.tasks.get(1)).status
        return parent in connections(), parent.sock is None, f"{found} {again}"

    assert run_in_fork(use_in_child) == (False, False, "done done")
    assert remote.tasks.find(1) is not None
    assert connections() == [parent]


WITHOUT_EXTRAS = """
import sys
for name in ("httpx", "blake3", "fastapi", "uvicorn"):
    sys.modules[name] = None
from peerd import Client
from peerd.cli.app import app
print(Client(sys.argv[1], token=sys.argv[2]).tasks.get(1).status)
app(["tasks", "show", "1", "--server", sys.argv[1]])
"""


def test_a_client_of_a_server_needs_no_extra(served_app: ServedApp, remote: Client, token: str) -> None:
    assert remote.tasks.find(1) is not None, "it is served"
    made = [sys.executable, "-c", WITHOUT_EXTRAS, served_app.address, token]
    ended = subprocess.run(made, capture_output=True, text=True, check=False, env={**os.environ, "PEERD_TOKEN": token})
    assert (ended.returncode, ended.stdout.partition("\n")[0]) == (0, "done"), ended.stderr
    assert "quick" in ended.stdout or "video" in ended.stdout


def test_a_unix_socket_serves_as_well(copies: Copies, tmp_path: Path, token: str) -> None:
    path = tmp_path / "web.sock"
    server = uvicorn.Server(uvicorn.Config(create_app(copies.client()), **QUIET, lifespan="off", uds=str(path)))
    with ThreadPoolExecutor() as threads:
        threads.submit(asyncio.run, server.serve())
        try:
            eventually(lambda: server.started)
            with Client(f"unix:{path}", token=token) as client:
                assert client.tasks.get(1).status == "done"
        finally:
            server.should_exit = True


def test_the_certificate_of_a_server_is_verified(copies: Copies, tmp_path: Path, token: str) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    made += ["-subj", "/CN=peerd", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out"]
    subprocess.run([*made, str(certificate)], check=True, capture_output=True)
    with served(create_app(copies.client()), ssl_certfile=str(certificate), ssl_keyfile=str(key)) as url:
        with Client(url, token=token, ca=certificate) as client:
            assert client.tasks.get(1).status == "done"
        for other in (url, url.replace("127.0.0.1", "localhost")):
            with (
                Client(other, token=token, ca=None if other == url else certificate) as client,
                pytest.raises(ServerUnreachable, match="CERTIFICATE_VERIFY_FAILED"),
            ):
                client.tasks.get(1)
