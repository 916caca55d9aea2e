"""Claiming: take the next tasks for a worker and mark them working, so that each has one holder.

The invariant: a row goes from pending to working in one guarded write that raises its lease. Two claimers that read
the same row cannot both write it. A claimer whose reply was lost finds its rows again by the token that it chose
before.

There are two ways.

- PostgreSQL: one statement finds the first tasks of each lane, updates the best and returns them. Rows that another
  claimer has locked are skipped.
- *Compare and set* (MariaDB, MySQL, Galera, SQLite): the candidates are read without locks, written by primary key with
  every condition repeated, and the rows that were won are read back. Of two claimers that read the same row, one writes
  it and the other does not. SKIP LOCKED sees the locks of its own server only; two writers of a Galera cluster would
  take the same row, and one would be killed at its commit.

Claimers of a server that compete claim one after another: see `peerd.store.take.claimer`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any, ClassVar, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from peerd.domain.lifecycle import TaskEvent, target
from peerd.domain.task import Task
from peerd.store.connection.database_errors import is_lock_timeout
from peerd.store.connection.mysql import is_member, wait_for_sync
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import MYSQL, now
from peerd.store.statements import (
    CompiledStatement,
    DriverConnection,
    id_in_list,
    list_parameter,
    parse_timestamp,
    queue_in_list,
)
from peerd.store.take import on_mysql, on_postgresql, on_sqlite
from peerd.store.take.claimer import (
    MUTEX_FROM_LIMIT,
    Claimer,
    ClaimMutex,
    ClaimResult,
    MaxAttemptsDefaults,
    advisory_key,
    mutex_name,
)
from peerd.store.take.eligibility import (
    TOKEN_PARAMETER,
    Lanes,
    is_takeable,
    lanes_of_node,
    quarantined_lanes,
    taken_columns,
)
from peerd.store.take.turns import take_turn
from peerd.store.tasks.conditions import by_index, is_working, select_by_id, status_is, update_by_id
from peerd.store.tasks.rows import NUMBER_COLUMNS, TASK_COLUMNS, TASK_FIELDS, lock_available, to_number, to_task

GALERA_BLOCKS: Final = 12
"""Blocks of the first candidates; a claimer takes one of them at random where several servers take claims. Measured
on three servers with two processes each, claiming up to fifty: 46 conflicts in 24,000 tasks, against 650 without."""
BLOCK_FROM_LIMIT: Final = 10
"""Tasks in a claim from which on it takes a block."""
MAX_CANDIDATES: Final = 3000
"""Rows among which a claimer chooses, at the most."""
SAMPLE_WINDOW: Final = 64
"""Candidates that a claimer with competitors reads beyond the number it wants."""
WRITTEN_COLUMNS: Final = frozenset(
    ("status", "worker_node_id", "process_id", "checked_at", "updated_at", "progress", "progress_note", "deadline_at")
)
"""Columns whose values a claim knows, because it has written them, once it has read ``worker_started_at``."""
UNREAD_COLUMNS: Final = ("delay", "reserves", "timeouts", "releases", "buries", "kicks", "bulk_id")
"""Figures of queue clients, and a bulk action, which handlers do not need: a task that was claimed has None."""
RETURNED_COLUMNS: Final = tuple(name for name in TASK_FIELDS if name not in {*WRITTEN_COLUMNS, *UNREAD_COLUMNS})
"""The columns that are read from the database, in this order."""
CLAIMED_STATUS: Final = target(TaskEvent.CLAIM)


class ClaimTerms(msgspec.Struct, frozen=True):
    """What a worker's claim reads and writes; ``defaults`` are those of max_attempts."""

    columns: ClassVar = RETURNED_COLUMNS
    defaults: MaxAttemptsDefaults

    def values(self, moment: sa.ColumnElement[Any]) -> dict[str, Any]:
        general, by_handler = self.defaults
        default: Any = sa.literal(general, sa.Integer())
        if by_handler:
            own = [(sa.and_(tasks.c.queue == queue, tasks.c.name == name), most) for (queue, name), most in by_handler]
            default = sa.case(*own, else_=default)
        return {**taken_columns(moment), "max_attempts": sa.func.coalesce(tasks.c.max_attempts, default)}


