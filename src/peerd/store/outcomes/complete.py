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

from peerd.domain.lifecycle import TaskEvent, target
from peerd.store.outcomes import recording
from peerd.store.outcomes.recording import ClaimId, WriteResult, by_lease
from peerd.store.schema.sql_clock import now
from peerd.store.schema.tables import tasks
from peerd.store.schema.types import MYSQL
from peerd.store.statements.compiled import CompiledStatement, id_in_list
from peerd.store.tasks.conditions import select_by_id, status_is, update_by_id
from peerd.store.tasks.rows import batches, batches_by_size, by_id_only, lock_available, status_literal

CompletionResults = Mapping[ClaimId, str | None]


def complete(connection: Connection, process_id: int, results: CompletionResults) -> set[ClaimId]:
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
    refused: set[ClaimId] = set()
    write = _on_mysql if connection.dialect.name in MYSQL else _ELSEWHERE[connection.dialect.name]
    in_order = sorted(results, key=attrgetter("id"))
    for batch in batches_by_size(in_order, lambda held: len(results[held] or "")):
        for together, written in write(connection, batch, results):
            if written < len(together):
                refused |= _not_done_by(connection, process_id, together)
    return refused


def complete_available(connection: Connection, process_id: int, results: CompletionResults) -> WriteResult:
    """`complete`, without the rows that another session has locked.

    Args:
        connection: in a transaction of its own.
        process_id: who held them.
        results: see `complete`.
    """
    free: set[ClaimId] = set()
    for batch in batches(sorted(results, key=attrgetter("id"))):
        for lease, ids in by_lease(batch).items():
            free |= {ClaimId(task_id, lease) for task_id in lock_available(connection, ids, *recording.is_held(lease))}
    others = results.keys() - free
    locked = recording.still_held(connection, others)
    refused = complete(connection, process_id, {held: results[held] for held in free})
    return WriteResult(refused | _not_done_by(connection, process_id, others - locked), locked)


def _on_mysql(
    connection: Connection, batch: Sequence[ClaimId], results: CompletionResults
) -> Iterator[tuple[Sequence[ClaimId], int]]:
    of_lease: dict[int, list[ClaimId]] = defaultdict(list)
    for held in batch:
        of_lease[held.lease].append(held)
    for lease, together in of_lease.items():
        ids = [held.id for held in together]
        given = {held.id: result for held in together if (result := results[held]) is not None}
        if given:
            places = _with_results(_slots_for(len(given)))
            yield together, places.run(connection, ids=ids, of_lease=lease, **_result_parameters(given)).rowcount
        else:
            yield together, _without_results().run(connection, ids=ids, of_lease=lease).rowcount


def _on_postgresql(
    connection: Connection, batch: Sequence[ClaimId], results: CompletionResults
) -> Iterator[tuple[Sequence[ClaimId], int]]:
    numbers = {"ids": _array_literal(held.id for held in batch), "leases": _array_literal(held.lease for held in batch)}
    returned = [results[held] for held in batch]
    if any(result is not None for result in returned):
        yield batch, _joined().run(connection, **numbers, results=returned).rowcount
    else:
        yield batch, _joined_without_results().run(connection, **numbers).rowcount


def _array_literal(numbers: Iterable[int]) -> str:
    """An array as PostgreSQL writes it; psycopg makes one of a list in Python, element by element.

    >>> _array_literal([1, 2])
    '{1,2}'
    """
    return f"{{{','.join(map(str, numbers))}}}"


def _on_sqlite(
    connection: Connection, batch: Sequence[ClaimId], results: CompletionResults
) -> Iterator[tuple[Sequence[ClaimId], int]]:
    given = msgspec.json.encode([(held.id, held.lease, results[held]) for held in batch]).decode()
    yield batch, _listed_in_json().run(connection, given=given).rowcount


_ELSEWHERE: Final = {"postgresql": _on_postgresql, "sqlite": _on_sqlite}


def _completion_values(result: Any) -> dict[str, Any]:
    """What success writes."""
    return {
        "status": status_literal(target(TaskEvent.COMPLETE)),
        "result": result,
        "error": sa.null(),
        "progress": sa.literal_column("1.0"),
        "finished_at": now(),
        "updated_at": now(),
    }


LEASE_PARAMETER: Final = sa.bindparam("of_lease", type_=sa.BigInteger())


