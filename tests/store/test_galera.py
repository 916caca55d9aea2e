"""Three servers that each accept writes: transactions of other servers that one does not see yet break nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from typing import Any, TypeVar

import pymysql
import pytest
from sqlalchemy.exc import DBAPIError

from peerd.domain.bulk import BulkCancel, BulkRetry
from peerd.domain.lifecycle import Status
from peerd.domain.schedule import RunStatus
from peerd.domain.task import NewTask
from peerd.store import chore_batches, enqueue, nodes, outcomes, rescue, schedule_runs
from peerd.store.connection import database_errors, mysql
from peerd.store.connection.database import Database
from peerd.store.outcomes import database_now
from peerd.store.schema.migrate import find_schema_version, migrate, newest
from peerd.store.take import claiming
from peerd.store.tasks import pages
from peerd.store.tasks.actions import act_on_task
from tests.store.schedule_steps import PROCESS, declare, identity, schedule
from tests.store.test_concurrent_claimers import claims_of, start
from tests.store.world import World, at_once
from tests.support import server_session
from tests.support.galera import Galera
from tests.support.servers import DatabaseFactory

T = TypeVar("T")
pytestmark = [pytest.mark.slow, pytest.mark.parametrize("store", [pytest.param("galera")], indirect=True)]


@pytest.fixture
def servers(store: Database) -> Iterator[list[Database]]:
    """The database of the test, by way of each server."""
    cluster = server_session.shared_server("galera")
    assert isinstance(cluster, Galera)
    assert store.url.database is not None
    with ExitStack() as afterwards:
        urls = [cluster.url(store.url.database, at=index) for index in range(len(cluster.ports))]
        yield [afterwards.enter_context(closing(Database(url))) for url in urls]


def seen_by_all(servers: list[Database]) -> None:
    """Let all servers catch up with what the test has prepared on the first."""
    for server in servers:
        server.run(mysql.wait_for_sync)


def hold_back(server: Database) -> Any:
    """Keep a server from applying what the others commit, until this connection is closed."""
    raw = pymysql.connect(host=server.url.host, port=server.url.port or 0, user="root")
    raw.cursor().execute("FLUSH TABLES WITH READ LOCK")
    return closing(raw)


def test_claimers_on_all_servers_never_share_a_task(world: World, servers: list[Database]) -> None:
    new = [NewTask(queue="qr"[n % 2], priority=n % 3) for n in range(1500)]
    ids = {one.id for one in world.run(enqueue.enqueue_many, new)}
    processes = [start(world, f"node-{number}", servers[number % 3].url) for number in range(6)]
    seen_by_all(servers)
    claims = claims_of(processes)
    assert sorted(task_id for task_id, _ in claims) == sorted(ids)
    assert {lease for _, lease in claims} == {1}
    servers[0].run(mysql.wait_for_sync)
    assert world.read(pages.count_tasks)[Status.DONE] == len(ids)
    assert world.attempt_rows() == 0


def test_of_two_servers_that_claim_the_same_task_one_wins(world: World, servers: list[Database]) -> None:
    """What the loser read as pending is certified as changed at its commit, and its claim begins anew."""
    task_id = world.add()
    mine, theirs = world.claimer(node="a"), world.claimer(node="b")
    seen_by_all(servers)
    with servers[1].engine.connect() as slow:
        assert claiming.claim(slow, mine, token=1, limit=1).tasks
        assert [task.id for task in servers[2].run(claiming.claim, theirs, token=2, limit=1).tasks] == [task_id]
        with pytest.raises(DBAPIError) as refused:
            slow.commit()
    assert database_errors.was_rolled_back(refused.value)
    seen_by_all(servers)
    assert (world.get(task_id).lease, world.get(task_id).process_id) == (1, theirs.process_id)


def test_all_servers_promote_purge_and_rescue_at_once_and_each_row_once(world: World, servers: list[Database]) -> None:
    count = 600
    claimer = world.claimer(node="a")
    world.run(enqueue.enqueue_many, [NewTask(queue="q", start_in=0.001) for _ in range(count)])
    seen_by_all(servers)

    def all_of(chore: Any) -> int:
        def until_nothing_is_left(server: Database) -> int:
            total = 0
            while found := server.run(chore, limit=100):
                total += found if isinstance(found, int) else len(found)
            return total

        seen_by_all(servers)
        done = sum(at_once([partial(until_nothing_is_left, server) for server in servers]))
        seen_by_all(servers)
        return done

    assert all_of(partial(chore_batches.stage_due, status=Status.SCHEDULED)) == count
    assert len(world.take(claimer, count)) == count
    assert all_of(partial(rescue.rescue_untouched, max_update=-1.0)) == count
    assert world.attempt_rows() == count
    assert all_of(partial(chore_batches.stage_due, status=Status.FAILURE)) == count
    taken = world.take(claimer, count)
    for task in taken:
        assert task.lease == 2
    servers[1].run(mysql.wait_for_sync)
    results = dict.fromkeys(servers[1].read(outcomes.claims_of_process, claimer.process_id))
    assert not servers[1].run(outcomes.complete, claimer.process_id, results)
    assert all_of(partial(chore_batches.purge, status=Status.DONE, age=-60.0)) == count
    assert world.count() == world.attempt_rows() == 0


def test_of_two_servers_that_give_a_key_to_different_tasks_one_fails(world: World, servers: list[Database]) -> None:
    """The key's row is written by whoever takes it: a lock alone would be unknown to the other server."""
    task_id = world.add(unique_key="key")
    world.run(act_on_task, task_id, BulkCancel())
    seen_by_all(servers)
    with servers[1].engine.connect() as slow:
        assert enqueue.enqueue(slow, NewTask(queue="q", unique_key="key")).created
        servers[2].run(act_on_task, task_id, BulkRetry())
        with pytest.raises(DBAPIError):
            slow.commit()
    seen_by_all(servers)
    assert world.count() == 1


