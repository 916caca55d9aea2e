"""The claims that this process holds, and the thread that touches them.

A claim is held, and touched, from the moment its rows are known until its outcome is committed or refused. The event
loop and the touch thread share the claims, under a lock.

The touch has a thread (`peerd.runtime.concurrency`) and a database connection of its own because handlers may
block the event loop for any time, and a task that is not touched is rescued. Tasks of a claim whose answer
the event loop has not processed yet are touched, too. The thread also writes progress, notices lost claims, and
releases rows that the table assigns to this process but that it does not know of, because the answer of their claim was
lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Final

from peerd.domain.errors import DatabaseUnavailable, RowLocked
from peerd.domain.pacing import LONGEST_PAUSE, Backoff
from peerd.runtime.observability.events import ComponentFailed, EventBus, UnknownClaimReleased
from peerd.runtime.process.uncaught_exceptions import describe_exception
from peerd.store.connection.database import Database
from peerd.store.connection.outages import OutageTracker
from peerd.store.outcomes import ClaimId, TaskProgress, claims_of_process, report_progress, touch
from peerd.store.processes import heartbeat_process
from peerd.store.rescue import release_unknown_claims

FoundClaims = Mapping[ClaimId, int | None]
"""Claims of this process as they stood in the table before the call, with their tokens."""


class ActiveClaims:
    """The claims of one process.

    >>> active_claims = ActiveClaims()
    >>> active_claims.begin_claim(token=5)
    >>> rows = {ClaimId(1, 1): 5, ClaimId(2, 1): 4}
    >>> active_claims.unknown_among(rows), active_claims.in_flight_among(rows)
    ([ClaimId(id=2, lease=1)], {ClaimId(id=1, lease=1)})
    >>> active_claims.end_claim(5, [ClaimId(1, 1)])
    >>> active_claims.unknown_among({ClaimId(1, 1): 5})
    []
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[ClaimId] = set()
        self._in_flight: set[int] = set()
        self._progress: dict[ClaimId, TaskProgress] = {}
        self.claims = 0
        """Number of claims begun so far."""

    def __len__(self) -> int:
        return len(self._held)

    @property
    def is_idle(self) -> bool:
        with self._lock:
            return not (self._held or self._in_flight)

    def begin_claim(self, token: int) -> None:
        """A claim is about to be sent: rows with its token are held, although not known yet."""
        with self._lock:
            self._in_flight.add(token)
            self.claims += 1

    def end_claim(self, token: int, won: Iterable[ClaimId]) -> None:
        """The claim was answered: exactly these of its rows are held."""
        with self._lock:
            self._held.update(won)
            self._in_flight.discard(token)

    def drop(self, ended: Iterable[ClaimId]) -> None:
        """Claims ended: their outcomes were written, or refused."""
        with self._lock:
            for held in ended:
                self._held.discard(held)
                self._progress.pop(held, None)

    def all(self) -> set[ClaimId]:
        with self._lock:
            return set(self._held)

    def in_flight_among(self, found: FoundClaims) -> set[ClaimId]:
        """The claims among these that a claim in flight has won."""
        with self._lock:
            return {held for held, token in found.items() if held not in self._held and token in self._in_flight}

    def unknown_among(self, found: FoundClaims) -> list[ClaimId]:
        """The claims among these that this process neither holds nor has in flight."""
        with self._lock:
            return [held for held, token in found.items() if held not in self._held and token not in self._in_flight]

    def report(self, held: ClaimId, progress: TaskProgress) -> None:
        """Keep a progress until it is written; a newer one replaces it."""
        with self._lock:
            if held in self._held:
                self._progress[held] = progress

    def restore_progress(self, unwritten: Mapping[ClaimId, TaskProgress]) -> None:
        """Take back progress that could not be written, where nothing newer was reported meanwhile."""
        with self._lock:
            for held, progress in unwritten.items():
                if held in self._held:
                    self._progress.setdefault(held, progress)

    def take_progress(self) -> dict[ClaimId, TaskProgress]:
        """The progress that was reported since the last call."""
        with self._lock:
            taken, self._progress = self._progress, {}
            return taken


# ---------------------------------------------------------------- the touch


PROGRESS_EVERY: Final = 1.0
"""Seconds."""
IDLE_UPDATES: Final = 7
IDLE_EVERY: Final = 20.0
"""While nothing is held, this many updates pass between two heartbeats, and this many seconds at the most."""
CHECK_UNKNOWN_FOR: Final = 30.0
"""Seconds after a process has held or claimed anything in which each touch checks for unknown claims."""
CHECK_UNKNOWN_EVERY: Final = 120.0
"""Seconds between two such checks after that: a server may execute a statement late, for a client that it lost long
ago. No manager rescues such a row while its process lives."""
SHORTEST_PAUSE: Final = 0.01
"""Seconds between two rounds at the least."""


class Toucher:
    """Touches the claims of a process every `update` seconds; a periodic thread calls `round`.

    `lost` is called from that thread with each claim that was lost.
    """

    def __init__(
        self,
        database: Database,
        process_id: int,
        active_claims: ActiveClaims,
        *,
        update: float,
        lost: Callable[[ClaimId], object],
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
        self._next_idle_heartbeat = 0.0
        self._claims = -1
        self._check_until = 0.0
        self._next_rare_check = 0.0

    def round(self, now: float) -> float:
        """Write progress, and touch when it is time to. Returns the seconds until the next round."""
        if self._next_touch is None:
            self._next_touch = now + self._update  # a claim is a touch too
        try:
            self._write_progress()
            if now >= self._next_touch:
                self._touch_all(now)
                self._next_touch = now + self._update
        except Exception as error:  # noqa: BLE001 - untouched tasks would be rescued while they run
            pause = self._pauses.next()
            self._next_touch = now + pause  # touch again, whichever write has failed
            if isinstance(error, DatabaseUnavailable):
                self._outages.lost(error)
            else:
                self._events.emit(ComponentFailed(component="touch", error=describe_exception(error), again_in=pause))
            return pause
        self._pauses.reset()
        return min(PROGRESS_EVERY, max(self._next_touch - now, SHORTEST_PAUSE))

    def _touch_all(self, now: float) -> None:
        if self._active_claims.is_idle and now < self._next_idle_heartbeat:
            return
        self._next_idle_heartbeat = now + max(self._update, min(IDLE_UPDATES * self._update, IDLE_EVERY))
        self._write_heartbeat()
        self._touch()
        if self._should_check_unknown(now):
            found = self._database.read(claims_of_process, self._process_id)
            if in_flight := self._active_claims.in_flight_among(found):
                self._database.run(touch, in_flight)  # a lost one is noticed by its first touch or by its outcome
            self._release_unknown(found)
        self._outages.found()

    def _write_heartbeat(self) -> None:
        """Before all touches: while its process sends heartbeats, no task is rescued, even if its row cannot be
        touched.
        """
        with suppress(RowLocked):  # by another transaction; the touches that follow prevent a rescue, too
            self._database.run_short(heartbeat_process, self._process_id)

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
        for lost in written.refused:
            self._lost(lost)

    def _release_unknown(self, found: FoundClaims) -> None:
        if unknown := self._active_claims.unknown_among(found):
            reason = "the answer of its claim was lost"
            for released in self._database.run(release_unknown_claims, self._process_id, unknown, reason):
                self._events.emit(UnknownClaimReleased(task_id=released.task_id))
