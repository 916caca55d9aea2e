"""All rules together."""

from __future__ import annotations

from peerd.store.database import Database
from tests.model.machine.base import Base
from tests.model.machine.chores import Chores
from tests.model.machine.cluster import Cluster
from tests.model.machine.holders import Holders
from tests.model.machine.people import People


class Everything(People, Holders, Chores, Cluster):
    """Whatever can happen to a table."""


def machine_on(database: Database) -> type[Base]:
    """The machine over a database of one's own, which is emptied for each example."""
    return type("Machine", (Everything,), {"database": database})
