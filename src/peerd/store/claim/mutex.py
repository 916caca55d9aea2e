"""The line: claimers that have met claim one after another.

Two that claim at the same moment disturb each other, however right each of them stays. On MariaDB they wait for each
other's rows, with their own locked meanwhile, and lose some; on PostgreSQL each walks over what the other has just
taken. It grows with their number until the processors do little else: thirty processes drained a quarter of what one
does on MariaDB, a twelfth on PostgreSQL. So who has met another holds a lock of the server's while it
claims. It waits for its turn there, asleep, and has the heads for itself.

No invariant rests on the lock. Who waits in vain claims without it, and leaves the line alone for a while: whoever
holds it may be frozen, or cut off. A claim of a few tasks does not line up, for it would wait longer than it would
lose.

It is a lock of one server (GET_LOCK on MariaDB and MySQL, a transaction's advisory lock on PostgreSQL), and one for
each set of queues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from peerd.store.statements.compiled import CompiledStatement

MUTEX_FROM_LIMIT: Final = 10
"""Tasks in a claim from which on it lines up."""
CONTENDED_FOR: Final = 1.0
"""Seconds for which a claimer that has met another lines up."""
ACQUIRE_TIMEOUT: Final = 1
"""Seconds in the line, at the most: whole ones, for MySQL. A claim of a hundred takes some milliseconds."""
UNUSED_AFTER_TIMEOUT: Final = 60.0
"""Seconds for which a claimer that has waited in vain lines up no more."""
SKIPS_LOCKED_FOR: Final = 10.0
"""Seconds for which a claimer that has waited for a locked row asks first which rows are locked."""


MUTEX_PARAMETER: Final = sa.bindparam("line", type_=sa.BigInteger())
"""PostgreSQL's name of a line."""

_ACQUIRE_ON_MYSQL: Final = CompiledStatement(
    sa.text(f"SELECT CASE WHEN GET_LOCK(:line, 0) THEN 0 WHEN GET_LOCK(:line, {ACQUIRE_TIMEOUT}) THEN 1 END")
)
_ACQUIRE_ON_POSTGRESQL: Final = CompiledStatement(
    sa.text(
        "SELECT CASE WHEN pg_try_advisory_xact_lock(:line) THEN 0"
        f" WHEN set_config('lock_timeout', '{ACQUIRE_TIMEOUT}s', true) IS NOT NULL"
        " AND pg_advisory_xact_lock(:line) IS NOT NULL THEN 1 END"
    )
)
"""0: it is its turn at once; 1: after a while; nothing: it did not come."""


class ClaimMutex:
    """What one claimer knows of others.

    Args:
        clock: monotonic, in seconds.

    >>> seconds = iter([10.0, 10.5, 12.0])
    >>> key = ClaimMutex(lambda: next(seconds))
    >>> key.is_contended
    False
    >>> key.record_contention()
    >>> key.is_contended, key.is_contended
    (True, False)
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._contended_until: float | None = None
        self._unused_until: float | None = None
        self._skips_locked_until: float | None = None

    @property
    def is_contended(self) -> bool:
        """Whether others claim at the same time, as far as is known."""
        return self._contended_until is not None and self._clock() < self._contended_until

    def record_contention(self) -> None:
        """Somebody else is claiming, or has taken what was wanted."""
        self._contended_until = self._clock() + CONTENDED_FOR

    @property
    def skips_locked_rows(self) -> bool:
        """Whether another session has lately locked rows that were wanted."""
        return self._skips_locked_until is not None and self._clock() < self._skips_locked_until

    def record_locked_rows(self) -> None:
        """Another session has locked rows that were wanted."""
        self._skips_locked_until = self._clock() + SKIPS_LOCKED_FOR

    @contextmanager
    def acquire(self, connection: Connection, queues: tuple[str, ...], limit: int) -> Iterator[bool]:
        """Wait for its turn, and have it for the time of the block; nothing is waited for unless others were met.

        Args:
            connection: committing each statement.
            queues: that are claimed from.
            limit: tasks that are wanted.

        Returns:
            whether it has its turn, and so no competitor in the line.
        """
        if limit < MUTEX_FROM_LIMIT or not self.is_contended or self._is_unused():
            yield False
            return
        wait = _on_postgresql if connection.dialect.name == "postgresql" else _on_mysql
        with wait(connection, mutex_name(connection, queues)) as has_waited:
            if has_waited is not False:
                self.record_contention()
            if has_waited is None:
                self._unused_until = self._clock() + UNUSED_AFTER_TIMEOUT
            yield has_waited is not None

    def _is_unused(self) -> bool:
        return self._unused_until is not None and self._clock() < self._unused_until


def mutex_name(connection: Connection, queues: tuple[str, ...]) -> str:
    """The line of these queues in this database: MySQL's locks are one server's, whatever the database."""
    about = "\n".join([connection.engine.url.database or "", *sorted(queues)])
    return blake2b(about.encode(), digest_size=8).hexdigest()


@contextmanager
def _on_mysql(connection: Connection, key: str) -> Iterator[bool | None]:
    """The turn for the time of the block: whether it had to be waited for; None where it did not come."""
    name = f"peerd-{key}"
    has_waited = _acquire(connection, _ACQUIRE_ON_MYSQL, {"line": name})
    try:
        yield has_waited
    finally:
        if has_waited is not None and not connection.invalidated:
            connection.exec_driver_sql("DO RELEASE_LOCK(%s)", (name,))


@contextmanager
def _on_postgresql(connection: Connection, key: str) -> Iterator[bool | None]:
    """As on MySQL. The lock is a transaction's: a pool of connections between us and the server does not matter."""
    connection.exec_driver_sql("BEGIN")
    try:
        has_waited = _acquire(connection, _ACQUIRE_ON_POSTGRESQL, {"line": advisory_key(key)})
        if has_waited is None:
            connection.exec_driver_sql("ROLLBACK")  # it has failed; what follows commits by itself
        yield has_waited
    except BaseException:
        if not connection.invalidated:
            connection.exec_driver_sql("ROLLBACK")
        raise
    if has_waited is not None:
        connection.exec_driver_sql("COMMIT")


def _acquire(connection: Connection, question: CompiledStatement, values: Mapping[str, Any]) -> bool | None:
    try:
        answer = question.run(connection, **values).scalar_one()
    except DBAPIError as error:  # a server without such locks, or one that sees a deadlock in them
        if error.connection_invalidated:
            raise
        return None
    return None if answer is None else bool(answer)


def advisory_key(key: str) -> int:
    """A line as PostgreSQL's locks are named.

    >>> advisory_key("00000000000000ff"), advisory_key("ffffffffffffffff")
    (255, -1)
    """
    return int.from_bytes(bytes.fromhex(key), "big", signed=True)
