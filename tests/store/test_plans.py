"""On a filled table, every hot statement goes by the index that was made for it, and sorts no more than its batch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
import sqlalchemy as sa

from peerd.domain.bulk import BulkChange, BulkRetry, BulkSnooze
from peerd.domain.lifecycle import Status
from peerd.domain.outcome import Failed
from peerd.domain.task import NewTask, Task
from peerd.store import jobs, queue_states
from peerd.store.bulk.chunks import carry_out_chunk
from peerd.store.bulk.creating import create_bulk
from peerd.store.claim import claim, quarantined
from peerd.store.claim.claimer import Claimer
from peerd.store.connection.database import Database
from peerd.store.enqueue import enqueue
from peerd.store.jobs import Bury, Release
from peerd.store.jobs.fill import count_unfinished_up_to
from peerd.store.jobs.statistics import TUBES_AT_ONCE, unfinished_queues
from peerd.store.limits import limited_claim
from peerd.store.maintenance import chore_batches, due, rescue
from peerd.store.maintenance.history import HistoryAge, HistoryPlace, purge_step
from peerd.store.nodes.loads import count_running
from peerd.store.outcomes import complete, touch
from peerd.store.outcomes.recording import ClaimId
from peerd.store.outcomes.touch import TaskProgress
from peerd.store.schema.migrate import migrate
from peerd.store.schema.tables import bulk_actions, limits, nodes, tasks
from peerd.store.statements.driver_connection import DriverConnection, DriverResult
from peerd.store.statements.token import new_token
from peerd.store.tasks import pages
from peerd.store.tasks.filters import TaskConditions
from tests.store.world import World, held
from tests.support.outcomes import record_outcome

ANALYZE = {"mysql": "ANALYZE TABLE tasks", "postgresql": "ANALYZE", "sqlite": "ANALYZE"}
PINNED_TO = 99
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
KINDS: list[tuple[int, dict[str, Any]]] = [
    (9000, {"status": "done", "queue": "q"}),
    (4000, {"status": "scheduled", "queue": "q", "start_at": 3600}),
    (3000, {"status": "pending", "queue": "q", "node_id": PINNED_TO}),
    (3000, {"status": "pending", "queue": "other"}),
    (2000, {"status": "pending", "queue": "q", "limit_key": "a"}),
    (1000, {"status": "pending", "queue": "q", "limit_key": "b"}),
    (1000, {"status": "failure", "queue": "q", "start_at": 3600}),
    (500, {"status": "dead", "queue": "q"}),
    (1500, {"status": "pending", "queue": "q", "finish_at": 7200}),
    (1000, {"status": "buried", "queue": "q", "buried_order": 1}),
    (50, {"status": "pending", "queue": "small"}),
    (100, {"status": "working", "queue": "q", "process_id": 77, "worker_node_id": PINNED_TO, "lease": 1}),
]
SentStatements = list[tuple[str, Any]]


def fill(connection: sa.Connection) -> None:
    moment = datetime.now(UTC)
    for number, kind in KINDS:
        values = {
            name: moment + timedelta(seconds=value) if name.endswith("_at") else value for name, value in kind.items()
        }
        times = {"created_at": moment, "updated_at": moment, "finished_at": moment, "checked_at": moment}
        rows = [{**values, **times, "priority": number % 7, "name": "n" * 50} for number in range(number)]
        connection.execute(sa.insert(tasks), rows)


@contextmanager
def recorded_statements(database: Database) -> Iterator[SentStatements]:
    """The statements that are sent meanwhile."""
    sent: SentStatements = []

    def record(_: object, __: object, statement: str, parameters: Any, ___: object, many: bool) -> None:  # noqa: FBT001
        sent.append((statement, parameters[0] if many else parameters))

    execute = DriverConnection.exec_driver_sql

    def record_and_execute(connection: DriverConnection, sql: str, arguments: Any) -> DriverResult:
        sent.append((sql, arguments))
        return execute(connection, sql, arguments)

    for engine in database.engines:
        sa.event.listen(engine, "before_cursor_execute", record)
    DriverConnection.exec_driver_sql = record_and_execute  # type: ignore[method-assign, assignment]
    try:
        yield sent
    finally:
        DriverConnection.exec_driver_sql = execute  # type: ignore[method-assign]
        for engine in database.engines:
            sa.event.remove(engine, "before_cursor_execute", record)


def plan_of(
    database: Database, statement: str, parameters: Any, engine: sa.Engine | None = None
) -> tuple[set[str], list[str]]:
    """The indexes by which a statement reaches `tasks`, and the plan as the database prints it."""
    word = "EXPLAIN QUERY PLAN" if database.name == "sqlite" else "EXPLAIN"
    with (engine or database.engine).connect() as connection:
        rows = connection.exec_driver_sql(f"{word} {statement}", parameters).mappings().all()
        connection.rollback()
    words = [" ".join(str(value) for value in row.values()) for row in rows]
    match database.name:
        case "mysql":
            reached = {
                str(row["key"]) if row["type"] not in ("ALL", "index") else f"{row['type']}: the whole table"
                for row in rows
                if row["table"] == "tasks"
            }
            if any("const table" in str(row["Extra"]) for row in rows):
                reached.add("PRIMARY")  # one row was looked up, and no longer meets the condition
            if any(re.search("optimized away|min/max", str(row["Extra"])) for row in rows):
                reached |= set(re.findall(r"FORCE INDEX \((\w+)\)", statement))  # one entry was looked up
            if any("filesort" in str(row["Extra"]) for row in rows if row["table"] == "tasks"):
                reached.add("a sort of all")
        case "postgresql":
            text = "\n".join(words)
            reached = set(re.findall(r"Index (?:Only )?Scan (?:Backward )?using (\w+) on tasks", text))
            reached |= set(re.findall(r"Bitmap Index Scan on (tasks_\w+)", text))
            reached |= {"Seq Scan" for _ in re.findall(r"Seq Scan on tasks", text)}
        case _:
            reached = set()
            for line in words:
                if found := re.search(
                    r"(SCAN|SEARCH) (?:tasks|job)(?: USING (?:COVERING )?INDEX (\w+)| USING (INTEGER PRIMARY KEY))?",
                    line,
                ):
                    reached.add(found[2] or found[3] or "SCAN")
    return {"PRIMARY" if name in ("tasks_pkey", "INTEGER PRIMARY KEY") else name for name in reached}, words


def check(
    database: Database, operation: Callable[[], object], expected: set[str], engine: sa.Engine | None = None
) -> None:
    with recorded_statements(database) as sent:
        operation()
    checked = 0
    for statement, parameters in sent:
        if not re.match(r"\s*(WITH|SELECT|UPDATE|DELETE)\b", statement) or not re.search(r"\btasks\b", statement):
            continue
        checked += 1
        reached, plan = plan_of(database, statement, parameters, engine)
        shown = f"{statement}\n" + "\n".join(plan)
        assert reached, f"no table is reached:\n{shown}"
        assert reached <= expected, f"by {reached}, not by {expected}:\n{shown}"
        if database.name == "sqlite":
            assert sum("TEMP B-TREE" in line for line in plan) <= 1, shown
    assert checked, sent


@pytest.mark.slow
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
            connection.exec_driver_sql(ANALYZE[store.name])
        for operation, expected in hot_operations(world, claimer):
            check(store, operation, expected)
        for operation, expected in operations_on_jobs(world):
            check(store, operation, expected, store._groups[True] if operation.func == store.run_group else None)
        check_pages(store)
        check_queue_states(store)
        check_recent(store)
        check(store, partial(store.read, count_running, {"q"}), {"tasks_claim", "tasks_working", "a sort of all"})
        check_bulk(store)
        if store.name == "postgresql":
            check_generic_plan(store, claimer)
    finally:
        store.close()


def silence_a_node(connection: sa.Connection, node_id: int) -> None:
    """One to which tasks are pinned."""
    connection.execute(sa.update(nodes).where(nodes.c.id == node_id).values(active=False, checked_at=LONG_AGO))
    connection.execute(sa.update(tasks).where(tasks.c.node_id == PINNED_TO).values(node_id=node_id))


def check_bulk(store: Database) -> None:
    """A chunk reads the index of its filter's status from its place on, and all else by primary key."""
    for fields, action, index, chunks in (
        ({"status": "dead"}, BulkRetry(), "tasks_closing", 2),  # the second one begins in the middle of the index
        ({"status": "scheduled"}, BulkSnooze(60.0), "tasks_due", 1),  # as in check_pages
        ({"status": "pending", "queue": "q"}, BulkChange(priority=3), "tasks_claim", 2),
    ):
        bulk = store.run(create_bulk, action, fields)
        due_now = sa.update(bulk_actions).values(next_at=None)
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


