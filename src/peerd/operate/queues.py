"""Queues: their state, pausing, and the limits of how many of their tasks may run at once or start in a period."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeVar

from sqlalchemy.engine import Connection

from peerd.domain.access import Right
from peerd.domain.errors import InvalidLimit, QueueNotFound
from peerd.domain.limit import WHOLE_QUEUE, Limit, Rate, check_limit_target
from peerd.domain.ring import TasksAvailable
from peerd.domain.task import BODY_LIMIT, EACH_KEY, check_text
from peerd.operate import validation
from peerd.operate.diagnostics.prospect import Prospect, QueueWait, explain_wait, read_prospects
from peerd.operate.operations import Mode, OperationGroup, Query, operation
from peerd.operate.rest import rest
from peerd.store import limits, queues
from peerd.store.audit import limit_state, queue_state
from peerd.store.jobs.free import kick
from peerd.store.known_handlers import read_misfit
from peerd.store.limits import LimitState
from peerd.store.queue_states import QueueState, list_queues

T = TypeVar("T")

MOST_KICKED = 10_000
"""Tasks that one call kicks, in one transaction."""
MOST_NAMED = 20
"""Queues that the error about an unknown one names."""
Queues = Collection[str] | None
"""The queues that an actor may see; None: all."""
QueueStates = list[QueueState]
Prospects = dict[str, Prospect]
LimitStates = list[LimitState]


class QueueOperations(OperationGroup[Mode]):
    """``client.queues``. What acts on a queue raises `QueueNotFound` where nobody has put a task or served it."""

    subject = "queues"

    @operation(in_queues=True, rest=rest("GET /queues", name="list_queues"))
    def list(self) -> Query[QueueStates]:
        """All queues that have tasks, or were ever served or paused, by name; counts end at 10,000."""
        return Query("read", _list_queues, self._actor.queues)

    @operation(in_queues=True)
    def is_known(self, name: str) -> Query[bool]:
        """Whether a worker process has ever served a queue, or it was ever paused."""
        self._require_queue("queues.is_known", validation.text("queue", name))
        return Query("read", queues.is_known, name)

    @operation(needs=Right.ENQUEUE, in_queues=True)
    def misfit(self, name: str, handler: str, body: str | None = None) -> Query[str | None]:
        """Why no process that is alive can run a task, by its queue, its handler and the names of its arguments.

        Args:
            name: the queue's.
            handler: its name.
            body: JSON text.

        Returns:
            a sentence; None if one can, or none serves the queue, which had processes or tasks before.
        """
        self._require_queue("enqueue", validation.queue(name))
        if body is not None:
            check_text("body", body, BODY_LIMIT)
        return Query("read", _read_misfit, name, validation.text("handler", handler), body, self._actor.queues)

    @operation(in_queues=True, rest=rest("GET /queues/{queue:path}/why"))
    def why(self, name: str) -> Query[QueueWait]:
        """Why tasks of a queue wait, the first thousand counted; and when they are gone, by the last ten minutes.

        Raises:
            InvalidFilter: no queue can have this name.
        """
        self._require_queue("queues.why", validation.queue(name))
        return Query("read", explain_wait, name, self._masker)

    @operation(in_queues=True)
    def prospects(self) -> Query[Prospects]:
        """When no task waits any more, by the samples of the last ten minutes, for each queue that they suffice for."""
        return Query("read", read_prospects, self._actor.queues)

    @operation(in_queues=True, rest=rest("POST /queues/{queue:path}/pause", answer="nothing"))
    def pause(self, name: str, duration: str | float | None = None) -> Query[None]:
        """Stop claims from a queue; running tasks go on.

        A limit of 0 running tasks does so for a queue that is to come.

        Args:
            name: the queue's.
            duration: seconds, or "1h"; None is until `resume`.

        Raises:
            InvalidTask: not a duration.
        """
        seconds = None if duration is None else validation.seconds("duration", duration)
        self._require_queue("queues.pause", validation.text("queue", name))
        query = Query("run", queues.pause, name, seconds).acting_on("queue", name, queue_state, name)
        return self._if_known(name, query)

    @operation(in_queues=True, rest=rest("POST /queues/{queue:path}/resume", answer="nothing"))
    def resume(self, name: str) -> Query[None]:
        """Allow claims from a queue again; nothing happens to one that is not paused."""
        self._require_queue("queues.resume", validation.text("queue", name))
        query = Query("run", queues.resume, name).acting_on("queue", name, queue_state, name)
        return self._if_known(name, query).then_ring(TasksAvailable())

    @operation(in_queues=True, rest=rest("POST /queues/{queue:path}/kick", answer="count"))
    def kick(self, name: str, limit: int = 500) -> Query[int]:
        """Make buried tasks of a queue pending, the longest buried first; if there are none, delayed ones.

        Args:
            name: the queue's.
            limit: tasks at the most, 1 to 10,000.

        Returns:
            how many. Those that another session has locked are left out.
        """
        most = validation.number("limit", limit, 1, MOST_KICKED)
        self._require_queue("queues.kick", validation.queue(name))
        query = Query("run", kick, name, most).making("queue", lambda count: (name, {"kicked": count}))
        return self._if_known(name, query).then_ring(TasksAvailable((name,)))

    def _if_known(self, name: str, query: Query[T]) -> Query[T]:
        act, only = query.function, self._actor.queues

        def act_if_known(connection: Connection) -> T:
            if (unknown := _find_unknown(connection, name, only)) is not None:
                raise unknown
            return act(connection)

        query.function = act_if_known
        return query


class LimitOperations(OperationGroup[Mode]):
    """``client.limits``."""

    subject = "limits"

    @operation(
        in_queues=True,
        rest=rest("PUT /limits/{queue:path}", name="set_limit", answer="nothing", query=("key", "each_key")),
    )
    def set(
        self,
        queue: str,
        *,
        key: str | None = None,
        each_key: bool = False,
        running: int | None = None,
        rate: str | Rate | None = None,
    ) -> Query[Limit]:
        """Limit a queue as a whole, one key of it, or each of its keys. It replaces the limit before.

        Args:
            queue: its name.
            key: limit the tasks of this limit_key; for it, this replaces the limit of each key.
            each_key: limit the tasks of each limit_key that has no limit of its own.
            running: tasks at once, in the whole cluster; 0 stops them, but running ones go on. None: any number.
            rate: starts in any span of a period, such as "100/1m" or "5/s". None: any number.

        Returns:
            the limit that was set.

        Raises:
            InvalidLimit: the error says what is wrong.
        """
        stored_key = _stored_key(key, each_key=each_key)
        limit = Limit(queue=queue, key=stored_key, running=running, rate=None if rate is None else Rate.parse(rate))
        self._require_queue("limits.set", queue)
        return self._on_limit(Query("run", _set_limit, limit), queue, stored_key)

    @operation(in_queues=True, rest=rest("DELETE /limits/{queue:path}", name="remove_limit", answer="nothing"))
    def remove(self, queue: str, *, key: str | None = None, each_key: bool = False) -> Query[bool]:
        """Remove the limit of a queue as a whole, of one key, or of each; returns whether there was one."""
        stored_key = _stored_key(key, each_key=each_key)
        check_limit_target(queue, stored_key)
        self._require_queue("limits.remove", queue)
        return self._on_limit(Query("run", limits.remove_limit, queue, stored_key), queue, stored_key)

    @operation(in_queues=True, rest=rest("GET /limits", name="list_limits"))
    def list(self, queue: str | None = None) -> Query[LimitStates]:
        """All limits, or those of one queue, and how much of each is used now."""
        return Query("read", _list_limits, validation.text_or_none("queue", queue), self._actor.queues)

    def _on_limit(self, query: Query[T], queue: str, key: str) -> Query[T]:
        name = f"{queue} {key}".rstrip()
        return query.acting_on("limit", name, limit_state, queue, key).then_ring(TasksAvailable((queue,)))


def _find_unknown(connection: Connection, name: str, only: Queues) -> QueueNotFound | None:
    """The error about a queue that nobody has put a task into, paused or served; None: it is known."""
    if queues.is_known(connection, name):
        return None
    from difflib import SequenceMatcher  # noqa: PLC0415 - loaded for a misspelt name alone

    names = [state.name for state in _list_queues(connection, only)]
    similar = sorted(names, key=lambda known: SequenceMatcher(None, known, name).ratio(), reverse=True)
    return None if name in names else QueueNotFound(name, similar[:MOST_NAMED])


def _read_misfit(connection: Connection, name: str, handler: str, body: str | None, only: Queues) -> str | None:
    unknown = _find_unknown(connection, name, only)
    return str(unknown) if unknown is not None else read_misfit(connection, name, handler, body)


def _list_queues(connection: Connection, only: Queues) -> QueueStates:
    return [state for state in list_queues(connection) if only is None or state.name in only]


def _list_limits(connection: Connection, queue: str | None, only: Collection[str] | None) -> LimitStates:
    return [limit for limit in limits.list_limits(connection, queue) if only is None or limit.queue in only]


def _set_limit(connection: Connection, limit: Limit) -> Limit:
    limits.set_limit(connection, limit)
    return limit


def _stored_key(key: str | None, *, each_key: bool) -> str:
    """The value of the column `key`."""
    if key is None:
        return EACH_KEY if each_key else WHOLE_QUEUE
    if each_key:
        raise InvalidLimit("key", "give key or each_key, not both")
    if key in (WHOLE_QUEUE, EACH_KEY):
        remedy = "each_key limits each key" if key == EACH_KEY else "leave it out to limit the queue as a whole"
        raise InvalidLimit("key", f"{key!r} is no key of a task: {remedy}")
    return key
