from __future__ import annotations

from typing import Any

import pytest

from peerd.domain.schedule import Schedule
from peerd.runtime.observability.events import ScheduleFailed
from peerd.schedules import custom_triggers
from peerd.store.schedules import list_schedule_rows
from tests.unit.schedules import functions
from tests.unit.schedules.fake_node import schedule
from tests.unit.schedules.functions import CALLS


async def test_a_type_of_the_users_lets_one_or_all_run_and_its_arguments_pass_through(node: Any) -> None:
    fake = node(Schedule(name="s", run="m:works", type="m:Twice", overlap="allow"))
    fake.add_worker()
    fake.add_worker()
    await fake.until("done", "done", "done")
    sent = {call for call in CALLS if call[0] in ("one", "all")}
    assert sent == {("one", True), ("all", True)}
    ran = sorted((call[1], str(call[3])) for call in CALLS if call[0] == "s")
    assert ran == [("custom", "('first', {'a': 1})"), ("custom all", "('all',)"), ("custom all", "('all',)")]


async def test_a_type_without_run_is_made_and_does_nothing_and_one_whose_run_fails_is_restarted(
    node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(custom_triggers, "FIRST_PAUSE", 0.01)
    inert = Schedule(name="inert", run="m:works", type="m:Inert", args=[1])
    fake = node(inert, Schedule(name="s", run="m:works", type="m:Falters"))
    await fake.clock.step()
    assert ("made", "inert", [1]) in CALLS
    fake.add_worker()
    [run] = await fake.until("done")
    assert (run.schedule, functions.Falters.times) == ("s", 2)
    assert [event.error for event in fake.emitted if isinstance(event, ScheduleFailed)] == ["RuntimeError: at first"]


async def test_a_type_that_cannot_be_made_is_reported_and_the_others_run(node: Any) -> None:
    broken = Schedule(name="broken", run="m:works", type="m:Broken")
    absent = Schedule(name="absent", run="m:works", type="m:missing")
    fake = node(broken, absent, schedule())
    fake.add_worker()
    await fake.clock.step()
    errors = {clock.name: clock.error for clock in fake.database.read(list_schedule_rows) if clock.error}
    assert errors == {
        "broken": "BadScheduleType: type m:Broken: cannot be made: RuntimeError: no such disk",
        "absent": "ImportError: no module named 'missing'",
    }
    assert {event.schedule for event in fake.emitted if isinstance(event, ScheduleFailed)} == {"broken", "absent"}
    fake.make_due()
    await fake.until("done")
