"""Tubes are listed by steps through an index, whatever the number of their jobs."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from peerd.store import jobs
from peerd.store.jobs.statistics import TUBES_AT_ONCE, unfinished_queues
from peerd.store.schema.tables import tasks
from tests.store.plans import recorded_statements
from tests.store.world import World

pytestmark = pytest.mark.every_database


def test_a_step_for_each_tube_and_not_for_each_job_lists_the_tubes(world: World) -> None:
    """Every statement reads few rows, as the database counts them."""
    rows = [{"queue": f"t{number % 3}", "ttr": 1} for number in range(3000)]
    world.execute(sa.insert(tasks), rows)
    with recorded_statements(world.store) as sent:
        assert world.read(jobs.tubes_with_jobs) == ["t0", "t1", "t2"]
    assert len(sent) <= 30


@pytest.mark.parametrize("store", ["mariadb"], indirect=True)
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


@pytest.mark.parametrize("store", ["mariadb"], indirect=True)
def test_thousands_of_tubes_are_listed_on_mysql_too(world: World) -> None:
    names = {f"tube-{number:04}" for number in range(TUBES_AT_ONCE + 50)}
    rows = [{"queue": name, "status": status} for name in names for status in ("pending", "buried")]
    world.execute(sa.insert(tasks), rows)
    assert world.read(unfinished_queues) == names


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
