"""Which operations ring, and when: after the commit of the work, and not after its rollback; on each database."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from functools import partial

import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from peerd.domain.errors import InvalidFilter
from peerd.domain.lifecycle import Status
from peerd.domain.ring import ClaimRevoked, Ring, TasksAvailable, TaskScheduled
from peerd.doorbell.datagram import Verifier
from peerd.doorbell.notifier import ENDPOINTS_TTL, NO_ENDPOINTS_TTL, DatagramTransport, Notifier, write_endpoint
from peerd.operate.client import Client
from tests.store.world import World
from tests.support.manual_clock import ManualClock


class Bell:
    """Records the rings of a client."""

    def __init__(self) -> None:
        self._received: list[Ring] = []
        self.client: Client

    def send(self, rings: Sequence[Ring]) -> None:
        self._received += rings

    def close(self) -> None:
        """It stays open."""

    def received(self) -> list[Ring]:
        """The rings since the last call."""
        assert self.client.notifier.flush(10)
        received, self._received = self._received, []
        return sorted(received, key=lambda ring: type(ring).__name__)


@pytest.fixture
def bell(world: World) -> Iterator[Bell]:
    bell = Bell()
    with Client(world.store) as client:
        client._mode.notifier = Notifier(world.store, open_transport=lambda: bell)
        bell.client = client
        yield bell


async def test_an_enqueue_rings_for_its_queue_or_for_its_time_and_a_ring_by_hand_for_queues(bell: Bell) -> None:
    client = bell.client
    rings: list[tuple[Callable[[], object], Ring]] = [
        (lambda: client.enqueue("video"), TasksAvailable(("video",))),
        (lambda: client.enqueue_many(["video", "mail"]), TasksAvailable(("mail", "video"))),
        (lambda: client.enqueue("video", start_in=60), TaskScheduled(within=60.0)),
        (lambda: client.ring("video", "mail"), TasksAvailable(("mail", "video"))),
        (client.ring, TasksAvailable()),
    ]
    for ring, expected in rings:
        ring()
        assert bell.received() == [expected]
    with pytest.raises(InvalidFilter, match="no queue"):
        client.ring("no queue!")
    await client.aio.enqueue("video")
    assert bell.received() == [TasksAvailable(("video",))]
    client.aio.close()


def test_reading_sends_no_ring_and_actions_ring_for_what_they_change(world: World, bell: Bell) -> None:
    dead, working, other = world.task_in(Status.DEAD), world.task_in(Status.WORKING), world.task_in(Status.WORKING)
    client = bell.client
    actions: list[tuple[Callable[[], object], list[Ring]]] = [
        (client.tasks.list, []),
        (lambda: client.tasks.retry(dead), [ClaimRevoked((dead,)), TasksAvailable()]),
        (lambda: client.tasks.cancel(working), [ClaimRevoked((working,))]),
        (lambda: client.tasks.move(other, None), [ClaimRevoked((other,)), TasksAvailable()]),
        (lambda: client.tasks.delete(other), [ClaimRevoked((other,))]),
        (lambda: client.queues.pause("q"), []),
        (lambda: client.queues.resume("q"), [TasksAvailable()]),
        (lambda: client.limits.set("q", running=3), [TasksAvailable(("q",))]),
        (lambda: client.limits.remove("q"), [TasksAvailable(("q",))]),
    ]
    for act, expected in actions:
        act()
        assert bell.received() == expected


def test_in_the_callers_transaction_it_rings_after_the_commit_once(world: World, bell: Bell) -> None:
    with world.store.engine.connect() as connection:
        for _ in range(3):
            bell.client.enqueue_in(connection, "video")
        assert bell.received() == []
        connection.commit()
        assert bell.received() == [TasksAvailable(("video",))]
        connection.commit()
        bell.client.enqueue_in(connection, "mail")
        connection.rollback()
        connection.commit()
        assert bell.received() == []
    with world.store.engine.connect() as connection:
        bell.client.enqueue_in(connection, "mail")  # and the connection goes back to the pool as it is
    with world.store.engine.begin() as connection:
        bell.client.enqueue_in(connection, "last")
    assert bell.received() == [TasksAvailable(("last",))]


def test_a_session_rings_after_its_commit_and_not_after_its_rollback(world: World, bell: Bell) -> None:
    with Session(world.store.engine) as session:
        bell.client.enqueue_in(session, "video")
        session.rollback()
        bell.client.enqueue_in(session, "mail")
        assert bell.received() == []
        session.commit()
    assert bell.received() == [TasksAvailable(("mail",))]


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)  # whose driver has both colours
async def test_an_async_connection_rings_after_its_commit(world: World, bell: Bell) -> None:
    engine = create_async_engine(world.store.url)
    async with engine.connect() as connection:
        await bell.client.aio.enqueue_in(connection, "video")
        assert bell.received() == []
        await connection.commit()
    assert bell.received() == [TasksAvailable(("video",))]
    await engine.dispose()
    bell.client.aio.close()


WORK = TasksAvailable(("video",))
SECRET = "a secret of at least 16 bytes"


class EndpointSocket:
    """A node's endpoint."""

    def __init__(self, world: World, name: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        host, port = self._socket.getsockname()
        world.node(name)
        world.run(partial(write_endpoint, name=name, incarnation=world.incarnation(name), address=f"{host}:{port}"))

    def datagrams(self) -> list[bytes]:
        """Those received since the last call; on one machine, a ring is received when it has been sent."""
        found: list[bytes] = []
        with suppress(BlockingIOError):
            while True:
                found.append(self._socket.recv(65_536))
        return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def endpoint(world: World) -> Iterator[Callable[[str], EndpointSocket]]:
    with ExitStack() as afterwards:
        yield lambda name: afterwards.enter_context(closing(EndpointSocket(world, name)))


def test_the_first_node_is_rung_at_soon_and_further_ones_when_the_endpoints_are_read_again(
    world: World, endpoint: Callable[[str], EndpointSocket]
) -> None:
    clock, endpoints = ManualClock(100.0), list[EndpointSocket]()
    with closing(DatagramTransport(world.store, SECRET, clock=clock)) as transport:

        def rung(later: float) -> list[bool]:
            """Which endpoints get a ring that is sent so many seconds later."""
            clock.now += later
            transport.send([WORK])
            return [bool(one.datagrams()) for one in endpoints]

        assert rung(0.0) == []
        endpoints.append(endpoint("first"))
        assert rung(0.0) == [False], "without a node that is up, the endpoints are not read at each ring"
        assert rung(NO_ENDPOINTS_TTL) == [True]
        endpoints.append(endpoint("second"))
        assert rung(NO_ENDPOINTS_TTL) == [True, False]
        assert rung(ENDPOINTS_TTL - NO_ENDPOINTS_TTL) == [True, True]


def test_a_ring_is_of_the_databases_time_whatever_the_machines_clock_shows(
    world: World, endpoint: Callable[[str], EndpointSocket], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = endpoint("a")
    now = time.time
    with monkeypatch.context() as ahead, closing(DatagramTransport(world.store, SECRET)) as ringing:
        ahead.setattr(time, "time", lambda: now() + 600)
        ringing.send([WORK])
    verifier = Verifier(SECRET, world.incarnation("a"), time.time)
    assert [verifier.open(datagram) for datagram in one.datagrams()] == [WORK]
