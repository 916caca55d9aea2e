from __future__ import annotations

from typing import Any

import pytest

from peerd.domain.schedule import Schedule
from peerd.runtime.observability.events import ScheduleRunEnded
from peerd.testing import eventually_async
from tests.unit.schedules.conftest import schedule
from tests.unit.schedules.functions import CALLS, THREADS_MAY_END


async def test_an_exception_of_a_function_is_recorded_and_it_ticks_again(node: Any) -> None:
    words = {
        "fails": "OSError: no disk", "leaves": "SystemExit: 3", "leaves_in_a_thread": "SystemExit: 3",
        "cancels_itself": "CancelledError", "group": "BaseExceptionGroup",
        "missing": "ImportError: no module named 'missing'",
        "not_a_function": "NotAFunction: m:not_a_function is a int, not a function", "unprintable": "Unprintable",
    }  # fmt: skip
    fake = node(*(schedule(function, name=function) for function in words))
    fake.add_worker()
    await fake.clock.step()
    for name in words:
        fake.make_due(name)
    await fake.until(*["failed"] * len(words))
    for name in words:
        fake.make_due(name)
    for run in await fake.until(*["failed"] * 2 * len(words)):
        assert words[run.schedule] in (run.error or ""), run
        assert "Traceback" in (run.traceback or ""), run
    ended = [(event.schedule, event.status) for event in fake.emitted if isinstance(event, ScheduleRunEnded)]
    assert sorted(ended) == sorted((name, "failed") for name in words for _ in range(2))


async def test_a_run_that_takes_too_long_is_ended_or_reported(node: Any) -> None:
    functions = ("gated", "waits_until_canceled")
    fake = node(*(schedule(function, name=function, timeout=0.05) for function in functions))
    fake.add_worker()
    await fake.clock.step()
    for function in functions:
        fake.request(function)
    assert [run.error for run in await fake.until("timeout", "timeout")] == ["it took longer than 0.05 s"] * 2
    assert ("canceled",) in CALLS


@pytest.mark.parametrize("function, final_status", [("swallows", "done"), ("ignores_its_end", "timeout")])
async def test_who_ignores_its_timeout_is_replaced(node: Any, function: str, final_status: str) -> None:
    THREADS_MAY_END.clear()
    fake = node(schedule(function, timeout=0.05))
    fake.add_worker(timeout_grace=0.02)
    await fake.clock.step()
    fake.request()
    [run] = await fake.until("running")
    reason = await eventually_async(lambda: fake.stuck)
    assert reason == [f"schedule s (run {run.id}) did not return within 20ms after its timeout of 50ms"]
    assert [one.status for one in fake.runs()] == ["running"], "it counts as running while it runs"
    THREADS_MAY_END.set()
    await fake.until(final_status)


async def test_a_process_that_stops_has_its_runs_canceled_and_takes_no_others(node: Any) -> None:
    fake = node(schedule("gated"))
    process = fake.add_worker()
    await fake.clock.step()
    fake.request()
    await fake.until("running")
    await eventually_async(lambda: CALLS)
    await process.finish(0.0)
    await fake.until("canceled")
    fake.request()
    await fake.clock.step()
    await fake.until("canceled", "waiting", steps=False)


async def test_arguments_are_passed_through_and_a_plain_function_runs_in_a_thread(node: Any) -> None:
    named = Schedule(name="n", run="m:works", interval=60.0, args={"key": 1})
    fake = node(schedule(args=["a", {"b": [1]}]), named, schedule("plain", name="plain"))
    fake.add_worker()
    await fake.clock.step()
    for number, request in enumerate((("s",), ("n",), ("s", '["by hand"]'), ("plain",)), start=1):
        fake.request(*request)
        await fake.until(*["done"] * number)
    assert [call[3:] for call in CALLS[:3]] == [(("a", {"b": [1]}), {}), ((), {"key": 1}), (("by hand",), {})]
    assert CALLS[3] == (True,)
