"""Connections that have rested: whether they are still there, asked as rarely as will do."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import DisconnectionError

from peerd.store.connection.inherited_connections import descriptor_of

NO_CHECK_WITHIN: Final = 0.1
"""Seconds without use for which a connection is thought to be there: those that are used all the time are not asked."""
SOCKET_CHECK_WITHIN: Final = 30.0
"""Seconds without use for which a connection is thought to be there as long as its server says nothing: who closes one
says so. After that it is asked: firewalls forget connections in silence, though after minutes."""
USED_AT: Final = "peerd_used_at"
"""In a connection's ``info``: when it was given back, by the machine's monotonic clock."""
WAS_IDLE: Final = "peerd_has_rested"
"""In a connection's ``info``: whether it had not been used for that long when it was lent."""

_skips_check: ContextVar[bool] = ContextVar("connections that have rested are trusted", default=False)


@contextmanager
def without_liveness_check() -> Iterator[None]:
    """Lend connections that have rested without asking them first: for who can do again what one that is gone loses."""
    before = _skips_check.set(True)
    try:
        yield
    finally:
        _skips_check.reset(before)


def was_idle(connection: Connection) -> bool:
    """Whether a connection had rested when it was lent, so that it may have been closed meanwhile."""
    return bool(connection.info.get(WAS_IDLE, False))


def check_idle_connections(engine: Engine) -> None:
    """See that a connection that has not been used for a while is still there, and open another one if not.

    SQLAlchemy's own look comes before each use: a round trip more, where a claim has three. Here one that has rested
    for seconds is asked only if something has arrived for it, as it does when the other end closes it.
    """

    @event.listens_for(engine, "checkin")
    def on_checkin(connection: Any, record: Any) -> None:
        record.info[USED_AT] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def on_checkout(connection: Any, record: Any, proxy: Any) -> None:
        used_at = record.info.get(USED_AT)
        unused = time.monotonic() - used_at if used_at is not None else -1.0
        record.info[WAS_IDLE] = rested = unused > NO_CHECK_WITHIN
        if not rested or _skips_check.get() or (unused <= SOCKET_CHECK_WITHIN and _is_silent(connection)):
            return
        if not _responds_to_ping(engine, connection):
            raise DisconnectionError("it was closed while nobody used it")


def _is_silent(connection: Any) -> bool:
    """Whether nothing has arrived that was not asked for: a farewell, or the end of the stream."""
    waiting = select.poll()
    try:
        waiting.register(descriptor_of(connection), select.POLLIN)
        return not waiting.poll(0)
    except (OSError, ValueError, AttributeError):  # it is closed at this end
        return False


def _responds_to_ping(engine: Engine, connection: Any) -> bool:
    dialect = engine.dialect
    try:
        return bool(dialect.do_ping(connection))
    except dialect.loaded_dbapi.Error as error:
        if dialect.is_disconnect(error, connection, None):
            return False
        raise
