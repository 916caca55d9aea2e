from __future__ import annotations

import asyncio
from typing import Any

import pytest

from peerd.domain.errors import InvalidSchedule
from peerd.domain.schedule import Schedule
from peerd.runtime.observability.events import ScheduleFailed, ScheduleRunEnded
from peerd.schedules import custom_triggers
from peerd.schedules.registry import ScheduleRegistry
from peerd.schedules.scheduler import Scheduler
from peerd.store import nodes
from peerd.store.schedule_runs import claim_run
from peerd.store.schedules import list_schedule_rows
from peerd.store.tasks import pages
from peerd.testing import eventually_async
from tests.unit.schedules import functions
from tests.unit.schedules.conftest import SILENCE, schedule
from tests.unit.schedules.functions import CALLS, THREADS_MAY_END


async def test_a_tick_of_the_cluster_is_run_by_one_node_and_a_worker_tick_by_each(node: Any) -> None:
    given = schedule(), schedule(name="each", type="worker")
    both = [node(*given, name=name) for name in ("a", "b")]
    for fake in both:
        fake.add_worker()
        fake.add_worker()
        await fake.clock.step()
    both[0].make_due()
    await asyncio.gather(*(fake.clock.step() for fake in both))
    [run] = await both[0].until("done")
    assert [("s", "clock", run.slot, (), {})] == CALLS
    both[0].make_due("each")
    for fake in both:
        await fake.clock.step()
    runs = await both[0].until("done", "done", "done")
    assert {one.node_id for one in runs[1:]} == {fake.identity.node_id for fake in both}


@pytest.mark.parametrize(
    "workers, others", [(("w",), {"other": "worker"}), (None, {"storage": "worker", "site": "web"})]
)
async def test_an_all_tick_is_run_by_every_process_of_its_kinds(
    node: Any, workers: tuple[str, ...] | None, others: dict[str, str]
) -> None:
    fake = node(schedule(type="all", workers=workers))
    processes = [fake.add_worker() for _ in range(3)]
    for kind, role in others.items():
        fake.add_worker(kind, role=role)
    await fake.clock.step()
    fake.make_due()
    runs = await fake.until("done", "done", "done")
    assert {run.slot for run in runs} == {process.slot for process in processes}
    assert len({run.tick_at for run in runs}) == 1


async def test_a_tick_waits_for_a_process_that_could_run_it_unless_it_enqueues_a_task(node: Any) -> None:
    fake = node(schedule(workers=("w",)), schedule(name="tasks", queue="q", task="t", body='{"a":1}'))
    fake.add_worker("other")
    await fake.clock.step()
    fake.make_due()
    await fake.until("waiting")
    fake.make_due("tasks")
    [_, run] = await fake.until("waiting", "enqueued")
    task = fake.database.read(pages.get_task, run.task_id)
    assert (task.queue, task.name, task.json) == ("q", "t", {"a": 1})
    fake.add_worker("w")
    await fake.until("done", "enqueued")


async def test_a_drained_node_leaves_the_ticks_of_the_cluster_to_others(node: Any) -> None:
    given = schedule()
    first, second = node(given, name="a"), node(given, name="b")
    for fake in (first, second):
        fake.add_worker()
        await fake.clock.step()
    first.database.run(nodes.set_draining, "a", draining=True)
    first.make_due()
    await first.clock.step()
    assert first.runs() == []
    [run] = await second.until("done")
    assert run.node_id == second.identity.node_id
    first.request()
    await first.until("done", "done")


async def test_a_queued_tick_runs_when_the_earlier_run_has_ended(node: Any, gate: asyncio.Event) -> None:
    fake = node(schedule("gated", overlap="queue"))
    fake.add_worker()
    await fake.clock.step()
    for statuses in (("running",), ("running", "waiting")):
        fake.make_due()
        await fake.until(*statuses)
    gate.set()
    await fake.until("done", "done")
    assert len(CALLS) == 2


async def test_a_node_that_ends_before_its_schedules_have_begun_has_nothing_to_stop(node: Any) -> None:
    fake = node(schedule())
    component = Scheduler(fake.registry, functions.find, incarnation=fake.identity.incarnation, silence=SILENCE)
    component.receive({"type": "death", "pid": 1, "cause": {"text": "killed by SIGKILL"}})
    await component.stop(1.0)
    assert fake.emitted == []


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
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("s", {"run": "no entry", "interval": 1}, "run: 'no entry' names no object"),
        ("s", {"run": "m:f", "intervall": 1}, "intervall: unknown key; did you mean 'interval'"),
        ("s", {"run": "m:f"}, "when does it tick"), ("x" * 200, {"run": "m:f", "interval": 1}, "name"),
    ]  # fmt: skip
    for name, keys, words in wrong:
        with pytest.raises(InvalidSchedule, match=words):
            registry.register(name, **keys)
    assert not list(registry)


async def test_a_run_whose_process_dies_or_cannot_run_schedules_is_recorded_as_such(node: Any) -> None:
    fake = node(schedule("gated"))
    process = fake.add_worker()
    await fake.clock.step()
    fake.request()
    [run] = await fake.until("running")
    assert run.pid == fake.kill_worker(process)
    [run] = await fake.until("died")
    assert run.error == "its process died: killed by SIGKILL"
    fake.add_worker(runs=False)
    fake.request()
    await fake.until("died", "refused")


async def test_a_run_that_reaches_no_process_is_given_to_another(node: Any) -> None:
    fake = node(schedule())
    gone = fake.add_worker()
    await fake.clock.step()
    fake.remove_worker(gone, announce=False)  # the exit has not been reported to the agent yet
    fake.request()
    await fake.clock.step()
    await fake.until("waiting", steps=False)
    fake.announce_processes()
    process = fake.add_worker()
    [run] = await fake.until("done")
    assert run.slot == process.slot


async def test_a_new_agent_repeats_nothing_and_receives_earlier_ends(node: Any, gate: asyncio.Event) -> None:
    fake = node(schedule("gated", immediate=True, type="worker"))
    fake.add_worker()
    await fake.until("running")
    await eventually_async(lambda: CALLS)
    fake.replace_agent()
    for _ in range(3):
        await fake.clock.step()
    gate.set()
    [run] = await fake.until("done")
    assert [(run.id,)] == CALLS


async def test_a_run_that_a_dead_agent_took_and_did_not_send_is_sent_by_the_next(node: Any) -> None:
    fake = node(schedule())
    await fake.clock.step()
    run = fake.request()
    process = fake.add_worker()
    [peer] = fake.agent.messenger.workers
    fake.database.run(claim_run, run, schedule(), fake.identity, [(process.slot, peer.pid)])
    fake.replace_agent()
    await fake.until("done")
    assert len(CALLS) == 1


async def test_a_type_of_the_users_lets_one_or_all_run_and_its_arguments_pass_through(node: Any) -> None:
    fake = node(Schedule(name="s", run="m:works", type="m:Twice", overlap="allow"))
    fake.add_worker()
    fake.add_worker()
    await fake.until("done", "done", "done")
    sent = {call for call in CALLS if call[0] in ("one", "all")}
    assert sent == {("one", True), ("all", True)}
    ran = sorted((call[1], str(call[3])) for call in CALLS if call[0] == "s")
    assert ran == [("custom", "('first', {'a': 1})"), ("custom all", "('all',)"), ("custom all", "('all',)")]


async def test_a_type_without_run_does_nothing_and_one_that_fails_is_restarted(
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


async def test_a_run_that_takes_too_long_is_ended(node: Any) -> None:
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
