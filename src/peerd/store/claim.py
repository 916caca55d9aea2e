"""Claiming: take the next tasks and mark them working, so that each has one holder.

The invariant: a row goes from pending to working in one guarded write that raises its lease. Two claimers that read
the same row cannot both write it, and a claimer that never heard the answer finds its rows again by the token that it
chose before.

There are two strategies.

- *returning* (PostgreSQL): one statement finds the head of each lane, updates the best and returns them. Rows that
  another claimer has locked are skipped.
- *compare and set* (MariaDB, MySQL, Galera): read the head without locks, update by primary key with every condition
  repeated, read back what was won. SKIP LOCKED sees the locks of its own server only; two writers of a Galera cluster
  would take the same row, and one would be killed at its commit. A claimer that lost rows to others looks further the
  next time, and draws at random from what it sees, so that claimers part; while nobody competes the order is exact.
  On a Galera cluster it cannot see what the other servers are about to take, and is told at the commit: there it takes
  one of a dozen pieces of the head. SQLite has the same statements; as only one writes at a time, nobody competes.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import expression

from peerd.domain.lifecycle import Event, sources, target
from peerd.domain.limit import WHOLE_QUEUE
from peerd.domain.task import Task
from peerd.store.clock import now
from peerd.store.galera import catch_up, is_member
from peerd.store.prepared import Prepared, id_among, listed
from peerd.store.rows import (
    TASK_COLUMNS,
    becomes,
    raised,
    to_task,
)
from peerd.store.search import WITHOUT_KEY, by_index, is_working, select_by_id, status_is, update_by_id
from peerd.store.tables import ORDER, limits, nodes, queues, tasks
from peerd.store.types import MYSQL
from peerd.store.won import TOLD, rows_in_json, won_task

BLOCKS_ON_GALERA: Final = 12
"""Pieces of the head of the order, of which a claimer takes one at random where several servers take claims. Measured
on three servers with two processes each, claiming up to fifty: 46 conflicts in 24,000 tasks, against 650 without."""
WORTH_PARTING: Final = 10
"""Tasks in a claim from which on it takes a piece."""
MOST_SEEN: Final = 3000
"""Rows of which one is chosen, at the most."""
WIDEST: Final = 64
"""Rows at the head of the order that are looked at beyond those that are wanted, at the most."""

Lanes = tuple[int, int]
HandlerKey = tuple[str, str]
"""A handler: its queue, and its name there; two queues may each have one of the same name."""
Defaults = tuple[int, tuple[tuple[HandlerKey, int], ...]]
"""max_attempts where the row has none: of all tasks, and of those whose handler has its own."""


class Claimer(msgspec.Struct, frozen=True, kw_only=True):
    """Who claims, and what it serves.

    ``default_attempts`` is written as max_attempts where the row has none and ``attempts_of`` does not name its
    handler.
    """

    node_id: int
    incarnation: str
    process_id: int
    queues: tuple[str, ...]
    default_attempts: int = 3
    attempts_of: Mapping[HandlerKey, int] = msgspec.field(default_factory=dict)


class Claimed(msgspec.Struct, frozen=True):
    """What a claim brought: the tasks in their order, and whether others competed for them."""

    tasks: list[Task]
    contended: bool = False


def new_token() -> int:
    """A claim's token: unlike any other in flight."""
    return random.SystemRandom().getrandbits(62) + 1


def claim(
    connection: Connection,
    claimer: Claimer,
    *,
    token: int,
    limit: int,
    alone: bool = False,
    look_further: int = 0,
) -> Claimed:
    """Claim the next tasks that this claimer may run.

    Each of its statements may be committed by itself: what is won is won by one of them.

    Args:
        connection: in a transaction of its own, or committing each statement.
        claimer: who, and for which queues.
        token: from `new_token`; a new one for each claim.
        limit: tasks at the most.
        alone: take tasks that have crashed a process; their holder must run nothing else beside them. Without it,
            such tasks are left where they are.
        look_further: rows to look at beyond the limit, for a claimer that has just lost some to others.

    Returns:
        the tasks, in the order of the claim: priority, attempts, due time, id.
    """
    lanes = lanes_of(claimer, alone=alone)
    if connection.dialect.name in MYSQL:
        return _compare_and_set(connection, claimer, lanes, token, limit, look_further)
    if connection.dialect.name == "sqlite":
        return _by_lists(connection, claimer, lanes, token, limit)
    statement = _returning(claimer.queues, lanes, _defaults(claimer))
    return Claimed(_won_by(claimer, statement.rows(connection, **who(claimer), token=token, limit=limit)))


