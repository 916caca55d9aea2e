"""What the holder of reservations does with them: delete, release, bury, touch, and report a result or a failure.

Each write names process and lease of each reservation, and one statement is for many of them. Which of them it has
found is known by its rows where the database returns them, else by a token that it writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, Final, Literal

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect

from peerd.domain.lifecycle import TaskEvent, sources, target
from peerd.domain.outcome import Failed, transition_after
from peerd.domain.pacing import exponential_backoff
from peerd.domain.task import Task, delay_until_start
from peerd.store import unique_keys
from peerd.store.jobs.reserving import bounded_ttr
from peerd.store.outcomes import ClaimId, TaskProgress, apply_verdicts, complete, database_now, is_held, report_progress
from peerd.store.schema.tables import attempts, tasks
from peerd.store.schema.types import MYSQL, now, seconds_from_now
from peerd.store.statements import (
    ByDatabase,
    CompiledStatement,
    DriverConnection,
    id_in_list,
    list_bind,
    list_parameter,
    new_token,
)
from peerd.store.take.eligibility import TOKEN_PARAMETER
from peerd.store.tasks.conditions import by_index, is_working, select_by_id, status_is, update_by_id
from peerd.store.tasks.rows import (
    BATCH,
    LARGEST_INTEGER,
    batches,
    lock_tasks,
    raised,
    status_literal,
    values_of_release,
)

ReleaseCounter = Literal["releases", "timeouts"]
"""What the end of a reservation counts as. The end of a connection counts as nothing."""
PROCESS_PARAMETER: Final = sa.bindparam("process", type_=sa.BigInteger())
ID_PARAMETER: Final = sa.bindparam("id", type_=sa.BigInteger())
LEASE_PARAMETER: Final = sa.bindparam("of_lease", type_=sa.BigInteger())


class Release(msgspec.Struct, frozen=True):
    """A reservation that is to end, with the job ready or, after a delay, scheduled.

    Attributes:
        claim: the reservation.
        priority: the new priority; None leaves it as it is.
        delay: seconds; 0 and None make it ready, and None leaves the delay that is shown as it is.
        counts: the counter to raise.
    """

    claim: ClaimId
    priority: int | None = None
    delay: int | None = None
    counts: ReleaseCounter | None = None


class Bury(msgspec.Struct, frozen=True):
    """A reservation that is to end, with the job buried.

    Attributes:
        claim: the reservation.
        priority: the new priority; None leaves it as it is.
        order: microseconds of a clock; jobs are kicked in this order.
        counts: the counter to raise beside the one of buries.
    """

    claim: ClaimId
    priority: int | None
    order: int
    counts: ReleaseCounter | None = None


def delete_held(
    connection: Connection, process_id: int, held: Sequence[ClaimId], *, keep: Collection[ClaimId] = frozenset()
) -> set[ClaimId]:
    """Delete reserved jobs, with their attempts and the keys that end with them.

    Args:
        connection: in a transaction.
        process_id: the holder.
        held: the reservations.
        keep: those among them whose queues keep history: they become done.

    Returns:
        those that were still held.
    """
    deleted = {claim for claim in held if claim in keep}
    if deleted:
        deleted -= complete(connection, process_id, dict.fromkeys(deleted))
    direct = DriverConnection(connection)
    for batch in batches([claim for claim in held if claim not in keep] if keep else held):
        rows = _delete(direct, process_id, batch)
        deleted |= {ClaimId(task_id, lease) for task_id, lease, *_ in rows}
        _delete_rest(connection, rows)
    return deleted


def release(connection: Connection, process_id: int, releases: Sequence[Release]) -> set[ClaimId]:
    """End reservations, with the jobs ready or delayed. Those that are alike are one statement.

    Returns:
        those that were still held.
    """
    alike: dict[tuple[int | None, int | None, ReleaseCounter | None], list[ClaimId]] = defaultdict(list)
    for one in releases:
        alike[one.priority, one.delay, one.counts].append(one.claim)
    released: set[ClaimId] = set()
    direct = DriverConnection(connection)
    for (priority, delay, counts), claims in alike.items():
        start_in = delay_until_start(delay) if delay else None
        values = {"priority": priority, "delay": delay, "start_in": start_in}
        given = {name: value for name, value in values.items() if value is not None}
        for batch in batches(claims):
            released |= _write(
                direct,
                _release_update(
                    counts,
                    has_delay=delay is not None,
                    is_delayed=bool(delay),
                    has_priority=priority is not None,
                    is_one=len(batch) == 1,
                ),
                process_id,
                batch,
                given,
            )
    return released


def bury(connection: Connection, process_id: int, buries: Sequence[Bury]) -> set[ClaimId]:
    """End reservations, with the jobs buried.

    Returns:
        those that were still held.
    """
    buried: set[ClaimId] = set()
    direct = DriverConnection(connection)
    for one in buries:
        statement = _bury_update(one.counts, one.priority is not None)
        given = {"buried_order": one.order} | ({} if one.priority is None else {"priority": one.priority})
        buried |= _write(direct, statement, process_id, [one.claim], given)
    return buried


def touch_reservations(connection: Connection, process_id: int, claims: Sequence[ClaimId]) -> set[ClaimId]:
    """Set the deadlines of reservations anew, each to its ttr from now.

    Returns:
        those that are still held.
    """
    touched: set[ClaimId] = set()
    direct = DriverConnection(connection)
    for batch in batches(claims):
        touched |= _write(direct, _touch_update(is_one=len(batch) == 1), process_id, batch, {})
    return touched


def release_all(connection: Connection, node_id: int) -> int:
    """End all reservations of a node's processes, which are gone, without counting them; how many."""
    released = 0
    is_of_node = (tasks.c.worker_node_id == node_id, tasks.c.deadline_at.is_not(None))
    found = by_index(sa.select(tasks.c.id).where(is_working(), *is_of_node).limit(BATCH), "tasks_claim")
    while ids := connection.execute(found).scalars().all():
        of_holder = (*is_of_node, status_is(*sources(TaskEvent.RELEASE)))
        update = sa.update(tasks).where(tasks.c.id.in_(sorted(ids)), *of_holder)
        released += connection.execute(update_by_id(update.values(**values_of_release(), updated_at=now()))).rowcount
    return released


