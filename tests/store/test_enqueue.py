"""Enqueuing one and many."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, settings
from hypothesis import given as given_any
from hypothesis import strategies as st

from peerd.domain.errors import InvalidTask
from peerd.domain.lifecycle import Status
from peerd.domain.task import LATEST, NewTask
from peerd.store import enqueue
from peerd.store.connection.mysql import is_member
from peerd.store.schema.tables import tasks
from tests.store.world import World

pytestmark = pytest.mark.every_database


class Marked(str):
    """A user's subclass of str, as template engines have it."""

    __slots__ = ()

    def __str__(self) -> str:
        return self


def test_a_task_is_stored_with_all_its_fields(world: World) -> None:
    world.node("a")
    soon, late = datetime.now(UTC) + timedelta(hours=1), datetime.now(UTC) + timedelta(hours=2)
    fields: dict[str, Any] = {"name": "transcode ä", "body_bytes": bytes(range(256)), "priority": -(2**63) + 1}
    fields |= {"max_attempts": 5, "timeout": 1.5, "unique_key": "ключ", "limit_key": "ключ"}
    task_id = world.add(node="a", start_at=soon, finish_at=late, **fields)
    task = world.get(task_id)
    assert all(getattr(task, name) == value for name, value in fields.items())
    assert (task.node_id, task.status) == (world.node("a"), Status.SCHEDULED)
    for written, given in ((task.start_at, soon), (task.finish_at, late)):
        assert written is not None
        assert abs(written - given) < timedelta(milliseconds=1)
    assert world.column(task_id, "claim_rank") == 2**63 - 1
    for number in (1, 3):
        answers = world.run(enqueue.enqueue_many, [NewTask(queue="q", body=Marked("<ä'>"))] * number)
        assert {world.get(answer.id).body for answer in answers} == {"<ä'>"}


def test_a_start_ahead_is_scheduled_to_the_last_that_mysql_knows(world: World) -> None:
    cases: list[tuple[dict[str, Any], Status]] = [
        ({"start_in": 0.00001}, Status.SCHEDULED),
        ({"start_in": 0.0}, Status.PENDING),
        ({"start_at": datetime(2037, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)}, Status.SCHEDULED),
    ]
    for when, status in cases:
        assert world.status(world.add(**when)) is status, when
    last = world.get(world.add(start_in=10 * 365 * 86400.0 - 1)).start_at
    assert last is not None
    assert last > LATEST - timedelta(days=2 * 365), "MySQL's TIMESTAMP ends in 2038: it starts there or later"


PLAIN = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
AWKWARD = st.sampled_from(
    ["%", "%s", "%%s", "%(name)s", "'", "\\", "\\'", '"', "?", ":x", "\x1a", "ключ", "🎬", "'),('", "--"]
)
TEXTS = PLAIN | AWKWARD | st.tuples(AWKWARD, PLAIN, AWKWARD).map("".join)


@settings(max_examples=20, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given_any(
    st.lists(st.tuples(TEXTS, TEXTS | st.none(), st.binary(max_size=6) | st.none(), TEXTS | st.none()), min_size=1),
    st.booleans(),
)
def test_whatever_texts_many_share_or_differ_in_come_back(
    world: World,
    rows: list[tuple[str, str | None, bytes | None, str | None]],
    alike: bool,  # noqa: FBT001 - drawn
) -> None:
    """Values that all rows share may be part of the statement's text: none is parsed as SQL."""
    chosen = [rows[0]] * (len(rows) + 1) if alike else [(rows[0][0], *row[1:]) for row in rows]
    new = [NewTask(queue="q", name=name, body=a, body_bytes=b, trace_context=c) for name, a, b, c in chosen]
    ids = [answer.id for answer in world.run(enqueue.enqueue_many, new)]
    columns = sa.select(tasks.c.id, tasks.c.name, tasks.c.body, tasks.c.body_bytes, tasks.c.trace_context)
    found = world.rows(columns.where(tasks.c.id.in_(ids)))
    by_id: dict[int, tuple[Any, ...]] = {row[0]: tuple(row[1:]) for row in found}
    assert [by_id[task_id] for task_id in ids] == chosen


def test_ids_that_do_not_follow_each_other_are_found_all_the_same(world: World) -> None:
    """As on a server that shares its counter with others, or gives ids in steps."""

    def write(connection: sa.Connection, step: int) -> list[int]:
        if world.store.name == "mysql":
            connection.exec_driver_sql(f"SET SESSION auto_increment_increment = {step}")
        try:
            return [answer.id for answer in enqueue.enqueue_many(connection, new)]
        finally:
            if world.store.name == "mysql":
                connection.exec_driver_sql("SET SESSION auto_increment_increment = DEFAULT")

    for step in (1, 7, 1):
        new = [NewTask(queue="q", body=f"{step} {number}") for number in range(30)]
        ids = world.run(write, step)
        assert [world.get(task_id).body for task_id in ids] == [task.body for task in new]
        if world.store.name == "mysql" and not world.read(is_member):  # a member sets its own step
            assert all(later - one >= step for one, later in pairwise(ids))


def test_three_thousand_are_written_in_their_order(world: World) -> None:
    new = [NewTask(queue="q", body=str(number)) for number in range(3000)]
    answers = world.run(enqueue.enqueue_many, new)
    ids = [answer.id for answer in answers]
    assert ids == sorted(set(ids))
    some = (0, 1, 999, 1000, 1001, 2999)
    assert [world.get(ids[index]).body for index in some] == [str(index) for index in some]
    assert world.count() == 3000


def test_large_bodies_are_written_in_statements_that_a_server_takes(world: World) -> None:
    new = [NewTask(queue="q", body="x" * 1_500_000) for _ in range(16)]
    answers = world.run(enqueue.enqueue_many, new)
    assert [len(world.get(answer.id).body or "") for answer in answers] == [1_500_000] * 16


def test_a_body_larger_than_the_server_takes_is_refused_and_the_limit_named(world: World) -> None:
    new = NewTask(queue="q", body='"' * 9_000_000)  # each is sent as two bytes to MySQL
    if world.store.name == "mysql":
        with pytest.raises(InvalidTask, match=r"body: 18000000 bytes .* max_allowed_packet is 16777216"):
            world.run(enqueue.enqueue, new)
        assert world.count() == 0
    else:
        assert world.get(world.run(enqueue.enqueue, new).id).body == new.body
