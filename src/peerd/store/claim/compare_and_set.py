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

from peerd.domain.lifecycle import Event, sources, target
from peerd.domain.task import Task
from peerd.store.claim.candidates import candidates, may_start
from peerd.store.claim.claim_result import TOLD, rows_in_json, won_by
from peerd.store.claim.claim_values import TOKEN, holder
from peerd.store.claim.claimer import Claimed, Claimer, Defaults, Lanes, defaults_of, who
from peerd.store.claim.mutex import Line
from peerd.store.connection.database_errors import met_a_lock
from peerd.store.connection.galera import is_member
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import tasks
from peerd.store.statements.compiled import Prepared, id_among, listed
from peerd.store.tasks.conditions import select_by_id, status_is, update_by_id

BLOCKS_ON_GALERA: Final = 12
"""Pieces of the head of the order, of which a claimer takes one at random where several servers take claims. Measured
on three servers with two processes each, claiming up to fifty: 46 conflicts in 24,000 tasks, against 650 without."""
WORTH_PARTING: Final = 10
"""Tasks in a claim from which on it takes a piece."""
MOST_SEEN: Final = 3000
"""Rows of which one is chosen, at the most."""
WIDEST: Final = 64
"""Rows at the head of the order that are looked at beyond those that are wanted, at the most."""


def claim_heads(connection: Connection, claimer: Claimer, lanes: Lanes, token: int, limit: int, line: Line) -> Claimed:
    """Claim on MariaDB, MySQL and Galera.

    Who has met others waits in the line for its turn, or, where few are wanted, looks further and draws from what it
    sees, so that claimers part. While nobody competes, and in the line, the order is exact.

    On a Galera cluster it cannot see what the other servers are about to take, and is told at the commit: there it
    takes one of a dozen pieces of the head.
    """
    if is_member(connection):
        further = min((BLOCKS_ON_GALERA - 1) * limit, MOST_SEEN)
        choose = partial(_block, limit=limit)
        ids, written = _claim_chosen(connection, claimer, lanes, token, limit + further, line, choose)
    else:
        choose = partial(_sample, limit=limit)
        with line.stand(connection, claimer.queues, limit) as has_turn:
            further = WIDEST if line.meets_others and not has_turn else 0
            ids, written = _claim_chosen(connection, claimer, lanes, token, limit + further, line, choose)
        if written < len(ids):
            line.met_others()
    won = _rows_won(connection, token, ids) if written else ()
    return Claimed(won_by(claimer, won), lost_some=written < len(ids))


def claim_heads_by_lists(connection: Connection, claimer: Claimer, lanes: Lanes, token: int, limit: int) -> Claimed:
    """The compare-and-set on SQLite. Lists come and go as JSON.

    At each row that is read Python's lock is given up and taken back, which takes longer than the row as soon as
    another thread computes.
    """
    heads = _heads_in_json(claimer.queues, lanes).run(connection, **who(claimer), limit=limit).scalar_one()
    return Claimed(win(connection, claimer, lanes, token, msgspec.json.decode(heads, type=list[int])))


def win(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, ids: Sequence[int], *, by_turns: bool = False
) -> list[Task]:
    """Claim those of these tasks that may still be claimed.

    Args:
        connection: see `claim`.
        claimer: who.
        lanes: from `lanes_of`.
        token: a new one.
        ids: that were read without locks.
        by_turns: they may have keys.
    """
    written = _write(connection, claimer, lanes, token, ids, by_turns=by_turns)
    return won_by(claimer, _rows_won(connection, token, ids)) if written else []


Choose = Callable[[Sequence[int]], Sequence[int]]


def _claim_chosen(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, seen: int, line: Line, choose: Choose
) -> tuple[Sequence[int], int]:
    """Write some of the first tasks; their ids, and how many were written.

    A row that somebody's transaction has locked is waited for, a second. From then on, for a while, the claim asks
    first which rows are free, and looks beyond those that are not.
    """
    if not line.passes_locks:
        ids = choose(_seen(connection, claimer, lanes, seen))
        try:
            return ids, _write(connection, claimer, lanes, token, ids)
        except DBAPIError as error:
            if not met_a_lock(error):
                raise
            line.met_locks()
    ids = choose(lock_unlocked(connection, _seen(connection, claimer, lanes, seen + MOST_SEEN))[:seen])
    return ids, _write(connection, claimer, lanes, token, ids)


