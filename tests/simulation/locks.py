"""Rows of running tasks that the open transaction of another session has locked.

SQLite has no row locks. Their effect on a server is simulated: statements that skip locked rows do not see these rows,
and a statement that would wait for one fails with a lock timeout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from peerd.domain.errors import RowLocked
from peerd.domain.task import Task
from peerd.store.maintenance import chore_batches, rescue
from peerd.store.outcomes import complete, recording, touch
from peerd.store.tasks import rows
from peerd.store.tasks.rows import lock_available, lock_tasks

WAITED: Final = 1.0
"""Seconds that an autocommit statement waits for a lock."""


@contextmanager
def rows_may_be_locked(locked: Callable[[], set[int]]) -> Iterator[None]:
    def free(connection: Any, ids: Iterable[int], *conditions: Any) -> list[int]:
        return [task_id for task_id in lock_available(connection, ids, *conditions) if task_id not in locked()]

    def tasks(connection: Any, ids: Iterable[int], *conditions: Any, skip_locked: bool = False) -> list[Task]:
        wanted = set(ids)
        if wanted & locked() and not skip_locked:
            raise RowLocked("lock wait timeout exceeded", WAITED)
        return lock_tasks(connection, wanted - locked(), *conditions)

    with ExitStack() as stack:
        for where in (rows, touch, complete):
            stack.enter_context(patch.object(where, "lock_available", free))
        for where in (recording, rescue, chore_batches):
            stack.enter_context(patch.object(where, "lock_tasks", tasks))
        yield