def check_generic_plan(store: Database, claimer: Claimer) -> None:
    """After some calls PostgreSQL plans a statement once for all values; psycopg prepares what it sees often."""
    with recorded_statements(store) as sent:
        store.run(claim.claim, claimer, token=new_token(), limit=5)
    [(statement, parameters)] = [one for one in sent if one[0].lstrip().startswith("WITH")]
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", statement)))
    for number, name in enumerate(names, 1):
        statement = statement.replace(f"%({name})s", f"${number}")
    values = ", ".join("NULL" if parameters[name] is None else f"'{parameters[name]}'" for name in names)
    with store.engine.connect() as connection:
        connection.exec_driver_sql("SET plan_cache_mode = force_generic_plan")
        connection.exec_driver_sql(f"PREPARE claim AS {statement}")
        plan = "\n".join(connection.exec_driver_sql(f"EXPLAIN EXECUTE claim ({values})").scalars())
        connection.rollback()
    assert "$1" in plan, plan
    assert plan.count("using tasks_claim on tasks") == 4, plan
    assert "Seq Scan on tasks" not in plan, plan


def hot_operations(world: World, claimer: Claimer) -> Iterator[tuple[Callable[[], object], set[str]]]:
    run, mysql = world.store.run, world.store.name == "mysql"
    working = {"tasks_claim"} if mysql else {"tasks_working"}
    by_id = {"PRIMARY"}
    held_now: list[Task] = []
    token = new_token()

    def take() -> None:
        held_now.extend(run(claim.claim, claimer, token=token, limit=10).tasks)

    yield take, {"tasks_claim"} | by_id
    assert len(held_now) == 10
    yield partial(run, claim.claim, claimer, token=new_token(), limit=1, quarantined=True), {"tasks_claim"} | by_id
    yield partial(run, quarantined.should_empty_for_quarantined, claimer, 1.0), {"tasks_claim", "tasks_turns"} | by_id
    limited_indexes = {"tasks_turns", "PRIMARY", "a sort of all"}
    yield partial(run, limited_claim.find_claimable, claimer), {"tasks_claim", "tasks_turns"} | by_id
    yield (
        partial(run, limited_claim.claim_limited, claimer, "q", token=8, limit=5),
        limited_indexes | working,
    )
    limited = sa.insert(limits).values(queue="q", limit_key="", running=1000)
    run(lambda connection: connection.execute(limited).rowcount)
    yield (
        partial(run, limited_claim.claim_limited, claimer, "q", token=9, limit=5),
        limited_indexes | {"tasks_claim"} | working,
    )
    run(lambda connection: connection.execute(sa.delete(limits)).rowcount)
    yield partial(run, claim.claimed_by_token, claimer, token), working
    yield partial(run, touch.claims_of_process, claimer.process_id), working
    yield partial(run, touch.touch, {held(task) for task in held_now}), by_id
    yield partial(run, touch.report_progress, {held(task): TaskProgress(0.5) for task in held_now}), by_id
    done: dict[Any, str | None] = {held(task): "1" for task in held_now[:5]}
    yield partial(run, complete.complete, claimer.process_id, done), by_id
    yield partial(run, complete.complete, claimer.process_id, done), by_id  # and the query of a repeated one
    failed = Failed(error="boom", retry_in=0.0)
    yield partial(run, record_outcome, claimer.process_id, held(held_now[6]), failed), by_id
    yield partial(run, chore_batches.stage_due, Status.FAILURE, 20), {"tasks_due"} | by_id
    yield partial(run, chore_batches.stage_due, Status.SCHEDULED, 20), {"tasks_due"} | by_id
    yield partial(run, chore_batches.postpone, 20), {"tasks_due" if mysql else "tasks_ahead"} | by_id
    yield partial(run, chore_batches.expire, 20), {"tasks_closing"} | by_id
    yield partial(run, chore_batches.purge, Status.DONE, -60.0, 20), {"tasks_closing"} | by_id
    yield partial(run, chore_batches.purge, Status.DEAD, 3600.0, 20), {"tasks_closing"} | by_id
    for place in (None, HistoryPlace(LONG_AGO, 17)):
        yield partial(run, purge_step, HistoryAge(-60.0, frozenset({"q"})), place, 20), {"tasks_closing"} | by_id
    counted = {"tasks_claim", "tasks_turns", "tasks_aside"} | working
    yield partial(run, count_unfinished_up_to, "q", 20), counted
    for pinned in (chore_batches.count_pinned, chore_batches.free_pinned, chore_batches.fail_pinned):
        yield partial(run, pinned, 0.0), {"tasks_claim", "tasks_turns"} | by_id
    with_key = NewTask(queue="q", unique_key="key")
    assert run(enqueue.enqueue, with_key).created
    yield partial(run, enqueue.enqueue, with_key), by_id  # which checks whether the holder has ended
    yield (
        partial(run, rescue.release_tasks_of_process, claimer.process_id, "SIGKILL", crashed=True, limit=20),
        working | by_id,
    )
    yield partial(run, rescue.rescue_untouched, 3600.0, 20), working | by_id
    yield partial(run, rescue.rescue_untouched, -60.0, 20), working | by_id