def claimed_by_token(connection: Connection, claimer: Claimer, token: int) -> list[Task]:
    """What a claim won whose answer was lost: the rows that carry its token and are still working."""
    catch_up(connection)
    mine = (tasks.c.process_id == claimer.process_id, tasks.c.claim_token == token)
    statement = sa.select(*TASK_COLUMNS).where(is_working(), *mine)
    return _in_order([to_task(row) for row in connection.execute(by_index(statement, "tasks_claim")).mappings()])


@lru_cache(maxsize=256)
def candidates(serves: tuple[str, ...], lanes: Lanes) -> sa.Select[int]:
    """The ids at the heads of these lanes of these queues, best first, read without locks.

    Its parameters are those of `who`, and ``limit``.
    """
    limit = sa.bindparam("limit", type_=sa.Integer())
    heads = [sa.select(_head(queue, lane, limit).subquery()) for queue in serves for lane in lanes]
    union = sa.union_all(*heads).subquery("heads")
    return sa.select(union.c.id).order_by(*(union.c[column.name] for column in ORDER)).limit(limit)


def who(claimer: Claimer) -> dict[str, Any]:
    """The parameters that every statement of a claimer has."""
    return {"node": claimer.node_id, "incarnation": claimer.incarnation, "process": claimer.process_id}


def lanes_of(claimer: Claimer, *, alone: bool) -> Lanes:
    """The lanes that a claimer may take from: those of tasks that have crashed a process, or those of all others."""
    return (-1, -1 - claimer.node_id) if alone else (0, claimer.node_id)


def _won_by(claimer: Claimer, rows: Sequence[Sequence[Any]]) -> list[Task]:
    """The tasks that a claim has won, of rows of `TOLD`."""
    return _in_order([won_task(row, claimer.node_id, claimer.process_id) for row in rows])


def _in_order(claimed: list[Task]) -> list[Task]:
    return sorted(claimed, key=lambda task: (-task.priority, task.attempts, task.start_at or task.created_at, task.id))


def _defaults(claimer: Claimer) -> Defaults:
    return claimer.default_attempts, tuple(sorted(claimer.attempts_of.items()))


TOKEN: Final = sa.bindparam("token", type_=sa.BigInteger())
NODE: Final = sa.bindparam("node", type_=sa.Integer())


def may_start() -> sa.ColumnElement[bool]:
    """The conditions of eligibility that are about the row's times."""
    return sa.and_(tasks.c.due_at <= now(), sa.or_(tasks.c.finish_at.is_(None), tasks.c.finish_at > now()))


def may_claim(queue: str) -> sa.ColumnElement[bool]:
    """The conditions that are about the queue and the claimer, not about a row; with the parameters of `who`."""
    paused = sa.exists().where(
        queues.c.name == queue,
        queues.c.paused,
        sa.or_(queues.c.paused_until.is_(None), queues.c.paused_until > now()),
    )
    on_duty = sa.exists().where(
        nodes.c.id == NODE,
        nodes.c.incarnation == sa.bindparam("incarnation", type_=sa.String()),
        sa.not_(nodes.c.draining),
    )
    return sa.and_(sa.not_(paused), on_duty)


def has_limit(queue: str) -> sa.ColumnElement[bool]:
    """Whether a queue as a whole is limited: then all of it is claimed by turns."""
    return sa.exists().where(limits.c.queue == queue, limits.c.limit_key == WHOLE_QUEUE)


def _head(queue: str, lane: int, limit: sa.BindParameter[int]) -> sa.Select[Any]:
    """The head of one lane of one queue: an exact range of the claim's index, in its order."""
    may = sa.and_(may_claim(queue), sa.not_(has_limit(queue)))
    head = (
        sa.select(*ORDER)
        .where(
            WITHOUT_KEY.of(sa.literal(queue)),
            tasks.c.lane == lane,
            may_start(),
            may,
        )
        .order_by(*ORDER)
        .limit(_limit_if(may, limit))
    )
    return by_index(head, WITHOUT_KEY.index)


class _limit_if(expression.ColumnElement[int]):  # noqa: N801 - it reads as an expression
    """A limit; on SQLite it is 0 unless a condition holds that has nothing to do with the rows.

    The other databases ask such a condition once, before they look at any row. SQLite asks it at each row, if it names
    the time: a paused queue would be walked to its end.
    """

    inherit_cache = True
    type = sa.Integer()

    def __init__(self, condition: sa.ColumnElement[bool], limit: sa.BindParameter[int]) -> None:
        self.condition = condition
        self.limit = limit


@compiles(_limit_if)
def _limit_alone(element: _limit_if, compiler: Any, **options: Any) -> str:
    return str(compiler.process(element.limit, **options))


@compiles(_limit_if, "sqlite")
def _limit_or_nothing(element: _limit_if, compiler: Any, **options: Any) -> str:
    return str(compiler.process(sa.case((element.condition, element.limit), else_=sa.literal_column("0")), **options))


