"""What this process holds: the claims that are running or waiting to be written, and the claims in flight.

The event loop and the touch thread share it, so it has a lock. A claim is held from the moment its rows are known until
its outcome is committed or refused: as long as it is held, it is touched.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping

from peerd.store.outcomes.recording import ClaimId
from peerd.store.outcomes.touch import TaskProgress


class ActiveClaims:
    """The claims of one process.

    >>> holdings = ActiveClaims()
    >>> holdings.begin_claim(token=5)
    >>> rows = {ClaimId(1, 1): 5, ClaimId(2, 1): 4}
    >>> holdings.unknown_among(rows), holdings.in_flight_among(rows)
    ([ClaimId(id=2, lease=1)], {ClaimId(id=1, lease=1)})
    >>> holdings.end_claim(5, [ClaimId(1, 1)])
    >>> holdings.unknown_among({ClaimId(1, 1): 5})
    []
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: set[ClaimId] = set()
        self._in_flight: set[int] = set()
        self._progress: dict[ClaimId, TaskProgress] = {}
        self.claims = 0
        """That were begun so far."""

    def __len__(self) -> int:
        return len(self._held)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is held, and no claim is in flight."""
        with self._lock:
            return not (self._held or self._in_flight)

    def begin_claim(self, token: int) -> None:
        """A claim is about to be sent: rows with its token are ours, although we do not know them yet."""
        with self._lock:
            self._in_flight.add(token)
            self.claims += 1

    def end_claim(self, token: int, won: Iterable[ClaimId]) -> None:
        """The claim was answered: from now on exactly these rows of it are ours."""
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
        """All claims that are held now."""
        with self._lock:
            return set(self._held)

    def in_flight_among(self, found: Mapping[ClaimId, int | None]) -> set[ClaimId]:
        """Which of these claims are those of a claim in flight: ours, although we do not know them yet.

        Args:
            found: as for `unknown_among`.
        """
        with self._lock:
            return {held for held, token in found.items() if held not in self._held and token in self._in_flight}

    def unknown_among(self, found: Mapping[ClaimId, int | None]) -> list[ClaimId]:
        """Which of these claims, which the table says this process has, it does not know of.

        Args:
            found: claims that were read before this call, with their tokens.
        """
        with self._lock:
            return [held for held, token in found.items() if held not in self._held and token not in self._in_flight]

    def report(self, held: ClaimId, progress: TaskProgress) -> None:
        """Remember a progress until it is written; a newer one replaces it."""
        with self._lock:
            if held in self._held:
                self._progress[held] = progress

    def restore_progress(self, unwritten: Mapping[ClaimId, TaskProgress]) -> None:
        """Take back what could not be written, where nothing newer was reported meanwhile."""
        with self._lock:
            for held, progress in unwritten.items():
                if held in self._held:
                    self._progress.setdefault(held, progress)

    def take_progress(self) -> dict[ClaimId, TaskProgress]:
        """What was reported since the last call."""
        with self._lock:
            taken, self._progress = self._progress, {}
            return taken
