"""On a filled table, every hot statement goes by the index that was made for it; PostgreSQL plans it once."""

from __future__ import annotations

import re
from functools import partial

import pytest
import sqlalchemy as sa

from peerd.domain.bulk import BulkChange, BulkRetry, BulkSnooze
from peerd.domain.lifecycle import Status
from peerd.operate.diagnostics.waiting import why_tasks_wait
from peerd.operate.overview import read_overview
from peerd.store import chore_batches, outcomes, queue_states
from peerd.store.bulk import create_bulk, preview_bulk
from peerd.store.bulk_chunks import carry_out_chunk
from peerd.store.connection.database import Database
from peerd.store.jobs.holding import Release, delete_held, release
from peerd.store.jobs.reserving import reserve
from peerd.store.nodes import count_running
from peerd.store.outcomes import ClaimId
from peerd.store.queue_states import sample_depths, write_depths
from peerd.store.schema.migrate import migrate
from peerd.store.schema.tables import bulk_actions, tasks
from peerd.store.statements import new_token
from peerd.store.take import claiming
from peerd.store.tasks import pages
from peerd.store.tasks.counts import unfinished_queues
from peerd.store.tasks.filters import TaskConditions
from tests.store.filled_table import fill, silence_a_node
from tests.store.hot_statements import operations_on_jobs, operations_on_tasks
from tests.store.plans import check, plan_of, recorded_statements
from tests.store.world import World, held
from tests.support.server_kinds import INNODB

pytestmark = pytest.mark.every_database


def test_hot_statements_go_by_their_indexes(database: str) -> None:
    store = Database(database)
    try:
        migrate(store)
        store.run(fill)
        world = World(store)
        claimer = world.claimer("q", "empty")
        world.node("silent")
        store.run(silence_a_node, world.node("silent"))
        with store.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if store.name == "postgresql":  # what the planner knows does not change in the middle of the test
                connection.exec_driver_sql("ALTER TABLE tasks SET (autovacuum_enabled = off)")
            connection.exec_driver_sql("ANALYZE TABLE tasks" if store.name == "mysql" else "ANALYZE")
        for operation, expected in operations_on_tasks(world, claimer):
            check(store, operation, expected)
        for operation, expected in operations_on_jobs(world):
            check(store, operation, expected, store.engines.groups if operation.func == store.run_group else None)
        check_pages(store)
        check_queue_states(store)
        check_recent(store)
        check(store, partial(store.read, count_running, {"q"}), {"tasks_claim", "tasks_working", "a sort of all"})
        why = {"tasks_claim", "tasks_turns", "tasks_working", "a sort of all"}
        check(store, partial(store.read, why_tasks_wait, "q"), why)
        store.run(write_depths, store.read(sample_depths))
        verdict = why | {"tasks_closing", "tasks_due", "tasks_aside"}
        check(store, partial(store.read, read_overview, 0.0), verdict)
        check_bulk(store)
    finally:
        store.close()


def check_bulk(store: Database) -> None:
    """A chunk reads the index of its filter's status from its place on, and all else by primary key.

    It acts on tasks if the preview has counted them all, and counts on if the preview ended early, as it does on a
    busy machine.
    """
    due_now = sa.update(bulk_actions).values(next_at=None)
    for fields, action, index, chunks in (
        ({"status": "dead"}, BulkRetry(), "tasks_closing", 2),  # the second one begins in the middle of the index
        ({"status": "scheduled"}, BulkSnooze(60.0), "tasks_due", 1),  # the first page only, as in check_pages
        ({"status": "pending", "queue": "q"}, BulkChange(priority=3), "tasks_claim", 2),
    ):
        for counts_on in [True, False] if chunks > 1 else [False]:
            preview = store.read(preview_bulk, action, fields, within=0.0 if counts_on else 60.0)
            bulk = store.run(create_bulk, action, fields, digest=preview.digest)
            assert bulk.at_least is counts_on
            for _ in range(chunks):
                store.run(sa.Connection.execute, due_now)
                check(store, partial(store.run, carry_out_chunk, 100, bulk.id), {index, "tasks_turns", "PRIMARY"})


def check_pages(store: Database) -> None:
    """Pages are read from where they begin in the index of their status, the second one too, and nothing is sorted."""
    for wanted, pages_read in (
        (TaskConditions(), 2),
        (TaskConditions(status=Status.DONE), 2),
        (TaskConditions(status=Status.SCHEDULED), 1),  # all are due at one time here, so that few are cheaper to sort
        (TaskConditions(status=Status.PENDING, queue="q"), 2),
    ):
        after = None
        for _ in range(pages_read):
            with recorded_statements(store) as sent:
                page = store.read(pages.list_tasks, wanted, after=after, limit=50)
            after = page.next
            assert len(page.items) == 50
            for statement in sent:
                _, plan = plan_of(store, *statement)
                shown = "\n".join(plan)
                assert not re.search("filesort|Sort|TEMP B-TREE|Seq Scan", shown), shown


def check_queue_states(store: Database) -> None:
    """Counts and the oldest pending task are read from indexes, no more entries of each than the limit."""
    with recorded_statements(store) as sent:
        states = store.read(queue_states.list_queues, most=50)
    assert {state.name for state in states} >= {"q", "other", "small"}
    for statement in sent:
        if "FROM queues" not in statement[0] and "deadline_at" not in statement[0]:  # few: the known, the working ones
            _, plan = plan_of(store, *statement)
            for line in plan:
                assert not re.search(r" tasks (ALL|index) |Seq Scan on tasks|SCAN tasks(?! USING)", line), plan