# ---------------------------------------------------------------- reports


class RecordedFailure(msgspec.Struct, frozen=True):
    """The failure of a job was written; ``retry_in`` is seconds until its next attempt, None if there is none."""

    retry_in: float | None


def complete_held(connection: Connection, process_id: int, claim: ClaimId, result: str | None) -> bool:
    """Write a reserved job as done, with a result (JSON text); return whether it was held."""
    return claim not in complete(connection, process_id, {claim: result})


def fail_held(
    connection: Connection, process_id: int, claim: ClaimId, reason: str, retry: float | Literal[False] | None
) -> RecordedFailure | Literal[False]:
    """End the attempt of a reserved job without success, and record it.

    Args:
        connection: in a transaction.
        process_id: the holder.
        claim: the reservation.
        reason: the error of the attempt.
        retry: seconds until the next attempt, False if there is none, None for the usual back-off.

    Returns:
        What follows; False if it was not held.
    """
    locked = lock_tasks(connection, [claim.id], *is_held(claim.lease), tasks.c.process_id == process_id)
    if not locked:
        return False
    [task] = locked
    # to a queue client, no number of attempts means any number
    tried = msgspec.structs.replace(task, max_attempts=task.max_attempts or LARGEST_INTEGER)
    retry_in = _retry_in(task, retry)
    verdict = transition_after(tried, Failed(error=reason, retry_in=retry_in), database_now(connection))
    apply_verdicts(connection, [(task, verdict)])
    return RecordedFailure(retry_in if verdict.event is TaskEvent.FAIL else None)


