"""Ringing after the commit of somebody else's transaction, and not after its rollback.

SQLAlchemy's event `commit` comes before the commit, when nobody could see the work yet. So the two methods of the
engine's dialect that commit and roll back are given one more thing to do, when a task is first enqueued through it.
A savepoint that is rolled back takes its tasks along, and is rung at all the same, which costs a look; a commit in two
phases is not noticed, and the poll finds its tasks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy.engine import Connection

from peerd.domain.ring import Gathered, Ring
from peerd.doorbell.notifier import Ringer

WAITING: Final = "peerd_rings"
"""Where a connection of the pool keeps what is to be rung after its commit."""
_WATCHED: Final = "peerd_watches_commits"
_lock = threading.Lock()

Ending = Callable[[Any], None]


def ring_after_commit(connection: Connection, ringer: Ringer, rings: Sequence[Ring]) -> None:
    """Ring when the connection's present transaction has been committed."""
    _watch(connection.engine.dialect)
    waiting: dict[Ringer, Gathered] = connection.info.setdefault(WAITING, {})
    gathered = waiting.setdefault(ringer, Gathered())
    for one in rings:
        gathered.add(one)


def _watch(dialect: Any) -> None:
    with _lock:
        if not getattr(dialect, _WATCHED, False):
            dialect.do_commit = _then(dialect.do_commit, _ring)
            dialect.do_rollback = _then(dialect.do_rollback, lambda _: None)
            setattr(dialect, _WATCHED, True)


def _then(end: Ending, do: Callable[[dict[Ringer, Gathered]], None]) -> Ending:
    """End a transaction, and then do something with what has waited for its end."""

    def end_and_do(connection: Any) -> None:
        end(connection)
        info = getattr(connection, "info", None)
        waiting = info.pop(WAITING, None) if isinstance(info, dict) else None
        if waiting:
            do(waiting)

    return end_and_do


def _ring(waiting: dict[Ringer, Gathered]) -> None:
    for ringer, gathered in waiting.items():
        ringer.ring(*gathered.take())
