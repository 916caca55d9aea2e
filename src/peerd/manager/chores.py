"""The chores that keep the table healthy, with their periods, on one screen.

Every node's manager runs all of them; each is safe to run everywhere at once. A chore does one bounded batch in a
transaction and says how many rows that were; after a full batch it rests a little, and does the next one, for as long
as its turn lasts (`peerd.manager.service`). A chore with ``due`` is run only when its moment has come, by the agenda
that is read in each round.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import msgspec
from sqlalchemy.engine import Connection

from peerd.config.settings import ManagerSettings
from peerd.manager import pinned, purge, stage
from peerd.store.maintenance.due import DueMaintenance

ChoreFunction = Callable[[Connection, ManagerSettings], int]
ChoreDue = Callable[[DueMaintenance, ManagerSettings], datetime | None]
"""When there is something to do; None: nothing as far as one sees."""


class Chore(msgspec.Struct, frozen=True):
    """A chore: its name, what it does, when, and how many periods (``[manager] every``) lie between two runs."""

    name: str
    run: ChoreFunction
    due: ChoreDue | None = None
    periods: int = 1


def _aged(since: datetime | None, age: float) -> datetime | None:
    return None if since is None else since + timedelta(seconds=age)


CHORES: Final = (
    Chore("arrive scheduled", stage.scheduled, lambda agenda, _: agenda.scheduled),
    Chore("arrive failures", stage.failures, lambda agenda, _: agenda.failure),
    Chore("postpone", stage.ahead, lambda agenda, _: agenda.ahead and agenda.now, periods=2),
    Chore("expire", purge.expired, lambda agenda, _: agenda.pending),
    Chore("purge done", purge.done, lambda agenda, given: _aged(agenda.done, given.max_completed), periods=10),
    Chore(
        "purge canceled", purge.canceled, lambda agenda, given: _aged(agenda.canceled, given.max_completed), periods=10
    ),
    Chore("purge dead", purge.dead, lambda agenda, given: _aged(agenda.dead, given.max_failed), periods=10),
    Chore("purge keys", purge.keys, lambda agenda, _: agenda.key, periods=30),
    Chore("purge starts", purge.starts, lambda agenda, _: agenda.start, periods=30),
    Chore("purge processes", purge.processes, periods=600),
    Chore("purge runs", purge.runs, periods=300),
    Chore("purge schedules", purge.schedules, periods=600),
    Chore("purge nodes", purge.nodes, periods=3600),
    Chore("pinned", pinned.apply_pinned_policy, pinned.pinned_policy_due, periods=10),
)
"""Two more need the manager's own state and stand in `service`: rescue, and the activity of nodes."""
