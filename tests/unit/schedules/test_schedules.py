"""A node's schedules from the clock to the function and back, in one event loop, on a real database."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from peerd.domain.errors import InvalidSchedule
from peerd.domain.schedule import Schedule
from peerd.runtime.events import ScheduleFailed, ScheduleRunEnded
from peerd.schedules import custom
from peerd.schedules.book import Book
from peerd.store import nodes, read
from peerd.store.database import Database
from peerd.store.migrate import migrate
from peerd.store.schedule_runs import take
from peerd.store.schedules import list_clocks
from peerd.testing import eventually_async
from tests.unit.schedules import functions
from tests.unit.schedules.functions import CALLS, GATES, THREADS_MAY_END
from tests.unit.schedules.wire import Wire


@pytest.fixture(scope="module")
def empty_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with tables: making them takes longer than most of these tests."""
    file = tmp_path_factory.mktemp("schedules") / "empty.sqlite"
    database = Database(f"sqlite:///{file}")
    migrate(database)
    database.close()
    return file


@pytest.fixture
def database(tmp_path: Path, empty_file: Path) -> Iterator[Database]:
    database = Database(f"sqlite:///{shutil.copy(empty_file, tmp_path)}")
    yield database
    database.close()


@pytest.fixture(autouse=True)
async def gate() -> AsyncIterator[asyncio.Event]:
    CALLS.clear()
    functions.Falters.times = 0
    GATES["gate"] = asyncio.Event()
    yield GATES["gate"]
    GATES["gate"].set()


@pytest.fixture
async def wires() -> AsyncIterator[list[Wire]]:
    made: list[Wire] = []
    yield made
    for wire in made:
        await wire.stop()


@pytest.fixture
def node(database: Database, wires: list[Wire]) -> Any:
    """Make a node that has schedules."""

    def make(*given: Schedule, name: str = "a") -> Wire:
        wires.append(Wire(database, *given, name=name))
        return wires[-1]

    return make


def schedule(function: str = "works", **given: Any) -> Schedule:
    when = {} if {"interval", "cron", "immediate"} & set(given) else {"interval": 3600.0}
    what = {} if "queue" in given else {"run": f"m:{function}"}
    return Schedule(**{"name": "s", **what, **when, **given})


# ---------------------------------------------------------------- types


async def test_a_tick_of_the_cluster_is_run_by_one_process_of_one_node(node: Any) -> None:
    given = schedule()
    first, second = node(given, name="a"), node(given, name="b")
    for wire in (first, second):
        wire.add_worker()
        wire.add_worker()
        await wire.clock.step()
    first.let_be_due()
    await asyncio.gather(first.clock.step(), second.clock.step())
    [run] = await first.until("done")
    assert len(CALLS) == 1
    assert CALLS[0] == ("s", "clock", run.slot, (), {})


async def test_a_worker_tick_is_run_by_one_process_of_each_node(node: Any) -> None:
    given = schedule(type="worker")
    both = [node(given, name=name) for name in ("a", "b")]
    for wire in both:
        wire.add_worker()
        wire.add_worker()
        await wire.clock.step()
    both[0].let_be_due()
    for wire in both:
        await wire.clock.step()
    runs = await both[0].until("done", "done")
    assert {run.node_id for run in runs} == {wire.here.node_id for wire in both}


async def test_an_all_tick_is_run_by_every_process_of_its_kinds(node: Any) -> None:
    wire = node(schedule(type="all", workers=("w",)))
    processes = [wire.add_worker() for _ in range(3)]
    wire.add_worker("other")
    await wire.clock.step()
    wire.let_be_due()
    runs = await wire.until("done", "done", "done")
    assert {run.slot for run in runs} == {process.slot for process in processes}
    assert len({run.tick_at for run in runs}) == 1


async def test_a_tick_waits_for_a_process_that_could_run_it(node: Any) -> None:
    wire = node(schedule(workers=("w",)))
    wire.add_worker("other")
    await wire.clock.step()
    wire.let_be_due()
    await wire.until("waiting")
    wire.add_worker("w")
    await wire.until("done")


