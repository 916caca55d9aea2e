"""The chores that keep the table healthy, with their periods, on one screen.

Every node's manager runs all of them; each is safe to run everywhere at once. A chore does one bounded batch in a
transaction and says how many rows that were; after a full batch it rests a little, and does the next one, for as long
as its turn lasts (`peerd.manager.service`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from sqlalchemy.engine import Connection

from peerd.config.settings import ManagerSettings
from peerd.manager import arrive, pinned, purge

Run = Callable[[Connection, ManagerSettings], int]


class Chore(msgspec.Struct, frozen=True):
    """A chore: its name, what it does, and how many periods (``[manager] every``) lie between two runs."""

    name: str
    run: Run
    periods: int = 1


CHORES: Final = (
    Chore("arrive scheduled", arrive.scheduled),
    Chore("arrive failures", arrive.failures),
    Chore("postpone", arrive.ahead, periods=2),
    Chore("expire", purge.expired),
    Chore("purge done", purge.done, periods=10),
    Chore("purge canceled", purge.canceled, periods=10),
    Chore("purge dead", purge.dead, periods=10),
    Chore("purge keys", purge.keys, periods=30),
    Chore("purge processes", purge.processes, periods=60),
    Chore("purge runs", purge.runs, periods=60),
    Chore("purge schedules", purge.schedules, periods=600),
    Chore("pinned", pinned.follow_policy, periods=10),
)
"""Two more need the manager's own state and stand in `service`: rescue, and the activity of nodes."""
