"""Rings are sent to the endpoints of the nodes, also of nodes that started after the first ring."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial

import pytest

from peerd.domain.ring import TasksAvailable
from peerd.doorbell.datagram import Verifier
from peerd.doorbell.endpoints import write_endpoint
from peerd.doorbell.notifier import ENDPOINTS_TTL, NO_ENDPOINTS_TTL, DatagramTransport
from tests.store.world import World
from tests.support.manual_clock import ManualClock

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