def _holder(defaults: Defaults, moment: sa.ColumnElement[Any]) -> dict[str, Any]:
    """What a claim writes. Its moments are one: what is told of one of them holds for the others."""
    general, by_handler = defaults
    default: Any = sa.literal(general, sa.Integer())
    if by_handler:
        own = [(sa.and_(tasks.c.queue == queue, tasks.c.name == name), most) for (queue, name), most in by_handler]
        default = sa.case(*own, else_=default)
    return {
        "status": becomes(target(Event.CLAIM)),
        "lease": raised(tasks.c.lease),
        "claim_token": TOKEN,
        "worker_node_id": NODE,
        "process_id": sa.bindparam("process", type_=sa.BigInteger()),
        "worker_started_at": moment,
        "checked_at": moment,
        "updated_at": moment,
        "max_attempts": sa.func.coalesce(tasks.c.max_attempts, default),
        "progress": None,
        "progress_note": None,
    }


# A statement is made once for each claimer: to build it, and to find its SQL among those already compiled, takes
# longer than the database needs to answer it.


@lru_cache(maxsize=256)
def _returning(serves: tuple[str, ...], lanes: Lanes, defaults: Defaults) -> Prepared:
    """The whole claim in one statement."""
    chosen = _chosen(serves, lanes)
    at = sa.select(now().label("at")).cte("moment").c.at  # PostgreSQL looks at its clock wherever it is named
    moment = sa.select(at).scalar_subquery()
    update = sa.update(tasks).where(tasks.c.id.in_(chosen)).values(_holder(defaults, moment))
    return Prepared(update.returning(*(tasks.c[field] for field in TOLD)))


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
    return Prepared(update_by_id(sa.update(tasks).where(id_among(tasks.c.id), fenced).values(_holder(defaults, now()))))


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
    for made in (_returning, _heads, _heads_in_json, _guarded, _won, _won_in_json, candidates):
        made.cache_clear()


def _chosen(serves: tuple[str, ...], lanes: Lanes) -> sa.Select[int]:
    """The ids to claim in the same statement: a CTE for each lane's head, and the best of their union.

    Each head is locked, where the database locks rows: what is chosen is still eligible when it is written.
    """
    limit = sa.bindparam("limit", type_=sa.Integer())
    heads = []
    for number, (queue, lane) in enumerate((queue, lane) for queue in serves for lane in lanes):
        locked = _head(queue, lane, limit).with_for_update(skip_locked=True, of=tasks)
        heads.append(sa.select(locked.cte(f"head_{number}")))
    union = sa.union_all(*heads).subquery("heads")
    return sa.select(union.c.id).order_by(*(union.c[column.name] for column in ORDER)).limit(limit)


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


def _compare_and_set(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, limit: int, look_further: int
) -> Claimed:
    among_servers = is_member(connection)
    further = min((BLOCKS_ON_GALERA - 1) * limit, MOST_SEEN) if among_servers else min(look_further, WIDEST)
    seen = _heads(claimer.queues, lanes).run(connection, **who(claimer), limit=limit + further).scalars().all()
    ids = _block(seen, limit) if among_servers else _sample(seen, limit)
    if not ids:
        return Claimed([])
    claimed = win(connection, claimer, lanes, token, ids)
    return Claimed(claimed, contended=len(claimed) < len(ids))


def _by_lists(connection: Connection, claimer: Claimer, lanes: Lanes, token: int, limit: int) -> Claimed:
    """The compare-and-set on SQLite. Lists come and go as JSON.

    At each row that is read Python's lock is given up and taken back, which takes longer than the row as soon as
    another thread computes.
    """
    ids = _heads_in_json(claimer.queues, lanes).run(connection, **who(claimer), limit=limit).scalar_one()
    if ids == "[]":
        return Claimed([])
    return Claimed(_win(connection, claimer, lanes, token, ids))


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
    return _win(connection, claimer, lanes, token, listed(connection, sorted(ids)), by_turns=by_turns)


def _win(
    connection: Connection, claimer: Claimer, lanes: Lanes, token: int, among: Any, *, by_turns: bool = False
) -> list[Task]:
    guarded = _guarded(claimer.queues, lanes, _defaults(claimer), by_turns)
    if not guarded.run(connection, **who(claimer), token=token, ids=among).rowcount:
        return []
    return _won_by(claimer, _rows_won(connection, token, among))


def _rows_won(connection: Connection, token: int, among: Any) -> Sequence[Sequence[Any]]:
    if connection.dialect.name == "sqlite":
        with suppress(DBAPIError, msgspec.DecodeError):  # what JSON cannot say: bytes in a column of texts, infinity
            return rows_in_json(_won_in_json().run(connection, token=token, ids=among).scalar_one())
    return _won().rows(connection, token=token, ids=among)
