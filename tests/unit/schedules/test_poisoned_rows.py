"""Rows of schedules and runs that cannot be digested: the error is where an operator sees it, and the others go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from peerd.runtime.observability.events import ScheduleFailed
from peerd.schedules.scheduler import Scheduler
from peerd.store.schedules import list_schedule_rows
from peerd.testing import eventually_async
from tests.support.rows import rows
from tests.unit.schedules.conftest import FakeNode, schedule

LARGEST = 2**63 - 1
LAST, FIRST, ZERO = "9999-12-31 23:59:59.999", "0001-01-01 00:00:00.000", "0000-01-01 00:00:00.000"


@pytest.fixture
async def fake(node: Any) -> FakeNode:
    """A node with the schedule `bad`, whose rows are poisoned, and another one."""
    made: FakeNode = node(schedule(name="bad", jitter=2.0), schedule(name="good"))
    made.add_worker()
    await made.clock.step()
    return made


def write_by_hand(fake: FakeNode, sql: str, values: Mapping[str, Any]) -> None:
    with fake.database.engine.begin() as connection:
        connection.exec_driver_sql(sql, dict(values))


async def assert_the_other_one_ticks(fake: FakeNode) -> None:
    before = [run.id for run in fake.runs() if run.schedule == "good"]
    fake.make_due("good")
    for _ in range(3):
        await fake.clock.step()
    assert len([run.id for run in fake.runs() if run.schedule == "good"]) == len(before) + 1


@rows(
    "values",
    [
        {"next_at": LAST},
        {"next_at": ZERO},
        {"next_at": FIRST, "anchor_at": FIRST},
        {"anchor_at": LAST},
        {"anchor_at": None},
        {"fingerprint": ""},
        {"definition": "{"},
        {"type": "no type"},
        {"incarnation": "another"},
        {"turn": LARGEST},
        {"turn": "many"},
        {"disabled": "perhaps"},
    ],
)
async def test_whatever_a_schedule_has_in_its_row_the_others_tick(fake: FakeNode, values: Mapping[str, Any]) -> None:
    sets = ", ".join(f"{name} = :{name}" for name in values)
    write_by_hand(fake, f"UPDATE schedules SET {sets} WHERE name = 'bad' AND node_id = 0", values)
    await assert_the_other_one_ticks(fake)


@rows(
    "values, ends",
    [
        ({"args": '{"a":'}, "no JSON"),
        ({"args": ""}, "no JSON"),
        ({"args": "[" * 100_000}, "no JSON"),
        ({"args": b"\xff"}, "no JSON"),
        ({"status": "no status"}, "its status is 'no status', which no run can have"),
        ({"origin": "nowhere"}, None),
        ({"number": "many"}, None),
        ({"number": LARGEST}, None),
        ({"tick_at": LAST}, None),
        ({"tick_at": ZERO}, None),
        ({"created_at": LAST}, None),
        ({"created_at": ZERO}, None),
    ],
)
async def test_whatever_a_run_has_in_its_row_it_ends_and_the_others_run(
    fake: FakeNode, values: Mapping[str, Any], ends: str | None
) -> None:
    write_by_hand(fake, "DELETE FROM schedule_runs", {})
    row = {"schedule": "bad", **values}
    write_by_hand(
        fake, f"INSERT INTO schedule_runs ({', '.join(row)}) VALUES ({', '.join(f':{name}' for name in row)})", row
    )
    await assert_the_other_one_ticks(fake)

    async def find_end() -> str | None:
        [run] = [run for run in fake.runs() if run.schedule == "bad"]
        return None if run.is_open else str(run.error)

    error = await eventually_async(find_end)
    assert error is not None
    assert ends is None or ends in error


async def test_a_schedule_that_fails_at_each_poll_is_reported_once(
    fake: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = Scheduler._definition_matches

    async def fails(self: Scheduler, given: Any, row: Any) -> bool:
        if given.name == "bad":
            raise ValueError("it cannot be digested")
        return await original(self, given, row)

    monkeypatch.setattr(Scheduler, "_definition_matches", fails)
    for _ in range(3):
        await assert_the_other_one_ticks(fake)
    failed = [event for event in fake.emitted if isinstance(event, ScheduleFailed)]
    assert [(event.schedule, event.error) for event in failed] == [("bad", "ValueError: it cannot be digested")]
    monkeypatch.undo()
    await assert_the_other_one_ticks(fake)
    monkeypatch.setattr(Scheduler, "_definition_matches", fails)
    await assert_the_other_one_ticks(fake)
    assert len([event for event in fake.emitted if isinstance(event, ScheduleFailed)]) == 2, "it has worked meanwhile"
    [shown] = [row.error for row in fake.database.read(list_schedule_rows, "bad") if row.error]
    assert shown == "ValueError: it cannot be digested"
