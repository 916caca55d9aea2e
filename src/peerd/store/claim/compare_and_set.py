"""Compare and set: a claim that needs no locks between its statements.

The heads are read without locks, written by primary key with every condition repeated, and what was won is read back.
Of two claimers that read the same row, one writes it and the other does not.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from peerd.domain.lifecycle import TaskEvent, sources, target
from peerd.domain.task import Task
from peerd.store.claim.candidates import is_startable, select_candidates
from peerd.store.claim.claim_result import RETURNED_COLUMNS, decode_json_rows, tasks_of_claim
from peerd.store.claim.claim_values import TOKEN_PARAMETER, claim_values
from peerd.store.claim.claimer import (
    Claimer,
    ClaimResult,
    Lanes,
    MaxAttemptsDefaults,
    claimer_parameters,
    max_attempts_defaults,
)
from peerd.store.claim.mutex import ClaimMutex
from peerd.store.connection.database_errors import is_lock_timeout
from peerd.store.connection.galera import is_member
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import tasks
from peerd.store.statements.compiled import CompiledStatement, id_in_list, list_parameter
from peerd.store.tasks.conditions import select_by_id, status_is, update_by_id

GALERA_BLOCKS: Final = 12
"""Pieces of the head of the order, of which a claimer takes one at random where several servers take claims. Measured
on three servers with two processes each, claiming up to fifty: 46 conflicts in 24,000 tasks, against 650 without."""
BLOCK_FROM_LIMIT: Final = 10
"""Tasks in a claim from which on it takes a piece."""
MAX_CANDIDATES: Final = 3000
"""Rows of which one is chosen, at the most."""
SAMPLE_WINDOW: Final = 64
"""Rows at the head of the order that are looked at beyond those that are wanted, at the most."""


def claim_compare_and_set(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, limit: int, mutex: ClaimMutex
) -> ClaimResult:
    """Claim on MariaDB, MySQL and Galera.

    Who has met others waits in the line for its turn, or, where few are wanted, looks further and draws from what it
    sees, so that claimers part. While nobody competes, and in the line, the order is exact.

    On a Galera cluster it cannot see what the other servers are about to take, and is told at the commit: there it
    takes one of a dozen pieces of the head.
    """
    if is_member(connection):
        further = min((GALERA_BLOCKS - 1) * limit, MAX_CANDIDATES)
        choose = partial(_choose_block, limit=limit)
        ids, written = _claim_chosen(connection, claimer, lanes, token, limit + further, mutex, choose)
    else:
        choose = partial(_choose_sample, limit=limit)
        with mutex.acquire(connection, claimer.queues, limit) as is_acquired:
            further = SAMPLE_WINDOW if mutex.is_contended and not is_acquired else 0
            ids, written = _claim_chosen(connection, claimer, lanes, token, limit + further, mutex, choose)
        if written < len(ids):
            mutex.record_contention()
    won = _read_claimed_rows(connection, token, ids) if written else ()
    return ClaimResult(tasks_of_claim(claimer, won), lost_candidates=written < len(ids))


def claim_compare_and_set_by_json(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, limit: int
) -> ClaimResult:
    """The compare-and-set on SQLite. Lists come and go as JSON.

    At each row that is read Python's lock is given up and taken back, which takes longer than the row as soon as
    another thread computes.
    """
    heads = (
        _candidates_in_json(claimer.queues, lanes)
        .run(connection, **claimer_parameters(claimer), limit=limit)
        .scalar_one()
    )
    return ClaimResult(claim_ids(connection, claimer, lanes, token, msgspec.json.decode(heads, type=list[int])))


def claim_ids(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, ids: Sequence[int], *, limited: bool = False
) -> list[Task]:
    """Claim those of these tasks that may still be claimed.

    Args:
        connection: see `claim`.
        claimer: who.
        lanes: from `lanes_for`.
        token: a new one.
        ids: that were read without locks.
        limited: they may have keys.
    """
    written = _write_claim(connection, claimer, lanes, token, ids, limited=limited)
    return tasks_of_claim(claimer, _read_claimed_rows(connection, token, ids)) if written else []


CandidateChooser = Callable[[Sequence[int]], Sequence[int]]


def _claim_chosen(
    connection: Connection,
    claimer: Claimer,
    lanes: Lanes,
    token: int,
    seen: int,
    mutex: ClaimMutex,
    choose: CandidateChooser,
) -> tuple[Sequence[int], int]:
    """Write some of the first tasks; their ids, and how many were written.

    A row that somebody's transaction has locked is waited for, a second. From then on, for a while, the claim asks
    first which rows are free, and looks beyond those that are not.
    """
    if not mutex.skips_locked_rows:
        ids = choose(_read_candidates(connection, claimer, lanes, seen))
        try:
            return ids, _write_claim(connection, claimer, lanes, token, ids)
        except DBAPIError as error:
            if not is_lock_timeout(error):
                raise
            mutex.record_locked_rows()
    ids = choose(
        lock_available_ids(connection, _read_candidates(connection, claimer, lanes, seen + MAX_CANDIDATES))[:seen]
    )
    return ids, _write_claim(connection, claimer, lanes, token, ids)


def lock_available_ids(connection: Connection, ids: Sequence[int]) -> Sequence[int]:
    """Lock those that nobody else has locked just now; which they are, in the same order.

    `peerd.store.tasks.rows.lock_available` without conditions, for what is asked at each claim. SQLite has no locks of
    rows.
    """
    if not ids or connection.dialect.name == "sqlite":
        return ids
    free = set(_lock_available_statement().run(connection, ids=list_parameter(connection, sorted(ids))).scalars())
    return [task_id for task_id in ids if task_id in free]


@lru_cache(maxsize=1)
def _lock_available_statement() -> CompiledStatement:
    return CompiledStatement(
        select_by_id(sa.select(tasks.c.id).where(id_in_list(tasks.c.id)).with_for_update(skip_locked=True))
    )


def _read_candidates(connection: Connection, claimer: Claimer, lanes: Lanes, limit: int) -> Sequence[int]:
    return (
        _candidates_statement(claimer.queues, lanes)
        .run(connection, **claimer_parameters(claimer), limit=limit)
        .scalars()
        .all()
    )


def _write_claim(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, ids: Sequence[int], *, limited: bool = False
) -> int:
    """Write those of these that may still be claimed; how many."""
    if not ids:
        return 0
    guarded = _claim_update(claimer.queues, lanes, max_attempts_defaults(claimer), limited=limited)
    return guarded.run(
        connection, **claimer_parameters(claimer), token=token, ids=list_parameter(connection, sorted(ids))
    ).rowcount


def _read_claimed_rows(connection: Connection, token: int, ids: Sequence[int]) -> Sequence[Sequence[Any]]:
    among = list_parameter(connection, sorted(ids))
    if connection.dialect.name == "sqlite":
        with suppress(DBAPIError, msgspec.DecodeError):  # what JSON cannot say: bytes in a column of texts, infinity
            return decode_json_rows(_claimed_rows_in_json().run(connection, token=token, ids=among).scalar_one())
    return _claimed_rows_statement().rows(connection, token=token, ids=among)


def _choose_sample(seen: Sequence[int], limit: int) -> Sequence[int]:
    return seen if len(seen) <= limit else random.sample(seen, limit)


def _choose_block(seen: Sequence[int], limit: int) -> Sequence[int]:
    """A piece of what is seen, at random; the head itself where few are wanted or waiting.

    Of rows that are drawn one by one, some would nearly always be drawn at another server too, and a claim that shares
    one row with another is refused as a whole.
    """
    if limit < BLOCK_FROM_LIMIT or len(seen) < 4 * limit:
        return seen[:limit]
    return seen[(first := limit * random.randrange(len(seen) // limit)) : first + limit]


@lru_cache(maxsize=256)
def _candidates_statement(serves: tuple[str, ...], lanes: Lanes) -> CompiledStatement:
    return CompiledStatement(select_candidates(serves, lanes))


@lru_cache(maxsize=256)
def _claim_update(
    serves: tuple[str, ...], lanes: Lanes, defaults: MaxAttemptsDefaults, *, limited: bool
) -> CompiledStatement:
    """The compare-and-set: by primary key, with every condition repeated. The ids alone are searched for."""
    conditions = [
        status_is(*sources(TaskEvent.CLAIM)),
        tasks.c.queue.in_([sa.literal(queue) for queue in serves]),
        tasks.c.lane.in_([sa.literal(lane) for lane in lanes]),
        is_startable(),
    ]
    if not limited:
        conditions.append(tasks.c.limit_key.is_(None))
    guard = sa.case((sa.and_(*conditions), sa.true()), else_=sa.false())
    return CompiledStatement(
        update_by_id(sa.update(tasks).where(id_in_list(tasks.c.id), guard).values(claim_values(defaults, now())))
    )


@lru_cache(maxsize=1)
def _claimed_rows_statement() -> CompiledStatement:
    """What a compare-and-set has won: the columns that it did not write itself."""
    won = sa.select(*(tasks.c[field] for field in RETURNED_COLUMNS)).where(*_is_claimed_by_token())
    return CompiledStatement(select_by_id(won))


def _is_claimed_by_token() -> tuple[sa.ColumnElement[bool], ...]:
    return id_in_list(tasks.c.id), tasks.c.claim_token == TOKEN_PARAMETER, status_is(target(TaskEvent.CLAIM))


@lru_cache(maxsize=256)
def _candidates_in_json(serves: tuple[str, ...], lanes: Lanes) -> CompiledStatement:
    return CompiledStatement(sa.select(sa.func.json_group_array(select_candidates(serves, lanes).subquery().c.id)))


@lru_cache(maxsize=1)
def _claimed_rows_in_json() -> CompiledStatement:
    """As `_claimed_rows_statement`, in one value; see `decode_json_rows`."""
    body_bytes = sa.case((tasks.c.body_bytes.is_not(None), sa.func.hex(tasks.c.body_bytes)))
    columns = [body_bytes if field == "body_bytes" else tasks.c[field] for field in RETURNED_COLUMNS]
    return CompiledStatement(
        sa.select(sa.func.json_group_array(sa.func.json_array(*columns))).where(*_is_claimed_by_token())
    )


def clear_statement_cache() -> None:
    """Make the statements anew, for a test that has changed what they are made of."""
    for cached in (
        _candidates_statement,
        _candidates_in_json,
        _claim_update,
        _lock_available_statement,
        _claimed_rows_statement,
        _claimed_rows_in_json,
    ):
        cached.cache_clear()
