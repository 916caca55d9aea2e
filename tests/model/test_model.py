"""The store's operations do what the rules say, in any order, on each database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from peerd.store.database import Database
from peerd.store.migrate import migrate
from tests.model.machine.whole import machine_on
from tests.support.servers import DatabaseFactory

EXAMPLES = {"sqlite": 100, "mariadb": 60, "postgresql": 60}


@pytest.fixture
def database(request: pytest.FixtureRequest, database_factory: DatabaseFactory) -> Iterator[Database]:
    opened = Database(database_factory(request.param), pool_size=2)
    if request.param == "sqlite":
        sa.event.listen(opened.engine, "connect", let_the_disk_be)
    migrate(opened)
    yield opened
    opened.close()


def let_the_disk_be(connection: object, record: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "database",
    ["sqlite", pytest.param("mariadb", marks=pytest.mark.slow), pytest.param("postgresql", marks=pytest.mark.slow)],
    indirect=True,
)
def test_the_store_does_what_the_rules_say(database: Database) -> None:
    kind = "mariadb" if database.name == "mysql" else database.name
    run_state_machine_as_test(
        machine_on(database), settings=settings(max_examples=EXAMPLES[kind], stateful_step_count=40, print_blob=True)
    )
