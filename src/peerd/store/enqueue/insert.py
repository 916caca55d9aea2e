"""Inserting rows of tasks that are alike: one statement for many, in the way that each database takes soonest.

What all of them have in common is given once, and a column in which all have its default is not named at all. So a
thousand tasks of one handler are little more than their bodies.

- PostgreSQL: one value for each column, with one that is a list for each that differs.
- SQLite: the same statement again for each row, in one transaction; nothing is sent anywhere between them.
- MariaDB and MySQL: one INSERT of many rows, the text of one row repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.task import NewTask
from peerd.store.connection.galera import IS_MEMBER
from peerd.store.enqueue.insert_statements import (
    count_by_token,
    ids_by_token,
    insert_from_arrays,
    insert_one_returning,
    insert_one_statement,
    insert_template,
    is_json,
)
from peerd.store.enqueue.insert_values import InsertValues, values_of_many, values_of_one
from peerd.store.statements.autocommit import AutocommitConnection
from peerd.store.statements.token import new_token


def insert_many(connection: Connection, new: Sequence[NewTask], node_ids: Mapping[str, int]) -> Sequence[int]:
    """Insert tasks that give the same times, each in the same way; their ids in the same order.

    Args:
        connection: in a transaction.
        new: at least one.
        node_ids: of the nodes that they name.
    """
    if len(new) == 1:
        return [insert_one(connection, new[0], node_ids)]
    values = values_of_many(new, node_ids, connection.dialect)
    match connection.dialect.name:
        case "postgresql":
            return _on_postgresql(connection, values)
        case "sqlite":
            return _on_sqlite(connection, values)
        case _:
            return _on_mysql(connection, values)


def insert_one(connection: Connection | AutocommitConnection, new: NewTask, node_ids: Mapping[str, int]) -> int:
    """Insert a task; its id."""
    values = values_of_one(new, node_ids, connection.dialect)
    if connection.dialect.name == "postgresql":
        task_id: int = insert_one_returning(tuple(values)).run(connection, **values).scalar_one()
        return task_id
    return insert_one_statement(tuple(values)).run(connection, **values).lastrowid


def _on_mysql(connection: Connection, values: InsertValues) -> Sequence[int]:
    """The first id is told; the others are found by a token, which only these rows carry.

    That ids of one statement follow each other without gaps is true of one server in one mode: it is seen to be so, by
    counting, before it is believed.
    """
    token, number = new_token(), values.number
    common = values.common | {"claim_token": token}
    parts = insert_template(connection.dialect, (*values.names, "claim_token"))
    literal = _literals(connection)
    known = {name: text for name, value in common.items() if (text := literal(value)) is not None}
    row = parts.row(known)
    columns = [values.differing.get(name) or [common[name]] * number for name in parts.places if name not in known]
    given = tuple(columns[0]) if len(columns) == 1 else tuple(chain.from_iterable(zip(*columns, strict=True)))
    first: int = connection.exec_driver_sql(parts.head + ", ".join([row] * number), given).lastrowid
    here = count_by_token().run(connection, first=first, last=first + number - 1, token=token).scalar_one()
    if here == number:
        return range(first, first + number)
    return ids_by_token().run(connection, first=first, token=token, number=number).scalars().all()


def _on_postgresql(connection: Connection, values: InsertValues) -> Sequence[int]:
    given, differing = values.common | values.differing, tuple(values.differing)
    if not differing:
        differing = ("queue",)
        given["queue"] = [given["queue"]] * values.number
    if is_json(differing):
        given[differing[0]] = msgspec.json.encode(given[differing[0]], enc_hook=str.__str__).decode()
    ids: list[int] = insert_from_arrays(values.names, differing).run(connection, **given).scalar_one()
    return sorted(ids)


def _on_sqlite(connection: Connection, values: InsertValues) -> Sequence[int]:
    """There is one writer at a time, and ids only grow: those of one transaction's rows follow each other."""
    number = values.number
    parts = insert_template(connection.dialect, values.names)
    columns = [values.differing.get(name) or [values.common[name]] * number for name in parts.places]
    connection.exec_driver_sql(parts.head + parts.row({}), list(zip(*columns, strict=True)))
    last: int = connection.exec_driver_sql("SELECT last_insert_rowid()").scalar_one()
    return range(last - number + 1, last + 1)


def _literals(connection: Connection) -> Callable[[Any], str | None]:
    """How the driver of MySQL writes a value into a text with places; None for what it is left to write in a place.

    Only on peerd's own connections is it known which driver that is, and that it speaks UTF-8.
    """
    if IS_MEMBER not in connection.info:
        return lambda _: None
    cursor: Any = connection.connection.cursor()

    def literal(value: Any) -> str | None:
        return cursor.mogrify("%s", (value,)).replace("%", "%%") if isinstance(value, str | int | float) else None

    return literal
