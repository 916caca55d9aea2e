"""The jobs that a queue client may reserve next, on MariaDB and MySQL.

A derived table cannot refer to another one there, a subquery in a list of columns takes 30 µs for each row, and GROUP
BY walks through all tasks of a queue. But the least value of the index's next column is looked up while the statement
is planned. So one statement asks for the first rank of each lane of each tube, and what else is known of the tubes;
then the heads of the best lanes are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from peerd.domain.limit import WHOLE_QUEUE
from peerd.store.claim.claimer import Claimer
from peerd.store.enqueue.insert import NAMED_PLACEHOLDER
from peerd.store.jobs.candidates import LIMIT_PARAMETER, head_of_lane, is_on_duty
from peerd.store.jobs.tube_list import MAX_TUBES, power_of_two
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import CLAIM_ORDER, limits, queues, tasks
from peerd.store.statements.compiled import CompiledStatement, id_in_list
from peerd.store.statements.driver_connection import DriverConnection
from peerd.store.tasks.conditions import PENDING_WITH_KEY, PENDING_WITHOUT_KEY, PendingKind, by_index
from peerd.store.tasks.rows import batches

FEW_TUBES: Final = 16
"""Tubes of which all lanes are read at once; of more, those without tasks are left out first."""
MAX_HEADS: Final = 64
"""Lanes of tubes in one statement."""
LAST_RANK: Final = 2**63 - 1
NO_LANE: Final = -(2**31)
"""A lane in which there is no task."""

Candidate = tuple[Any, ...]
"""Rank, failures, due time and id of a job."""


class Head(NamedTuple):
    """A lane of a tube that has pending tasks, and the rank of the first of them."""

    rank: int
    queue: str
    lane: int


class TubeReading(NamedTuple):
    """What is known of the tubes of a claimer.

    Attributes:
        heads: lanes from which it may reserve beside limits, the best first.
        has_limited: whether there are tasks for a limited claim.
    """

    heads: list[Head]
    has_limited: bool


def read_tubes(connection: DriverConnection, claimer: Claimer) -> TubeReading:
    """Read the state of the claimer's tubes; there are no heads for one that is not on duty."""
    tubes = claimer.queues if len(claimer.queues) <= FEW_TUBES else _tubes_with_tasks(connection, claimer.queues)
    if not tubes:
        return TubeReading([], False)
    lanes = (0, claimer.node_id, -1, -1 - claimer.node_id)
    state = {"node": claimer.node_id, "incarnation": claimer.incarnation, "ids": list(tubes)}
    firsts = [(_FIRST_OF_LANE, {"tube": tube, "lane": lane}) for tube in tubes for lane in lanes]
    keyed = [(_FIRST_KEYED, {"tube": tube}) for tube in tubes]
    found: dict[str, list[tuple[str, int, int]]] = {kind: [] for kind in KINDS}
    for kind, queue, lane, value in _run_union(connection, [(_STATE, state), *firsts, *keyed]):
        if value is not None:
            found[kind].append((queue, int(lane), int(value)))
    if not found["duty"]:
        return TubeReading([], False)
    paused, limited = ({queue for queue, *_ in found[kind]} for kind in ("paused", "limited"))
    heads = [Head(rank, queue, lane) for queue, lane, rank in found["plain"] if queue not in paused | limited]
    has_limited = bool(found["keyed"]) or any(queue in limited for queue, *_ in found["plain"])
    return TubeReading(sorted(heads), has_limited)


def _tubes_with_tasks(connection: DriverConnection, tubes: Sequence[str]) -> list[str]:
    found: list[str] = []
    for some in batches(tubes, rows=MAX_TUBES):
        parts = [(part, {"tube": tube}) for tube in some for part in (_FIRST_PLAIN, _FIRST_KEYED)]
        found += [queue for _, queue, _, value in _run_union(connection, parts) if value is not None]
    return list(dict.fromkeys(found))


def _run_union(
    connection: DriverConnection, parts: Sequence[tuple[CompiledStatement, dict[str, Any]]]
) -> Sequence[Sequence[Any]]:
    """Run a union of statements that are compiled each by itself: together, hundreds would take a tenth of a second."""
    texts = [(_positional(statement, connection.dialect), values) for statement, values in parts]
    arguments = [values[name] for (_, names), values in texts for name in names]
    return connection.exec_driver_sql(" UNION ALL ".join([sql for (sql, _), _ in texts]), tuple(arguments)).all()


