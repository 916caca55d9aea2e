"""The statements that insert tasks, by the names of the values that they are given; each is made once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Dialect

from peerd.domain.lifecycle import Status
from peerd.store.enqueue.insert_values import INSTANT, TIME_PARAMETERS, Names
from peerd.store.schema.sql_clock import now, seconds_from_now
from peerd.store.schema.tables import tasks
from peerd.store.statements.compiled import CompiledStatement, dialect_key
from peerd.store.tasks.conditions import select_by_id
from peerd.store.tasks.rows import status_literal

NAMED_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s")


def _columns(names: Names, place: Callable[[str], sa.ColumnElement[Any]]) -> dict[str, Any]:
    """What an INSERT says of each column, with a place for each value.

    Start times ahead make a scheduled task. Whether a moment is ahead is for the database's clock to say.
    """
    values: dict[str, Any] = {name: place(name) for name in names if name not in TIME_PARAMETERS}
    if "starts_in" in names:
        values["start_at"] = seconds_from_now(place("starts_in"))
        values["status"] = _pending_unless(place("starts_in") > sa.literal_column("0"))
    if "starts_at" in names:
        values["start_at"] = place("starts_at")
        values["status"] = _pending_unless(sa.cast(place("starts_at"), INSTANT) > now())
    if "finishes_in" in names:
        values["finish_at"] = seconds_from_now(place("finishes_in"))
    if "finishes_at" in names:
        values["finish_at"] = place("finishes_at")
    return values


def _pending_unless(is_ahead: sa.ColumnElement[bool]) -> sa.ColumnElement[Any]:
    return sa.case((is_ahead, status_literal(Status.SCHEDULED)), else_=status_literal(Status.PENDING))


def _type_of(name: str) -> sa.types.TypeEngine[Any]:
    return TIME_PARAMETERS[name] if name in TIME_PARAMETERS else tasks.c[name].type


def _parameter(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(name, type_=_type_of(name))


@lru_cache(maxsize=256)
def insert_one_statement(names: Names) -> CompiledStatement:
    """A row whose id the driver tells."""
    return CompiledStatement(sa.insert(tasks).inline().values(_columns(names, _parameter)))


@lru_cache(maxsize=256)
def insert_one_returning(names: Names) -> CompiledStatement:
    """A row, and its id."""
    return CompiledStatement(sa.insert(tasks).values(_columns(names, _parameter)).returning(tasks.c.id))


@lru_cache(maxsize=256)
def insert_from_arrays(names: Names, differing: Names) -> CompiledStatement:
    """Many rows, and an array of their ids: of some values a list, see `is_json`, of the others one for all."""
    if is_json(differing):
        from sqlalchemy.dialects import postgresql  # noqa: PLC0415 - where it is used, it is loaded anyway

        listed = sa.func.json_array_elements_text(sa.cast(sa.bindparam(differing[0]), postgresql.JSON))
    else:
        arrays = [sa.cast(sa.bindparam(name), sa.ARRAY(_type_of(name))) for name in differing]
        listed = sa.func.unnest(*arrays)
    given = listed.table_valued(*differing, with_ordinality="place", name="given").render_derived()
    columns = _columns(
        names, lambda name: given.c[name] if name in differing else sa.cast(_parameter(name), _type_of(name))
    )
    chosen = sa.select(*columns.values()).order_by(given.c.place)
    insert = sa.insert(tasks).from_select(list(columns), chosen, include_defaults=False)
    inserted = insert.returning(tasks.c.id).cte("inserted")
    return CompiledStatement(sa.select(sa.func.array_agg(inserted.c.id)))


def is_json(differing: Names) -> bool:
    """Whether their list is given as one JSON text: where it is texts alone, as of a thousand tasks of one handler.

    psycopg makes an array in Python, which takes as long as the server needs for the whole of the insert.
    """
    return len(differing) == 1 and isinstance(_type_of(differing[0]), sa.Text)


@lru_cache(maxsize=1)
def count_by_token() -> CompiledStatement:
    """How many of the ids between two carry a token."""
    between = tasks.c.id.between(sa.bindparam("first"), sa.bindparam("last"))
    mine = sa.select(sa.func.count()).select_from(tasks).where(between, tasks.c.claim_token == sa.bindparam("token"))
    return CompiledStatement(select_by_id(mine))


@lru_cache(maxsize=1)
def ids_by_token() -> CompiledStatement:
    """In the order of their ids, which is that of their insert."""
    carry = (tasks.c.id >= sa.bindparam("first"), tasks.c.claim_token == sa.bindparam("token"))
    mine = sa.select(tasks.c.id).where(*carry).order_by(tasks.c.id).limit(sa.bindparam("number", type_=sa.Integer()))
    return CompiledStatement(select_by_id(mine))


class InsertTemplate(NamedTuple):
    """An INSERT of one row: what comes before the row, the row's text between its places, and what belongs there."""

    head: str
    pieces: tuple[str, ...]
    places: Names
    place: str

    def row(self, known: Mapping[str, str]) -> str:
        """The row's text, in which these values are known already, as SQL."""
        filled = [known.get(name, self.place) + piece for name, piece in zip(self.places, self.pieces[1:], strict=True)]
        return self.pieces[0] + "".join(filled)


@lru_cache(maxsize=1)
def _template_cache() -> dict[tuple[str, Names], InsertTemplate]:
    return {}


def insert_template(dialect: Dialect, names: Names) -> InsertTemplate:
    """An INSERT of one row in its parts, made once for each kind of dialect.

    SQLAlchemy would compile each of the rows (half a second for a thousand), PyMySQL would send them one by one.
    """
    made, key = _template_cache(), (dialect_key(dialect), names)
    if key not in made:
        made[key] = _split_insert(sa.insert(tasks).inline().values(_columns(names, _parameter)), dialect)
    return made[key]


def _split_insert(insert: sa.Insert, dialect: Dialect) -> InsertTemplate:
    compiled: Any = insert.compile(dialect=dialect)
    head, values, row = str(compiled).partition(" VALUES ")
    places, place = compiled.positiontup, "?" if dialect.paramstyle == "qmark" else "%s"
    if places is None:  # a driver that names its places
        places = NAMED_PLACEHOLDER.findall(row)
        row = NAMED_PLACEHOLDER.sub(place, row)
    return InsertTemplate(head + values, tuple(row.split(place)), tuple(places), place)