class LimitedClaim(msgspec.Struct, frozen=True):
    """The result of a limited claim.

    Attributes:
        tasks: in round-robin order.
        again_in: seconds until a rate without capacity lets more of them start; None where there is none.
    """

    tasks: list[Task]
    again_in: float | None = None


def claim(
    connection: Connection,
    claimer: Claimer,
    *,
    token: int,
    limit: int,
    quarantined: bool = False,
    mutex: ClaimMutex | None = None,
) -> ClaimResult:
    """Claim the next tasks that this claimer may run and that count for no limit.

    Each of its statements may be committed by itself: a task is won by one of them.

    Args:
        connection: committing each statement, or in a transaction of its own where there is no mutex.
        claimer: the process, and its queues.
        token: from `new_token`; a new one for each claim.
        limit: tasks at the most.
        quarantined: take tasks that have crashed a process; their holder must run nothing else beside them. Without it,
            such tasks are not taken.
        mutex: the claimer's knowledge of its competitors; it is acquired where there are some.

    Returns:
        the tasks, in the order of the claim: priority, failures, due time, id.
    """
    lanes, mutex = _lanes(claimer, quarantined=quarantined), mutex or ClaimMutex()
    if connection.dialect.name in MYSQL:
        return _claim_on_mysql(connection, claimer, lanes, token, limit, mutex)
    if connection.dialect.name == "sqlite":
        ids = on_sqlite.candidates(connection, claimer, lanes, limit)
        return ClaimResult(claim_ids(connection, claimer, lanes, token, ids))
    return _claim_on_postgresql(connection, claimer, lanes, token, limit, mutex)


def claim_limited(
    connection: Connection, claimer: Claimer, queue: str, *, token: int, limit: int, quarantined: bool = False
) -> LimitedClaim:
    """Claim the next tasks of a queue, as many as its limits allow.

    The connection is in a transaction of its own; for the arguments see `claim`.
    """
    lanes = _lanes(claimer, quarantined=quarantined)
    of_this_queue = msgspec.structs.replace(claimer, queues=(queue,))

    def write(ids: Sequence[int]) -> list[tuple[Task, str]]:
        won = claim_ids(connection, of_this_queue, lanes, token, ids, with_key=True)
        return [(task, task.limit_key or "") for task in won]

    return LimitedClaim(*take_turn(connection, claimer, queue, lanes, limit, write))


def claimed_by_token(connection: Connection, claimer: Claimer, token: int) -> list[Task]:
    """The tasks of a claim whose reply was lost: the rows that carry its token and are still working."""
    wait_for_sync(connection)
    mine = (tasks.c.process_id == claimer.process_id, tasks.c.claim_token == token)
    statement = sa.select(*TASK_COLUMNS).where(is_working(), *mine)
    rows = connection.execute(by_index(statement, "tasks_claim")).mappings()
    return _in_claim_order([to_task(row) for row in rows])


def _lanes(claimer: Claimer, *, quarantined: bool) -> Lanes:
    return quarantined_lanes(claimer.node_id) if quarantined else lanes_of_node(claimer.node_id)


# ---------------------------------------------------------------- PostgreSQL


def _claim_on_postgresql(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, limit: int, mutex: ClaimMutex
) -> ClaimResult:
    key = advisory_key(mutex_name(connection, claimer.queues))
    terms = ClaimTerms(claimer.max_attempts_defaults())
    with mutex.acquire(connection, claimer.queues, limit):
        rows, is_alone = on_postgresql.take(
            DriverConnection(connection), claimer, terms, lanes, limit, beside_limits=True, token=token, mutex=key
        )
    if len(rows) >= MUTEX_FROM_LIMIT and not is_alone:
        mutex.record_contention()
    return ClaimResult(_tasks_of_claim(claimer, rows))


