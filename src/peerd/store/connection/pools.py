"""Engines, and their pools of connections to a server: time-outs, and whether an idle connection can still be used.

A connection may be idle, closed, or inherited by a fork. SQLAlchemy's ``pool_pre_ping`` costs a round trip before each
use, where a claim has three. Here a connection that was in use a moment ago is not checked; one that was idle for
seconds is checked at its socket, without a round trip; only one that was idle for longer is pinged. That is why these
listeners are worth their code.
"""

from __future__ import annotations

import os
import select
import threading
import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.exc import DisconnectionError
from sqlalchemy.util.queue import Queue

CONNECT_TIMEOUT: Final = 10
RESPONSE_TIMEOUT: Final = 60
"""Seconds without an answer after which a server counts as away: a lost network sends no error."""
IDLE_TRANSACTION_TIMEOUT: Final = 10
"""Seconds after which servers end an idle transaction: they notice the loss of a client's machine only hours later, and
its transaction may hold locks. MySQL ends any idle connection for transactions then: it knows no difference."""
LOCK_TIMEOUT: Final = 30
"""Seconds that a statement waits for a lock on PostgreSQL; InnoDB's own limit is 50."""
SHORT_LOCK_TIMEOUT: Final = 1
"""Seconds that a statement which commits by itself waits for a lock, on InnoDB too: a statement about all tasks of a
process must not wait for the one row that another session holds. Whole seconds, for MySQL."""
NO_CHECK_WITHIN: Final = 0.1
"""Seconds of idleness up to which a connection is not checked."""
SOCKET_CHECK_WITHIN: Final = 30.0
"""Seconds of idleness up to which a silent socket is enough: a server that closes a connection sends a notice. After
that the connection is pinged, because firewalls drop connections without a notice, though only after minutes."""
UNUSED_AFTER: Final = 65.0
"""Seconds of idleness after which a connection is closed: on a full server, others wait for it. Longer than a minute,
the pause between the rarest chores of an idle node, so that it opens no connection again and again."""
USED_AT: Final = "peerd_used_at"
"""In a connection's ``info``: when it was returned to the pool, by the monotonic clock."""
WAS_IDLE: Final = "peerd_was_idle"
"""In a connection's ``info``: whether it had been idle for longer than `NO_CHECK_WITHIN` at its checkout."""


_skips_check: ContextVar[bool] = ContextVar("idle connections are not checked", default=False)
INHERITED: Final[list[object]] = []
"""What a forked process has of its parent's pools and connections, and must not collect: that closes them, which ends a
session of the parent, or waits for a lock of the driver that a thread of the parent held."""


class Engines(NamedTuple):
    """The engines of one database; they differ in their transactions and settings."""

    transactions: Engine
    """For transactions that write."""
    reads: Engine
    """For operations that only read: each statement by itself, which saves two round trips per transaction; on SQLite,
    which has none, in one transaction."""
    short: Engine
    """For operations whose statements may be committed one by one. None of them waits long for a lock. PostgreSQL plans
    each once instead of at each execution (it does so for a LIMIT whose value it knows), which took a third of a claim
    of ten."""
    groups: Engine
    """For transactions in which the operations of many queue clients are committed together; planned as short ones, and
    no statement waits long for a lock, because all of them would wait."""
    undurable_groups: Engine
    """For transactions whose last ones a failure of the server may undo, on PostgreSQL only."""

    def distinct(self) -> tuple[Engine, ...]:
        """The engines with pools of their own."""
        return tuple({id(engine.pool): engine for engine in reversed(self)}.values())[::-1]


def server_engine(url: URL, pool_size: int, arguments: dict[str, Any], *, autocommit: bool, **more: Any) -> Engine:
    """An engine for a server; ``arguments`` are those of the driver, ``more`` those of SQLAlchemy."""
    return sa.create_engine(
        url,
        connect_args=arguments,
        poolclass=ShrinkingPool,
        pool_size=(pool_size + 1) // 2,
        max_overflow=pool_size,
        pool_recycle=1800,
        pool_timeout=RESPONSE_TIMEOUT,
        pool_use_lifo=True,  # the connection that was used last rarely needs a liveness check
        # Under REPEATABLE READ even an empty poll blocks inserts on InnoDB.
        isolation_level="AUTOCOMMIT" if autocommit else "READ COMMITTED",
        skip_autocommit_rollback=True,
        **more,
    )


