"""The C driver for MySQL, where it is installed (`make bench` does): the same tasks, the same errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from peerd.config.address import normalise_url
from peerd.store.connection.database import Database
from peerd.store.outcomes import complete
from peerd.store.schema.migrate import migrate
from peerd.store.statements import new_token
from peerd.store.take import claiming
from tests.store.world import World, held
from tests.support.server_kinds import INNODB
from tests.support.servers import DatabaseFactory

if normalise_url("mysql://localhost/peerd").startswith("mysql+pymysql"):
    pytest.skip("mysqlclient is not installed", allow_module_level=True)


@pytest.fixture(params=INNODB)
def store(request: pytest.FixtureRequest, database_factory: DatabaseFactory) -> Iterator[Database]:
    opened = Database(database_factory(request.param).replace("pymysql", "mysqldb"))
    migrate(opened)
    yield opened
    opened.close()


def test_tasks_go_through_the_c_driver(store: Database) -> None:
    assert store.engine.driver == "mysqldb"
    world = World(store)
    world.insert(body='{"ä": "✓"}')
    claimer = world.claimer("q")
    [task] = store.run(claiming.claim, claimer, token=new_token(), limit=5).tasks
    assert task.body == '{"ä": "✓"}'
    assert task.worker_started_at is not None
    assert task.worker_started_at.tzinfo is not None
    assert store.run(complete, claimer.process_id, {held(task): '"✓"'}) == set()
