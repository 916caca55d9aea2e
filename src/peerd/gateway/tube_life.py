"""The life of tubes, as far as the table must be asked: their pauses and their end."""

from __future__ import annotations

from functools import partial

from sqlalchemy.engine import Connection

from peerd.gateway.batches import Answer, Written
from peerd.gateway.clients import QueueClient
from peerd.gateway.operation_queue import OperationQueue
from peerd.gateway.operations import StoreCall, StoreQuery
from peerd.gateway.ready_jobs import ReadyJobs
from peerd.gateway.tubes import Tube, Tubes
from peerd.store import jobs


class TubeLife:
    """Pauses and ends tubes.

    Args:
        operations: of the process.
        ready: announces the jobs of a tube whose pause ends.
        tubes: those that this process knows.
        is_alone: whether no other process serves clients, so that the pause of a tube ends with it.
    """

    def __init__(self, operations: OperationQueue, ready: ReadyJobs, tubes: Tubes, *, is_alone: bool) -> None:
        self._operations = operations
        self._ready = ready
        self._tubes = tubes
        self._is_alone = is_alone

    def pause(self, client: QueueClient, tube: str, seconds: int, answer: Answer) -> None:
        """Let no job of a tube be reserved for so many seconds; 0 ends a pause. The answer: whether the tube lives."""
        known = self._tubes.get(tube)
        is_needed = known is not None and known.is_needed
        if known is not None:
            known.pauses += 1  # at once: the tube may end before the answer
        operation = StoreCall(pause_if_alive, (tube, seconds, is_needed))
        self._operations.submit(client, operation, partial(self._paused, tube, seconds, known, answer))

    def _paused(self, tube: str, seconds: int, known: Tube | None, answer: Answer, result: Written) -> None:
        if result is True:
            if known is None:
                self._tubes.get_or_create(tube).pauses += 1
            self._ready.announce_in(seconds, tube)
        elif known is not None:
            known.pauses -= 1
        answer(result)

    def count_delete(self, queue: str) -> None:
        """Count a deleted job, with which its tube may have ended."""
        self._tubes.get_or_create(queue).deletes += 1
        self.may_have_ended(self._tubes.take_out(queue))

    def end_unneeded(self, most: int) -> None:
        """End tubes that no connection needs and that have no jobs, among so many at the most."""
        for tube in self._tubes.unneeded()[:most]:
            self.may_have_ended(self._tubes.take_out(tube))

    def may_have_ended(self, tube: Tube | None) -> None:
        """End a tube that no connection needs any more, if it has no jobs: its counters are lost.

        In a server of one process its pause ends too. Elsewhere a pause stays: clients of other nodes may need it.
        """
        if tube is not None:
            ends_pause = self._is_alone and bool(tube.pauses)
            query = StoreQuery(tube_lives, (tube.name, ends_pause))
            self._operations.submit_last(query, partial(self._checked, tube))  # after the puts before it

    def _checked(self, tube: Tube, lives: Written) -> None:
        if lives is False:
            self._tubes.forget(tube)
        else:
            self._tubes.put_back(tube)


def pause_if_alive(connection: Connection, tube: str, seconds: int, is_needed: bool) -> bool:  # noqa: FBT001 - an operation
    """Pause a tube that a connection needs or that has jobs; return whether it does."""
    if not (is_needed or jobs.has_jobs(connection, tube)):
        return False
    jobs.pause_tube(connection, tube, seconds)
    return True


def tube_lives(connection: Connection, tube: str, ends_pause: bool) -> bool:  # noqa: FBT001 - an operation
    """Whether a tube has jobs; if not, end its pause if asked to."""
    if jobs.has_jobs(connection, tube):
        return True
    if ends_pause:
        jobs.pause_tube(connection, tube, 0)
    return False
