"""All rules together."""

from __future__ import annotations

from peerd.store.connection.database import Database
from tests.model.machine.base import Base
from tests.model.machine.chore_steps import Chores
from tests.model.machine.node_steps import Cluster
from tests.model.machine.process_steps import Holders
from tests.model.machine.user_steps import People


class Everything(People, Holders, Chores, Cluster):
    """Whatever can happen to a table."""


def machine_on(database: Database) -> type[Base]:
    """The machine over a database of one's own, which is emptied for each example."""
    return type("Machine", (Everything,), {"database": database})
