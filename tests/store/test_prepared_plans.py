"""PostgreSQL plans a hot statement once, for every size of the table."""

from __future__ import annotations

import re

import pytest
import sqlalchemy as sa

from peerd.store import jobs
from peerd.store.claim import claim
from peerd.store.connection.database import Database
from peerd.store.jobs import Release
from peerd.store.outcomes import complete
from peerd.store.outcomes.recording import ClaimId
from peerd.store.schema.tables import tasks
from peerd.store.statements.token import new_token
from peerd.store.tasks import pages
from peerd.store.tasks.filters import TaskConditions
from tests.store.world import World, held

pytestmark = pytest.mark.slow


def plans_of_prepared(connection: sa.Connection, words: str) -> list[str]:
    """The plans, for any values, of the prepared statements of a connection in which these words are."""
    prepared = "SELECT name, cardinality(parameter_types) AS parameters, statement FROM pg_prepared_statements"
    plans = []
    for found in connection.exec_driver_sql(prepared).all():
        if words in found.statement:
            nulls = ", ".join(["NULL"] * found.parameters)
            plan = connection.exec_driver_sql(f'EXPLAIN EXECUTE "{found.name}" ({nulls})').scalars()
            plans.append("\n".join([found.statement, *plan]))
    return plans


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_a_claim_and_a_completion_are_planned_once_and_queries_of_users_each_time(world: World) -> None:
    claimer = world.claimer()
    rows = [{"queue": "other", "name": "n", "priority": number % 7} for number in range(5000)]
    world.execute(sa.insert(tasks), rows)
    world.run(lambda connection: connection.exec_driver_sql("ANALYZE tasks"))

    def plans(connection: sa.Connection, word: str) -> tuple[int, int]:
        """Of prepared statements, how often they were executed by a plan for any values, and by one for their own."""
        counts = "sum(generic_plans) AS generic, sum(custom_plans) AS custom"
        statement = f"SELECT {counts} FROM pg_prepared_statements WHERE statement LIKE %(like)s"
        found = connection.exec_driver_sql(statement, {"like": f"%{word}%"}).one()
        return int(found.generic), int(found.custom)

    def work(connection: sa.Connection) -> list[tuple[int, int]]:
        for _ in range(20):
            [task] = claim.claim(connection, claimer, token=new_token(), limit=1).tasks
            assert not complete.complete(connection, claimer.process_id, {held(task): None})
        return [plans(connection, word) for word in ("FOR UPDATE", "unnest")]

    def list_page(connection: sa.Connection) -> tuple[int, int]:
        for _ in range(20):
            pages.list_tasks(connection, TaskConditions(queue="q"), limit=5)
        return plans(connection, "tasks.queue =")

    for _ in range(20):
        world.add()
    for generic, custom in world.store.run_autocommit(work):
        assert generic > 0
        assert custom == 0
    assert world.read(list_page)[1] > 0


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
@pytest.mark.parametrize("emptied", [0, 20_000])
def test_what_was_planned_for_an_empty_table_is_right_for_a_full_one(world: World, emptied: int) -> None:
    """New, or emptied and analyzed: its indexes are large then, which makes PostgreSQL prefer bitmaps."""
    with world.store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f"INSERT INTO tasks (queue) SELECT 'q' FROM generate_series(1, {emptied})")
        for statement in ("ANALYZE tasks", "DELETE FROM tasks", "ANALYZE tasks"):
            connection.exec_driver_sql(statement)
    claimer = world.claimer("q", "other")
    unclaimed = ClaimId(1, 1)

    def work(connection: sa.Connection) -> list[str]:
        for _ in range(10):
            assert not claim.claim(connection, claimer, token=new_token(), limit=500).tasks
            for result in (None, "1"):
                assert complete.complete(connection, claimer.process_id, {unclaimed: result}) == {unclaimed}
        return plans_of_prepared(connection, "UPDATE tasks")

    database = Database(world.store.url)  # whose connections have planned nothing yet
    plans = database.run_autocommit(work)
    database.close()
    assert len(plans) == 3
    for plan in plans:
        assert not re.search("(Seq|Bitmap Heap) Scan on tasks", plan), plan
        assert "using tasks_pkey on tasks" in plan, plan
        assert not re.search("Hash Join|Merge Join", plan), plan


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_what_queue_clients_do_is_planned_for_every_size_of_the_table(world: World) -> None:
    claimer = world.claimer("q", "other")
    unheld = [ClaimId(1, 1), ClaimId(2, 1)]

    def work(connection: sa.Connection) -> list[str]:
        for _ in range(10):
            assert not jobs.reserve(connection, claimer, 5, 60)
            assert not jobs.release(connection, claimer.process_id, [Release(claim) for claim in unheld])
            for claims in (unheld, unheld[:1]):
                assert not jobs.delete_held(connection, claimer.process_id, claims)
        return plans_of_prepared(connection, "tasks")

    database = Database(world.store.url)  # whose connections have planned nothing yet
    plans = database.run_group(work)
    database.close()
    assert len(plans) >= 5
    for plan in plans:
        assert not re.search("(Seq|Bitmap Heap) Scan on tasks", plan), plan
        assert not re.search("Hash Join|Merge Join", plan), plan
        if "candidates" in plan:
            assert re.search(
                r"Limit[^\n]*\n(?: *InitPlan[^\n]*\n *->[^\n]*\n)* *-> +Index Scan using tasks_claim", plan
            ), plan
