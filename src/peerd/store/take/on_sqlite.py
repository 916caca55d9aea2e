"""The first tasks of each lane on SQLite, and rows as one JSON text.

SQLite's driver releases and takes Python's lock at each row that it reads, which takes longer than the row as soon as
another thread computes. So all rows come as one value.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError

from peerd.store.schema.tables import CLAIM_ORDER, tasks
from peerd.store.statements import CompiledStatement, DriverConnection, list_parameter
from peerd.store.take.claimer import Claimer
from peerd.store.take.eligibility import LIMIT_PARAMETER, Lanes, head_of_lane, lane_table, open_queues

TASK: Final = tasks.alias("first")


class RowsInJson:
    """A select of some columns of tasks, as one JSON text; as rows where JSON cannot hold a value.

    Args:
        statement: the select; its columns are named by ``columns``.
        columns: their names. Those of ``body_bytes`` are in hexadecimal digits in the text.
    """

    def __init__(self, statement: sa.Select[Any], columns: Sequence[str]) -> None:
        rows = statement.subquery("rows")
        self._bytes_at = columns.index("body_bytes")
        values = [self._in_json(name, rows.c[at]) for at, name in enumerate(columns)]
        self._in_rows = CompiledStatement(statement)
        self._in_text = CompiledStatement(sa.select(sa.func.json_group_array(sa.func.json_array(*values))))

    def run(self, connection: Connection | DriverConnection, **values: Any) -> Sequence[Sequence[Any]]:
        """Execute it. Numbers that are not whole have fifteen digits."""
        with suppress(DBAPIError, msgspec.DecodeError):  # JSON has no bytes in a column of texts, and no infinity
            rows = msgspec.json.decode(self._in_text.run(connection, **values).scalar_one(), type=list[list[Any]])
            for row in rows:
                if row[self._bytes_at] is not None:
                    row[self._bytes_at] = bytes.fromhex(row[self._bytes_at])
            return rows
        return self._in_rows.run(connection, **values).all()

    @staticmethod
    def _in_json(name: str, column: Any) -> Any:
        return sa.case((column.is_not(None), sa.func.hex(column))) if name == "body_bytes" else column


def candidates(connection: Connection, claimer: Claimer, lanes: Lanes, limit: int) -> list[int]:
    """The ids of the first tasks of the claimer's queues that count for no limit, best first, read without locks."""
    ids = _candidates(lanes).run(connection, **parameters(connection.dialect, claimer, limit)).scalar_one()
    return msgspec.json.decode(ids, type=list[int])


def parameters(dialect: sa.Dialect, claimer: Claimer, limit: int) -> dict[str, Any]:
    """The parameters of `first_tasks`."""
    return {**claimer.parameters(), "queues": list_parameter(dialect, claimer.queues), "limit": limit}


@lru_cache(maxsize=16)
def _candidates(lanes: Lanes) -> CompiledStatement:
    first = first_tasks(lanes, TASK.c.id, beside_limits=True).subquery("rows")
    return CompiledStatement(sa.select(sa.func.json_group_array(first.c.id)))


def first_tasks(lanes: Lanes, *columns: Any, beside_limits: bool) -> sa.Select[Any]:
    """The columns, of the table `TASK`, of the first tasks that count for no limit, best first."""
    queue, lane = open_queues("sqlite", lanes, beside_limits=beside_limits), lane_table(lanes)
    ids = head_of_lane(queue.c.queue, lane.c.lane, tasks.c.id).correlate(queue, lane)
    joined = queue.join(lane, sa.true()).join(TASK, TASK.c.id.in_(ids))
    order = [TASK.c[column.name] for column in CLAIM_ORDER]
    return sa.select(*columns).select_from(joined).order_by(*order).limit(LIMIT_PARAMETER)