async def test_a_schedule_may_enqueue_a_task(node: Any) -> None:
    wire = node(schedule(queue="q", task="t", body='{"a":1}'))
    await wire.clock.step()
    wire.let_be_due()
    [run] = await wire.until("enqueued")
    task = wire.database.read(read.get_task, run.task_id)
    assert (task.queue, task.name, task.json) == ("q", "t", {"a": 1})


async def test_a_drained_node_leaves_the_ticks_of_the_cluster_to_others(node: Any) -> None:
    given = schedule()
    first, second = node(given, name="a"), node(given, name="b")
    for wire in (first, second):
        wire.add_worker()
        await wire.clock.step()
    first.database.run(nodes.set_draining, "a", draining=True)
    first.let_be_due()
    await first.clock.step()
    assert first.runs() == []
    [run] = await second.until("done")
    assert run.node_id == second.here.node_id
    first.request()
    await first.until("done", "done")


# ---------------------------------------------------------------- functions


@pytest.mark.parametrize(
    "function, words",
    [
        ("fails", "OSError: no disk"),
        ("leaves", "SystemExit: 3"),
        ("leaves_in_a_thread", "SystemExit: 3"),
        ("cancels_itself", "CancelledError"),
        ("group", "BaseExceptionGroup"),
        ("missing", "ImportError: no module named 'missing'"),
        ("not_a_function", "NotAFunction: m:not_a_function is a int, not a function"),
        ("unprintable", "Unprintable"),
    ],
)
async def test_what_a_function_raises_is_on_record_and_it_ticks_again(node: Any, function: str, words: str) -> None:
    wire = node(schedule(function))
    wire.add_worker()
    await wire.clock.step()
    wire.let_be_due()
    [run] = await wire.until("failed")
    assert words in (run.error or "")
    assert "Traceback" in (run.traceback or "")
    [ended] = [fact for fact in wire.facts if isinstance(fact, ScheduleRunEnded)]
    assert ended.status == "failed"
    wire.let_be_due()
    await wire.until("failed", "failed")


async def test_a_plain_function_runs_in_a_thread_and_needs_no_context(node: Any) -> None:
    wire = node(schedule("plain"))
    wire.add_worker()
    await wire.clock.step()
    wire.request()
    await wire.until("done")
    assert CALLS == [(True,)]


@pytest.mark.parametrize("function", ["gated", "waits_until_told"])
async def test_what_takes_too_long_is_ended_or_told(node: Any, function: str) -> None:
    wire = node(schedule(function, timeout=0.05))
    wire.add_worker()
    await wire.clock.step()
    wire.request()
    [run] = await wire.until("timeout")
    assert run.error == "it took longer than 0.05 s"
    if function == "waits_until_told":
        assert CALLS == [("told",)]


@pytest.mark.parametrize(("function", "in_the_end"), [("swallows", "done"), ("deaf", "timeout")])
async def test_what_does_not_return_after_its_timeout_is_to_end_with_its_process(
    node: Any, function: str, in_the_end: str
) -> None:
    THREADS_MAY_END.clear()
    wire = node(schedule(function, timeout=0.05))
    wire.add_worker(timeout_grace=0.02)
    await wire.clock.step()
    wire.request()
    [run] = await wire.until("running")
    reason = await eventually_async(lambda: wire.stuck)
    assert reason == [f"schedule s (run {run.id}) did not return within 20ms after its timeout of 50ms"]
    assert [one.status for one in wire.runs()] == ["running"], "it counts as running while it runs"
    THREADS_MAY_END.set()
    await wire.until(in_the_end)


async def test_a_process_that_stops_has_its_runs_canceled_and_takes_no_others(node: Any) -> None:
    wire = node(schedule("gated"))
    process = wire.add_worker()
    await wire.clock.step()
    wire.request()
    await wire.until("running")
    await eventually_async(lambda: CALLS)
    await process.finish(0.0)
    await wire.until("canceled")
    wire.request()
    await wire.clock.step()
    await wire.until("canceled", "waiting", steps=False)


