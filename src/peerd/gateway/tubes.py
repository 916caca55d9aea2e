"""Tubes: their counters, their pauses, their end, and counts of their jobs.

A tube lives while a connection uses or watches it, or it holds jobs; `default` always lives. Whether it holds jobs is
known to the table, so a tube that no connection of this process needs is forgotten only when the table has no job of
it.
"""

from __future__ import annotations

import time
from collections import Counter
from functools import partial
from typing import Final

from msgspec import Struct
from sqlalchemy.engine import Connection

from peerd.gateway.group_commit import Callback, OperationQueue, Written
from peerd.gateway.operations import StoreCall, StoreQuery
from peerd.gateway.ready_jobs import ReadyJobs
from peerd.gateway.waiting import QueueClient
from peerd.store.jobs.free import pause_tube
from peerd.store.jobs.statistics import TubeCounts, count_jobs, has_jobs

DEFAULT_TUBE: Final = "default"
MAX_TUBES_CHECKED: Final = 100
"""Tubes without connections that are checked for jobs once a minute."""

FEW: Final = 1000
"""Jobs whose count is made each time."""
QUICK: Final = 0.05
"""Seconds of a count that may be made each time."""
VALID_FOR: Final = 10.0
"""How long a slower count is used, as a multiple of the time that it has taken."""
LONGEST: Final = 1.0
"""Seconds for which a count is used at the most."""


class Tube(Struct):
    """What this process knows about a tube."""

    name: str
    using: int = 0
    watching: int = 0
    puts: int = 0
    deletes: int = 0
    pauses: int = 0

    @property
    def is_needed(self) -> bool:
        """Whether a connection of this process keeps it alive."""
        return bool(self.using or self.watching) or self.name == DEFAULT_TUBE


class Tubes:
    """The tubes by name, in the order in which this process met them.

    Args:
        operations: of the process.
        ready: announces the jobs of a tube whose pause ends.
        is_alone: whether no other process serves clients, so that the pause of a tube ends with it.
    """

    def __init__(self, operations: OperationQueue, ready: ReadyJobs, *, is_alone: bool) -> None:
        self._operations = operations
        self._ready = ready
        self._is_alone = is_alone
        self._tubes: dict[str, Tube] = {}
        self._being_checked: Counter[str] = Counter()
        """Tubes that were removed, until it is known whether they have jobs."""
        self.table_counts = TableCounts()
        self.get_or_create(DEFAULT_TUBE)

    def get(self, name: str) -> Tube | None:
        """A tube that this process knows."""
        return self._tubes.get(name)

    def get_or_create(self, name: str) -> Tube:
        """A tube, which is known from now on."""
        tube = self._tubes.get(name)
        if tube is None:
            tube = self._tubes[name] = Tube(name)
        return tube

    def needed(self) -> list[str]:
        """The names of the tubes that connections of this process keep alive."""
        return [name for name, tube in self._tubes.items() if tube.is_needed]

    def depends_on_jobs(self, name: str) -> bool:
        """Whether a tube lives only as long as it has jobs, or it is not known yet whether it has."""
        tube = self._tubes.get(name)
        return name in self._being_checked or (tube is not None and not tube.is_needed)

    # ---------------------------------------------------------------- what connections do

    def use(self, name: str, previous: str | None = None) -> None:
        """Count a connection that uses a tube instead of another."""
        self.get_or_create(name).using += 1
        if previous is not None:
            self.stop_using(previous)

    def stop_using(self, name: str) -> None:
        """Count a connection less that uses a tube."""
        self.get_or_create(name).using -= 1
        self._end_unless_needed(name)

    def watch(self, name: str) -> None:
        """Count a connection that watches a tube."""
        self.get_or_create(name).watching += 1

    def ignore(self, name: str) -> None:
        """Count a connection less that watches a tube."""
        self.get_or_create(name).watching -= 1
        self._end_unless_needed(name)

    def count_delete(self, name: str) -> None:
        """Count a deleted job, with which its tube may have ended."""
        self.get_or_create(name).deletes += 1
        self._end_unless_needed(name)

    def pause(self, client: QueueClient, name: str, seconds: int, callback: Callback) -> None:
        """Let no job of a tube be reserved for so many seconds; 0 ends a pause. The result: whether the tube lives."""
        known = self._tubes.get(name)
        is_needed = known is not None and known.is_needed
        if known is not None:
            known.pauses += 1  # at once: the tube may end before the result
        operation = StoreCall(pause_if_alive, (name, seconds, is_needed))
        self._operations.submit(client, operation, partial(self._paused, name, seconds, known, callback))

    def _paused(self, name: str, seconds: int, known: Tube | None, callback: Callback, result: Written) -> None:
        if result is True:
            if known is None:
                self.get_or_create(name).pauses += 1
            self._ready.announce_in(seconds, name)
        elif known is not None:
            known.pauses -= 1
        callback(result)

    # ---------------------------------------------------------------- the end of a tube

    def end_unneeded(self) -> None:
        """End tubes that no connection needs and that have no jobs, among some of them."""
        unneeded = [name for name, tube in self._tubes.items() if not tube.is_needed]
        for name in unneeded[:MAX_TUBES_CHECKED]:
            self._end_unless_needed(name)

    def _end_unless_needed(self, name: str) -> None:
        """End a tube that no connection needs, if it has no jobs: its counters are lost.

        One that is used again meanwhile begins with counters of its own. In a server of one process its pause ends
        too. Elsewhere a pause stays: clients of other nodes may need it.
        """
        tube = self._tubes.get(name)
        if tube is None or tube.is_needed:
            return
        del self._tubes[name]
        self._being_checked[name] += 1
        ends_pause = self._is_alone and bool(tube.pauses)
        query = StoreQuery(tube_lives, (name, ends_pause))
        self._operations.submit_last(query, partial(self._checked, tube))  # after the puts before it

    def _checked(self, tube: Tube, lives: Written) -> None:
        self._being_checked[tube.name] -= 1
        if not self._being_checked[tube.name]:
            del self._being_checked[tube.name]
        if lives is not False:
            kept = self.get_or_create(tube.name)
            kept.puts += tube.puts
            kept.deletes += tube.deletes
            kept.pauses += tube.pauses