def report_held(connection: Connection, process_id: int, claim: ClaimId, fraction: float, note: str | None) -> bool:
    """Write the progress of a reserved job; return whether it is held."""
    held = sa.select(tasks.c.id).where(tasks.c.id == claim.id, tasks.c.process_id == process_id)
    if connection.execute(held).first() is None:
        return False
    return claim not in report_progress(connection, {claim: TaskProgress(fraction, note)}).refused


def _retry_in(task: Task, retry: float | Literal[False] | None) -> float | None:
    if retry is False:
        return None
    return exponential_backoff(task.attempts + 1) if retry is None else retry


# ---------------------------------------------------------------- statements


@lru_cache(maxsize=64)
def _release_update(
    counts: ReleaseCounter | None, *, has_delay: bool, is_delayed: bool, has_priority: bool, is_one: bool
) -> CompiledStatement:
    status = status_literal(target(TaskEvent.SNOOZE if is_delayed else TaskEvent.RELEASE))
    values: dict[str, Any] = {**values_of_release(), "status": status}
    if is_delayed:
        values["start_at"] = seconds_from_now(sa.bindparam("start_in", type_=sa.Double()))
    if has_delay:
        values["delay"] = sa.bindparam("delay", type_=sa.BigInteger())
    return _held_update(values | _counted(counts) | _priority(has_priority), is_one=is_one)


@lru_cache(maxsize=8)
def _bury_update(counts: ReleaseCounter | None, has_priority: bool) -> CompiledStatement:  # noqa: FBT001 - a shape
    values = {
        **values_of_release(),
        "status": status_literal(target(TaskEvent.BURY)),
        "buries": raised(tasks.c.buries),
        "buried_order": sa.bindparam("buried_order", type_=sa.BigInteger()),
    }
    return _held_update(values | _counted(counts) | _priority(has_priority), is_one=True)


@lru_cache(maxsize=2)
def _touch_update(*, is_one: bool) -> CompiledStatement:
    values = {"checked_at": now(), "deadline_at": seconds_from_now(bounded_ttr(tasks.c.ttr))}
    return _held_update(values, is_one=is_one)


def _counted(counts: ReleaseCounter | None) -> dict[str, Any]:
    return {} if counts is None else {counts: raised(tasks.c[counts])}


def _priority(is_given: bool) -> dict[str, Any]:  # noqa: FBT001 - the question is its name
    return {"priority": sa.bindparam("priority", type_=sa.BigInteger())} if is_given else {}


def _held_update(values: dict[str, Any], *, is_one: bool) -> CompiledStatement:
    update = (
        sa.update(tasks).where(*_is_held(is_one=is_one)).values(**values, updated_at=now(), claim_token=TOKEN_PARAMETER)
    )
    return CompiledStatement(update_by_id(update))


def _write(
    connection: DriverConnection,
    statement: CompiledStatement,
    process_id: int,
    claims: Sequence[ClaimId],
    values: dict[str, Any],
) -> set[ClaimId]:
    """Write the rows of reservations; those that were still held."""
    token = new_token()
    held = _claim_parameters(connection.dialect, process_id, claims)
    if statement.run(connection, **held, token=token, **values).rowcount == len(claims):
        return set(claims)
    ids = list_parameter(connection.dialect, sorted(claim.id for claim in claims))
    rows = _written_by_token().run(connection, ids=ids, token=token).all()
    return {ClaimId(task_id, lease) for task_id, lease in rows}


@lru_cache(maxsize=1)
def _written_by_token() -> CompiledStatement:
    written = sa.select(tasks.c.id, tasks.c.lease).where(id_in_list(tasks.c.id), tasks.c.claim_token == TOKEN_PARAMETER)
    return CompiledStatement(select_by_id(written))


def _delete(connection: DriverConnection, process_id: int, claims: Sequence[ClaimId]) -> Sequence[Sequence[Any]]:
    """Delete the rows of reservations: id, lease, queue, unique key, and whether there may be attempts."""
    held = _claim_parameters(connection.dialect, process_id, claims)
    if connection.dialect.delete_returning:
        return _delete_returning(is_one=len(claims) == 1).run(connection, **held).all()
    rows = _lock_held(is_one=len(claims) == 1).run(connection, **held).all()
    if rows:
        _delete_by_id().run(connection, ids=list_parameter(connection.dialect, sorted(row[0] for row in rows)))
    return rows