def _completion_update(*conditions: sa.ColumnElement[bool], result: Any) -> sa.Update:
    return update_by_id(sa.update(tasks).where(*conditions).values(_completion_values(result)))


@lru_cache(maxsize=16)
def _with_results(places: int) -> CompiledStatement:
    """A statement that has so many places for results; what a place does not say has none.

    ELT takes what stands at the place at which FIELD finds the id: both are in every server that speaks MySQL's
    language, and JSON_TABLE, which would need one place only, is not.
    """
    of = [sa.bindparam(f"of_{place}", type_=sa.BigInteger()) for place in range(places)]
    returned = [sa.bindparam(f"returned_{place}", type_=sa.Text()) for place in range(places)]
    result = sa.func.elt(sa.func.field(tasks.c.id, *of), *returned)
    return CompiledStatement(
        _completion_update(id_in_list(tasks.c.id), *recording.is_held(LEASE_PARAMETER), result=result)
    )


def _slots_for(results: int) -> int:
    """As many places or more, so that there are few statements.

    >>> [_slots_for(results) for results in (1, 2, 3, 500)]
    [1, 2, 4, 512]
    """
    return 1 << (results - 1).bit_length()


def _result_parameters(given: Mapping[int, str]) -> dict[str, Any]:
    """The values of `_with_results`; no task has the id 0."""
    values: dict[str, Any] = {}
    for place in range(_slots_for(len(given)) - 1, len(given) - 1, -1):
        values[f"of_{place}"], values[f"returned_{place}"] = 0, None
    for place, (task_id, result) in enumerate(given.items()):
        values[f"of_{place}"], values[f"returned_{place}"] = task_id, result
    return values


@lru_cache(maxsize=1)
def _without_results() -> CompiledStatement:
    return CompiledStatement(
        _completion_update(id_in_list(tasks.c.id), *recording.is_held(LEASE_PARAMETER), result=sa.null())
    )


@lru_cache(maxsize=1)
def _listed_in_json() -> CompiledStatement:
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
    return CompiledStatement(
        _completion_update(tasks.c.id == given.c.id, *recording.is_held(given.c.lease), result=given.c.result)
    )


BIGINT_ARRAY: Final = sa.ARRAY(sa.BigInteger())
NUMBER_ARRAYS: Final = (("ids", BIGINT_ARRAY), ("leases", BIGINT_ARRAY))


@lru_cache(maxsize=1)
def _joined() -> CompiledStatement:
    arrays = [sa.cast(sa.bindparam(name), kind) for name, kind in (*NUMBER_ARRAYS, ("results", sa.ARRAY(sa.Text())))]
    given = sa.func.unnest(*arrays).table_valued("id", "lease", "result", name="given").render_derived()
    return CompiledStatement(_completion_update(*_matches_given(given), result=given.c.result))


@lru_cache(maxsize=1)
def _joined_without_results() -> CompiledStatement:
    arrays = [sa.cast(sa.bindparam(name), kind) for name, kind in NUMBER_ARRAYS]
    given = sa.func.unnest(*arrays).table_valued("id", "lease", name="given").render_derived()
    return CompiledStatement(_completion_update(*_matches_given(given), result=sa.null()))


def _matches_given(given: sa.TableValuedAlias) -> tuple[sa.ColumnElement[bool], ...]:
    """The id alone is searched for: see `by_id_only`."""
    guard = sa.case((sa.and_(*recording.is_held(given.c.lease)), sa.true()), else_=sa.false())
    return tasks.c.id == given.c.id, guard


def clear_statement_cache() -> None:
    """Make the statements anew, for a test that has changed what they are made of."""
    for cached in (_with_results, _without_results, _listed_in_json, _joined, _joined_without_results):
        cached.cache_clear()


def _not_done_by(connection: Connection, process_id: int, claims: Collection[ClaimId]) -> set[ClaimId]:
    """Those among these claims that were not completed, neither now nor in an earlier try."""
    done: set[ClaimId] = set()
    for lease, ids in by_lease(claims).items():
        by_it = (tasks.c.lease == lease, tasks.c.process_id == process_id, status_is(target(TaskEvent.COMPLETE)))
        found = select_by_id(sa.select(tasks.c.id).where(*by_id_only(connection, ids, by_it)))
        done |= {ClaimId(task_id, lease) for task_id in connection.execute(found).scalars()}
    return set(claims) - done
