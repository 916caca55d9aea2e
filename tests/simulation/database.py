"""The database of a simulated process: every call of the store waits there until the world lets it happen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from peerd.domain.errors import RowLocked
from peerd.domain.task import Task
from peerd.store import chore_batches, outcomes, rescue
from peerd.store.connection.database import Database
from peerd.store.tasks import rows
from peerd.store.tasks.rows import lock_available, lock_tasks
from tests.simulation.threads import SimulatedThread, StoreCall

if TYPE_CHECKING:
    from tests.simulation.process import SimulatedProcess


WAITED: Final = 1.0
"""Seconds that a short operation waits for a lock."""


@contextmanager
def rows_may_be_locked(locked: Callable[[], set[int]]) -> Iterator[None]:
    """SQLite has no row locks: as on a server, such rows are skipped, and who would wait for one gets a time-out."""

    def free(connection: Any, ids: Iterable[int], *conditions: Any) -> list[int]:
        return [task_id for task_id in lock_available(connection, ids, *conditions) if task_id not in locked()]

    def tasks(connection: Any, ids: Iterable[int], *conditions: Any, skip_locked: bool = False) -> list[Task]:
        wanted = set(ids)
        if wanted & locked() and not skip_locked:
            raise RowLocked("lock wait timeout exceeded", WAITED)
        return lock_tasks(connection, wanted - locked(), *conditions)

    with ExitStack() as stack:
        for where in (rows, outcomes):
            stack.enter_context(patch.object(where, "lock_available", free))
        for where in (outcomes, rescue, chore_batches):
            stack.enter_context(patch.object(where, "lock_tasks", tasks))
        yield


class SimulatedDatabase(Database):
    def __init__(self, shared: Database, process: SimulatedProcess) -> None:
        self.url = shared.url
        self.engine = shared.engine
        self._shared = shared
        self.process = process

    def run(self, operation: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return self._call(operation, partial(self._shared.run, operation, *args, **kwargs))

    def run_short(self, operation: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return self._call(operation, partial(self._each, operation, *args, **kwargs))

    def run_group(  # type: ignore[override]
        self, operation: Callable[..., Any], /, *args: Any, durable: bool = True
    ) -> Any:
        return self._call(operation, partial(self._shared.run_group, operation, *args, durable=durable))

    def read(self, operation: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return self._call(operation, partial(self._shared.read, operation, *args, **kwargs))

    def close(self) -> None:
        """Do nothing: all processes share the connections."""

    def _each(self, operation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        locked = self.process.world.locked_rows()
        if operation is outcomes.complete and any(held.id in locked for held in args[1]):
            raise RowLocked("lock wait timeout exceeded", WAITED)
        return self._shared.run(operation, *args, **kwargs)

    def _call(self, operation: Callable[..., Any], make: Callable[[], Any]) -> Any:
        call = StoreCall(operation.__name__, make, self.process.world.now)
        return SimulatedThread.current().wait_for_answer(call)