# ---------------------------------------------------------------- compare and set


def _claim_on_mysql(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, limit: int, mutex: ClaimMutex
) -> ClaimResult:
    """Claim on MariaDB, MySQL and Galera.

    A claimer with competitors acquires the mutex; without it, it reads more candidates than it wants and takes a random
    sample, so that claimers do not all want the same rows. Without competitors, and with the mutex, the order is exact.

    A member of a Galera cluster cannot see which rows the other servers are about to write, and learns it at its
    commit: there a claimer takes one of a dozen blocks of the candidates.
    """

    def sample(seen: Sequence[int]) -> Sequence[int]:
        return seen if len(seen) <= limit else random.sample(seen, limit)

    if is_member(connection):
        seen = limit + min((GALERA_BLOCKS - 1) * limit, MAX_CANDIDATES)
        choose = partial(_choose_block, limit=limit)
        ids, written = _claim_chosen(connection, claimer, lanes, token, seen, mutex, choose)
    else:
        with mutex.acquire(connection, claimer.queues, limit) as is_acquired:
            seen = limit + (SAMPLE_WINDOW if mutex.is_contended and not is_acquired else 0)
            ids, written = _claim_chosen(connection, claimer, lanes, token, seen, mutex, sample)
        if written < len(ids):
            mutex.record_contention()
    won = _read_claimed_rows(connection, token, ids) if written else ()
    return ClaimResult(_tasks_of_claim(claimer, won), lost_candidates=written < len(ids))


def claim_ids(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, ids: Sequence[int], *, with_key: bool = False
) -> list[Task]:
    """Claim those of these tasks, read without locks, that may still be claimed; ``with_key``: they may have keys."""
    written = _write_claim(connection, claimer, lanes, token, ids, with_key=with_key)
    return _tasks_of_claim(claimer, _read_claimed_rows(connection, token, ids)) if written else []


def _claim_chosen(
    connection: Connection,
    claimer: Claimer,
    lanes: Lanes,
    token: int,
    seen: int,
    mutex: ClaimMutex,
    choose: Callable[[Sequence[int]], Sequence[int]],
) -> tuple[Sequence[int], int]:
    """Write some of the first ``seen`` candidates; their ids, and how many were written.

    A row that another session has locked is waited for, one second. For a while after that, the claim first asks which
    rows are not locked, and reads candidates beyond those that are.
    """
    if not mutex.skips_locked_rows:
        ids = choose(_read_candidates(connection, claimer, lanes, seen))
        try:
            return ids, _write_claim(connection, claimer, lanes, token, ids)
        except DBAPIError as error:
            if not is_lock_timeout(error):
                raise
            mutex.record_locked_rows()
    candidates = _read_candidates(connection, claimer, lanes, seen + MAX_CANDIDATES)
    available = set(lock_available(connection, candidates))
    ids = choose([task_id for task_id in candidates if task_id in available][:seen])
    return ids, _write_claim(connection, claimer, lanes, token, ids)


def _read_candidates(connection: Connection, claimer: Claimer, lanes: Lanes, limit: int) -> Sequence[int]:
    return on_mysql.candidates(DriverConnection(connection), claimer, lanes, limit, beside_limits=True)


def _write_claim(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, ids: Sequence[int], *, with_key: bool = False
) -> int:
    """Write those of these that may still be claimed; how many."""
    if not ids:
        return 0
    guarded = _claim_update(ClaimTerms(claimer.max_attempts_defaults()), lanes, with_key=with_key)
    listed = {"ids": list_parameter(connection.dialect, sorted(ids))}
    listed["queues"] = list_parameter(connection.dialect, claimer.queues)
    return guarded.run(connection, **claimer.parameters(), **listed, token=token).rowcount


