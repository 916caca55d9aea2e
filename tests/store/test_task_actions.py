"""Actions of users on a task; the model holds what each does to a task in each status."""

from __future__ import annotations

from functools import partial

import pytest

from peerd.domain.errors import TaskNotFound
from peerd.store.tasks import actions
from tests.store.world import World


def test_a_task_that_no_database_can_have_is_not_found_by_any_action(world: World) -> None:
    move, bury = partial(actions.move, node=None), partial(actions.bury, order=17)
    for action in (actions.cancel, actions.retry, move, bury, actions.kick, actions.delete):
        for nowhere in (10**9, 0, -1, 2**64):
            with pytest.raises(TaskNotFound, match=str(nowhere)):
                world.run(action, nowhere)