def lock_unlocked(connection: Connection, ids: Sequence[int]) -> Sequence[int]:
    """Lock those that nobody else has locked just now; which they are, in the same order.

    `peerd.store.tasks.rows.lock_free` without conditions, for what is asked at each claim. SQLite has no locks of rows.
    """
    if not ids or connection.dialect.name == "sqlite":
        return ids
    free = set(_not_locked().run(connection, ids=listed(connection, sorted(ids))).scalars())
    return [task_id for task_id in ids if task_id in free]


@lru_cache(maxsize=1)
def _not_locked() -> Prepared:
    return Prepared(select_by_id(sa.select(tasks.c.id).where(id_among(tasks.c.id)).with_for_update(skip_locked=True)))


def _seen(connection: Connection, claimer: Claimer, lanes: Lanes, limit: int) -> Sequence[int]:
    return _heads(claimer.queues, lanes).run(connection, **who(claimer), limit=limit).scalars().all()


def _write(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, ids: Sequence[int], *, by_turns: bool = False
) -> int:
    """Write those of these that may still be claimed; how many."""
    if not ids:
        return 0
    guarded = _guarded(claimer.queues, lanes, defaults_of(claimer), by_turns)
    return guarded.run(connection, **who(claimer), token=token, ids=listed(connection, sorted(ids))).rowcount


def _rows_won(connection: Connection, token: int, ids: Sequence[int]) -> Sequence[Sequence[Any]]:
    among = listed(connection, sorted(ids))
    if connection.dialect.name == "sqlite":
        with suppress(DBAPIError, msgspec.DecodeError):  # what JSON cannot say: bytes in a column of texts, infinity
            return rows_in_json(_won_in_json().run(connection, token=token, ids=among).scalar_one())
    return _won().rows(connection, token=token, ids=among)


def _sample(seen: Sequence[int], limit: int) -> Sequence[int]:
    return seen if len(seen) <= limit else random.sample(seen, limit)


def _block(seen: Sequence[int], limit: int) -> Sequence[int]:
    """A piece of what is seen, at random; the head itself where few are wanted or waiting.

    Of rows that are drawn one by one, some would nearly always be drawn at another server too, and a claim that shares
    one row with another is refused as a whole.
    """
    if limit < WORTH_PARTING or len(seen) < 4 * limit:
        return seen[:limit]
    return seen[(first := limit * random.randrange(len(seen) // limit)) : first + limit]


@lru_cache(maxsize=256)
def _heads(serves: tuple[str, ...], lanes: Lanes) -> Prepared:
    return Prepared(candidates(serves, lanes))


@lru_cache(maxsize=256)
def _guarded(serves: tuple[str, ...], lanes: Lanes, defaults: Defaults, by_turns: bool) -> Prepared:  # noqa: FBT001
    """The compare-and-set: by primary key, with every condition repeated. The ids alone are searched for."""
    conditions = [
        status_is(*sources(Event.CLAIM)),
        tasks.c.queue.in_([sa.literal(queue) for queue in serves]),
        tasks.c.lane.in_([sa.literal(lane) for lane in lanes]),
        may_start(),
    ]
    if not by_turns:
        conditions.append(tasks.c.limit_key.is_(None))
    fenced = sa.case((sa.and_(*conditions), sa.true()), else_=sa.false())
    return Prepared(update_by_id(sa.update(tasks).where(id_among(tasks.c.id), fenced).values(holder(defaults, now()))))


@lru_cache(maxsize=1)
def _won() -> Prepared:
    """What a compare-and-set has won: the columns that it did not write itself."""
    won = sa.select(*(tasks.c[field] for field in TOLD)).where(*_is_won())
    return Prepared(select_by_id(won))


def _is_won() -> tuple[sa.ColumnElement[bool], ...]:
    return id_among(tasks.c.id), tasks.c.claim_token == TOKEN, status_is(target(Event.CLAIM))


@lru_cache(maxsize=256)
def _heads_in_json(serves: tuple[str, ...], lanes: Lanes) -> Prepared:
    return Prepared(sa.select(sa.func.json_group_array(candidates(serves, lanes).subquery().c.id)))


@lru_cache(maxsize=1)
def _won_in_json() -> Prepared:
    """As `_won`, in one value; see `rows_in_json`."""
    body_bytes = sa.case((tasks.c.body_bytes.is_not(None), sa.func.hex(tasks.c.body_bytes)))
    told = [body_bytes if field == "body_bytes" else tasks.c[field] for field in TOLD]
    return Prepared(sa.select(sa.func.json_group_array(sa.func.json_array(*told))).where(*_is_won()))


def forget_statements() -> None:
    """Make the statements anew, for a test that has changed what they are made of."""
    for made in (_heads, _heads_in_json, _guarded, _not_locked, _won, _won_in_json):
        made.cache_clear()
