"""The claims that this process holds: of tasks that run or wait to be written, and claims in flight.

The event loop and the touch thread share them, under a lock. A claim is held, and touched, from the moment its rows
are known until its outcome is committed or refused.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from peerd.store.outcomes import ClaimId, TaskProgress

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