def pause_if_alive(connection: Connection, tube: str, seconds: int, is_needed: bool) -> bool:  # noqa: FBT001 - an operation
    """Pause a tube that a connection needs or that has jobs; return whether it does."""
    if not (is_needed or has_jobs(connection, tube)):
        return False
    pause_tube(connection, tube, seconds)
    return True


def tube_lives(connection: Connection, tube: str, ends_pause: bool) -> bool:  # noqa: FBT001 - an operation
    """Whether a tube has jobs; if not, end its pause if asked to."""
    if has_jobs(connection, tube):
        return True
    if ends_pause:
        pause_tube(connection, tube, 0)
    return False


class TableCounts:
    """Counts of jobs for statistics, which are not counted anew while that would take much of the time.

    A count walks the pending jobs of a tube, or of all; meanwhile the operations of all clients wait. A count of few
    jobs is made each time, even if it took long: then the machine was busy, and not with counting.

    The methods are called on the thread of the batches, so they need no lock.
    """

    def __init__(self) -> None:
        self._kept: dict[str | None, tuple[float, TubeCounts]] = {}
        """By tube, until when a count is valid; None is all tubes."""

    def count(self, connection: Connection, tube: str | None) -> TubeCounts:
        """The jobs of a tube in each state; of all tubes where it is None."""
        began = time.monotonic()
        until, kept = self._kept.pop(tube, (0.0, None))
        if kept is not None and began < until:
            self._kept[tube] = (until, kept)
            return kept
        counts = count_jobs(connection, tube)
        now = time.monotonic()
        if counts.jobs > FEW and now - began > QUICK:
            self._kept = {name: kept for name, kept in self._kept.items() if kept[0] > now}
            self._kept[tube] = (now + min(VALID_FOR * (now - began), LONGEST), counts)
        return counts
