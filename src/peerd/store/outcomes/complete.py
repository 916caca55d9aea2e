"""Success: the holder's last write, for many tasks at once. Fenced: it says the lease, and that the task is working.

Every task is written by its primary key, and nothing is read before. How many are written in one statement, and how
their results find their rows, differs:

- MariaDB and MySQL: a statement for each lease that occurs, which is nearly always one. Results are found by their
  place in a list.
- PostgreSQL: one statement, joined with arrays of ids, leases and results.
- SQLite: one statement, joined with a JSON list. At each statement Python's lock is given up and taken back, and who
  wants it back waits for whoever computes meanwhile.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import Event, target
from peerd.store.outcomes import recording
from peerd.store.outcomes.recording import Held, Written, by_lease
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import MYSQL
from peerd.store.statements.compiled import Prepared, id_among
from peerd.store.tasks.conditions import select_by_id, status_is, update_by_id
from peerd.store.tasks.rows import batches, batches_by_size, becomes, by_id_alone, lock_free

Results = Mapping[Held, str | None]


def complete(connection: Connection, process_id: int, results: Results) -> set[Held]:
    """Write tasks as done, with their results (JSON text).

    Each of its statements may be committed by itself. It may be repeated after a lost reply: what it had written counts
    as accepted.

    Args:
        connection: in a transaction, or committing each statement.
        process_id: who held them.
        results: the claims, and what their handlers returned.

    Returns:
        the claims that were refused, because they are not held any more.
    """
    refused: set[Held] = set()
    write = _on_mysql if connection.dialect.name in MYSQL else _ELSEWHERE[connection.dialect.name]
    in_order = sorted(results, key=attrgetter("id"))
    for batch in batches_by_size(in_order, lambda held: len(results[held] or "")):
        for together, written in write(connection, batch, results):
            if written < len(together):
                refused |= _not_done_by(connection, process_id, together)
    return refused


def complete_free(connection: Connection, process_id: int, results: Results) -> Written:
    """`complete`, without the rows that another session has locked.

    Args:
        connection: in a transaction of its own.
        process_id: who held them.
        results: see `complete`.
    """
    free: set[Held] = set()
    for batch in batches(sorted(results, key=attrgetter("id"))):
        for lease, ids in by_lease(batch).items():
            free |= {Held(task_id, lease) for task_id in lock_free(connection, ids, *recording.is_held(lease))}
    others = results.keys() - free
    locked = recording.still_held(connection, others)
    refused = complete(connection, process_id, {held: results[held] for held in free})
    return Written(refused | _not_done_by(connection, process_id, others - locked), locked)


def _on_mysql(connection: Connection, batch: Sequence[Held], results: Results) -> Iterator[tuple[Sequence[Held], int]]:
    of_lease: dict[int, list[Held]] = defaultdict(list)
    for held in batch:
        of_lease[held.lease].append(held)
    for lease, together in of_lease.items():
        ids = [held.id for held in together]
        given = {held.id: result for held in together if (result := results[held]) is not None}
        if given:
            places = _with_results(_places_for(len(given)))
            yield together, places.run(connection, ids=ids, of_lease=lease, **_in_places(given)).rowcount
        else:
            yield together, _without_results().run(connection, ids=ids, of_lease=lease).rowcount


def _on_postgresql(
    connection: Connection, batch: Sequence[Held], results: Results
) -> Iterator[tuple[Sequence[Held], int]]:
    numbers = {"ids": _array(held.id for held in batch), "leases": _array(held.lease for held in batch)}
    returned = [results[held] for held in batch]
    if any(result is not None for result in returned):
        yield batch, _joined().run(connection, **numbers, results=returned).rowcount
    else:
        yield batch, _joined_without_results().run(connection, **numbers).rowcount


def _array(numbers: Iterable[int]) -> str:
    """An array as PostgreSQL writes it; psycopg makes one of a list in Python, element by element.

    >>> _array([1, 2])
    '{1,2}'
    """
    return f"{{{','.join(map(str, numbers))}}}"


def _on_sqlite(connection: Connection, batch: Sequence[Held], results: Results) -> Iterator[tuple[Sequence[Held], int]]:
    given = msgspec.json.encode([(held.id, held.lease, results[held]) for held in batch]).decode()
    yield batch, _listed_in_json().run(connection, given=given).rowcount


_ELSEWHERE: Final = {"postgresql": _on_postgresql, "sqlite": _on_sqlite}


def _done(result: Any) -> dict[str, Any]:
    """What success writes."""
    return {
        "status": becomes(target(Event.COMPLETE)),
        "result": result,
        "error": sa.null(),
        "progress": sa.literal_column("1.0"),
        "finished_at": now(),
        "updated_at": now(),
    }


OF_LEASE: Final = sa.bindparam("of_lease", type_=sa.BigInteger())


def _written(*conditions: sa.ColumnElement[bool], result: Any) -> sa.Update:
    return update_by_id(sa.update(tasks).where(*conditions).values(_done(result)))


@lru_cache(maxsize=16)
def _with_results(places: int) -> Prepared:
    """A statement that has so many places for results; what a place does not say has none.

    ELT takes what stands at the place at which FIELD finds the id: both are in every server that speaks MySQL's
    language, and JSON_TABLE, which would need one place only, is not.
    """
    of = [sa.bindparam(f"of_{place}", type_=sa.BigInteger()) for place in range(places)]
    returned = [sa.bindparam(f"returned_{place}", type_=sa.Text()) for place in range(places)]
    result = sa.func.elt(sa.func.field(tasks.c.id, *of), *returned)
    return Prepared(_written(id_among(tasks.c.id), *recording.is_held(OF_LEASE), result=result))


def _places_for(results: int) -> int:
    """As many places or more, so that there are few statements.

    >>> [_places_for(results) for results in (1, 2, 3, 500)]
    [1, 2, 4, 512]
    """
    return 1 << (results - 1).bit_length()


def _in_places(given: Mapping[int, str]) -> dict[str, Any]:
    """The values of `_with_results`; no task has the id 0."""
    values: dict[str, Any] = {}
    for place in range(_places_for(len(given)) - 1, len(given) - 1, -1):
        values[f"of_{place}"], values[f"returned_{place}"] = 0, None
    for place, (task_id, result) in enumerate(given.items()):
        values[f"of_{place}"], values[f"returned_{place}"] = task_id, result
    return values


@lru_cache(maxsize=1)
def _without_results() -> Prepared:
    return Prepared(_written(id_among(tasks.c.id), *recording.is_held(OF_LEASE), result=sa.null()))


@lru_cache(maxsize=1)
def _listed_in_json() -> Prepared:
    element = sa.func.json_each(sa.bindparam("given", type_=sa.Text())).table_valued("value", name="element")
    parts: list[tuple[str, sa.types.TypeEngine[Any]]] = [
        ("id", sa.Integer()),
        ("lease", sa.BigInteger()),
        ("result", sa.Text()),
    ]
    extracted = [
        sa.func.json_extract(element.c.value, sa.literal_column(f"'$[{place}]'"), type_=kind).label(name)
        for place, (name, kind) in enumerate(parts)
    ]
    given = sa.select(*extracted).subquery("given")
    return Prepared(_written(tasks.c.id == given.c.id, *recording.is_held(given.c.lease), result=given.c.result))


BIG: Final = sa.ARRAY(sa.BigInteger())
OF_NUMBERS: Final = (("ids", BIG), ("leases", BIG))


@lru_cache(maxsize=1)
def _joined() -> Prepared:
    arrays = [sa.cast(sa.bindparam(name), kind) for name, kind in (*OF_NUMBERS, ("results", sa.ARRAY(sa.Text())))]
    given = sa.func.unnest(*arrays).table_valued("id", "lease", "result", name="given").render_derived()
    return Prepared(_written(*_is_given(given), result=given.c.result))


@lru_cache(maxsize=1)
def _joined_without_results() -> Prepared:
    arrays = [sa.cast(sa.bindparam(name), kind) for name, kind in OF_NUMBERS]
    given = sa.func.unnest(*arrays).table_valued("id", "lease", name="given").render_derived()
    return Prepared(_written(*_is_given(given), result=sa.null()))


def _is_given(given: sa.TableValuedAlias) -> tuple[sa.ColumnElement[bool], ...]:
    """The id alone is searched for: see `by_id_alone`."""
    fenced = sa.case((sa.and_(*recording.is_held(given.c.lease)), sa.true()), else_=sa.false())
    return tasks.c.id == given.c.id, fenced


def forget_statements() -> None:
    """Make the statements anew, for a test that has changed what they are made of."""
    for made in (_with_results, _without_results, _listed_in_json, _joined, _joined_without_results):
        made.cache_clear()


def _not_done_by(connection: Connection, process_id: int, claims: Collection[Held]) -> set[Held]:
    """Those among these claims that were not completed, neither now nor in an earlier try."""
    done: set[Held] = set()
    for lease, ids in by_lease(claims).items():
        by_it = (tasks.c.lease == lease, tasks.c.process_id == process_id, status_is(target(Event.COMPLETE)))
        found = select_by_id(sa.select(tasks.c.id).where(*by_id_alone(connection, ids, by_it)))
        done |= {Held(task_id, lease) for task_id in connection.execute(found).scalars()}
    return set(claims) - done
