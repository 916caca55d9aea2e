"""Claiming: take the next tasks and mark them working, so that each has one holder.

The invariant: a row goes from pending to working in one guarded write that raises its lease. Two claimers that read
the same row cannot both write it. A claimer whose reply was lost finds its rows again by the token that it chose
before.

There are two strategies.

- *returning* (PostgreSQL): one statement finds the first tasks of each lane, updates the best and returns them. Rows
  that another claimer has locked are skipped.
- *compare and set* (MariaDB, MySQL, Galera, SQLite): read the candidates without locks, update by primary key with
  every condition repeated, read back the rows that were won. SKIP LOCKED sees the locks of its own server only; two
  writers of a Galera cluster would take the same row, and one would be killed at its commit.

Claimers of a server that compete claim one after another: see `peerd.store.claim.mutex`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.task import Task
from peerd.store.claim.candidates import select_candidates
from peerd.store.claim.claim_result import RETURNED_COLUMNS, sort_in_claim_order, tasks_of_claim
from peerd.store.claim.claimer import (
    Claimer,
    ClaimResult,
    Lanes,
    MaxAttemptsDefaults,
    claim_values,
    claimer_parameters,
    lanes_for,
    max_attempts_defaults,
)
from peerd.store.claim.compare_and_set import claim_compare_and_set, claim_compare_and_set_by_json
from peerd.store.claim.mutex import MUTEX_FROM_LIMIT, MUTEX_PARAMETER, ClaimMutex, advisory_key, mutex_name
from peerd.store.connection.galera import wait_for_sync
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import MYSQL
from peerd.store.statements.compiled import CompiledStatement
from peerd.store.tasks.conditions import by_index, is_working
from peerd.store.tasks.rows import TASK_COLUMNS, to_task


def claim(
    connection: Connection,
    claimer: Claimer,
    *,
    token: int,
    limit: int,
    quarantined: bool = False,
    mutex: ClaimMutex | None = None,
) -> ClaimResult:
    """Claim the next tasks that this claimer may run.

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
    lanes, mutex = lanes_for(claimer, quarantined=quarantined), mutex or ClaimMutex()
    if connection.dialect.name in MYSQL:
        return claim_compare_and_set(connection, claimer, lanes, token, limit, mutex)
    if connection.dialect.name == "sqlite":
        return claim_compare_and_set_by_json(connection, claimer, lanes, token, limit)
    return _claim_on_postgresql(connection, claimer, lanes, token, limit, mutex)


def claimed_by_token(connection: Connection, claimer: Claimer, token: int) -> list[Task]:
    """The tasks of a claim whose reply was lost: the rows that carry its token and are still working."""
    wait_for_sync(connection)
    mine = (tasks.c.process_id == claimer.process_id, tasks.c.claim_token == token)
    statement = sa.select(*TASK_COLUMNS).where(is_working(), *mine)
    rows = connection.execute(by_index(statement, "tasks_claim")).mappings()
    return sort_in_claim_order([to_task(row) for row in rows])


def _claim_on_postgresql(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, limit: int, mutex: ClaimMutex
) -> ClaimResult:
    statement = _claim_statement(claimer.queues, lanes, max_attempts_defaults(claimer))
    key = advisory_key(mutex_name(connection, claimer.queues))
    values = {**claimer_parameters(claimer), "token": token, "limit": limit, "mutex": key}
    with mutex.acquire(connection, claimer.queues, limit):
        rows = statement.rows(connection, **values)
    if len(rows) >= MUTEX_FROM_LIMIT and not rows[0][-1]:
        mutex.record_contention()
    return ClaimResult(tasks_of_claim(claimer, [row[:-1] for row in rows]))


@lru_cache(maxsize=256)
def _claim_statement(serves: tuple[str, ...], lanes: Lanes, defaults: MaxAttemptsDefaults) -> CompiledStatement:
    """The whole claim in one statement, made once for each claimer.

    Its last column says whether no other process was claiming: of two that do, one holds the advisory lock until its
    commit.
    """
    at = sa.select(now().label("at")).cte("moment").c.at  # PostgreSQL reads its clock wherever it is named
    update = (
        sa.update(tasks)
        .where(tasks.c.id.in_(select_candidates(serves, lanes, for_update=True)))
        .values(claim_values(defaults, sa.select(at).scalar_subquery()))
    )
    is_alone: sa.ScalarSelect[Any] = sa.select(sa.func.pg_try_advisory_xact_lock(MUTEX_PARAMETER)).scalar_subquery()
    return CompiledStatement(update.returning(*(tasks.c[field] for field in RETURNED_COLUMNS), is_alone))
