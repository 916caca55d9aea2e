"""greenstalk, the Python client of beanstalkd, on peerd's drop-in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import greenstalk
import pytest

from tests.gateway.beanstalk_servers import BeanstalkServer

MakeClient = Callable[..., Any]


@pytest.fixture
def make_client(command_server: BeanstalkServer) -> Iterator[MakeClient]:
    with ExitStack() as afterwards:

        def make(**options: Any) -> Any:
            options = {"encoding": None, "use": "python", "watch": "python"} | options
            return afterwards.enter_context(greenstalk.Client(command_server.address, **options))

        yield make


def test_a_job_goes_through_all_its_states_and_is_counted(make_client: MakeClient) -> None:
    client, body = make_client(), bytes(range(256))
    put = client.put(body, priority=7, ttr=50)
    job = client.reserve()
    assert (job.id, job.body) == (put, body)
    client.touch(job)
    client.release(job, priority=3, delay=100)
    assert client.peek_delayed().id == put
    assert client.kick(10) == 1
    client.bury(client.reserve(), priority=4)
    assert client.peek_buried().id == put
    client.kick_job(put)
    assert client.peek_ready().id == put
    shown = client.stats_job(put)
    assert (shown["releases"], shown["buries"], shown["kicks"], shown["reserves"], shown["pri"]) == (1, 1, 2, 2, 4)
    client.delete(client.reserve_job(put))
    with pytest.raises(greenstalk.NotFoundError):
        client.peek(put)
    assert client.stats()["current-jobs-ready"] == 0


def test_clients_wait_take_over_what_one_leaves_and_share_tubes(make_client: MakeClient) -> None:
    client, other = make_client(), make_client(encoding="utf-8")
    with pytest.raises(greenstalk.TimedOutError):
        client.reserve(timeout=0)
    put = client.put("größer als €".encode(), delay=1)
    taken = other.reserve(timeout=60)
    assert (taken.id, taken.body) == (put, "größer als €")
    other.close()
    assert client.reserve(timeout=60).id == put
    with pytest.raises(greenstalk.JobTooBigError):
        client.put(bytes(65536))
    client.use("u")
    assert (client.watch("w"), client.using(), sorted(client.watching())) == (2, "u", ["python", "w"])
    assert set(client.tubes()) == {"default", "python", "u", "w"}
    client.pause_tube("python", 100)
    assert client.stats_tube("python")["pause"] == 100
