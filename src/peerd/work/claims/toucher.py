"""Touching: a thread with a connection of its own says of each held task that it is still held.

It is a thread (`peerd.runtime.concurrency.threads`) because handlers may block the event loop for as long as
they like, and a task that nobody touches is given to another node. That goes for what a claim in flight has won, too,
which the event loop has not heard of yet. It also writes progress, learns which claims were lost, and gives back rows
that the table says this process holds but that it does not know of: the answer of their claim was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from peerd.domain.backoff import LONGEST_PAUSE, Backoff
from peerd.domain.errors import DatabaseUnavailable, RowLocked
from peerd.runtime.observability.events import ComponentFailed, EventBus, UnknownClaimReleased
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.maintenance.rescue import release_unknown_claims
from peerd.store.nodes.processes import heartbeat_process
from peerd.store.outcomes.recording import ClaimId
from peerd.store.outcomes.touch import claims_of_process, report_progress, touch
from peerd.work.claims.active_claims import ActiveClaims

PROGRESS_EVERY: Final = 1.0
"""Seconds."""
IDLE_UPDATES: Final = 7
IDLE_EVERY: Final = 20.0
"""While nothing is held, so many updates pass between two beats, and so many seconds at the most."""
CHECK_UNKNOWN_FOR: Final = 30.0
"""Seconds after a process has held or claimed anything in which it looks for strays with each touch."""
CHECK_UNKNOWN_EVERY: Final = 120.0
"""Seconds between two looks for strays after that: for what a server carries out late, for a client that it has long
lost. No manager rescues it, while its process lives."""
SHORTEST_PAUSE: Final = 0.01
"""Seconds between two rounds at the least."""


class Toucher:
    """Touches what a process holds, every ``update`` seconds, by its `round`, which a ticker calls.

    Args:
        database: it takes one connection of it.
        process_id: who holds.
        active_claims: what is held.
        update: seconds between two touches.
        lost: called from the thread with each claim that was lost.
        outages: what it learns about the database.
        events: strays, and failures of its own.
    """

    def __init__(
        self,
        database: Database,
        process_id: int,
        active_claims: ActiveClaims,
        *,
        update: float,
        lost: Callable[[ClaimId], None],
        outages: OutageTracker,
        events: EventBus,
    ) -> None:
        self._database = database
        self._process_id = process_id
        self._active_claims = active_claims
        self._update = update
        self._lost = lost
        self._outages = outages
        self._events = events
        self._pauses = Backoff(first=min(update, PROGRESS_EVERY), longest=min(update, LONGEST_PAUSE))
        self._next_touch: float | None = None
        self._next_idle_beat = 0.0
        self._claims = -1
        self._check_until = 0.0
        self._next_rare_check = 0.0

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
        except DatabaseUnavailable as error:
            self._outages.lost(error)
            return self._retry_after_pause(now)
        except Exception as error:  # noqa: BLE001 - untouched tasks would be rescued while they run
            pause = self._retry_after_pause(now)
            self._events.emit(ComponentFailed(component="touch", error=describe_exception(error), again_in=pause))
            return pause
        self._pauses.reset()
        return min(PROGRESS_EVERY, max(self._next_touch - now, SHORTEST_PAUSE))

    def _retry_after_pause(self, now: float) -> float:
        """Touch again after a pause, whichever write has failed; returns its seconds."""
        pause = self._pauses.next()
        self._next_touch = now + pause
        return pause

    def _touch_all(self, now: float) -> None:
        if self._active_claims.is_idle and now < self._next_idle_beat:
            return
        self._next_idle_beat = now + max(self._update, min(IDLE_UPDATES * self._update, IDLE_EVERY))
        self._beat()
        self._touch()
        if self._should_check_unknown(now):
            found = self._database.read(claims_of_process, self._process_id)
            self._touch_in_flight(found)
            self._release_unknown(found)
        self._outages.found()

    def _beat(self) -> None:
        """First of all: while its process beats, no task is rescued, whatever keeps its row from being touched."""
        with suppress(RowLocked):  # by somebody's transaction; what is touched next is not rescued either
            self._database.run_idempotent(heartbeat_process, self._process_id)

    def _should_check_unknown(self, now: float) -> bool:
        claims = self._active_claims.claims
        if claims != self._claims or not self._active_claims.is_idle:
            self._claims, self._check_until = claims, now + CHECK_UNKNOWN_FOR
        if now >= self._check_until and now < self._next_rare_check:
            return False
        self._next_rare_check = now + CHECK_UNKNOWN_EVERY
        return True

    def _touch(self) -> None:
        held = self._active_claims.all()
        for lost in self._database.run(touch, held) if held else ():
            self._lost(lost)

    def _write_progress(self) -> None:
        reports = self._active_claims.take_progress()
        if not reports:
            return
        try:
            written = self._database.run(report_progress, reports)
        except DatabaseUnavailable:
            self._active_claims.restore_progress(reports)
            raise
        self._active_claims.restore_progress({held: reports[held] for held in written.locked})
        for one in written.refused:
            self._lost(one)

    def _touch_in_flight(self, found: Mapping[ClaimId, int | None]) -> None:
        """Touch what a claim has won whose answer has not been taken: a handler may block the event loop for long."""
        in_flight_among = self._active_claims.in_flight_among(found)
        if in_flight_among:
            self._database.run(
                touch, in_flight_among
            )  # what is lost of it, its handler's first touch or outcome will tell

    def _release_unknown(self, found: Mapping[ClaimId, int | None]) -> None:
        unknown_among = self._active_claims.unknown_among(found)
        if unknown_among:
            for released in self._database.run(
                release_unknown_claims, self._process_id, unknown_among, "the answer of its claim was lost"
            ):
                self._events.emit(UnknownClaimReleased(task_id=released.task_id))
