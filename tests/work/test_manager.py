"""The manager on a real table: all chores, on several nodes at once; and when rescue is suspended."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from peerd import Status
from peerd.config.settings import ManagerSettings, QueueSettings
from peerd.domain.errors import DatabaseUnavailable
from peerd.manager import chores, service
from peerd.manager.chores import Chore
from peerd.manager.service import ManagerService
from peerd.runtime.observability.events import (
    ChoreRan,
    ComponentFailed,
    EventBus,
    NodesMarkedInactive,
    PinnedTasksBlocked,
    RescueSuspended,
    TasksRescued,
)
from peerd.runtime.process.link import Link
from peerd.shell import ProcessShell
from peerd.store.nodes import heartbeat
from peerd.store.outcomes import database_now
from peerd.store.schema.tables import nodes
from peerd.store.schema.types import seconds_from_now
from peerd.testing import eventually_async
from tests.work.harness import RunnerHarness

pytestmark = pytest.mark.every_database


def settings(**more: Any) -> ManagerSettings:
    periods: dict[str, Any] = {"every": 0.05, "max_update": 0.5, "inactive_after": 1.0}
    return ManagerSettings(**(periods | more))


async def send_heartbeats(harness: RunnerHarness, node: str) -> None:
    while True:
        with suppress(DatabaseUnavailable):
            await asyncio.to_thread(harness.database.run, heartbeat, node, harness.world.incarnation(node))
        await asyncio.sleep(0.1)


@asynccontextmanager
async def managing(
    harness: RunnerHarness, given: ManagerSettings, node: str = "a", queues: Mapping[str, QueueSettings] | None = None
) -> AsyncIterator[ManagerService]:
    """A manager that runs, on a node whose agent sends heartbeats."""
    harness.world.node(node)
    ours, theirs = socket.socketpair()
    manager = ManagerService(given, queues)
    shell = ProcessShell(manager, harness.database, EventBus(harness.events))
    with ours, theirs:
        await shell.start(Link(theirs, slot="manager", kind="manager", role="manager", node=node))
        running = asyncio.create_task(shell.run())
        heartbeats = asyncio.create_task(send_heartbeats(harness, node))
        try:
            yield manager
        finally:
            heartbeats.cancel()
            await shell.stop(5.0)
            await running


def held_by_a_dead_process(harness: RunnerHarness) -> int:
    """A task that no process touches."""
    task_id = harness.world.add(priority=99)
    harness.world.take_one()
    harness.world.silence(task_id, 60.0)
    return task_id


async def test_a_manager_queries_a_database_that_is_away_once_in_a_round(
    harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "LONGEST_PAUSE", 0.1)
    async with managing(harness, settings()):
        await eventually_async(lambda: harness.database.calls["_heartbeat_and_read_due"] > 2)
        with harness.database.away():
            await eventually_async(lambda: harness.database.calls["_heartbeat_and_read_due"] > 5)
            before = harness.database.calls.copy()
            await eventually_async(lambda: harness.database.calls["_heartbeat_and_read_due"] > 10)
            queries = harness.database.calls - before
        assert set(queries) <= {"_heartbeat_and_read_due", "heartbeat"}, "the other steps wait for its heartbeat"
        await rounds(harness, 1)


async def test_a_chore_that_has_more_to_do_continues_at_once_and_lets_the_others_have_their_turn(
    harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "CHORE_TIME_SLICE", 0.0)
    world, long_ago = harness.world, seconds_from_now(-7200.0)
    for _ in range(25):
        world.insert(status="done", finished_at=long_ago)
        world.insert(status="dead", finished_at=seconds_from_now(-999_999.0))
        world.insert(status="scheduled", start_at=long_ago)
    async with managing(harness, settings(every=20.0, batch=10)):
        await eventually_async(lambda: len(ran(harness)) >= 9)
    assert [name for name, _ in ran(harness)] == ["stage scheduled", "purge done", "purge dead"] * 3
    assert [count for _, count in ran(harness)] == [10] * 3 + [10] * 3 + [5] * 3


async def test_a_chore_of_an_hour_that_fails_is_repeated_soon_and_keeps_no_other_from_running(
    harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(connection: sa.Connection, batch: int) -> int:
        raise ValueError("one row of a million")

    fine = Chore("fine", lambda connection, batch: 1)
    monkeypatch.setattr(chores, "CHORES", [Chore("fails", fails, periods=100_000), fine])
    monkeypatch.setattr(service, "LONGEST_FAILED_PAUSE", 0.1)
    async with managing(harness, settings()):
        await eventually_async(lambda: len(harness.events.of(ComponentFailed)) > 2 and len(ran(harness)) > 2)
    assert {event.component for event in harness.events.of(ComponentFailed)} == {"chore fails"}
    harness.events.clear()


@pytest.mark.slow
async def test_endless_chores_do_not_keep_a_manager_from_its_heartbeat_and_the_rescue(
    harness: RunnerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endless(connection: sa.Connection, batch: int) -> int:
        time.sleep(0.03)
        return batch

    monkeypatch.setattr(chores, "CHORES", [Chore(f"endless {number}", endless) for number in range(12)])
    monkeypatch.setattr(service, "CHORE_TIME_SLICE", 0.1)
    frozen = held_by_a_dead_process(harness)
    async with managing(harness, settings(max_update=1.5)):
        await eventually_async(lambda: harness.world.status(frozen) is Status.FAILURE)
    assert len(harness.events.of(RescueSuspended)) == 1, "the rescue was suspended once, and heartbeats continued"


async def test_a_manager_purges_the_done_tasks_of_each_queue_by_its_history(each_harness: RunnerHarness) -> None:
    world = each_harness.world

    def ended(queue: str, ago: float) -> int:
        return world.insert(queue=queue, status="done", finished_at=seconds_from_now(-ago))

    gone = [ended("other", 7200.0), ended("short", 120.0), ended("long", 200_000.0)]
    kept = [ended("other", 120.0), ended("short", 1.0), ended("long", 7200.0)]
    queues = {"short": QueueSettings(history=60.0), "long": QueueSettings(history=86_400.0)}
    async with managing(each_harness, settings(every=0.01), queues=queues):
        await eventually_async(lambda: not any(map(world.find, gone)))
    assert all(map(world.find, kept))
    assert {name for name, _ in ran(each_harness)} == {"purge done", "purge done of short", "purge done of long"}


def ran(harness: RunnerHarness) -> list[tuple[str, int]]:
    return [(event.chore, event.count) for event in harness.events.of(ChoreRan)]


async def test_with_a_manager_on_each_of_three_nodes_everything_is_done_once(each_harness: RunnerHarness) -> None:
    world = each_harness.world
    frozen, scheduled = held_by_a_dead_process(each_harness), world.add(start_in=0.2)
    late = world.insert(finish_at=seconds_from_now(-1.0))
    silent_node(each_harness, "silent")
    async with AsyncExitStack() as afterwards:
        for node in "abc":
            await afterwards.enter_async_context(managing(each_harness, settings(), node))
        for task_id in (frozen, scheduled):
            await each_harness.until(task_id, Status.PENDING)
        await eventually_async(lambda: world.find(late) is None)
        await eventually_async(lambda: each_harness.of(NodesMarkedInactive))
    assert world.outcomes(frozen) == ["rescued"]
    assert world.get(frozen).attempts == 1
    assert len(each_harness.of(TasksRescued)) == 1
    assert [event.nodes for event in each_harness.of(NodesMarkedInactive)] == [("silent",)]
    assert each_harness.of(ComponentFailed) == []


async def test_a_node_does_not_rescue_before_it_has_sent_heartbeats_for_max_update(harness: RunnerHarness) -> None:
    frozen = held_by_a_dead_process(harness)
    async with managing(harness, settings(max_update=1.0)):
        await eventually_async(lambda: harness.of(RescueSuspended))
        assert harness.world.status(frozen) is Status.WORKING
        await harness.until(frozen, Status.PENDING)
    assert harness.world.take_one().id == frozen, "a failure is due at once after a crash, and runs again"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [("wait", (Status.PENDING, True)), ("move", (Status.PENDING, False)), ("fail", (Status.DEAD, True))],
    ids=["wait", "move", "fail"],
)
async def test_a_task_pinned_to_a_node_that_stays_silent_follows_the_policy(
    each_harness: RunnerHarness, policy: str, expected: tuple[Status, bool]
) -> None:
    world = each_harness.world
    own, gone = world.node("a"), silent_node(each_harness, "gone")
    task_id, other = world.add(node="gone"), world.add(node="a")
    async with managing(each_harness, settings(pinned_policy=policy, pinned_after=10.0)):
        await eventually_async(lambda: each_harness.of(NodesMarkedInactive))
        await rounds(each_harness, 1)
        await eventually_async(lambda: (world.status(task_id), world.get(task_id).node_id == gone) == expected)
        if policy == "wait":
            await eventually_async(lambda: [one.nodes for one in each_harness.of(PinnedTasksBlocked)] == [("gone",)])
    assert world.get(other).node_id == own


def silent_node(harness: RunnerHarness, name: str) -> int:
    """A node that was heard of a minute ago."""
    node = harness.world.node(name)
    long_ago = nodes.update().where(nodes.c.id == node).values(checked_at=seconds_from_now(-60.0))
    harness.database.run(lambda connection: connection.execute(long_ago).rowcount)
    return node


async def rounds(harness: RunnerHarness, number: int) -> None:
    """Wait for more than so many rounds of managers."""
    calls = harness.database.calls
    until = calls["_heartbeat_and_read_due"] + number
    await eventually_async(lambda: calls["_heartbeat_and_read_due"] > until)


async def test_after_an_outage_nodes_that_are_only_coming_back_are_not_called_silent(harness: RunnerHarness) -> None:
    harness.world.node("b")
    async with managing(harness, settings(inactive_after=0.5)):
        await eventually_async(lambda: harness.of(NodesMarkedInactive), message="b has no agent")
        harness.database.run(heartbeat, "b", harness.world.incarnation("b"))
        with harness.database.away() as outage:
            # Each attempt to reach a database that is away is one; so many take longer than a node may be silent.
            await rounds(harness, 12)
            outage.heal()
        await rounds(harness, 2)
        assert len(harness.of(NodesMarkedInactive)) == 1, "nothing is reported before its period is over"
        await eventually_async(
            lambda: len(harness.of(NodesMarkedInactive)) == 2, message="b stays silent, and that is seen then"
        )


async def test_a_rescue_that_is_held_up_takes_nothing_that_was_touched_before_it(harness: RunnerHarness) -> None:
    alive = harness.world.add()
    harness.world.take_one()
    frozen = harness.database.slow("rescue_untouched", seconds=1.0, times=1)  # as if the server were
    async with managing(harness, settings(max_update=0.5)):
        with harness.database.hold_reply("rescue_untouched") as reply:
            await eventually_async(lambda: frozen.hits)
            harness.world.silence(alive, 0.0)
            await eventually_async(lambda: reply.hits)
            assert harness.world.status(alive) is Status.WORKING


@pytest.mark.slow
async def test_a_round_comes_the_moment_a_task_falls_due_however_idle_the_table_is(each_harness: RunnerHarness) -> None:
    """What the next query finds, at most six seconds later, is started at the moment at which it is due."""
    given = settings(every=0.05, max_update=60.0, inactive_after=60.0)
    async with managing(each_harness, given):
        await eventually_async(lambda: each_harness.database.calls["_heartbeat_and_read_due"] >= 1)
        due = each_harness.world.add(start_in=8.0)
        started = each_harness.world.get(due).start_at
        await each_harness.until(due, Status.PENDING)
        late = each_harness.database.read(database_now) - (started or each_harness.database.read(database_now))
    assert late < timedelta(seconds=1)


async def test_an_idle_manager_queries_once_in_a_pause_and_runs_no_chore(harness: RunnerHarness) -> None:
    async with managing(harness, settings()):
        calls = harness.database.calls
        await eventually_async(lambda: calls["_heartbeat_and_read_due"] >= 5)
    assert not {name: calls[name] for name in ("stage_due", "postpone", "expire", "purge", "purge_keys") if calls[name]}
    assert not calls["rescue_untouched"]
