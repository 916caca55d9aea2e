from __future__ import annotations

import asyncio
from typing import Any

import pytest

from peerd.domain.errors import InvalidSchedule
from peerd.schedules.registry import ScheduleRegistry
from peerd.store.schedules import list_schedule_rows
from peerd.testing import eventually_async
from tests.unit.schedules.fake_node import schedule
from tests.unit.schedules.functions import CALLS


async def test_a_queued_tick_runs_when_the_earlier_run_has_ended(node: Any, gate: asyncio.Event) -> None:
    fake = node(schedule("gated", overlap="queue"))
    fake.add_worker()
    await fake.clock.step()
    fake.make_due()
    await fake.until("running")
    fake.make_due()
    await fake.until("running", "waiting")
    gate.set()
    await fake.until("done", "done")
    assert len(CALLS) == 2


async def test_a_disabled_schedule_does_not_tick_and_may_be_run_by_hand(node: Any) -> None:
    fake = node(schedule(), schedule(name="off", enabled=False, immediate=True))
    fake.add_worker()
    await fake.clock.step()
    fake.disable()
    for name in ("s", "off"):
        fake.make_due(name)
    await fake.clock.step()
    assert fake.runs() == []
    for name in ("s", "off"):
        fake.request(name)
    assert [run.origin for run in await fake.until("done", "done")] == ["hand", "hand"]
    fake.disable(disabled=False)
    await fake.clock.step()
    assert len(fake.runs()) == 2, "what has passed is not made up for"
    fake.make_due()
    await fake.until("done", "done", "done")


async def test_schedules_are_registered_and_unregistered_at_run_time(node: Any) -> None:
    fake = node()
    fake.add_worker()
    fake.start()
    fake.registry.register("s", run="m:works", immediate=True, interval="1h")
    await fake.until("done")
    fake.registry.unregister("s")
    await eventually_async(lambda: [c.node_id for c in fake.database.read(list_schedule_rows)] == [0])
    fake.request()
    fake.registry.register("t", run="m:works", interval="1h")
    await eventually_async(lambda: len(fake.database.read(list_schedule_rows)) == 3)
    assert fake.statuses() == ["done", "waiting"]


def test_what_is_registered_is_checked_as_the_configuration_is() -> None:
    registry = ScheduleRegistry([])
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"run": "no entry", "interval": 1}, "run: 'no entry' names no object"),
        ({"run": "m:f", "interval": "soon"}, "interval: 'soon' is not a duration"),
        ({"run": "m:f", "intervall": 1}, "intervall: there is no such key; there are run"),
        ({"run": "m:f"}, "when does it tick"),
    ]
    for keys, words in wrong:
        with pytest.raises(InvalidSchedule, match=words):
            registry.register("s", **keys)
    with pytest.raises(InvalidSchedule, match="name"):
        registry.register("x" * 200, run="m:f", interval=1)
    assert not list(registry)