def operations_on_jobs(world: World) -> Iterator[tuple[partial[Any], set[str]]]:
    run, by_id = world.store.run_group, {"PRIMARY"}
    pending, aside = {"tasks_claim", "tasks_turns"}, {"tasks_aside"}
    working = {"tasks_claim"} if world.store.name == "mysql" else {"tasks_working"}
    few, many = world.claimer("other"), world.claimer("q2", "other", *(f"tube-{number}" for number in range(40)))
    held: list[ClaimId] = []

    def reserve(connection: sa.Connection, claimer: Claimer, limit: int) -> None:
        held.extend(job.claim for job in jobs.reserve(connection, claimer, limit, 60))

    for claimer, limit in ((few, 1), (few, 10), (many, 1), (many, 10)):
        yield partial(run, reserve, claimer, limit), pending | by_id
    assert len(held) == 22
    yield partial(run, reserve, world.claimer("empty"), 1), pending | by_id
    yield partial(run, reserve, world.claimer("q", "other"), 2), {*pending, *working, *by_id, "a sort of all"}
    process_id = few.process_id
    for claims in (held[:1], held[:9]):
        yield partial(run, jobs.touch_reservations, process_id, claims), by_id
    for claims in (held[:1], held[1:4]):
        yield partial(run, jobs.release, process_id, [Release(claim, 1, 0, "releases") for claim in claims]), by_id
    for claims in (held[4:5], held[5:8]):
        yield partial(run, jobs.delete_held, process_id, claims), by_id
    yield partial(run, jobs.bury, process_id, [Bury(held[8], 1, 1)]), by_id
    yield partial(run, jobs.take, few, held[8].id, 60), by_id
    yield partial(run, jobs.kick, "q", 5), aside | by_id
    yield partial(run, jobs.kick, "other", 5), aside | by_id
    yield partial(run, jobs.release_all, few.node_id), working | by_id
    read = world.store.read
    yield partial(read, jobs.peek_ready, "q"), pending | by_id
    yield partial(read, jobs.peek_delayed, "q"), aside
    yield partial(read, jobs.peek_buried, "q"), aside
    yield partial(read, jobs.job_statistics, held[0].id), by_id
    for queue in ("small", "empty"):
        yield partial(read, jobs.tube_counts, queue), pending | aside | working
        yield partial(read, jobs.has_jobs, queue), pending | aside | working
    grouped = {*working, "a sort of all"}  # of those that are reserved
    yield partial(read, jobs.tubes_with_jobs), pending | aside | grouped
    yield partial(run, due.read_due_maintenance), {"tasks_due", "tasks_ahead", "tasks_closing"} | pending | grouped


