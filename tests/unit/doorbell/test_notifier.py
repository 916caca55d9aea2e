"""Ringing: it never waits and never fails, and many rings become few."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from peerd.domain.ring import Ring, TasksAvailable, TaskScheduled
from peerd.doorbell.notifier import MAX_INTERVAL, Notifier
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
def notifier(tmp_path: Path, way: Recorded) -> Iterator[Notifier]:
    made = Notifier(Database(f"sqlite:///{tmp_path / 'peerd.sqlite'}"), open_transport=lambda: way)
    yield made
    way.open.set()
    made.close()


def test_it_rings(notifier: Notifier, way: Recorded) -> None:
    notifier.ring(TasksAvailable(("video",)))
    assert notifier.flush(10)
    assert way.sent == [[TasksAvailable(("video",))]]


def test_while_one_ring_is_sent_all_others_become_one(notifier: Notifier, way: Recorded) -> None:
    way.open.clear()
    notifier.ring(TasksAvailable(("first",)))
    for number in range(1000):
        notifier.ring(TasksAvailable((f"queue-{number % 3}",)), TaskScheduled(within=float(1000 - number)))
    assert not notifier.flush(0.0)
    way.open.set()
    assert notifier.flush(10)
    everything = [ring for rings in way.sent for ring in rings]
    assert len(everything) <= 4
    assert {queue for ring in everything if isinstance(ring, TasksAvailable) for queue in ring.queues} == {
        "first", "queue-0", "queue-1", "queue-2",
    }  # fmt: skip
    assert min(ring.within or 0 for ring in everything if isinstance(ring, TaskScheduled)) == 1.0


def test_who_rings_all_the_time_rings_ever_less_often(notifier: Notifier, way: Recorded) -> None:
    began = time.monotonic()
    while time.monotonic() - began < 0.5:
        notifier.ring(TasksAvailable(("video",)))
    assert notifier.flush(10)
    assert len(way.sent) <= 0.5 / MAX_INTERVAL + 10


def test_a_ring_that_fails_is_nobodys_trouble_and_the_next_one_goes_out(notifier: Notifier, way: Recorded) -> None:
    way.fails = True
    notifier.ring(TasksAvailable())
    assert notifier.flush(10)
    assert notifier.last_error == "OSError: no network"
    way.fails = False
    notifier.ring(TasksAvailable(("video",)))
    assert notifier.flush(10)
    assert way.sent == [[TasksAvailable(("video",))]]
    assert "no network" not in str(notifier.last_error)


def test_the_end_sends_what_is_left_and_no_more(notifier: Notifier, way: Recorded) -> None:
    notifier.ring(TasksAvailable(("video",)))
    notifier.close()
    assert (way.sent, way.closed) == ([[TasksAvailable(("video",))]], True)
    notifier.ring(TasksAvailable(("late",)))
    assert way.sent == [[TasksAvailable(("video",))]]


def test_a_forked_process_rings_by_itself(notifier: Notifier, way: Recorded) -> None:
    notifier.ring(TasksAvailable(("parent",)))
    assert notifier.flush(10)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        notifier.ring(TasksAvailable(("child",)))
        notifier.flush(10)
        os.write(writing, str(way.sent[-1]).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 1000).decode() == str([TasksAvailable(("child",))])
    os.close(reading)
    os.close(writing)


def test_without_a_secret_nobody_is_kept_busy() -> None:
    mute = Notifier(Database("mysql://nobody@127.0.0.1:9/nothing"))
    before = threading.active_count()
    mute.ring(TasksAvailable())
    assert mute.has_no_secret
    assert threading.active_count() == before


def test_a_database_that_is_away_delays_nobody() -> None:
    notifier = Notifier(Database("mysql://nobody@127.0.0.1:9/nothing"), "a secret of some length")
    began = time.monotonic()
    for _ in range(1000):
        notifier.ring(TasksAvailable())
    assert time.monotonic() - began < 1.0
    assert notifier.flush(30)
    assert "DatabaseUnavailable" in str(notifier.last_error)
    notifier.close()
