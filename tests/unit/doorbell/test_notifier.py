"""Ringing: it never waits and never fails, and many rings become few."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from peerd.domain.ring import Due, Ring, Work
from peerd.doorbell.notifier import SELDOM, Ringer
from peerd.store.connection.database import Database


class Recorded:
    """A way that remembers; it can be held up, and can fail."""

    def __init__(self) -> None:
        self.sent: list[list[Ring]] = []
        self.open = threading.Event()
        self.open.set()
        self.fails = False
        self.closed = False

    def send(self, rings: Sequence[Ring]) -> None:
        assert self.open.wait(10)
        if self.fails:
            raise OSError("no network")
        self.sent.append(list(rings))

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def way() -> Recorded:
    return Recorded()


@pytest.fixture
def ringer(tmp_path: Path, way: Recorded) -> Iterator[Ringer]:
    made = Ringer(Database(f"sqlite:///{tmp_path / 'peerd.sqlite'}"), open_way=lambda: way)
    yield made
    way.open.set()
    made.close()


def test_it_rings(ringer: Ringer, way: Recorded) -> None:
    ringer.ring(Work(("video",)))
    assert ringer.flush(10)
    assert way.sent == [[Work(("video",))]]


def test_while_one_ring_is_sent_all_others_become_one(ringer: Ringer, way: Recorded) -> None:
    way.open.clear()
    ringer.ring(Work(("first",)))
    for number in range(1000):
        ringer.ring(Work((f"queue-{number % 3}",)), Due(within=float(1000 - number)))
    assert not ringer.flush(0.0)
    way.open.set()
    assert ringer.flush(10)
    everything = [ring for rings in way.sent for ring in rings]
    assert len(everything) <= 4
    assert {queue for ring in everything if isinstance(ring, Work) for queue in ring.queues} == {
        "first", "queue-0", "queue-1", "queue-2",
    }  # fmt: skip
    assert min(ring.within or 0 for ring in everything if isinstance(ring, Due)) == 1.0


def test_who_rings_all_the_time_rings_ever_less_often(ringer: Ringer, way: Recorded) -> None:
    began = time.monotonic()
    while time.monotonic() - began < 0.5:
        ringer.ring(Work(("video",)))
    assert ringer.flush(10)
    assert len(way.sent) <= 0.5 / SELDOM + 10


def test_a_ring_that_fails_is_nobodys_trouble_and_the_next_one_goes_out(ringer: Ringer, way: Recorded) -> None:
    way.fails = True
    ringer.ring(Work())
    assert ringer.flush(10)
    assert ringer.last_error == "OSError: no network"
    way.fails = False
    ringer.ring(Work(("video",)))
    assert ringer.flush(10)
    assert way.sent == [[Work(("video",))]]
    assert "no network" not in str(ringer.last_error)


def test_the_end_sends_what_is_left_and_no_more(ringer: Ringer, way: Recorded) -> None:
    ringer.ring(Work(("video",)))
    ringer.close()
    assert (way.sent, way.closed) == ([[Work(("video",))]], True)
    ringer.ring(Work(("late",)))
    assert way.sent == [[Work(("video",))]]


def test_a_forked_process_rings_by_itself(ringer: Ringer, way: Recorded) -> None:
    ringer.ring(Work(("parent",)))
    assert ringer.flush(10)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        ringer.ring(Work(("child",)))
        ringer.flush(10)
        os.write(writing, str(way.sent[-1]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 1000).decode() == str([Work(("child",))])
    os.close(reading)
    os.close(writing)


def test_without_a_secret_nobody_is_kept_busy() -> None:
    mute = Ringer(Database("mysql://nobody@127.0.0.1:9/nothing"))
    before = threading.active_count()
    mute.ring(Work())
    assert mute.is_mute
    assert threading.active_count() == before


def test_a_database_that_is_away_delays_nobody() -> None:
    ringer = Ringer(Database("mysql://nobody@127.0.0.1:9/nothing"), "a secret of some length")
    began = time.monotonic()
    for _ in range(1000):
        ringer.ring(Work())
    assert time.monotonic() - began < 1.0
    assert ringer.flush(30)
    assert "DatabaseAway" in str(ringer.last_error)
    ringer.close()