def check_recent(store: Database) -> None:
    """The recent tasks are read from indexes, and further ones by their ids."""
    oldest = store.read(lambda connection: connection.execute(sa.select(sa.func.min(tasks.c.id))).scalar_one())
    with recorded_statements(store) as sent:
        assert oldest in {task.id for task in store.read(pages.list_recent, [oldest], limit=50)}
    assert len(sent) <= 11, "two for each of five kinds, and one for the ids"
    walks = [one for one in sent if re.search(r"FROM tasks\s+(\w+ INDEX \(\w+\)\s+)?ORDER BY", one[0])]
    assert len(walks) == 1, "the newest are the end of the primary key, whose entries are read up to the limit"
    assert "LIMIT" in walks[0][0]
    for statement in sent:
        if statement in walks or "FROM tasks" not in statement[0]:
            continue
        _, plan = plan_of(store, *statement)
        for line in plan:
            assert not re.search(r" tasks (ALL|index) |Seq Scan on tasks|SCAN tasks(?! USING)", line), plan


@pytest.mark.parametrize("store", INNODB, indirect=True)
def test_on_a_small_table_writes_still_go_by_id_and_lock_nothing_else(world: World) -> None:
    """MySQL prefers to read a small table whole; a write that does so locks all of it."""
    for number in (1, 3, 12):
        world.empty()
        for _ in range(number):
            world.add()
        assert_writes_go_by_id(world)


def assert_writes_go_by_id(world: World) -> None:
    claimer = world.claimer()
    [task] = world.take(claimer, 1)
    run, by_id = world.run, {"PRIMARY"}
    check(world.store, partial(run, outcomes.touch, {held(task)}), by_id)
    check(world.store, partial(run, outcomes.complete, claimer.process_id, {held(task): "1"}), by_id)
    looked_for = {"tasks_closing", "index: the whole table"}  # without locks, in the same index
    check(world.store, partial(run, chore_batches.purge, Status.DONE, -60.0), looked_for | by_id)
    assert world.find(task.id) is None


@pytest.mark.parametrize("store", INNODB, indirect=True)
def test_tubes_are_listed_by_steps_also_on_a_server_that_counts_what_it_reads(world: World) -> None:
    rows = [{"queue": f"t{number % 3}", "status": status} for number in range(3000) for status in ("pending", "buried")]
    world.execute(sa.insert(tasks), rows)

    def read(connection: sa.Connection) -> int:
        def handed_out() -> int:
            shown = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'")
            return sum(int(value) for _, value in shown)

        before = handed_out()
        assert unfinished_queues(connection) == {"t0", "t1", "t2"}
        return handed_out() - before

    assert world.read(read) < 300


@pytest.mark.parametrize("store", ["sqlite"], indirect=True)
def test_a_status_that_no_task_has_is_not_looked_for_among_the_others(world: World) -> None:
    rows = [{"queue": f"t{number % 3}", "status": "buried"} for number in range(3000)]
    world.execute(sa.insert(tasks), rows)
    hundreds: list[None] = []

    def read(connection: sa.Connection) -> set[str]:
        driver = connection.connection.driver_connection
        assert driver is not None
        driver.set_progress_handler(lambda: hundreds.append(None), 100)
        try:
            return unfinished_queues(connection)
        finally:
            driver.set_progress_handler(None, 0)

    assert world.read(read) == {"t0", "t1", "t2"}
    assert len(hundreds) < 30, "hundreds of instructions of SQLite"


POSTGRESQL = pytest.mark.parametrize("store", [pytest.param("postgresql", marks=pytest.mark.slow)], indirect=True)


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


@POSTGRESQL
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
            [task] = claiming.claim(connection, claimer, token=new_token(), limit=1).tasks
            assert not outcomes.complete(connection, claimer.process_id, {held(task): None})
        return [plans(connection, word) for word in ("FOR UPDATE", "unnest")]

    def list_page(connection: sa.Connection) -> tuple[int, int]:
        for _ in range(20):
            pages.list_tasks(connection, TaskConditions(queue="q"), limit=5)
        return plans(connection, "tasks.queue =")

    for _ in range(20):
        world.add()
    for generic, custom in world.store.run_short(work):
        assert generic > 0
        assert custom == 0
    assert world.read(list_page)[1] > 0


@POSTGRESQL
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
            assert not claiming.claim(connection, claimer, token=new_token(), limit=500).tasks
            for result in (None, "1"):
                assert outcomes.complete(connection, claimer.process_id, {unclaimed: result}) == {unclaimed}
        return plans_of_prepared(connection, "UPDATE tasks")

    database = Database(world.store.url)  # whose connections have planned nothing yet
    plans = database.run_short(work)
    database.close()
    assert len(plans) == 3
    for plan in plans:
        assert not re.search("(Seq|Bitmap Heap) Scan on tasks", plan), plan
        assert "using tasks_pkey on tasks" in plan, plan
        assert not re.search("Hash Join|Merge Join", plan), plan


@POSTGRESQL
def test_what_queue_clients_do_is_planned_for_every_size_of_the_table(world: World) -> None:
    claimer = world.claimer("q", "other")
    unheld = [ClaimId(1, 1), ClaimId(2, 1)]

    def work(connection: sa.Connection) -> list[str]:
        for _ in range(10):
            assert not reserve(connection, claimer, 5, 60)
            assert not release(connection, claimer.process_id, [Release(claim) for claim in unheld])
            for claims in (unheld, unheld[:1]):
                assert not delete_held(connection, claimer.process_id, claims)
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
