"""Touching: a thread with a connection of its own says of each held task that it is still held.

It is a thread (`peerd.runtime.concurrency.periodic_thread`) because handlers may block the event loop for as long as
they like, and a task that nobody touches is given to another node. That goes for what a claim in flight has won, too,
which the event loop has not heard of yet. It also writes progress, learns which claims were lost, and gives back rows
that the table says this process holds but that it does not know of: the answer of their claim was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from peerd.domain.errors import DatabaseAway, RowLocked
from peerd.runtime.observability.events import ComponentFailed, Events, StrayReleased
from peerd.runtime.process.uncaught_exceptions import words
from peerd.store.connection.database import Database
from peerd.store.connection.outages import LONGEST_PAUSE, Backoff, Outages
from peerd.store.maintenance.rescue import release_held
from peerd.store.nodes.processes import beat_process
from peerd.store.outcomes.recording import Held
from peerd.store.outcomes.touch import held_by, report_progress, touch
from peerd.work.claims.active_claims import Holdings

PROGRESS_EVERY: Final = 1.0
"""Seconds."""
IDLE_UPDATES: Final = 7
IDLE_EVERY: Final = 20.0
"""While nothing is held, so many updates pass between two beats, and so many seconds at the most."""
STRAYS_FOR: Final = 30.0
"""Seconds after a process has held or claimed anything in which it looks for strays with each touch."""
STRAYS_SELDOM: Final = 120.0
"""Seconds between two looks for strays after that: for what a server carries out late, for a client that it has long
lost. No manager rescues it, while its process lives."""
SHORTEST_PAUSE: Final = 0.01
"""Seconds between two rounds at the least."""


class Toucher:
    """Touches what a process holds, every ``update`` seconds, by its `round`, which a ticker calls.

    Args:
        database: it takes one connection of it.
        process_id: who holds.
        holdings: what is held.
        update: seconds between two touches.
        lost: called from the thread with each claim that was lost.
        outages: what it learns about the database.
        events: strays, and failures of its own.
    """

    def __init__(
        self,
        database: Database,
        process_id: int,
        holdings: Holdings,
        *,
        update: float,
        lost: Callable[[Held], None],
        outages: Outages,
        events: Events,
    ) -> None:
        self._database = database
        self._process_id = process_id
        self._holdings = holdings
        self._update = update
        self._lost = lost
        self._outages = outages
        self._events = events
        self._pauses = Backoff(first=min(update, PROGRESS_EVERY), longest=min(update, LONGEST_PAUSE))
        self._next_touch: float | None = None
        self._next_idle_look = 0.0
        self._claims = -1
        self._looks_until = 0.0
        self._next_seldom_look = 0.0

    def round(self, now: float) -> float:
        """Write the progress that was reported, and touch what is held when it is time to.

        Args:
            now: the machine's monotonic clock, in seconds.

        Returns:
            the seconds until the next round.
        """
        if self._next_touch is None:
            self._next_touch = now + self._update  # a claim is a touch too
        try:
            self._write_progress()
            if now >= self._next_touch:
                self._touch_all(now)
                self._next_touch = now + self._update
        except DatabaseAway as error:
            self._outages.lost(error)
            return self._again(now)
        except Exception as error:  # noqa: BLE001 - untouched tasks would be rescued while they run
            pause = self._again(now)
            self._events.emit(ComponentFailed(component="touch", error=words(error), again_in=pause))
            return pause
        self._pauses.reset()
        return min(PROGRESS_EVERY, max(self._next_touch - now, SHORTEST_PAUSE))

    def _again(self, now: float) -> float:
        """Touch again after a pause, whichever write has failed; returns its seconds."""
        pause = self._pauses.next()
        self._next_touch = now + pause
        return pause

    def _touch_all(self, now: float) -> None:
        if self._holdings.is_idle and now < self._next_idle_look:
            return
        self._next_idle_look = now + max(self._update, min(IDLE_UPDATES * self._update, IDLE_EVERY))
        self._beat()
        self._touch()
        if self._may_have_strays(now):
            found = self._database.read(held_by, self._process_id)
            self._touch_arriving(found)
            self._release_strays(found)
        self._outages.found()

    def _beat(self) -> None:
        """First of all: while its process beats, no task is rescued, whatever keeps its row from being touched."""
        with suppress(RowLocked):  # by somebody's transaction; what is touched next is not rescued either
            self._database.run_repeatable(beat_process, self._process_id)

    def _may_have_strays(self, now: float) -> bool:
        claims = self._holdings.claims
        if claims != self._claims or not self._holdings.is_idle:
            self._claims, self._looks_until = claims, now + STRAYS_FOR
        if now >= self._looks_until and now < self._next_seldom_look:
            return False
        self._next_seldom_look = now + STRAYS_SELDOM
        return True

    def _touch(self) -> None:
        held = self._holdings.all()
        for lost in self._database.run(touch, held) if held else ():
            self._lost(lost)

    def _write_progress(self) -> None:
        reports = self._holdings.take_progress()
        if not reports:
            return
        try:
            written = self._database.run(report_progress, reports)
        except DatabaseAway:
            self._holdings.keep_progress(reports)
            raise
        self._holdings.keep_progress({held: reports[held] for held in written.locked})
        for one in written.refused:
            self._lost(one)

    def _touch_arriving(self, found: Mapping[Held, int | None]) -> None:
        """Touch what a claim has won whose answer has not been taken: a handler may block the event loop for long."""
        arriving = self._holdings.arriving(found)
        if arriving:
            self._database.run(touch, arriving)  # what is lost of it, its handler's first touch or outcome will tell

    def _release_strays(self, found: Mapping[Held, int | None]) -> None:
        strays = self._holdings.strays(found)
        if strays:
            for released in self._database.run(
                release_held, self._process_id, strays, "the answer of its claim was lost"
            ):
                self._events.emit(StrayReleased(task_id=released.task_id))