async def test_arguments_are_passed_through(node: Any) -> None:
    wire = node(schedule(args=["a", {"b": [1]}]), Schedule(name="n", run="m:works", interval=60.0, args={"key": 1}))
    wire.add_worker()
    await wire.clock.step()
    wire.request()
    await wire.until("done")
    wire.request("n")
    await wire.until("done", "done")
    wire.request("s", '["by hand"]')
    await wire.until("done", "done", "done")
    assert [call[3:] for call in CALLS] == [(("a", {"b": [1]}), {}), ((), {"key": 1}), (("by hand",), {})]


# ---------------------------------------------------------------- deaths


async def test_a_run_whose_process_dies_is_on_record_as_that(node: Any) -> None:
    wire = node(schedule("gated"))
    process = wire.add_worker()
    await wire.clock.step()
    wire.request()
    [run] = await wire.until("running")
    assert run.pid == wire.kill_worker(process)
    [run] = await wire.until("died")
    assert run.error == "its process died: killed by SIGKILL"


async def test_a_run_that_reaches_no_process_is_given_to_another(node: Any) -> None:
    wire = node(schedule())
    gone = wire.add_worker()
    await wire.clock.step()
    wire.lose_worker(gone, tell=False)  # the agent has not heard of it yet
    wire.request()
    await wire.clock.step()
    await wire.until("waiting", steps=False)
    wire.tell_processes()
    process = wire.add_worker()
    [run] = await wire.until("done")
    assert run.slot == process.slot


async def test_a_process_that_cannot_run_schedules_says_so(node: Any) -> None:
    wire = node(schedule())
    wire.add_worker(runs=False)
    await wire.clock.step()
    wire.request()
    await wire.until("refused")


async def test_a_new_agent_repeats_nothing_and_hears_of_what_the_earlier_one_has_begun(
    node: Any, gate: asyncio.Event
) -> None:
    wire = node(schedule("gated", immediate=True, type="worker"))
    wire.add_worker()
    await wire.until("running")
    await eventually_async(lambda: CALLS)
    wire.replace_agent()
    for _ in range(3):
        await wire.clock.step()
    gate.set()
    [run] = await wire.until("done")
    assert [(run.id,)] == CALLS


async def test_a_run_that_an_agent_took_and_did_not_live_to_send_is_sent_by_the_next(node: Any) -> None:
    wire = node(schedule())
    await wire.clock.step()
    run = wire.request()
    process = wire.add_worker()
    [peer] = wire.agent.messenger.workers
    wire.database.run(take, run, schedule(), wire.here, [(process.slot, peer.pid)])
    wire.replace_agent()
    await wire.until("done")
    assert len(CALLS) == 1


# ---------------------------------------------------------------- overlap, switches, changes


async def test_a_queued_tick_runs_when_the_earlier_run_has_ended(node: Any, gate: asyncio.Event) -> None:
    wire = node(schedule("gated", overlap="queue"))
    wire.add_worker()
    await wire.clock.step()
    wire.let_be_due()
    await wire.until("running")
    wire.let_be_due()
    await wire.until("running", "waiting")
    gate.set()
    await wire.until("done", "done")
    assert len(CALLS) == 2


async def test_a_disabled_schedule_does_not_tick_and_may_be_run_by_hand(node: Any) -> None:
    wire = node(schedule())
    wire.add_worker()
    await wire.clock.step()
    wire.disable()
    wire.let_be_due()
    await wire.clock.step()
    assert wire.runs() == []
    wire.request()
    [run] = await wire.until("done")
    assert run.origin == "hand"
    wire.disable(disabled=False)
    await wire.clock.step()
    assert len(wire.runs()) == 1, "what has passed is not made up for"
    wire.let_be_due()
    await wire.until("done", "done")


async def test_what_is_off_in_the_configuration_may_be_run_by_hand(node: Any) -> None:
    wire = node(schedule(enabled=False, immediate=True))
    wire.add_worker()
    await wire.clock.step()
    wire.let_be_due()
    await wire.clock.step()
    assert wire.runs() == []
    wire.request()
    await wire.until("done")


async def test_an_unknown_schedule_of_the_table_is_left_alone(node: Any) -> None:
    wire = node(schedule())
    wire.add_worker()
    wire.request("another")
    await wire.clock.step()
    assert wire.statuses() == ["waiting"]
    wire.request()
    await wire.until("waiting", "done")


