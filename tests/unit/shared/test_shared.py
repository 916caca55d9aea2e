from __future__ import annotations

import asyncio
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from peerd.agent.components import ComponentSupervisor
from peerd.runtime.observability.events import EventBus
from peerd.runtime.sockets import short_socket_directory
from peerd.shared.client import MAX_BACKLOG, SharedClient, SharedClients, Update, name_of
from peerd.shared.connection import SharedConnection
from peerd.shared.protocol import (
    MAX_MESSAGE_BYTES,
    SOCKET_NAME,
    AgentLost,
    CallRequest,
    NoSuchSharedMethod,
    NotSerializable,
    NotShared,
    SharedCallFailed,
    SharedCallTimedOut,
    WrongEventLoop,
    encode_message,
)
from peerd.shared.server import SharedServer
from peerd.shared.shared_instance import SharedInstance, SharedRegistry
from peerd.testing import eventually_async


@dataclass
class Source:
    values: dict[str, Any] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    clients: list[Studio] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)


@dataclass
class Film:
    name: str
    shown_at: datetime


class Studio(SharedClient):
    def __init__(self, source: Source) -> None:
        self.source = source
        self.broken = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def open(self) -> None:
        self.source.requests.append("open")
        if "open" in self.source.refuses:
            raise ConnectionRefusedError("the studio is closed")
        self.source.clients.append(self)

    async def run(self) -> None:
        await self.broken.wait()
        raise ConnectionError("the studio has hung up")

    async def close(self) -> None:
        self.source.requests.append("close")

    async def follow(self, key: str) -> None:
        self.source.requests.append(f"follow {key}")
        if str(key) in self.source.refuses:
            raise LookupError(f"no film {key}")
        if str(key) in self.source.values:
            self.emit(key, self.source.values[str(key)])

    async def unfollow(self, key: str) -> None:
        self.source.requests.append(f"unfollow {key}")

    async def publish(self, key: str, value: Any) -> None:
        self.source.values[key] = value
        self.emit(key, value)

    async def double(self, number: int, *, times: int = 1) -> int:
        return number * 2 * times

    async def film(self, film: Film) -> Film:
        assert isinstance(film, Film), film
        return film

    async def fail(self, text: str) -> None:
        raise ValueError(text)

    async def leave(self) -> None:
        raise SystemExit(3)

    async def hang(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()

    async def give(self, size: int) -> bytes:
        self.source.requests.append("give")
        return b"x" * size

    async def give_object(self) -> object:
        return object()

    def plain(self) -> int:
        return 1


class Agent:
    def __init__(self, folder: Path, source: Source, generation: int = 1) -> None:
        self.components = ComponentSupervisor(EventBus())
        self.registry = SharedRegistry()
        self.instance = SharedInstance(Studio, lambda: Studio(source), generation)
        self.server = SharedServer(self.registry)
        self.components.start("server", lambda: self.server.run(folder))

    async def share(self) -> None:
        self.registry.add(self.instance)
        self.registry.mark_complete()
        self.components.start("studio", self.instance.run)

    async def end(self) -> None:
        await self.components.stop(self.components.names, within=5.0)


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
async def agent(tmp_path: Path, source: Source) -> AsyncIterator[Agent]:
    agent = Agent(tmp_path, source)
    await agent.share()
    yield agent
    await agent.end()


@asynccontextmanager
async def process(folder: Path) -> AsyncIterator[SharedClients]:
    connection = SharedConnection(folder)
    yield SharedClients(connection)
    await connection.close()


@pytest.fixture(params=["in the agent", "over the socket"])
async def shared(request: pytest.FixtureRequest, agent: Agent, tmp_path: Path) -> AsyncIterator[SharedClients]:
    if request.param == "in the agent":
        yield SharedClients(agent.registry)
    else:
        async with process(tmp_path) as clients:
            yield clients


async def test_a_call_has_typed_arguments_and_results_and_raises_what_it_raised(
    shared: SharedClients, source: Source
) -> None:
    assert await shared(Studio).double(7, times=3) == 42
    film = Film("a.mp4", datetime(2026, 1, 1, tzinfo=UTC))
    assert await shared(Studio).film(film) == film
    with pytest.raises(SharedCallTimedOut, match=r"Studio.hang\(\) was not answered within 50ms"):
        await shared(Studio, timeout=0.05).hang()
    await asyncio.wait_for(source.clients[0].cancelled.wait(), 10)
    with pytest.raises(SharedCallFailed, match="no such film") as failed:
        await shared(Studio).fail("no such film")
    assert (failed.value.type_name, failed.value.text) == ("ValueError", "no such film")
    with pytest.raises(SharedCallFailed, match="SystemExit"):
        await shared(Studio).leave()
    call: Any = shared(Studio).double
    with pytest.raises(SharedCallFailed, match="TypeError"):
        await call()
    with pytest.raises(SharedCallFailed, match="Expected `int`"):
        await call("two")
    assert await shared(Studio).double(1) == 2
    for name in ("plain", "open", "_emit", "nothing"):
        with pytest.raises(NoSuchSharedMethod, match="double, fail"):
            getattr(shared(Studio), name)


async def test_a_key_is_followed_once_and_a_late_subscriber_has_its_value(
    shared: SharedClients, agent: Agent, source: Source
) -> None:
    source.values["price"] = 17
    studio: Any = shared(Studio)
    early = studio.subscribe("price")
    assert await anext(early) == Update(key="price", value=17, generation=1 << 20 | 1)
    late = shared(Studio).subscribe("price")
    assert (await anext(late)).value == 17
    source.clients[0].emit("price", 18)
    assert [(await anext(one)).value for one in (early, late)] == [18, 18]
    assert source.requests == ["open", "follow price"]

    early.close()
    source.clients[0].emit("price", 19)
    assert (await anext(late)).value == 19
    assert [one async for one in early] == []
    late.close()
    await eventually_async(lambda: source.requests == ["open", "follow price", "unfollow price"])
    first, second = studio.subscribe({"group": 1, "id": 2}), studio.subscribe({"id": 2, "group": 1})
    await eventually_async(lambda: len(source.requests) > 3)
    source.clients[0].emit({"group": 1, "id": 2}, "hello")
    assert [(await anext(one)).value for one in (first, second)] == ["hello", "hello"], "the order does not matter"
    assert len(source.requests) == 4


async def test_published_values_reach_the_subscribers(shared: SharedClients, source: Source) -> None:
    subscription = shared(Studio).subscribe("price")
    await shared(Studio).publish("price", 20)
    assert (await anext(subscription)).value == 20
    of_thread = shared(Studio).subscribe("volume")
    await eventually_async(lambda: "follow volume" in source.requests)
    await asyncio.to_thread(source.clients[0].emit, "volume", 1)
    assert (await anext(of_thread)).value == 1
    source.refuses.add("nothing")
    with pytest.raises(SharedCallFailed, match="no film nothing"):
        await anext(shared(Studio).subscribe("nothing"))
    source.refuses.clear()
    source.values["nothing"] = 1
    assert (await anext(shared(Studio).subscribe("nothing"))).value == 1


async def test_after_a_lost_connection_a_new_client_follows_the_same_keys(
    shared: SharedClients, source: Source
) -> None:
    source.values["price"] = 17
    subscription = shared(Studio).subscribe("price")
    first = await anext(subscription)
    source.values["price"] = 18
    source.clients[0].broken.set()
    second = await anext(subscription)
    assert (second.value, second.generation, second.missed) == (18, first.generation + 1, True)
    assert source.requests == ["open", "follow price", "close", "open", "follow price"]
    assert not first.missed
    source.clients[0].emit("price", "of an object that was replaced")
    source.clients[1].emit("price", 19)
    assert await anext(subscription) == Update(key="price", value=19, generation=second.generation)


async def test_a_call_waits_for_a_client_that_is_not_connected_yet(shared: SharedClients, source: Source) -> None:
    assert await shared(Studio).double(1) == 2
    source.refuses.add("open")
    source.clients[0].broken.set()
    await eventually_async(lambda: "close" in source.requests)
    with pytest.raises(SharedCallTimedOut):
        await shared(Studio, timeout=0.05).double(1)
    waiting = asyncio.create_task(shared(Studio, timeout=20.0).double(1))
    source.refuses.clear()
    assert await waiting == 2


async def test_a_slow_reader_gets_the_latest_updates_and_a_mark(shared: SharedClients, source: Source) -> None:
    source.values["price"] = -1
    subscription = shared(Studio).subscribe("price")
    await anext(subscription)
    for number in range(MAX_BACKLOG * 5 // 2):
        source.clients[0].emit("price", number)
    last = MAX_BACKLOG * 5 // 2 - 1
    await eventually_async(lambda: subscription.latest is not None and subscription.latest.value == last)
    updates = [await anext(subscription)]
    assert updates[0].missed
    while updates[-1].value != last:
        updates.append(await anext(subscription))
    assert len(updates) <= MAX_BACKLOG
    assert [update.value for update in updates] == list(range(updates[0].value, last + 1))


async def test_a_thread_without_an_event_loop_calls_and_waits(shared: SharedClients) -> None:
    studio: Any = shared(Studio)
    assert await asyncio.to_thread(studio.double, 4) == 8

    async def on_another_loop() -> None:
        await studio.double(4)

    with pytest.raises(WrongEventLoop):
        await asyncio.to_thread(lambda: asyncio.run(on_another_loop()))


async def test_the_error_for_a_class_that_is_not_shared_names_the_remedy(agent: Agent, tmp_path: Path) -> None:
    class Other(Studio):
        pass

    async with process(tmp_path) as shared:
        for clients in (shared, SharedClients(agent.registry)):
            with pytest.raises(NotShared, match=r"call agent.share\(Other\)"):
                await clients(Other).double(1)
        with pytest.raises(NotShared):
            await anext(shared(Other).subscribe("price"))
    with pytest.raises(RuntimeError, match=r"agent.share\(\)"):
        Studio(Source()).emit("price", 1)


async def test_a_value_that_cannot_be_encoded_raises_where_it_is_given(agent: Agent, tmp_path: Path) -> None:
    async with process(tmp_path) as shared:
        studio: Any = shared(Studio)
        with pytest.raises(NotSerializable, match=r"Studio.double\(\)"):
            await studio.double(object())
        with pytest.raises(NotSerializable, match="8,388,608 are allowed"):
            await studio.publish("price", b"x" * MAX_MESSAGE_BYTES)
        for call in (lambda: studio.give(MAX_MESSAGE_BYTES), studio.give_object):
            with pytest.raises(SharedCallFailed, match="NotSerializable"):
                await call()
        with pytest.raises(NotSerializable):
            studio.subscribe(object())
        assert len(await studio.give(MAX_MESSAGE_BYTES // 2)) == MAX_MESSAGE_BYTES // 2


async def test_a_call_made_while_there_is_no_agent_waits_for_one(tmp_path: Path, source: Source) -> None:
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    async with process(folder) as shared:
        with pytest.raises(SharedCallTimedOut, match="there is no agent"):
            await shared(Studio, timeout=0.05).double(1)
        waiting = asyncio.create_task(shared(Studio, timeout=20.0).double(1))
        await asyncio.sleep(0)
        agent = Agent(folder, source)
        await agent.share()
        assert await waiting == 2
        assert stat.S_IMODE((folder / SOCKET_NAME).stat().st_mode) == 0o600, "the socket is its owner's alone"
        await agent.end()


async def test_subscriptions_continue_with_the_next_agent(agent: Agent, tmp_path: Path, source: Source) -> None:
    source.values["price"] = 17
    async with process(tmp_path) as shared, shared(Studio).subscribe("price") as subscription:
        before = await anext(subscription)
        await agent.end()
        source.values["price"] = 18
        following = Agent(tmp_path, source, generation=2)
        await following.share()
        after = await anext(subscription)
        assert (after.value, after.missed) == (18, True)
        assert after.generation > before.generation
        await following.end()


async def test_invalid_bytes_end_their_own_connection_only(agent: Agent, tmp_path: Path) -> None:
    await eventually_async((tmp_path / SOCKET_NAME).exists)
    loop = asyncio.get_running_loop()
    for sent in (b"\xff\xff\xff\xff", b"\0\0\0\1\xc1", b"\0\0\0\2\x91\x01", b"GET / HTTP/1.1\r\n\r\n"):
        with socket.socket(socket.AF_UNIX) as end:
            end.setblocking(False)
            with short_socket_directory(tmp_path) as folder:
                await loop.sock_connect(end, str(folder / SOCKET_NAME))
            await loop.sock_sendall(end, sent)
            assert await asyncio.wait_for(loop.sock_recv(end, 10), 10) == b""
    async with process(tmp_path) as shared:
        assert await shared(Studio).double(1) == 2


async def test_calls_of_a_process_that_does_not_read_wait_and_those_of_others_are_answered(
    agent: Agent, tmp_path: Path, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peerd.shared.server.MAX_CALLS", 10)
    await eventually_async((tmp_path / SOCKET_NAME).exists)
    with short_socket_directory(tmp_path) as folder:
        _, writer = await asyncio.open_unix_connection(str(folder / SOCKET_NAME))
    for number in range(200):
        call = CallRequest(number, name_of(Studio), "give", [100_000], {}, 60.0)
        writer.write(encode_message(call, "a call"))
    async with process(tmp_path) as shared:
        await eventually_async(lambda: source.requests.count("give") >= 10)
        assert await shared(Studio).double(1) == 2
    assert source.requests.count("give") < 40, "what the system has taken from the socket is all beside its ten calls"
    writer.transport.abort()


async def test_a_call_that_a_dead_agent_left_is_not_repeated(agent: Agent, tmp_path: Path, source: Source) -> None:
    async with process(tmp_path) as shared:
        hanging = asyncio.create_task(shared(Studio).hang())
        await eventually_async(lambda: source.clients)
        assert await shared(Studio).double(1) == 2  # so the first has arrived
        await agent.server.disconnect_all()
        with pytest.raises(AgentLost, match=r"Studio.hang\(\)"):
            await hanging
        assert await shared(Studio).double(1) == 2
