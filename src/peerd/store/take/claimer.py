"""The process that takes tasks, and what it knows of its competitors: the claim mutex.

Two claimers that claim at the same moment stay correct, but disturb each other. On MariaDB they wait for each other's
rows while they hold their own, and lose some; on PostgreSQL each walks over the rows that the other has just taken.
Thirty processes drained a quarter of what one does on MariaDB, a twelfth on PostgreSQL. So a claimer that has met
another holds a lock of the server while it claims, and has the first candidates for itself.

No invariant rests on the lock. After a time-out a claimer claims without the lock and does not try it for a minute: its
holder may be frozen, or cut off. A claim of a few tasks never acquires it, for it would wait longer than it would lose.

It is a lock of one server (GET_LOCK on MariaDB and MySQL, a transaction's advisory lock on PostgreSQL), and one for
each set of queues.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from peerd.domain.task import Task
from peerd.store.connection.postgresql import has_pooler
from peerd.store.statements import CompiledStatement

HandlerKey = tuple[str, str]
"""A handler: its queue, and its name there; two queues may each have one of the same name."""
MaxAttemptsDefaults = tuple[int, tuple[tuple[HandlerKey, int], ...]]
"""max_attempts where the row has none: of all tasks, and of those whose handler has its own."""
MUTEX_FROM_LIMIT: Final = 10
"""Tasks in a claim from which on it acquires the mutex."""
CONTENDED_FOR: Final = 1.0
"""Seconds for which a claimer that has met another acquires the mutex."""
ACQUIRE_TIMEOUT: Final = 1
"""Seconds; whole ones, for MySQL. A claim of a hundred takes some milliseconds."""
UNUSED_AFTER_TIMEOUT: Final = 60.0
"""Seconds for which a claimer does not try the mutex after a time-out."""
SKIPS_LOCKED_FOR: Final = 10.0
"""Seconds for which a claimer that has waited for a locked row asks first which rows are locked."""

_ACQUIRE_ON_MYSQL: Final = CompiledStatement(
    sa.text(f"SELECT CASE WHEN GET_LOCK(:mutex, 0) THEN 0 WHEN GET_LOCK(:mutex, {ACQUIRE_TIMEOUT}) THEN 1 END")
)
_ACQUIRE_ON_POSTGRESQL: Final = CompiledStatement(
    sa.text(
        "SELECT CASE WHEN pg_try_advisory_xact_lock(:mutex) THEN 0"
        f" WHEN set_config('lock_timeout', '{ACQUIRE_TIMEOUT}s', true) IS NOT NULL"
        " AND pg_advisory_xact_lock(:mutex) IS NOT NULL THEN 1 END"
    )
)
"""0: acquired at once; 1: after a wait; null: not acquired."""
_TRANSACTION: Final = ("BEGIN", "ROLLBACK", "COMMIT")
_SAVEPOINT: Final = ("SAVEPOINT mutex", "ROLLBACK TO SAVEPOINT mutex", "RELEASE SAVEPOINT mutex")


class Claimer(msgspec.Struct, frozen=True, kw_only=True):
    """A process that takes tasks, and the queues that it serves.

    ``default_attempts`` is written as max_attempts where the row has none and ``attempts_of`` does not name its
    handler.
    """

    node_id: int
    incarnation: str
    process_id: int
    queues: tuple[str, ...]
    default_attempts: int = 3
    attempts_of: Mapping[HandlerKey, int] = msgspec.field(default_factory=dict)

    def parameters(self) -> dict[str, Any]:
        """The parameters of statements that write, and of `peerd.store.take.eligibility.is_on_duty`."""
        return {"node": self.node_id, "incarnation": self.incarnation, "process": self.process_id}

    def max_attempts_defaults(self) -> MaxAttemptsDefaults:
        """The values of max_attempts for rows that have none."""
        return self.default_attempts, tuple(sorted(self.attempts_of.items()))


class ClaimResult(msgspec.Struct, frozen=True):
    """The claimed tasks in their order, and whether other claimers took some of the candidates."""

    tasks: list[Task]
    lost_candidates: bool = False


# ---------------------------------------------------------------- the claim mutex


class ClaimMutex:
    """A claimer's knowledge of its competitors, and the lock that it acquires because of them.

    Args:
        clock: monotonic, in seconds.

    >>> seconds = iter([10.0, 10.5, 12.0])
    >>> mutex = ClaimMutex(lambda: next(seconds))
    >>> mutex.is_contended
    False
    >>> mutex.record_contention()
    >>> mutex.is_contended, mutex.is_contended
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
        return self._is_before(self._contended_until)

    def record_contention(self) -> None:
        """Another claimer is claiming, or has taken candidates of this one."""
        self._contended_until = self._clock() + CONTENDED_FOR

    @property
    def skips_locked_rows(self) -> bool:
        """Whether another session has lately locked candidates."""
        return self._is_before(self._skips_locked_until)

    def record_locked_rows(self) -> None:
        """Another session has locked candidates."""
        self._skips_locked_until = self._clock() + SKIPS_LOCKED_FOR

    def _is_before(self, end: float | None) -> bool:
        return end is not None and self._clock() < end

    @contextmanager
    def acquire(self, connection: Connection, queues: tuple[str, ...], limit: int) -> Iterator[bool]:
        """Hold the lock for the time of the block, if there are competitors; whether it is held.

        The connection commits each statement; ``limit`` is the number of tasks that the claim wants.
        """
        if limit < MUTEX_FROM_LIMIT or not self.is_contended or self._is_before(self._unused_until):
            yield False
            return
        acquire = _on_postgresql if connection.dialect.name == "postgresql" else _on_mysql
        with acquire(connection, mutex_name(connection, queues)) as has_waited:
            if has_waited is not False:
                self.record_contention()
            if has_waited is None:
                self._unused_until = self._clock() + UNUSED_AFTER_TIMEOUT
            yield has_waited is not None


