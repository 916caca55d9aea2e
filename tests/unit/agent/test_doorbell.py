"""The node's side of the doorbell: the door, the porter, and the condition of a bell."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from peerd.agent.doorbell.addressing import advertised_host, bound_host
from peerd.agent.doorbell.refusals import UNHEARD_FOR, Refusals
from peerd.agent.doorbell.udp_listener import AT_A_TIME, OpenDoor
from peerd.agent.doorbell.wake_up_debouncer import Porter
from peerd.config.settings import ClusterSettings, NodeSettings
from peerd.domain.ring import Due, Ring, Taken, Told, Trial, Work
from peerd.doorbell.datagram import HEAD, WINDOW, Opener, Refused, RingRefused, Sealer
from peerd.runtime.observability.events import Events, Fact, RingsRefused
from peerd.testing import eventually_async
from tests.support.manual_clock import Clock

SECRET = "a secret that all nodes share"


class Visitor:
    """Rings at a door that it knows."""

    def __init__(self, refusals: Refusals, heard: list[Ring], facts: list[Fact], port: int) -> None:
        self.heard, self.facts = heard, facts
        self.refusals = refusals
        self._address = ("127.0.0.1", port)
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

    def send(self, datagram: bytes) -> None:
        self._socket.sendto(datagram, self._address)

    def ring(self, ring: Ring, secret: str = SECRET) -> None:
        self.send(Sealer(secret, time.time).seal(ring, "life"))

    def leave(self) -> None:
        self._socket.close()


@pytest.fixture
async def visitor() -> AsyncIterator[Visitor]:
    heard: list[Ring] = []
    facts: list[Fact] = []
    refusals = Refusals(Events(facts.append))
    door = OpenDoor(Opener(SECRET, "life", time.time), heard.append, refusals)
    visitor = Visitor(refusals, heard, facts, door.open("127.0.0.1", 0))
    yield visitor
    visitor.leave()
    door.close()


async def test_a_door_hears_who_has_the_secret_and_refuses_all_others(visitor: Visitor) -> None:
    visitor.ring(Work(("video",)), "quite another secret")
    visitor.send(b"hello?")
    visitor.ring(Work(("video",)))
    await eventually_async(lambda: visitor.heard == [Work(("video",))])
    assert visitor.refusals.counts == {Refused.SECRET: 1, Refused.STRANGE: 1}
    assert visitor.refusals.last == (Refused.STRANGE, "127.0.0.1")
    assert {(fact.reason, fact.count) for fact in visitor.facts if isinstance(fact, RingsRefused)} == {
        (str(Refused.SECRET), 1),
        (str(Refused.STRANGE), 1),
    }


@pytest.mark.parametrize(("secret", "late"), [("quite another secret", 0.0), (SECRET, WINDOW + 60.0)])
def test_two_different_rings_for_this_node_tell_that_somebody_is_not_heard_and_one_does_not(
    secret: str, late: float
) -> None:
    clock = Clock(1_000_000.0)
    refusals, opener = Refusals(Events(), clock), Opener(SECRET, "life", clock)

    def come(datagram: bytes) -> None:
        with pytest.raises(RingRefused) as refused:
            opener.open(datagram)
        refusals.refuse(refused.value, "10.0.0.9")

    def ring(to: str) -> bytes:
        return Sealer(secret, lambda: clock.now - late).seal(Work(), to)

    captured = ring("life")
    for datagram in (captured, captured, ring("another life"), ring("another life"), HEAD + b"forged" * 4):
        come(datagram)
        assert refusals.of_somebody_unheard() is None
    come(ring("life"))
    assert "10.0.0.9" in str(refusals.of_somebody_unheard())
    clock.now += UNHEARD_FOR + 1
    assert refusals.of_somebody_unheard() is None


async def test_a_flood_is_told_once_and_leaves_the_event_loop_its_turns(visitor: Visitor) -> None:
    for _ in range(2 * AT_A_TIME):  # the kernel keeps a few hundred such small ones
        visitor.send(HEAD + b"forged" * 4)
    turns = 0
    before = visitor.refusals.counts[Refused.SECRET]
    while visitor.refusals.counts[Refused.SECRET] < 2 * AT_A_TIME:
        count = visitor.refusals.counts[Refused.SECRET]
        assert count - before <= AT_A_TIME  # never more between two turns of ours
        before = count
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 2
    visitor.ring(Work())
    await eventually_async(lambda: visitor.heard == [Work()])
    assert len(visitor.facts) == 1


async def test_rings_of_a_few_milliseconds_are_passed_on_together() -> None:
    woken: list[Any] = []
    others: list[Any] = []
    porter = Porter(woken.append, others.append, others.append, others.append)
    porter.hear(Work(("video",)))
    assert woken == [Work(("video",))]  # the first one at once
    for number in range(100):
        porter.hear(Work((f"queue-{number % 2}",)))
        porter.hear(Taken((number % 3,)))
    assert len(woken) == 1
    await eventually_async(lambda: len(woken) > 2)
    assert woken[1:] == [Work(("queue-0", "queue-1")), Taken((0, 1, 2))]
    for ring in (Due(within=1.0), Told("prices"), Trial("word")):
        porter.hear(ring)
    assert others == [Due(within=1.0), Told("prices"), "word"]
    assert porter.heard == 203


def test_a_node_is_reached_where_it_says_or_where_it_reaches_its_database_from() -> None:
    local, remote = make_url("sqlite:////tmp/peerd.sqlite"), make_url("mysql://peerd@127.0.0.1/peerd")
    assert advertised_host(NodeSettings(address="10.0.0.7"), local) == "127.0.0.1"
    assert advertised_host(NodeSettings(address="10.0.0.7"), remote) == "10.0.0.7"
    assert advertised_host(NodeSettings(address="[fd00::7]"), remote) == "fd00::7"
    assert advertised_host(NodeSettings(), remote) == "127.0.0.1"
    assert bound_host(ClusterSettings(), "127.0.0.1", local) == "127.0.0.1"
    assert bound_host(ClusterSettings(), "10.0.0.7", remote) == "0.0.0.0"
    assert bound_host(ClusterSettings(), "fd00::7", remote) == "::"
    assert bound_host(ClusterSettings(bind="10.0.0.7"), "10.0.0.7", remote) == "10.0.0.7"
