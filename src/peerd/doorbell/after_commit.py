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

from peerd.domain.ring import Coalescer, Ring
from peerd.doorbell.notifier import Notifier

PENDING_RINGS: Final = "peerd_rings"
"""Where a connection of the pool keeps what is to be rung after its commit."""
_HOOKED: Final = "peerd_watches_commits"
_lock = threading.Lock()

EndTransaction = Callable[[Any], None]


def ring_after_commit(connection: Connection, notifier: Notifier, rings: Sequence[Ring]) -> None:
    """Ring when the connection's present transaction has been committed."""
    _hook_dialect(connection.engine.dialect)
    pending: dict[Notifier, Coalescer] = connection.info.setdefault(PENDING_RINGS, {})
    coalescer = pending.setdefault(notifier, Coalescer())
    for one in rings:
        coalescer.add(one)


def _hook_dialect(dialect: Any) -> None:
    with _lock:
        if not getattr(dialect, _HOOKED, False):
            dialect.do_commit = _wrap(dialect.do_commit, _ring)
            dialect.do_rollback = _wrap(dialect.do_rollback, lambda _: None)
            setattr(dialect, _HOOKED, True)


def _wrap(end: EndTransaction, do: Callable[[dict[Notifier, Coalescer]], None]) -> EndTransaction:
    """End a transaction, and then do something with what has waited for its end."""

    def end_and_do(connection: Any) -> None:
        end(connection)
        info = getattr(connection, "info", None)
        pending = info.pop(PENDING_RINGS, None) if isinstance(info, dict) else None
        if pending:
            do(pending)

    return end_and_do


def _ring(pending: dict[Notifier, Coalescer]) -> None:
    for notifier, coalescer in pending.items():
        notifier.ring(*coalescer.take())
