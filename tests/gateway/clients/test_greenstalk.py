"""greenstalk, the Python client of beanstalkd, on Debian's beanstalkd and on peerd's drop-in."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import greenstalk
import pytest

from tests.gateway.beanstalk_servers import BeanstalkServer

Client = greenstalk.Client[bytes]
MakeClient = Callable[..., Any]
LATENESS = 5.0
"""Seconds by which a timer may be late on a busy machine; a poll comes after ten."""


@pytest.fixture
def make_client(server: BeanstalkServer) -> Iterator[MakeClient]:
    with ExitStack() as afterwards:

        def make(**options: Any) -> Any:
            return afterwards.enter_context(greenstalk.Client(server.address, **{"encoding": None} | options))

        yield make


@pytest.fixture
def client(make_client: MakeClient) -> Client:
    made: Client = make_client(use="python", watch="python")
    return made


def test_a_job_comes_back_as_it_was_put(client: Client) -> None:
    body = bytes(range(256))
    put = client.put(body, priority=7, ttr=50)
    job = client.reserve()
    assert (job.id, job.body) == (put, body)
    shown = client.stats_job(job)
    assert (shown["state"], shown["tube"], shown["pri"], shown["ttr"]) == ("reserved", "python", 7, 50)
    client.delete(job)
    with pytest.raises(greenstalk.NotFoundError):
        client.peek(put)


def test_texts_are_encoded(make_client: MakeClient) -> None:
    client = make_client(use="python", watch=["python"], encoding="utf-8")
    client.put("größer als €")
    assert client.reserve().body == "größer als €"


def test_a_client_may_wait_for_another(make_client: MakeClient, client: Client) -> None:
    other = make_client(use="python", watch="python")
    put = client.put(b"soon", delay=1)
    began = time.monotonic()
    assert other.reserve(timeout=60).id == put
    assert 1.0 <= time.monotonic() - began < 1.0 + LATENESS


def test_a_reserve_ends_with_its_timeout(client: Client) -> None:
    began = time.monotonic()
    with pytest.raises(greenstalk.TimedOutError):
        client.reserve(timeout=1)
    assert 1.0 <= time.monotonic() - began < 1.0 + LATENESS


def test_release_bury_and_kick_count(client: Client) -> None:
    put = client.put(b"x")
    client.release(client.reserve(), priority=3, delay=100)
    assert client.peek_delayed().id == put
    assert client.kick(10) == 1
    client.bury(client.reserve(), priority=4)
    assert client.peek_buried().id == put
    client.kick_job(put)
    assert client.peek_ready().id == put
    shown = client.stats_job(put)
    assert (shown["releases"], shown["buries"], shown["kicks"], shown["reserves"], shown["pri"]) == (1, 1, 2, 2, 4)


def test_reserve_job_takes_a_job_by_its_id(client: Client) -> None:
    put = client.put(b"x", delay=100)
    assert client.reserve_job(put).body == b"x"
    with pytest.raises(greenstalk.NotFoundError):
        client.reserve_job(put)


def test_the_deadline_is_soon(client: Client) -> None:
    client.put(b"x", ttr=1)
    job = client.reserve()
    with pytest.raises(greenstalk.DeadlineSoonError):
        client.reserve(timeout=5)
    client.touch(job)
    client.delete(job)


@pytest.mark.unpredictable_on_beanstalkd("now and then it overlooks the end of a TTR")
def test_a_job_comes_back_when_its_ttr_has_ended(client: Client) -> None:
    put = client.put(b"x", ttr=1)
    client.reserve()
    began = time.monotonic()
    with pytest.raises(greenstalk.DeadlineSoonError):
        client.reserve()
    while client.stats_job(put)["state"] == "reserved":
        assert time.monotonic() - began < 1.0 + LATENESS
        time.sleep(0.01)
    assert client.reserve(timeout=0).id == put
    assert client.stats_job(put)["timeouts"] == 1


def test_the_jobs_of_a_client_that_leaves_are_ready(make_client: MakeClient, client: Client) -> None:
    other = make_client(watch="python")
    put = client.put(b"x")
    other.reserve()
    other.close()
    assert client.reserve(timeout=60).id == put


def test_tubes_are_used_watched_and_listed(client: Client) -> None:
    client.use("u")
    assert client.watch("w") == 2
    assert client.using() == "u"
    assert sorted(client.watching()) == ["python", "w"]
    assert set(client.tubes()) == {"default", "python", "u", "w"}
    assert client.ignore("w") == 1
    with pytest.raises(greenstalk.NotIgnoredError):
        client.ignore("python")


def test_a_paused_tube_gives_no_job(client: Client) -> None:
    client.put(b"x")
    client.pause_tube("python", 100)
    shown = client.stats_tube("python")
    assert (shown["name"], shown["pause"], shown["current-jobs-ready"]) == ("python", 100, 1)
    with pytest.raises(greenstalk.TimedOutError):
        client.reserve(timeout=0)
    client.pause_tube("python", 0)
    assert client.reserve(timeout=1).body == b"x"


def test_a_job_may_be_too_big(client: Client) -> None:
    with pytest.raises(greenstalk.JobTooBigError):
        client.put(bytes(65536))
    assert client.put(bytes(65535)) > 0


def test_the_server_tells_its_statistics(client: Client) -> None:
    client.put(b"x")
    shown = client.stats()
    assert shown["current-jobs-ready"] == 1
    assert isinstance(shown["version"], str)
    assert isinstance(shown["pid"], int)


def test_a_client_connects_by_a_unix_socket(start_server: Callable[..., BeanstalkServer], tmp_path: Any) -> None:
    server = start_server(listen=f"unix:{tmp_path}/socket")
    with greenstalk.Client(server.address, encoding=None) as client:
        put = client.put(b"x")
        assert client.reserve().id == put