@lru_cache(maxsize=2)
def _delete_returning(*, is_one: bool) -> CompiledStatement:
    return CompiledStatement(sa.delete(tasks).where(*_is_held(is_one=is_one)).returning(*_deleted_columns()))


@lru_cache(maxsize=2)
def _lock_held(*, is_one: bool) -> CompiledStatement:
    found = sa.select(*_deleted_columns()).where(*_is_held(is_one=is_one))
    return CompiledStatement(select_by_id(found).with_for_update())


@lru_cache(maxsize=1)
def _delete_by_id() -> CompiledStatement:
    return CompiledStatement(sa.delete(tasks).where(id_in_list(tasks.c.id)))


def _deleted_columns() -> tuple[sa.ColumnElement[Any], ...]:
    reserves = sa.func.coalesce(tasks.c.reserves, sa.literal_column("0"))
    has_attempts = sa.or_(tasks.c.attempts > sa.literal_column("0"), tasks.c.lease != reserves)
    return tasks.c.id, tasks.c.lease, tasks.c.queue, tasks.c.unique_key, has_attempts.label("has_attempts")


def _delete_rest(connection: Connection, rows: Sequence[Sequence[Any]]) -> None:
    """Delete what other tables have of deleted jobs."""
    tried = [task_id for task_id, *_, has_attempts in rows if has_attempts]
    if tried:
        connection.execute(sa.delete(attempts).where(attempts.c.task_id.in_(tried)))
    keyed = {task_id: (queue, key) for task_id, _, queue, key, _ in rows if key is not None}
    if keyed:
        unique_keys.delete_keys(connection, list(keyed.values()), list(keyed))


# ---------------------------------------------------------------- claims in a list


def _is_held(*, is_one: bool) -> tuple[sa.ColumnElement[bool], ...]:
    """A row is held by the given reservation, or by one of several; only the ids are looked up in an index."""
    is_given: sa.ColumnElement[bool] = tasks.c.lease == LEASE_PARAMETER if is_one else _CLAIM_IN_LIST
    conditions = (status_is(*sources(TaskEvent.COMPLETE)), tasks.c.process_id == PROCESS_PARAMETER, is_given)
    by_id = tasks.c.id == ID_PARAMETER if is_one else id_in_list(tasks.c.id)
    return by_id, sa.case((sa.and_(*conditions), sa.true()), else_=sa.false())


def _claim_parameters(dialect: Dialect, process_id: int, claims: Sequence[ClaimId]) -> dict[str, Any]:
    if len(claims) == 1:
        return {"process": process_id, "id": claims[0].id, "of_lease": claims[0].lease}
    in_order = sorted((claim.id, claim.lease) for claim in claims)
    values: dict[str, Any] = {
        "process": process_id,
        "ids": list_parameter(dialect, [task_id for task_id, _ in in_order]),
    }
    if dialect.name in MYSQL:
        return values | {"claims": in_order}
    if dialect.name == "sqlite":
        return values | {"claims": msgspec.json.encode(in_order).decode()}
    return values | {"leases": [lease for _, lease in in_order]}


class _claim_in_list(ByDatabase[bool]):  # noqa: N801 - it reads as an operand
    """Id and lease of a row are those of one of the given reservations."""

    type = sa.Boolean()
    postgresql = "{0} IN (SELECT unnest(CAST({1} AS bigint[])), unnest(CAST({2} AS bigint[])))"
    sqlite = "{0} IN (SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each({3}))"
    mysql = "{0} IN {3}"


_CLAIM_IN_LIST: Final = _claim_in_list(
    sa.tuple_(tasks.c.id, tasks.c.lease), *map(list_bind, ("ids", "leases", "claims"))
)
