"""Claimers in processes of their own never share a task, on any database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy.engine import URL

from peerd.domain.lifecycle import Status
from peerd.domain.task import NewTask
from peerd.store import enqueue
from peerd.store.take.claimer import MUTEX_FROM_LIMIT
from peerd.store.tasks import pages
from tests.store.world import World

pytestmark = pytest.mark.every_database

LIMITS = (7, 7, MUTEX_FROM_LIMIT, MUTEX_FROM_LIMIT)
"""Of the claims of each process."""
TASKS = 2000


def start(world: World, node: str, url: URL | None = None, *, limit: int = 7) -> subprocess.Popen[str]:
    """Start a claimer; it begins when `claims_of` releases it."""
    claimer = world.claimer(node=node)
    address = (url or world.store.url).render_as_string(hide_password=False)
    identity = [str(claimer.node_id), claimer.incarnation, str(claimer.process_id)]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.claimer_process", address, *identity, str(limit)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def claims_of(processes: list[subprocess.Popen[str]]) -> list[tuple[int, int]]:
    """Release all claimers at once; returns the tasks that they claimed, and the leases."""
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        outputs = [process.communicate(timeout=90)[0].splitlines() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    pairs = [line.split() for output in outputs for line in output]
    return [(int(task_id), int(lease)) for task_id, lease in pairs]


def test_claimers_in_separate_processes_never_share_a_task(world: World) -> None:
    """Half of them make small claims that use no mutex, and half large ones that use it."""
    new = [NewTask(queue="qr"[n % 2], priority=n % 3) for n in range(TASKS)]
    ids = {one.id for one in world.run(enqueue.enqueue_many, new)}
    processes = [start(world, f"node-{number % 2}", limit=limit) for number, limit in enumerate(LIMITS)]
    claims = claims_of(processes)
    assert sorted(task_id for task_id, _ in claims) == sorted(ids)
    assert {lease for _, lease in claims} == {1}
    assert world.read(pages.count_tasks)[Status.DONE] == TASKS
    assert world.attempt_rows() == 0
