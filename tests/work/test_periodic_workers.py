"""Periodic workers: their states, their stop, and what their loops raise."""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from peerd import Worker
from peerd.config.settings import WorkSettings
from peerd.runtime.observability.events import ComponentFailed, Event, EventBus, PeriodicLoopEnded
from peerd.runtime.observability.log_messages import log_message_of
from peerd.shell import keep_heartbeat
from peerd.store.connection.outages import OutageTracker
from peerd.testing import eventually_async
from peerd.work.worker import WorkerExited, WorkerState
from tests.work.harness import RunnerHarness


class Steps(Worker):
    """Each round waits for the test."""

    sleep = 0.01

    def __init__(self) -> None:
        super().__init__()
        self.rounds, self.torn_down = 0, 0
        self.go_on = asyncio.Event()

    async def loop(self) -> None:
        self.rounds += 1
        await self.go_on.wait()

    async def teardown(self) -> None:
        self.torn_down += 1


def worker_of(loop: Callable[..., Any], teardown: Callable[..., Any] | None = None) -> Worker:
    """One with this loop, without a pause between its rounds."""
    methods = {"sleep": 0, "loop": loop} | ({"teardown": teardown} if teardown else {})
    made: Worker = type("Made", (Worker,), methods)()
    return made


async def a_round(_: Worker) -> None:
    await asyncio.sleep(0)


def state_of(worker: Worker) -> WorkerState:
    return worker.state


async def test_it_is_idle_between_rounds_at_work_in_one_and_stopped_before_and_after() -> None:
    worker = Steps()
    worker.settings = WorkSettings(sleep=0.2)
    assert state_of(worker) is WorkerState.STOP
    await worker.start()
    with pytest.raises(RuntimeError, match="was started already"):
        await worker.start()
    await eventually_async(lambda: state_of(worker) is WorkerState.WORK)
    worker.go_on.set()
    await eventually_async(lambda: state_of(worker) is WorkerState.IDLE)
    await eventually_async(lambda: worker.rounds >= 2)
    await worker.stop()
    assert (state_of(worker), worker.stopped.is_set(), worker.torn_down) == (WorkerState.STOP, True, 1)


async def test_it_stops_at_once_while_idle_or_not_started_and_after_the_round_while_at_work() -> None:
    never_started, idle, working = Steps(), Steps(), Steps()
    await never_started.stop()
    assert never_started.stopped.is_set()
    idle.settings = WorkSettings(sleep=3600.0)
    idle.go_on.set()
    await idle.start()
    await eventually_async(lambda: idle.rounds == 1 and state_of(idle) is WorkerState.IDLE)
    async with asyncio.timeout(60):
        await idle.stop()
    await working.start()
    await eventually_async(lambda: working.rounds == 1)
    stopping = asyncio.create_task(working.stop())
    await asyncio.sleep(0)
    assert not working.stopped.is_set()
    working.go_on.set()
    await stopping
    assert working.rounds == 1


async def test_a_teardown_that_has_begun_is_not_cut_short_by_a_second_signal() -> None:
    begun, may_end, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def tear_down_slowly(_: Worker) -> None:
        begun.set()
        await may_end.wait()
        ended.set()

    worker = worker_of(a_round, tear_down_slowly)
    await worker.start()
    stopping = asyncio.create_task(worker.stop())
    await asyncio.wait_for(begun.wait(), 10)
    hurrying = asyncio.create_task(worker.abandon())
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.wait_for(asyncio.gather(stopping, hurrying), 10)
    assert ended.is_set()
    await worker.ended()


async def test_an_exception_in_the_loop_is_reported_and_the_loop_continues() -> None:
    rounds, events = list[int](), list[Event]()

    async def fail(_: Worker) -> None:
        rounds.append(1)
        raise ValueError("boom")

    worker = worker_of(fail)
    worker.events = EventBus(events.append)
    await worker.start()
    await eventually_async(lambda: len(rounds) >= 3)
    await worker.stop()
    ended = [event for event in events if isinstance(event, PeriodicLoopEnded)]
    assert {event.error for event in ended} == {"ValueError: boom"}
    assert f'{__file__}", line ' in log_message_of(ended[0])[2]["exception"], "it shows the location"


async def test_a_plain_loop_runs_in_a_thread() -> None:
    threads: list[bool] = []
    worker = worker_of(lambda _: threads.append(threading.current_thread() is threading.main_thread()))
    await worker.start()
    await eventually_async(lambda: len(threads) >= 2)
    await worker.stop()
    assert set(threads) == {False}


async def test_it_can_leave_for_good_and_a_status_that_is_not_0_crashes_the_process() -> None:
    async def leave(_: Worker) -> None:
        sys.exit(code)

    def leave_in_a_thread(_: Worker) -> None:
        sys.exit(code)

    async def stop_itself(worker: Worker) -> None:
        await worker.stop()

    for loop, code in itertools.product((leave, leave_in_a_thread, stop_itself), (0, None, 3)):
        worker = worker_of(loop)
        await worker.start()
        async with asyncio.timeout(60):
            if code and loop is not stop_itself:
                with pytest.raises(WorkerExited, match=r"SystemExit\(3\)"):
                    await worker.ended()
            else:
                await worker.ended()
                assert state_of(worker) is WorkerState.STOP, (loop, code)


async def test_a_teardown_that_raises_is_reported_and_does_not_hang_the_stop() -> None:
    async def fail(_: Worker) -> None:
        raise ValueError("cannot close")

    worker = worker_of(a_round, fail)
    await worker.start()
    async with asyncio.timeout(10):
        await worker.stop()
    with pytest.raises(ValueError, match="cannot close"):
        await worker.ended()


async def test_a_heartbeat_that_fails_unexpectedly_is_reported_and_is_not_the_last(harness: RunnerHarness) -> None:
    process_id = harness.world.claimer().process_id
    events = EventBus(harness.events)
    outages = OutageTracker(events, asyncio.get_running_loop().time)
    harness.database.fail("heartbeat_process", error=RuntimeError("boom"))
    keep = keep_heartbeat(harness.database, process_id, outages, events, every=0.01)
    heartbeats = asyncio.create_task(keep)
    await eventually_async(lambda: harness.database.calls["heartbeat_process"] >= 3)
    assert [(event.component, event.error) for event in harness.of(ComponentFailed)] == [
        ("heartbeat", "RuntimeError: boom")
    ]
    heartbeats.cancel()
    await asyncio.wait([heartbeats])