@contextmanager
def without_liveness_check() -> Iterator[None]:
    """Check out connections unchecked: for callers that can repeat what fails on a closed one."""
    before = _skips_check.set(True)
    try:
        yield
    finally:
        _skips_check.reset(before)


def was_idle(connection: Connection) -> bool:
    """Whether a connection was idle before its checkout, so that it may be closed."""
    return bool(connection.info.get(WAS_IDLE, False))


def check_idle_connections(engine: Engine) -> None:
    """Check connections that were idle at their checkout, and replace those that are closed."""

    @event.listens_for(engine, "checkin")
    def on_checkin(connection: Any, record: Any) -> None:
        record.info[USED_AT] = time.monotonic()

    @event.listens_for(engine, "checkout")
    def on_checkout(connection: Any, record: Any, proxy: Any) -> None:
        used_at = record.info.get(USED_AT)
        unused = time.monotonic() - used_at if used_at is not None else -1.0
        record.info[WAS_IDLE] = unused > NO_CHECK_WITHIN
        if unused <= NO_CHECK_WITHIN or _skips_check.get():
            return
        if not (unused <= SOCKET_CHECK_WITHIN and _is_silent(connection)) and not _responds_to_ping(engine, connection):
            raise DisconnectionError("the connection was closed while it was idle")


def _is_silent(connection: Any) -> bool:
    """Whether the socket holds no unread data: neither a notice of the server nor the end of the stream."""
    waiting = select.poll()
    try:
        waiting.register(_descriptor_of(connection), select.POLLIN)
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


class ShrinkingPool(sa.QueuePool):
    """A pool whose unused connections can be closed; those used last are used first.

    SQLAlchemy leaves open what is in use while its pool is disposed of; this pool closes it at its return.
    """

    _is_disposed = False

    def dispose(self) -> None:
        self._is_disposed = True
        super().dispose()

    def _do_return_conn(self, record: Any) -> None:
        super()._do_return_conn(record)
        if self._is_disposed:
            super().dispose()

    def close_unused(self) -> int:
        """Close the connections that were idle for `UNUSED_AFTER`; the number of idle ones that are left."""
        waiting = self._pool  # SQLAlchemy has no other way to the connection that was idle for longest
        assert isinstance(waiting, Queue)
        while True:
            with waiting.mutex:
                since = time.monotonic() - UNUSED_AFTER
                if not waiting.queue or waiting.queue[0].info.get(USED_AT, since) > since:
                    return len(waiting.queue)
                longest_unused = waiting.queue.popleft()
            self._dec_overflow()
            longest_unused.close()


class OpenedConnections:
    """The connections that some engines, each with its own pool, have opened; a thread closes those that are not used.

    The thread is there only while there are idle connections.
    """

    def __init__(self, engines: Iterable[Engine]) -> None:
        self._engines = tuple(engines)
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        self._has_timer = threading.Lock()
        for engine in self._engines:
            if engine.dialect.name != "sqlite":  # it has no sockets
                event.listen(engine, "connect", lambda connection, _: self._connections.add(connection))
                event.listen(engine, "checkin", lambda *_: self._close_unused_later())

    def _close_unused_later(self) -> None:
        if self._has_timer.acquire(blocking=False):
            timer = threading.Timer(UNUSED_AFTER / 4, self._close_unused, [self._has_timer])
            timer.name, timer.daemon = "peerd-idle-connections", True
            timer.start()

    def _close_unused(self, has_timer: threading.Lock) -> None:
        has_timer.release()
        pools = [engine.pool for engine in self._engines]
        if sum([pool.close_unused() for pool in pools if isinstance(pool, ShrinkingPool)]):
            self._close_unused_later()

    def abandon_inherited(self) -> None:
        """In a forked process: create new pools, and replace the sockets of the parent's connections by /dev/null.

        Some drivers send a farewell to the server when a connection is collected, which would end the parent's session.
        """
        nowhere = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        for connection in list(self._connections):
            with suppress(OSError, ValueError, AttributeError, TypeError):  # it is closed
                os.dup2(nowhere, _descriptor_of(connection), inheritable=False)
        os.close(nowhere)
        INHERITED.extend([*self._connections, *(engine.pool for engine in self._engines)])
        self._connections = weakref.WeakSet()
        self._has_timer = threading.Lock()
        for engine in self._engines:
            engine.dispose(close=False)


def _descriptor_of(connection: Any) -> int:
    file = connection._sock if hasattr(connection, "_sock") else connection  # noqa: SLF001 - PyMySQL has no other way
    return int(file.fileno())
