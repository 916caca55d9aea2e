from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from sqlalchemy.engine import URL, make_url

from peerd.agent.doorbell_health import MISCONFIGURED_FOR, DoorbellHealth, RejectedRings
from peerd.agent.doorbell_subsystem import DoorbellSubsystem
from peerd.agent.ring_listeners import DATAGRAMS_PER_TURN, UdpListener, advertised_host, bound_host
from peerd.config.settings import ClusterSettings, NodeSettings
from peerd.domain.ring import (
    Broadcast,
    ClaimRevoked,
    NodeRequested,
    Ping,
    Ring,
    SchedulesChanged,
    TasksAvailable,
    TaskScheduled,
)
from peerd.doorbell.datagram import HEADER, REPLAY_WINDOW, RejectionReason, RingRejected, Signer, Verifier
from peerd.doorbell.wake_ups import WakeUpSocket
from peerd.runtime.frames import Peer, Target
from peerd.runtime.messenger import Delivery
from peerd.runtime.observability.events import Event, EventBus, RingsRejected
from peerd.testing import eventually_async
from tests.support.manual_clock import ManualClock
from tests.support.rows import rows

SECRET = "a secret that all nodes share"


class RingSender:
    """Rings at one UDP listener."""

    def __init__(self) -> None:
        self.received: list[Ring] = []
        self.events: list[Event] = []
        self.rejected = RejectedRings(EventBus(self.events.append))
        self.listener = UdpListener(Verifier(SECRET, "life", time.time), self.received.append, self.rejected)
        self._address = ("127.0.0.1", self.listener.open("127.0.0.1", 0))
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def send(self, datagram: bytes) -> None:
        self.socket.sendto(datagram, self._address)

    def ring(self, ring: Ring, secret: str = SECRET) -> None:
        self.send(Signer(secret, time.time).sign(ring, "life"))


@pytest.fixture
async def sender() -> AsyncIterator[RingSender]:
    sender = RingSender()
    with sender.socket, closing(sender.listener):
        yield sender


async def test_a_listener_accepts_rings_of_its_secret_and_rejects_all_others(sender: RingSender) -> None:
    sender.ring(TasksAvailable(("video",)), "quite another secret")
    sender.send(b"hello?")
    sender.ring(TasksAvailable(("video",)))
    await eventually_async(lambda: sender.received == [TasksAvailable(("video",))])
    assert sender.rejected.counts == {RejectionReason.SECRET: 1, RejectionReason.STRANGE: 1}
    assert sender.rejected.last == (RejectionReason.STRANGE, "127.0.0.1")
    reported = [(event.reason, event.count) for event in sender.events if isinstance(event, RingsRejected)]
    assert reported == [(str(RejectionReason.SECRET), 1), (str(RejectionReason.STRANGE), 1)]


@rows("secret, late", [("quite another secret", 0.0), (SECRET, REPLAY_WINDOW + 60.0)])
def test_two_different_rings_for_this_node_reveal_a_misconfigured_sender(secret: str, late: float) -> None:
    clock = ManualClock(1_000_000.0)
    rejected, verifier = RejectedRings(EventBus(), clock), Verifier(SECRET, "life", clock)

    def reject(datagram: bytes) -> None:
        with pytest.raises(RingRejected) as error:
            verifier.open(datagram)
        rejected.add(error.value, "10.0.0.9")

    def ring(to: str) -> bytes:
        return Signer(secret, lambda: clock.now - late).sign(TasksAvailable(), to)

    captured = ring("life")
    for datagram in (captured, captured, ring("another life"), ring("another life"), HEADER + b"forged" * 4):
        reject(datagram)
        assert rejected.misconfigured_sender() is None
    reject(ring("life"))
    assert "10.0.0.9" in str(rejected.misconfigured_sender())
    clock.now += MISCONFIGURED_FOR + 1
    assert rejected.misconfigured_sender() is None


async def test_a_lost_listener_is_told_at_once_and_its_return_after_a_ping() -> None:
    changed: list[bool] = []
    health = DoorbellHealth("notify", EventBus(lambda _: None), lambda: changed.append(health.problem is None))

    def send(pings: Sequence[Ping]) -> None:
        health.receive_ping(pings[0].word)

    async def find_unreachable() -> list[str]:
        return []

    running = asyncio.ensure_future(health.run(send, find_unreachable))
    try:
        await eventually_async(lambda: changed == [True])
        health.on_listener_change("the listener has lost its connection")
        assert (health.problem, changed) == ("the listener has lost its connection", [True, False])
        health.on_listener_change(None)
        assert health.problem is not None
        await eventually_async(lambda: health.problem is None)
    finally:
        running.cancel()