async def test_schedules_are_registered_and_unregistered_at_run_time(node: Any) -> None:
    wire = node()
    wire.add_worker()
    wire.start()
    wire.book.register("s", run="m:works", immediate=True, interval="1h")
    await wire.until("done")
    wire.book.unregister("s")
    await eventually_async(lambda: [c.node_id for c in wire.database.read(list_clocks)] == [0])
    wire.request()
    wire.book.register("t", run="m:works", interval="1h")
    await eventually_async(lambda: len(wire.database.read(list_clocks)) == 3)
    assert wire.statuses() == ["done", "waiting"]


def test_what_is_registered_is_checked_as_the_configuration_is() -> None:
    book = Book([])
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"run": "no entry", "interval": 1}, "run: 'no entry' names no object"),
        ({"run": "m:f", "interval": "soon"}, "interval: 'soon' is not a duration"),
        ({"run": "m:f", "intervall": 1}, "intervall: there is no such key; there are run"),
        ({"run": "m:f"}, "when does it tick"),
    ]
    for keys, words in wrong:
        with pytest.raises(InvalidSchedule, match=words):
            book.register("s", **keys)
    with pytest.raises(InvalidSchedule, match="name"):
        book.register("x" * 200, run="m:f", interval=1)
    assert len(book) == 0


async def test_the_clock_ticks_by_itself_and_keeps_its_time(node: Any) -> None:
    wire = node(schedule(interval=0.2))
    wire.add_worker()
    wire.start()
    await eventually_async(lambda: len(wire.runs()) >= 4)
    anchor = wire.database.read(list_clocks)[0].anchor_at
    assert anchor is not None
    late = [(run.created_at - run.tick_at).total_seconds() for run in wire.runs()]
    assert min(late) >= 0
    assert {round((run.tick_at - anchor).total_seconds() * 1000) % 200 for run in wire.runs()} == {0}
    await wire.stop()
    count = len(wire.runs())
    wire.let_be_due()
    await asyncio.sleep(0)
    assert len(wire.runs()) == count


# ---------------------------------------------------------------- types of the user


async def test_a_type_of_the_users_lets_one_or_all_run_and_its_arguments_pass_through(node: Any) -> None:
    wire = node(Schedule(name="s", run="m:works", type="m:Twice", overlap="allow"))
    wire.add_worker()
    wire.add_worker()
    await wire.until("done", "done", "done")
    sent = {call for call in CALLS if call[0] in ("one", "all")}
    assert sent == {("one", True), ("all", True)}
    ran = sorted((call[1], str(call[3])) for call in CALLS if call[0] == "s")
    assert ran == [("custom", "('first', {'a': 1})"), ("custom all", "('all',)"), ("custom all", "('all',)")]


async def test_a_type_without_run_is_made_and_does_nothing(node: Any) -> None:
    wire = node(Schedule(name="s", run="m:works", type="m:Inert", args=[1]))
    await wire.clock.step()
    assert CALLS == [("made", "s", [1])]
    assert wire.runs() == []


async def test_a_type_that_cannot_be_made_is_told_and_disturbs_no_other(node: Any) -> None:
    broken = Schedule(name="broken", run="m:works", type="m:Broken")
    absent = Schedule(name="absent", run="m:works", type="m:missing")
    wire = node(broken, absent, schedule())
    wire.add_worker()
    await wire.clock.step()
    errors = {clock.name: clock.error for clock in wire.database.read(list_clocks) if clock.error}
    assert errors == {
        "broken": "BadScheduleType: type m:Broken: cannot be made: RuntimeError: no such disk",
        "absent": "ImportError: no module named 'missing'",
    }
    assert {fact.schedule for fact in wire.facts if isinstance(fact, ScheduleFailed)} == {"broken", "absent"}
    wire.let_be_due()
    await wire.until("done")


async def test_a_type_whose_run_fails_is_begun_again(node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(custom, "FIRST_PAUSE", 0.01)
    wire = node(Schedule(name="s", run="m:works", type="m:Falters"))
    wire.add_worker()
    await wire.until("done")
    assert functions.Falters.times == 2
    assert [fact.error for fact in wire.facts if isinstance(fact, ScheduleFailed)] == ["RuntimeError: at first"]
