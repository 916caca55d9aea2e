"""Success: the holder's last write, for many tasks at once. Fenced: it repeats the lease, and the status working.

Every task is written by its primary key, and nothing is read before. How many are written in one statement, and how
their results find their rows, differs:

- MariaDB and MySQL: a statement for each lease that occurs, which is nearly always one. Results are found by their
  position in a list.
- PostgreSQL: one statement, joined with arrays of ids, leases and results.
- SQLite: one statement, joined with a JSON list: each statement releases Python's lock, and waits for it again while
  other threads compute.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.lifecycle import TaskEvent, target
from peerd.store.outcomes import recording
from peerd.store.outcomes.recording import ClaimId, WriteResult, by_lease, claims_where
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import now
from peerd.store.statements import CompiledStatement, id_in_list
from peerd.store.tasks.conditions import status_is, update_by_id
from peerd.store.tasks.rows import batches, lock_available, status_literal

CompletionResults = Mapping[ClaimId, str | None]
Written = tuple[Sequence[ClaimId], int]
"""Claims of one statement, and the number of rows that it has written."""


def complete(connection: Connection, process_id: int, results: CompletionResults) -> set[ClaimId]:
    """Write tasks as done, with their results (JSON text).

    Each of its statements may be committed by itself. It may be repeated after a lost reply: a task that the same
    process has already written counts as accepted.

    Returns:
        the claims that were refused, because they are not held any more.
    """
    refused: set[ClaimId] = set()
    write = {"postgresql": _on_postgresql, "sqlite": _on_sqlite}.get(connection.dialect.name, _on_mysql)
    in_order = sorted(results, key=attrgetter("id"))
    for batch in batches(in_order, lambda held: len(results[held] or "")):
        for together, written in write(connection, batch, results):
            if written < len(together):
                refused |= _not_done_by(connection, process_id, together)
    return refused


def complete_available(connection: Connection, process_id: int, results: CompletionResults) -> WriteResult:
    """`complete`, without the rows that another session has locked; in a transaction of its own."""
    available: set[ClaimId] = set()
    for batch in batches(sorted(results, key=attrgetter("id"))):
        for lease, ids in by_lease(batch).items():
            unlocked = lock_available(connection, ids, *recording.is_held(lease))
            available |= {ClaimId(task_id, lease) for task_id in unlocked}
    others = results.keys() - available
    locked = recording.still_held(connection, others)
    refused = complete(connection, process_id, {held: results[held] for held in available})
    return WriteResult(refused | _not_done_by(connection, process_id, others - locked), locked)


def _not_done_by(connection: Connection, process_id: int, claims: Collection[ClaimId]) -> set[ClaimId]:
    """Those among these claims that were not completed, neither now nor in an earlier try."""
    by_it = (tasks.c.process_id == process_id, status_is(target(TaskEvent.COMPLETE)))
    return set(claims) - claims_where(connection, claims, lambda lease: (tasks.c.lease == lease, *by_it))


def _on_mysql(connection: Connection, batch: Sequence[ClaimId], results: CompletionResults) -> Iterator[Written]:
    for lease, ids in by_lease(batch).items():
        together = [ClaimId(task_id, lease) for task_id in ids]
        given = {held.id: result for held in together if (result := results[held]) is not None}
        places = 1 << (len(given) - 1).bit_length() if given else 0  # a power of two: there are few statements
        returned = dict(enumerate(given.items()))
        values: dict[str, Any] = {}
        for place in range(places):
            values[f"of_{place}"], values[f"returned_{place}"] = returned.get(place, (0, None))  # no task has the id 0
        yield together, _by_place(places).run(connection, ids=ids, of_lease=lease, **values).rowcount


@lru_cache(maxsize=16)
def _by_place(places: int) -> CompiledStatement:
    """A statement with so many placeholders for results; a task that none of them names has none.

    FIELD finds the place of the id, ELT takes the result there: both are in every server that speaks MySQL's language,
    and JSON_TABLE, which would need one placeholder only, is not.
    """
    of = [sa.bindparam(f"of_{place}", type_=sa.BigInteger()) for place in range(places)]
    returned = [sa.bindparam(f"returned_{place}", type_=sa.Text()) for place in range(places)]
    result = sa.func.elt(sa.func.field(tasks.c.id, *of), *returned) if places else sa.null()
    lease = sa.bindparam("of_lease", type_=sa.BigInteger())
    return _completion_update(id_in_list(tasks.c.id), *recording.is_held(lease), result=result)


def _on_postgresql(connection: Connection, batch: Sequence[ClaimId], results: CompletionResults) -> Iterator[Written]:
    values: dict[str, Any] = {
        "ids": _array_literal(held.id for held in batch),
        "leases": _array_literal(held.lease for held in batch),
    }
    returned = [results[held] for held in batch]
    with_results = any(result is not None for result in returned)
    if with_results:
        values["results"] = returned
    yield batch, _joined(with_results=with_results).run(connection, **values).rowcount


def _array_literal(numbers: Iterable[int]) -> str:
    """An array as PostgreSQL writes it; psycopg makes one of a list in Python, element by element.

    >>> _array_literal([1, 2])
    '{1,2}'
    """
    return f"{{{','.join(map(str, numbers))}}}"


@lru_cache(maxsize=2)
def _joined(*, with_results: bool) -> CompiledStatement:
    """Only the ids are looked up in an index: see `by_id_only`."""
    arrays = {"ids": sa.BigInteger(), "leases": sa.BigInteger()} | ({"results": sa.Text()} if with_results else {})
    columns = [sa.cast(sa.bindparam(name), sa.ARRAY(kind)) for name, kind in arrays.items()]
    given = sa.func.unnest(*columns).table_valued(*arrays, name="given").render_derived()
    guard = sa.case((sa.and_(*recording.is_held(given.c.leases)), sa.true()), else_=sa.false())
    result = given.c.results if with_results else sa.null()
    return _completion_update(tasks.c.id == given.c.ids, guard, result=result)


def _on_sqlite(connection: Connection, batch: Sequence[ClaimId], results: CompletionResults) -> Iterator[Written]:
    given = msgspec.json.encode([(held.id, held.lease, results[held]) for held in batch]).decode()
    yield batch, _listed_in_json().run(connection, given=given).rowcount


@lru_cache(maxsize=1)
def _listed_in_json() -> CompiledStatement:
    element = sa.func.json_each(sa.bindparam("given", type_=sa.Text())).table_valued("value", name="element")
    kinds: dict[str, sa.types.TypeEngine[Any]] = {"id": sa.Integer(), "lease": sa.BigInteger(), "result": sa.Text()}
    extracted = [
        sa.func.json_extract(element.c.value, sa.literal_column(f"'$[{index}]'"), type_=kind).label(name)
        for index, (name, kind) in enumerate(kinds.items())
    ]
    given = sa.select(*extracted).subquery("given")
    return _completion_update(tasks.c.id == given.c.id, *recording.is_held(given.c.lease), result=given.c.result)


def _completion_update(*conditions: sa.ColumnElement[bool], result: Any) -> CompiledStatement:
    values = {
        "status": status_literal(target(TaskEvent.COMPLETE)),
        "result": result,
        "error": sa.null(),
        "progress": sa.literal_column("1.0"),
        "finished_at": now(),
        "updated_at": now(),
        "deadline_at": sa.null(),
    }
    return CompiledStatement(update_by_id(sa.update(tasks).where(*conditions).values(values)))