def test_a_step_for_each_tube_and_not_for_each_job_lists_the_tubes(world: World) -> None:
    """Every statement reads few rows, as the database counts them."""
    rows = [{"queue": f"t{number % 3}", "ttr": 1} for number in range(3000)]
    world.store.run(lambda connection: connection.execute(sa.insert(tasks), rows).close())
    with recorded_statements(world.store) as sent:
        assert world.store.read(jobs.tubes_with_jobs) == ["t0", "t1", "t2"]
    assert len(sent) <= 30


@pytest.mark.parametrize("store", ["mariadb"], indirect=True)
def test_tubes_are_listed_by_steps_also_on_a_server_that_counts_what_it_reads(world: World) -> None:
    rows = [{"queue": f"t{number % 3}", "status": status} for number in range(3000) for status in ("pending", "buried")]
    world.store.run(lambda connection: connection.execute(sa.insert(tasks), rows).close())

    def read(connection: sa.Connection) -> int:
        def handed_out() -> int:
            shown = connection.exec_driver_sql("SHOW SESSION STATUS LIKE 'Handler_read%%'")
            return sum(int(value) for _, value in shown)

        before = handed_out()
        assert unfinished_queues(connection) == {"t0", "t1", "t2"}
        return handed_out() - before

    assert world.store.read(read) < 300


