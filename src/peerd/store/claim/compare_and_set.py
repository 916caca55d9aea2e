"""Compare and set: a claim that needs no locks between its statements.

The candidates are read without locks, written by primary key with every condition repeated, and the rows that were won
are read back. Of two claimers that read the same row, one writes it and the other does not.
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
from peerd.store.claim.claimer import (
    TOKEN_PARAMETER,
    Claimer,
    ClaimResult,
    Lanes,
    MaxAttemptsDefaults,
    claim_values,
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
from peerd.store.tasks.rows import lock_available

GALERA_BLOCKS: Final = 12
"""Blocks of the first candidates, of which a claimer takes one at random where several servers take claims. Measured
on three servers with two processes each, claiming up to fifty: 46 conflicts in 24,000 tasks, against 650 without."""
BLOCK_FROM_LIMIT: Final = 10
"""Tasks in a claim from which on it takes a block."""
MAX_CANDIDATES: Final = 3000
"""Rows of which one is chosen, at the most."""
SAMPLE_WINDOW: Final = 64
"""Candidates that a claimer with competitors reads beyond the number it wants."""


def claim_compare_and_set(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, limit: int, mutex: ClaimMutex
) -> ClaimResult:
    """Claim on MariaDB, MySQL and Galera.

    A claimer with competitors acquires the mutex; without it, it reads more candidates than it wants and takes a random
    sample, so that claimers do not all want the same rows. Without competitors, and with the mutex, the order is exact.

    A member of a Galera cluster cannot see which rows the other servers are about to write, and learns it at its
    commit: there a claimer takes one of a dozen blocks of the candidates.
    """
    if is_member(connection):
        seen = limit + min((GALERA_BLOCKS - 1) * limit, MAX_CANDIDATES)
        choose = partial(_choose_block, limit=limit)
        ids, written = _claim_chosen(connection, claimer, lanes, token, seen, mutex, choose)
    else:
        choose = partial(_choose_sample, limit=limit)
        with mutex.acquire(connection, claimer.queues, limit) as is_acquired:
            seen = limit + (SAMPLE_WINDOW if mutex.is_contended and not is_acquired else 0)
            ids, written = _claim_chosen(connection, claimer, lanes, token, seen, mutex, choose)
        if written < len(ids):
            mutex.record_contention()
    won = _read_claimed_rows(connection, token, ids) if written else ()
    return ClaimResult(tasks_of_claim(claimer, won), lost_candidates=written < len(ids))


def claim_compare_and_set_by_json(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, limit: int
) -> ClaimResult:
    """The compare-and-set on SQLite. Lists are sent and received as JSON.

    SQLite's driver releases and takes Python's lock at each row that it reads, which takes longer than the row as soon
    as another thread computes.
    """
    candidates = _candidates_in_json(claimer.queues, lanes)
    ids = candidates.run(connection, **claimer_parameters(claimer), limit=limit).scalar_one()
    return ClaimResult(claim_ids(connection, claimer, lanes, token, msgspec.json.decode(ids, type=list[int])))


def claim_ids(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, ids: Sequence[int], *, limited: bool = False
) -> list[Task]:
    """Claim those of these tasks, read without locks, that may still be claimed; ``limited``: they may have keys."""
    written = _write_claim(connection, claimer, lanes, token, ids, limited=limited)
    return tasks_of_claim(claimer, _read_claimed_rows(connection, token, ids)) if written else []


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
    statement = _candidates_statement(claimer.queues, lanes)
    return statement.run(connection, **claimer_parameters(claimer), limit=limit).scalars().all()


def _write_claim(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, ids: Sequence[int], *, limited: bool = False
) -> int:
    """Write those of these that may still be claimed; how many."""
    if not ids:
        return 0
    guarded = _claim_update(claimer.queues, lanes, max_attempts_defaults(claimer), limited=limited)
    listed = list_parameter(connection.dialect, sorted(ids))
    return guarded.run(connection, **claimer_parameters(claimer), token=token, ids=listed).rowcount


def _read_claimed_rows(connection: Connection, token: int, ids: Sequence[int]) -> Sequence[Sequence[Any]]:
    among = list_parameter(connection.dialect, sorted(ids))
    if connection.dialect.name == "sqlite":
        with suppress(DBAPIError, msgspec.DecodeError):  # JSON has no bytes in a column of texts, and no infinity
            return decode_json_rows(_claimed_rows_in_json().run(connection, token=token, ids=among).scalar_one())
    return _claimed_rows_statement().rows(connection, token=token, ids=among)


def _choose_sample(seen: Sequence[int], limit: int) -> Sequence[int]:
    return seen if len(seen) <= limit else random.sample(seen, limit)


def _choose_block(seen: Sequence[int], limit: int) -> Sequence[int]:
    """A block of the candidates at random; the first ones where few are wanted or there.

    A random sample would nearly always share a row with that of another server, and a claim that shares one row with
    another is refused as a whole.
    """
    if limit < BLOCK_FROM_LIMIT or len(seen) < 4 * limit:
        return seen[:limit]
    return seen[(first := limit * random.randrange(len(seen) // limit)) : first + limit]


@lru_cache(maxsize=256)
def _candidates_statement(serves: tuple[str, ...], lanes: Lanes) -> CompiledStatement:
    return CompiledStatement(select_candidates(serves, lanes))


@lru_cache(maxsize=256)
def _candidates_in_json(serves: tuple[str, ...], lanes: Lanes) -> CompiledStatement:
    return CompiledStatement(sa.select(sa.func.json_group_array(select_candidates(serves, lanes).subquery().c.id)))


@lru_cache(maxsize=256)
def _claim_update(
    serves: tuple[str, ...], lanes: Lanes, defaults: MaxAttemptsDefaults, *, limited: bool
) -> CompiledStatement:
    """The compare-and-set: by primary key, with every condition repeated. Only the ids are looked up in an index."""
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
    won = sa.select(*(tasks.c[field] for field in RETURNED_COLUMNS)).where(*_is_claimed_by_token())
    return CompiledStatement(select_by_id(won))


@lru_cache(maxsize=1)
def _claimed_rows_in_json() -> CompiledStatement:
    """As `_claimed_rows_statement`, in one value; see `decode_json_rows`."""
    body_bytes = sa.case((tasks.c.body_bytes.is_not(None), sa.func.hex(tasks.c.body_bytes)))
    columns = [body_bytes if field == "body_bytes" else tasks.c[field] for field in RETURNED_COLUMNS]
    return CompiledStatement(
        sa.select(sa.func.json_group_array(sa.func.json_array(*columns))).where(*_is_claimed_by_token())
    )


def _is_claimed_by_token() -> tuple[sa.ColumnElement[bool], ...]:
    return id_in_list(tasks.c.id), tasks.c.claim_token == TOKEN_PARAMETER, status_is(target(TaskEvent.CLAIM))
