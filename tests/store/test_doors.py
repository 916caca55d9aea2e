"""Where is rung: at the doors of the nodes, also of those that came after the first ring."""

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
SECRET = "open, sesame, and let us in"


class Hearer:
    """A node's door."""

    def __init__(self, world: World, name: str) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        host, port = self._socket.getsockname()
        world.node(name)
        world.store.run(
            partial(write_endpoint, name=name, incarnation=world.incarnation(name), address=f"{host}:{port}")
        )

    def datagrams(self) -> list[bytes]:
        """What has come since it was asked last."""
        found: list[bytes] = []
        with suppress(BlockingIOError):
            while True:
                found.append(self._socket.recv(65_536))
        return found

    def heard(self) -> bool:
        """Whether a ring came since it was asked last; on one machine it is there when it has been sent."""
        return bool(self.datagrams())

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(100.0)


@pytest.fixture
def way(world: World, clock: ManualClock) -> Iterator[DatagramTransport]:
    made = DatagramTransport(world.store, SECRET, clock=clock)
    yield made
    made.close()


@pytest.fixture
def hearers() -> Iterator[list[Hearer]]:
    made: list[Hearer] = []
    yield made
    for one in made:
        one.close()


def test_the_first_node_is_rung_at_soon(
    world: World, way: DatagramTransport, clock: ManualClock, hearers: list[Hearer]
) -> None:
    way.send([WORK])
    hearers.append(first := Hearer(world, "first"))
    way.send([WORK])
    assert not first.heard()  # who enqueues where no node is up does not ask at each ring
    clock.now += NO_ENDPOINTS_TTL
    way.send([WORK])
    assert first.heard()


def test_further_ones_when_the_endpoints_are_read_again(
    world: World, way: DatagramTransport, clock: ManualClock, hearers: list[Hearer]
) -> None:
    hearers.append(first := Hearer(world, "first"))
    way.send([WORK])
    assert first.heard()
    hearers.append(second := Hearer(world, "second"))
    clock.now += NO_ENDPOINTS_TTL
    way.send([WORK])
    assert first.heard()
    assert not second.heard()
    clock.now += ENDPOINTS_TTL - NO_ENDPOINTS_TTL
    way.send([WORK])
    assert first.heard()
    assert second.heard()


def test_a_ring_is_of_the_databases_time_whatever_the_machines_clock_shows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    hearer = Hearer(world, "a")
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 600)
    ringing = DatagramTransport(world.store, SECRET)
    ringing.send([WORK])
    monkeypatch.undo()
    opener = Verifier(SECRET, world.incarnation("a"), time.time)
    assert [opener.open(datagram) for datagram in hearer.datagrams()] == [WORK]
    ringing.close()
    hearer.close()
