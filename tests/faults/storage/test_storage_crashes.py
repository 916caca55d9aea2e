"""A process of a node is killed at each step that it does on a disk; the next one goes on, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.faults.storage import scenarios
from tests.faults.storage.crash_process import CrashProcess
from tests.storage.nodes import StorageCluster

QUICK = "a small copy is made by the next try"
KILLS = {
    "a put leaves the file that was there": scenarios.kill_puts,
    "a put in parts goes on, or leaves the file that was there": scenarios.kill_uploads,
    QUICK: partial(scenarios.kill_copies, size=scenarios.SMALL),
    "a large copy is made by the next try": partial(scenarios.kill_copies, size=scenarios.LARGE),
    "a removal is ended by the next try": scenarios.kill_removals,
    "a verification hides no damage": scenarios.kill_verifications,
}
INTERRUPTIONS = {
    "a removal that stood still removes no copy that was made anew": scenarios.remove_late,
    "a durable put that is refused leaves nothing": scenarios.refuse_a_durable_put,
    "a put that is cancelled while it is published is published whole": scenarios.cancel_a_put,
    "tasks for a disk that was declared lost end": scenarios.lose_a_disk_with_tasks,
}


@pytest.mark.parametrize(
    "kill",
    [pytest.param(kill, id=name, marks=[] if name == QUICK else [pytest.mark.slow]) for name, kill in KILLS.items()],
)
def test_whatever_is_killed_at_a_step_nothing_is_lost(
    cluster: StorageCluster, crash: CrashProcess, kill: Callable[[StorageCluster, CrashProcess], list[str]]
) -> None:
    assert kill(cluster, crash) == []


@pytest.mark.slow
@pytest.mark.parametrize("interrupt", INTERRUPTIONS.values(), ids=INTERRUPTIONS)
def test_whatever_is_interrupted_nothing_is_lost(
    cluster: StorageCluster, interrupt: Callable[[StorageCluster], list[str]]
) -> None:
    assert interrupt(cluster) == []