def _read_claimed_rows(connection: Connection, token: int, ids: Sequence[int]) -> Sequence[Sequence[Any]]:
    among = list_parameter(connection.dialect, sorted(ids))
    if connection.dialect.name == "sqlite":
        return _claimed_rows_in_json().run(connection, token=token, ids=among)
    return _claimed_rows_statement().run(DriverConnection(connection), token=token, ids=among).all()


def _choose_block(seen: Sequence[int], limit: int) -> Sequence[int]:
    """A block of the candidates at random; the first ones where few are wanted or there.

    A random sample would nearly always share a row with the sample of another server, and a claim that shares one row
    with another is refused as a whole.
    """
    if limit < BLOCK_FROM_LIMIT or len(seen) < 4 * limit:
        return seen[:limit]
    return seen[(first := limit * random.randrange(len(seen) // limit)) : first + limit]


@lru_cache(maxsize=256)
def _claim_update(terms: ClaimTerms, lanes: Lanes, *, with_key: bool) -> CompiledStatement:
    """The compare-and-set: by primary key, with every condition repeated. Only the ids are looked up in an index."""
    guard = is_takeable(lanes, queue_in_list(tasks.c.queue), with_key=with_key)
    update = sa.update(tasks).where(id_in_list(tasks.c.id), guard).values(terms.values(now()))
    return CompiledStatement(update_by_id(update))


@lru_cache(maxsize=1)
def _claimed_rows_statement() -> CompiledStatement:
    return CompiledStatement(select_by_id(_claimed_rows()))


@lru_cache(maxsize=1)
def _claimed_rows_in_json() -> on_sqlite.RowsInJson:
    return on_sqlite.RowsInJson(_claimed_rows(), RETURNED_COLUMNS)


def _claimed_rows() -> sa.Select[Any]:
    mine = (id_in_list(tasks.c.id), tasks.c.claim_token == TOKEN_PARAMETER, status_is(target(TaskEvent.CLAIM)))
    return sa.select(*(tasks.c[field] for field in RETURNED_COLUMNS)).where(*mine)


# ---------------------------------------------------------------- rows, made tasks: thousands in a second


def _tasks_of_claim(claimer: Claimer, rows: Sequence[Sequence[Any]]) -> list[Task]:
    """The tasks that a claim has won, in its order, from `RETURNED_COLUMNS` as the driver gives them."""
    return _in_claim_order([_to_task(row, claimer) for row in rows])


def _in_claim_order(claimed: list[Task]) -> list[Task]:
    """Tasks in the order in which they are claimed."""
    return sorted(claimed, key=lambda task: (-task.priority, task.failures, task.start_at or task.created_at, task.id))


def _to_task(row: Sequence[Any], claimer: Claimer) -> Task:
    # By position, because a dictionary for each row costs 2 µs, a tenth of a task.
    values = list(_IN_ORDER_OF_TASK((*row, CLAIMED_STATUS, claimer.node_id, claimer.process_id, None)))
    for at in _NUMBERS:
        if type(values[at]) is not int and values[at] is not None:
            values[at] = to_number(values[at])
    for at in _TIMES:
        if type(values[at]) is str:
            values[at] = parse_timestamp(values[at])
    return Task(*values)


def _place_of(field: str) -> int:
    """Where a field of a task stands behind the columns that were read: status, node, process and None follow them."""
    sources = {"checked_at": "worker_started_at", "updated_at": "worker_started_at"}
    given = (*RETURNED_COLUMNS, "status", "worker_node_id", "process_id")
    source = sources.get(field, field)
    return given.index(source) if source in given else len(given)


_IN_ORDER_OF_TASK: Final = itemgetter(*map(_place_of, TASK_FIELDS))
_NUMBERS: Final = tuple(TASK_FIELDS.index(name) for name in NUMBER_COLUMNS if name in RETURNED_COLUMNS)
_TIMES: Final = tuple(at for at, name in enumerate(TASK_FIELDS) if name.endswith("_at"))