def mutex_name(connection: Connection, queues: tuple[str, ...]) -> str:
    """The name of the mutex of these queues in this database: MySQL's locks belong to a server, not to a database."""
    about = "\n".join([connection.engine.url.database or "", *sorted(queues)])
    return blake2b(about.encode(), digest_size=8).hexdigest()


@contextmanager
def _on_mysql(connection: Connection, name: str) -> Iterator[bool | None]:
    """Hold the lock for the time of the block: whether there was a wait; None where it was not acquired."""
    name = f"peerd-{name}"
    has_waited = _acquire(connection, _ACQUIRE_ON_MYSQL, name)
    try:
        yield has_waited
    finally:
        if has_waited is not None and not connection.invalidated:
            connection.exec_driver_sql("DO RELEASE_LOCK(%s)", (name,))


@contextmanager
def _on_postgresql(connection: Connection, name: str) -> Iterator[bool | None]:
    """The lock on PostgreSQL; see `_on_mysql`. It belongs to a transaction, so that it works through a pooler, too."""
    begin, roll_back, commit = _SAVEPOINT if has_pooler(connection.info) else _TRANSACTION
    connection.exec_driver_sql(begin)
    try:
        has_waited = _acquire(connection, _ACQUIRE_ON_POSTGRESQL, advisory_key(name))
        if has_waited is None:
            connection.exec_driver_sql(roll_back)  # it has failed; the statements after it do without the lock
        yield has_waited
    except BaseException:
        if not connection.invalidated:
            connection.exec_driver_sql(roll_back)
        raise
    if has_waited is not None:
        connection.exec_driver_sql(commit)


def _acquire(connection: Connection, statement: CompiledStatement, mutex: str | int) -> bool | None:
    try:
        answer = statement.run(connection, mutex=mutex).scalar_one()
    except DBAPIError as error:  # a server without such locks, or one that sees a deadlock in them
        if error.connection_invalidated:
            raise
        return None
    return None if answer is None else bool(answer)


def advisory_key(name: str) -> int:
    """The name of a mutex as PostgreSQL's advisory locks have it.

    >>> advisory_key("00000000000000ff"), advisory_key("ffffffffffffffff")
    (255, -1)
    """
    return int.from_bytes(bytes.fromhex(name), "big", signed=True)