@lru_cache(maxsize=16)
def _positional(statement: CompiledStatement, dialect: Dialect) -> tuple[str, Sequence[str]]:
    """The text of a statement without values of its own, its placeholders without names, and the names in order."""
    text = statement.text(dialect)
    if text.order is not None:
        return text.sql, text.order
    return NAMED_PLACEHOLDER.sub("%s", text.sql), NAMED_PLACEHOLDER.findall(text.sql)


def best_heads(heads: Sequence[Head], limit: int) -> Sequence[Head]:
    """The heads among which the first ``limit`` jobs are: each has one at least.

    >>> best_heads([Head(1, "a", 0), Head(2, "b", 0), Head(2, "c", 0), Head(3, "d", 0)], 2)
    [Head(rank=1, queue='a', lane=0), Head(rank=2, queue='b', lane=0), Head(rank=2, queue='c', lane=0)]
    """
    worst = heads[limit - 1].rank if len(heads) > limit else None
    return [head for head in heads if worst is None or head.rank <= worst]


def candidates_of_heads(connection: DriverConnection, heads: Sequence[Head], limit: int, worst: int) -> list[Candidate]:
    """The first jobs of these lanes up to the rank ``worst``, best first."""
    found: list[Candidate] = []
    for some in batches(heads, rows=MAX_HEADS):
        places = power_of_two(len(some))
        padded = [*some, *[Head(0, some[0].queue, NO_LANE)] * (places - len(some))]
        values: dict[str, Any] = {f"queue_{place}": head.queue for place, head in enumerate(padded)}
        values |= {f"lane_{place}": head.lane for place, head in enumerate(padded)}
        found += [tuple(row) for row in _heads_statement(places).run(connection, **values, limit=limit).all()]
    return [candidate for candidate in sorted(found)[:limit] if candidate[0] <= worst]


KINDS: Final = ("duty", "paused", "limited", "keyed", "plain")
"""The kinds of rows of the statement that reads tubes."""


_TUBE: Final = sa.bindparam("tube", type_=sa.String())
_NOTHING: Final[sa.ColumnElement[Any]] = sa.literal_column("0")


def _row(kind: str, queue: Any, lane: Any, value: Any) -> sa.Select[Any]:
    return sa.select(sa.literal_column(f"'{kind}'"), queue, lane, value)


def _state_of_tubes() -> CompiledStatement:
    """Whether the claimer is on duty, and which tubes are paused, and limited as a whole."""
    ends_later = sa.or_(queues.c.paused_until.is_(None), queues.c.paused_until > now())
    duty = _row("duty", sa.literal_column("''"), _NOTHING, _NOTHING).where(is_on_duty())
    paused = _row("paused", queues.c.name, _NOTHING, _NOTHING)
    limited = _row("limited", limits.c.queue, _NOTHING, _NOTHING)
    return CompiledStatement(
        sa.union_all(
            duty,
            paused.where(id_in_list(queues.c.name), queues.c.paused, ends_later),
            limited.where(id_in_list(limits.c.queue), limits.c.limit_key == sa.literal_column(f"'{WHOLE_QUEUE}'")),
        )
    )


def _least(kind: str, lane: Any, value: sa.Column[int], pending: PendingKind, *conditions: Any) -> CompiledStatement:
    """The least value of a column of the index in which the tube, and the lane if it is given, come before."""
    least = _row(kind, _TUBE, lane, sa.func.min(value)).where(pending.of(_TUBE), *conditions)
    return CompiledStatement(by_index(least, pending.index))


_LANE: Final = sa.bindparam("lane", type_=sa.Integer())
_STATE: Final = _state_of_tubes()
_FIRST_OF_LANE: Final = _least("plain", _LANE, tasks.c.claim_rank, PENDING_WITHOUT_KEY, tasks.c.lane == _LANE)
_FIRST_PLAIN: Final = _least("plain", _NOTHING, tasks.c.lane, PENDING_WITHOUT_KEY)
_FIRST_KEYED: Final = _least("keyed", _NOTHING, tasks.c.lane, PENDING_WITH_KEY)


@lru_cache(maxsize=8)
def _heads_statement(places: int) -> CompiledStatement:
    heads = []
    for place in range(places):
        queue = sa.bindparam(f"queue_{place}", type_=sa.String())
        lane = sa.bindparam(f"lane_{place}", type_=sa.Integer())
        heads.append(sa.select(head_of_lane(queue, lane, *CLAIM_ORDER).subquery()))
    union = sa.union_all(*heads).subquery("heads")
    order = [union.c[column.name] for column in CLAIM_ORDER]
    return CompiledStatement(sa.select(*order).order_by(*order).limit(LIMIT_PARAMETER))
