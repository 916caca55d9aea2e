"""Which operations ring, and when: after the commit of the work, and not after its rollback; on each database."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import pytest
from sqlalchemy.orm import Session

from peerd.domain.errors import InvalidFilter
from peerd.domain.lifecycle import Status
from peerd.domain.ring import ClaimRevoked, Ring, TasksAvailable, TaskScheduled
from peerd.doorbell.after_commit import ring_after_commit
from peerd.doorbell.datagram import Verifier
from peerd.doorbell.endpoints import write_endpoint
from peerd.doorbell.notifier import ENDPOINTS_TTL, NO_ENDPOINTS_TTL, DatagramTransport, Notifier
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
    bell.client.tasks.list()
    assert bell.received() == []
    dead, working, other = world.task_in(Status.DEAD), world.task_in(Status.WORKING), world.task_in(Status.WORKING)
    bell.client.tasks.retry(dead)
    assert bell.received() == [ClaimRevoked((dead,)), TasksAvailable()]
    bell.client.tasks.cancel(working)
    assert bell.received() == [ClaimRevoked((working,))]
    bell.client.tasks.move(other, None)
    assert bell.received() == [ClaimRevoked((other,)), TasksAvailable()]
    bell.client.tasks.delete(other)
    assert bell.received() == [ClaimRevoked((other,))]
    bell.client.queues.pause("q")
    assert bell.received() == []
    bell.client.queues.resume("q")
    assert bell.received() == [TasksAvailable()]
    bell.client.limits.set("q", running=3)
    assert bell.received() == [TasksAvailable(("q",))]
    bell.client.limits.list()
    assert bell.received() == []
    bell.client.limits.remove("q")
    assert bell.received() == [TasksAvailable(("q",))]


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


def test_when_a_ring_is_sent_the_task_is_visible(world: World, bell: Bell) -> None:
    seen: list[Status] = []
    with world.store.engine.begin() as connection:
        job = bell.client.enqueue_in(connection, "video")
        notifier = Notifier(world.store, open_transport=lambda: None)
        notifier.ring = lambda *_: seen.append(world.get(job.id).status)  # type: ignore[method-assign]
        ring_after_commit(connection, notifier, [TasksAvailable()])
    assert seen == [Status.PENDING]


def test_a_session_rings_after_its_commit_and_not_after_its_rollback(world: World, bell: Bell) -> None:
    with Session(world.store.engine) as session:
        bell.client.enqueue_in(session, "video")
        session.rollback()
        bell.client.enqueue_in(session, "mail")
        assert bell.received() == []
        session.commit()
    assert bell.received() == [TasksAvailable(("mail",))]


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
        """The datagrams received since the last call."""
        found: list[bytes] = []
        with suppress(BlockingIOError):
            while True:
                found.append(self._socket.recv(65_536))
        return found

    def was_rung(self) -> bool:
        """Whether a ring was received since the last call; on one machine, a ring is received when it has been sent."""
        return bool(self.datagrams())

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
def transport(world: World, clock: ManualClock) -> Iterator[DatagramTransport]:
    made = DatagramTransport(world.store, SECRET, clock=clock)
    yield made
    made.close()


@pytest.fixture
def endpoints() -> Iterator[list[EndpointSocket]]:
    made: list[EndpointSocket] = []
    yield made
    for one in made:
        one.close()


def test_the_first_node_is_rung_at_soon_and_further_ones_when_the_endpoints_are_read_again(
    world: World, transport: DatagramTransport, clock: ManualClock, endpoints: list[EndpointSocket]
) -> None:
    transport.send([WORK])
    endpoints.append(first := EndpointSocket(world, "first"))
    transport.send([WORK])
    assert not first.was_rung()  # without a node that is up, the endpoints are not read at each ring
    clock.now += NO_ENDPOINTS_TTL
    transport.send([WORK])
    assert first.was_rung()
    endpoints.append(second := EndpointSocket(world, "second"))
    for later, is_second_rung in ((NO_ENDPOINTS_TTL, False), (ENDPOINTS_TTL - NO_ENDPOINTS_TTL, True)):
        clock.now += later
        transport.send([WORK])
        assert (first.was_rung(), second.was_rung()) == (True, is_second_rung)


def test_a_ring_is_of_the_databases_time_whatever_the_machines_clock_shows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = EndpointSocket(world, "a")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 600)
    ringing = DatagramTransport(world.store, SECRET)
    ringing.send([WORK])
    monkeypatch.undo()
    verifier = Verifier(SECRET, world.incarnation("a"), time.time)
    assert [verifier.open(datagram) for datagram in endpoint.datagrams()] == [WORK]
    ringing.close()
    endpoint.close()