@pytest.mark.parametrize("store", ["mariadb"], indirect=True)
def test_thousands_of_tubes_are_listed_on_mysql_too(world: World) -> None:
    names = {f"tube-{number:04}" for number in range(TUBES_AT_ONCE + 50)}
    rows = [{"queue": name, "status": status} for name in names for status in ("pending", "buried")]
    world.store.run(lambda connection: connection.execute(sa.insert(tasks), rows).close())
    assert world.store.read(unfinished_queues) == names


@pytest.mark.parametrize("store", ["postgresql"], indirect=True)
def test_a_claim_and_a_completion_are_planned_once_and_queries_of_users_each_time(world: World) -> None:
    claimer = world.claimer()
    rows = [{"queue": "other", "name": "n", "priority": number % 7} for number in range(5000)]
    world.store.run(lambda connection: connection.execute(sa.insert(tasks), rows))
    world.store.run(lambda connection: connection.exec_driver_sql("ANALYZE tasks"))

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
    assert world.store.read(list_page)[1] > 0


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
        prepared = "SELECT name, cardinality(parameter_types) AS parameters, statement FROM pg_prepared_statements"
        plans = []
        for found in connection.exec_driver_sql(prepared).all():
            if "UPDATE tasks" in found.statement:
                nulls = ", ".join(["NULL"] * found.parameters)
                plan = connection.exec_driver_sql(f'EXPLAIN EXECUTE "{found.name}" ({nulls})').scalars()
                plans.append("\n".join([found.statement, *plan]))
        return plans

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
        prepared = "SELECT name, cardinality(parameter_types) AS parameters, statement FROM pg_prepared_statements"
        plans = []
        for found in connection.exec_driver_sql(prepared).all():
            if "tasks" in found.statement:
                nulls = ", ".join(["NULL"] * found.parameters)
                plan = connection.exec_driver_sql(f'EXPLAIN EXECUTE "{found.name}" ({nulls})').scalars()
                plans.append("\n".join([found.statement, *plan]))
        return plans

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


@pytest.mark.parametrize("store", ["mariadb"], indirect=True)
@pytest.mark.parametrize("number", [1, 3, 12])
def test_on_a_small_table_writes_still_go_by_id_and_lock_nothing_else(world: World, number: int) -> None:
    """MySQL prefers to read a small table whole; a write that does so locks all of it."""
    for _ in range(number):
        world.add()
    claimer = world.claimer()
    [task] = world.take(claimer, 1)
    run, by_id = world.store.run, {"PRIMARY"}
    check(world.store, partial(run, touch.touch, {held(task)}), by_id)
    check(world.store, partial(run, complete.complete, claimer.process_id, {held(task): "1"}), by_id)
    check(world.store, partial(run, chore_batches.purge, Status.DONE, -60.0), {"tasks_closing", "PRIMARY"})
    assert world.find(task.id) is None
