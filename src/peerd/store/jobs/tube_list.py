"""The watched tubes as a table within a statement, so that one text serves any number of them.

A client may watch hundreds of tubes, and each client others. A statement with the names in it, as a worker's claim has
them, would be compiled anew for each. PostgreSQL and SQLite take all names as one value; MySQL takes one for each, and
its statements are for a power of two of them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql import expression

from peerd.store.claim.claimer import NODE_PARAMETER
from peerd.store.schema.types import MYSQL, binary_collation

MAX_TUBES: Final = 256
"""Tubes in one statement."""


class TubeList:
    """A list of tubes for the statements of one kind of database.

    Args:
        dialect: of the connection.
        tubes: at least one, and at most `MAX_TUBES`.
    """

    def __init__(self, dialect: Dialect, tubes: Sequence[str]) -> None:
        self.kind = "mysql" if dialect.name in MYSQL else dialect.name
        self._tubes = tubes
        self.places = power_of_two(len(tubes)) if self.kind == "mysql" else 1
        """Of names in the statement."""

    def parameters(self) -> dict[str, Any]:
        """The parameters of `tube_table`; superfluous places repeat the last tube."""
        match self.kind:
            case "sqlite":
                return {"tubes": json.dumps(self._tubes)}
            case "postgresql":
                return {"tubes": list(self._tubes)}
            case _:
                last = len(self._tubes) - 1
                return {f"tube_{place}": self._tubes[min(place, last)] for place in range(self.places)}


def tube_table(kind: str, places: int, name: str = "tube") -> sa.Select[Any]:
    """A select of the tubes, as the column ``queue``."""
    match kind:
        case "sqlite":
            listed = sa.func.json_each(sa.bindparam("tubes", type_=sa.Text())).table_valued(
                "value", name=f"{name}_list"
            )
            return sa.select(listed.c.value.label("queue"))
        case "postgresql":
            array = sa.cast(sa.bindparam("tubes"), sa.ARRAY(sa.Text()))
            unnested = sa.func.unnest(array).table_valued("queue", name=f"{name}_list").render_derived()
            return sa.select(unnested.c.queue)
        case _:
            rows = [sa.select(_name(f"tube_{place}").label("queue")) for place in range(places)]
            return sa.select(sa.union_all(*rows).subquery(f"{name}_list").c.queue)


def lane_table(name: str = "lanes") -> sa.Subquery:
    """The lanes from which a queue client may reserve, with the parameter ``node``: those of quarantined tasks, too.

    No handler runs in the process that reserves for a client, so such a task endangers nothing in it.
    """
    lanes = [lane.label("lane") for lane in lanes_of_node(NODE_PARAMETER)]
    return sa.union_all(*(sa.select(lane) for lane in lanes)).subquery(name)


def lanes_of_node(node: sa.ColumnElement[int]) -> tuple[sa.ColumnElement[int], ...]:
    """Tasks for any node, tasks pinned to this one, and those of both that have crashed a process."""
    any_node, quarantined = (sa.literal_column(text, sa.Integer()) for text in ("0", "-1"))
    return any_node, sa.type_coerce(node, sa.Integer()), quarantined, quarantined - node


def power_of_two(number: int) -> int:
    """The smallest power of two that is not less.

    >>> [power_of_two(number) for number in (1, 2, 3, 9)]
    [1, 2, 4, 16]
    """
    return 1 << (number - 1).bit_length()


class _name(expression.ColumnElement[str]):  # noqa: N801 - it reads as an operand
    """A name as MySQL compares it with a queue; without it, a column of names would be no key for an index."""

    inherit_cache = False
    type = sa.Text()

    def __init__(self, parameter: str) -> None:
        self.parameter: sa.BindParameter[Any] = sa.bindparam(parameter, type_=sa.Text())


@compiles(_name)
def _compile_name(element: _name, compiler: Any, **options: Any) -> str:
    name = compiler.process(element.parameter, **options)
    return f"CONVERT({name} USING utf8mb4) COLLATE {binary_collation(compiler.dialect)}"
