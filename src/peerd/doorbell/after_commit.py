"""Ringing after the commit of a caller's transaction, and not after its rollback.

SQLAlchemy's event `commit` fires before the commit, when other sessions cannot see the work yet. So the two methods of
the engine's dialect that commit and roll back are wrapped when a task is first enqueued through the engine. The ring of
a savepoint that is rolled back is sent all the same, which costs one query; a two-phase commit is not noticed, and the
poll finds its tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy.engine import Connection

from peerd.domain.ring import Coalescer, Ring
from peerd.doorbell.notifier import Notifier
from peerd.runtime.concurrency.fork_hooks import ForkSafeLock

PENDING_RINGS: Final = "peerd_rings"
"""Key in `Connection.info` of the rings to send after the commit."""
_WRAPPED: Final = "peerd_watches_commits"
_lock = ForkSafeLock()


def ring_after_commit(connection: Connection, notifier: Notifier, rings: Sequence[Ring]) -> None:
    """Ring when the connection's present transaction has been committed."""
    _wrap_dialect(connection.engine.dialect)
    pending: dict[Notifier, Coalescer] = connection.info.setdefault(PENDING_RINGS, {})
    coalescer = pending.setdefault(notifier, Coalescer())
    for ring in rings:
        coalescer.add(ring)


def _wrap_dialect(dialect: Any) -> None:
    with _lock:
        if not getattr(dialect, _WRAPPED, False):
            dialect.do_commit = _wrap(dialect.do_commit, rings=True)
            dialect.do_rollback = _wrap(dialect.do_rollback, rings=False)
            setattr(dialect, _WRAPPED, True)


def _wrap(end_transaction: Callable[[Any], None], *, rings: bool) -> Callable[[Any], None]:
    def end(connection: Any) -> None:
        end_transaction(connection)
        info = getattr(connection, "info", None)
        pending = info.pop(PENDING_RINGS, None) if isinstance(info, dict) else None
        if pending and rings:
            for notifier, coalescer in pending.items():
                notifier.ring(*coalescer.take())

    return end