async def test_a_flood_is_logged_once_and_does_not_block_the_event_loop(sender: RingSender) -> None:
    for _ in range(2 * DATAGRAMS_PER_TURN):  # the kernel keeps a few hundred such small ones
        sender.send(HEADER + b"forged" * 4)
    turns = 0
    before = sender.rejected.counts[RejectionReason.SECRET]
    while sender.rejected.counts[RejectionReason.SECRET] < 2 * DATAGRAMS_PER_TURN:
        count = sender.rejected.counts[RejectionReason.SECRET]
        assert count - before <= DATAGRAMS_PER_TURN  # never more between two turns of ours
        before = count
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 2
    sender.ring(TasksAvailable())
    await eventually_async(lambda: sender.received == [TasksAvailable()])
    assert len(sender.events) == 1


async def test_rings_within_a_few_milliseconds_are_forwarded_together(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("peerd.agent.doorbell_subsystem.WAKE_UP_EVERY", 0.5)  # a busy machine needs more than 5 ms
    wake_ups: list[Any] = []
    others: list[Any] = []
    schedules, requests = partial(others.append, "schedules"), partial(others.append, "a")
    node = NodeSettings(run_directory=tmp_path)
    doorbell = DoorbellSubsystem(node, ClusterSettings(), "life", requests, lambda _: schedules())
    doorbell._link = Mock(node="a")
    doorbell._stager, doorbell._health = Mock(receive=others.append), Mock(receive_ping=others.append)
    monkeypatch.setattr(doorbell, "_wake_workers", wake_ups.append)
    monkeypatch.setattr(doorbell, "_broadcast_on_node", others.append)
    doorbell.receive_ring(TasksAvailable(("video",)))
    assert wake_ups == [TasksAvailable(("video",))]  # the first one at once
    for number in range(100):
        doorbell.receive_ring(TasksAvailable((f"queue-{number % 2}",)))
        doorbell.receive_ring(ClaimRevoked((number % 3,)))
    assert len(wake_ups) == 1
    await eventually_async(lambda: len(wake_ups) > 2)
    assert wake_ups[1:] == [TasksAvailable(("queue-0", "queue-1")), ClaimRevoked((0, 1, 2))]
    for ring in (
        TaskScheduled(within=1.0),
        Broadcast("prices"),
        Ping("word"),
        NodeRequested("b"),
        NodeRequested("a"),
        SchedulesChanged(),
    ):
        doorbell.receive_ring(ring)
    assert others == [TaskScheduled(within=1.0), Broadcast("prices"), "word", "a", "schedules"]
    assert doorbell.rings_received == 206


async def test_web_processes_get_rings_of_tasks_by_their_socket_alone(tmp_path: Path) -> None:
    node = NodeSettings(run_directory=tmp_path)
    doorbell = DoorbellSubsystem(node, ClusterSettings(), "life", Mock(), Mock())
    sent: list[int] = []

    def send_to(pid: int, action: str, _: Any) -> Delivery:
        sent.append(pid)
        return Delivery(action, Target.process(pid))

    workers = (Peer(1, "jobs-1", "jobs", "worker"), Peer(os.getpid(), "site-1", "site", "web"))
    gateways = (Peer(2, "tubes-1", "tubes", "gateway"),)
    doorbell._messenger = Mock(workers=workers, gateways=gateways, send_to=send_to)
    doorbell._wake_up_sender.open()
    doorbell._wake_workers(TasksAvailable())
    assert sent == [1, 2], "a web process without a socket has no viewers"
    doorbell._wake_workers(ClaimRevoked((7,)))
    assert sent == [1, 2, 1, os.getpid()]
    received: list[TasksAvailable] = []
    wake_up_socket = WakeUpSocket(tmp_path, received.append)
    wake_up_socket.open()
    doorbell._wake_workers(TasksAvailable())
    await eventually_async(lambda: received == [TasksAvailable()])
    wake_up_socket.close()
    doorbell._wake_up_sender.close()


LOCAL, REMOTE = make_url("sqlite:////tmp/peerd.sqlite"), make_url("mysql://peerd@127.0.0.1/peerd")


@rows("address, url, advertised, bind, bound", [
    ("10.0.0.7", LOCAL, "127.0.0.1", None, "127.0.0.1"), ("10.0.0.7", REMOTE, "10.0.0.7", None, "0.0.0.0"),
    ("[fd00::7]", REMOTE, "fd00::7", None, "::"), (None, REMOTE, "127.0.0.1", "10.0.0.7", "10.0.0.7"),
])  # fmt: skip
def test_a_node_advertises_its_address_or_the_one_it_reaches_its_database_from_and_binds_to_one_that_serves_it(
    address: str | None, url: URL, advertised: str, bind: str | None, bound: str
) -> None:
    assert advertised_host(NodeSettings(address=address), url) == advertised
    assert bound_host(ClusterSettings(bind=bind), advertised, url) == bound
