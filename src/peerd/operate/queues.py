"""Queues: how full they are, and whether anybody takes from them."""

from __future__ import annotations

from peerd.domain.duration import parse_duration
from peerd.domain.errors import InvalidTask
from peerd.domain.ring import TasksAvailable
from peerd.operate import validation
from peerd.operate.operations import Mode, OperationGroup, Query, operation, read_query, write_query
from peerd.store import queues
from peerd.store.queues import QueueState

QueueStates = list[QueueState]


class QueueOperations(OperationGroup[Mode]):
    """``client.queues``."""

    @operation
    def list(self) -> Query[QueueStates]:
        """All queues that have tasks, or were ever served or paused, by name. It reads an index whole."""
        return read_query(queues.list_queues)

    @operation
    def is_known(self, name: str) -> Query[bool]:
        """Whether a worker process has ever served a queue, or somebody has paused it."""
        return read_query(queues.is_known, validation.text("queue", name))

    @operation
    def pause(self, name: str, duration: str | float | None = None) -> Query[None]:
        """Let nobody claim from a queue; running tasks go on.

        Args:
            name: the queue's.
            duration: seconds, or "1h"; None is until `resume`.

        Raises:
            InvalidTask: no queue can have this name; or not a duration.
        """
        return write_query(
            queues.pause, validation.text("queue", name), None if duration is None else _seconds(duration)
        )

    @operation
    def resume(self, name: str) -> Query[None]:
        """Let a queue be claimed from again; nothing happens to one that is not paused."""
        return write_query(queues.resume, validation.text("queue", name)).then_ring(TasksAvailable())


def _seconds(duration: str | float) -> float:
    try:
        return parse_duration(duration)
    except ValueError as error:
        raise InvalidTask("duration", str(error)) from None