def test_two_nodes_do_not_take_runs_of_one_schedule_on_two_servers(world: World, servers: list[Database]) -> None:
    """Both see that no run is active, and lock the schedule's row where the other one cannot see it."""
    given = schedule()
    declare(world, given, "a")
    declare(world, given, "b")
    first, second = _waiting_run(world), _waiting_run(world)
    seen_by_all(servers)
    with servers[1].engine.connect() as slow:
        assert schedule_runs.claim_run(slow, first, given, identity(world, "a"), [PROCESS])
        assert servers[2].run(schedule_runs.claim_run, second, given, identity(world, "b"), [PROCESS])
        with pytest.raises(DBAPIError) as refused:
            slow.commit()
    assert database_errors.was_rolled_back(refused.value)
    servers[1].run(mysql.wait_for_sync)
    assert not servers[1].run(schedule_runs.claim_run, first, given, identity(world, "a"), [PROCESS])


def answer_of_a_server_that_lags(server: Database, change: Callable[[], object], operation: Callable[[], T]) -> T:
    """What an operation on a server answers that has not applied a change of another one: it waits for that."""
    with ThreadPoolExecutor() as threads:
        with hold_back(server):
            change()
            answer = threads.submit(operation)
            with pytest.raises(TimeoutError):
                answer.result(timeout=0.3)
        return answer.result(timeout=30)


def test_a_claim_whose_answer_was_lost_is_found_on_a_server_that_lags(world: World, servers: list[Database]) -> None:
    task_id, claimer, lagging = world.add(), world.claimer(), servers[2]
    seen_by_all(servers)

    def take() -> None:
        assert world.run(claiming.claim, claimer, token=7, limit=1).tasks
        assert not lagging.read(outcomes.claims_of_process, claimer.process_id), "it lags"

    assert not lagging.read(outcomes.claims_of_process, claimer.process_id)  # so that it is connected before it lags
    found = answer_of_a_server_that_lags(lagging, take, lambda: lagging.read(claiming.claimed_by_token, claimer, 7))
    assert [task.id for task in found] == [task_id]


def test_the_tasks_of_a_dead_process_are_released_by_a_server_that_lags(world: World, servers: list[Database]) -> None:
    task_id, claimer = world.add(), world.claimer()
    seen_by_all(servers)
    release = partial(rescue.release_tasks_of_process, cause="SIGKILL", crashed=True)
    taken = answer_of_a_server_that_lags(
        servers[2],
        lambda: world.run(claiming.claim, claimer, token=7, limit=1),
        lambda: servers[2].run(release, claimer.process_id),
    )
    assert [one.task_id for one in taken] == [task_id]


def test_a_process_that_comes_to_another_server_sees_there_what_it_has_done(
    world: World, servers: list[Database]
) -> None:
    world.node("warm")
    seen_by_all(servers)

    def enter() -> bool:
        with closing(Database(servers[2].url)) as fresh:
            return fresh.read(nodes.find_node, "late") is not None

    assert answer_of_a_server_that_lags(servers[2], lambda: world.node("late"), enter)


def test_three_nodes_that_migrate_at_once_on_three_servers(world: World, database_factory: DatabaseFactory) -> None:
    """Locks by name end at a server."""
    cluster = server_session.shared_server("galera")
    assert isinstance(cluster, Galera)
    name = database_factory("galera").rpartition("/")[2].partition("?")[0]
    with ExitStack() as afterwards:
        fresh = [afterwards.enter_context(closing(Database(cluster.url(name, at=index)))) for index in range(3)]
        assert at_once([partial(migrate, database) for database in fresh]) == [newest()] * 3
        for database in fresh:
            database.run(mysql.wait_for_sync)
            assert getattr(find_schema_version(database), "revision", None) == newest()


def _waiting_run(world: World) -> schedule_runs.ScheduleRun:
    return world.run(
        lambda connection: schedule_runs.insert_run(
            connection, "s", database_now(connection), "clock", RunStatus.WAITING
        )
    )
