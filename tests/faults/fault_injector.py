"""A lane: a thread that does one fault after another, drawn from its own random numbers.

The same seed, the same choices, as far as the same processes are there to choose from. Every fault, and its healing, is
recorded in the history (see `tests.faults.history` for the words): before it is done, and after it is undone.
"""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from tests.faults import history
from tests.faults.nodes import NodeFleet

Fault = Callable[[], None]
Choices = Mapping[str, tuple[int, Fault]]
"""By name: how often, beside the others, and what is done."""


class FaultRates(msgspec.Struct, frozen=True):
    """How hard a campaign is, in seconds."""

    kill_every: float = 1.0
    freeze_every: float = 8.0
    outage_every: float = 20.0
    longest_outage: float = 15.0
    long_outage: float | None = None
    """The length of the one long outage, where there is one."""


class FaultInjector(ABC):
    """One fault after another, until it is stopped. Its exceptions are kept for the caller.

    Args:
        name: of its thread.
        rng: its own.
        every: seconds from the begin of a fault to that of the next one, if it does not last longer;
            a third of it is between the one's end and the next in any case.
        spread: the least and the most that this may be, as parts of it.
        stopping: ends it, and what it does.
    """

    def __init__(
        self, name: str, rng: random.Random, every: float, spread: tuple[float, float], stopping: threading.Event
    ) -> None:
        self.rng = rng
        self.error: BaseException | None = None
        self._every = every
        self._spread = spread
        self._stopping = stopping
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @abstractmethod
    def inject(self) -> None:
        """Do one fault, and heal it."""

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def wait(self, seconds: float) -> None:
        """Let a fault last; not longer than the lane."""
        self._stopping.wait(seconds)

    def inject_one_of(self, choices: Choices) -> None:
        """Do one of these."""
        names = list(choices)
        [name] = self.rng.choices(names, [choices[name][0] for name in names])
        choices[name][1]()

    def _run(self) -> None:
        try:
            due = time.monotonic()
            while True:
                pause = self._every * self.rng.uniform(*self._spread)
                due = max(due + pause, time.monotonic() + pause / 3)
                if self._stopping.wait(due - time.monotonic()):
                    break
                self.inject()
        except BaseException as error:  # noqa: BLE001 - a harness that fails must not look like a cluster that holds
            self.error = error


@contextmanager
def recorded_fault(kind: str, target: str, **more: Any) -> Iterator[None]:
    """A fault that heals, in the history."""
    history.record("fault", kind=kind, target=target, **more)
    try:
        yield
    finally:
        history.record("healed", kind=kind, target=target)


def sqlite_file(fleet: NodeFleet) -> Path | None:
    """The file of the database, where it is one."""
    url = fleet.cluster.client.database.url
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None
