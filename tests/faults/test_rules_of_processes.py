"""The rules of processes catch what they are there for: the living taken for dead, and poison among others."""

from __future__ import annotations

from tests.faults.history_builder import HistoryBuilder, assert_violation


def test_a_rescue_from_a_living_process_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("long")
    history_builder.start(task)
    touched = history_builder.now
    history_builder.now += 10
    history_builder.write(task, "rescued", error="its process died", checked_at=touched)
    history_builder.stage_due(task)
    history_builder.succeed(task, process=2)
    assert_violation(history_builder, "rescue", "6.0 s without trouble")


def test_a_rescue_long_after_an_outage_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("long")
    history_builder.start(task)
    touched = history_builder.now
    history_builder.add_event("fault", kind="kill server", target="server", effect="cut", everyone=True, lingers=1.0)
    history_builder.now += 2
    history_builder.add_event("healed", kind="kill server", target="server")
    history_builder.now += 6
    history_builder.write(task, "rescued", error="its process died", checked_at=touched)
    history_builder.stage_due(task)
    history_builder.succeed(task, process=2)
    assert_violation(history_builder, "rescue", "without trouble")


def test_a_rescue_too_early_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("long")
    history_builder.start(task)
    history_builder.kill(1)
    history_builder.now += 8
    history_builder.write(task, "rescued", error="its process died", checked_at=history_builder.now - 3)
    history_builder.stage_due(task)
    history_builder.succeed(task, process=2)
    assert_violation(history_builder, "rescue", "after its last touch")


def test_a_crash_of_a_process_that_nothing_has_hurt_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("long")
    history_builder.start(task)
    history_builder.write(task, "crash", error="its process died")
    history_builder.stage_due(task)
    history_builder.succeed(task, process=2)
    assert_violation(history_builder, "crash", "nothing has hurt its process")


def test_a_process_that_continues_after_its_tasks_were_taken_back_is_caught(history_builder: HistoryBuilder) -> None:
    task, other = history_builder.task("long"), history_builder.task("long")
    for one in (task, other):
        history_builder.start(one)
    history_builder.add_event("fault", kind="kill master", target="two/master", effect="dead", pids=(9,))
    history_builder.write(task, "crash", error="its process died")
    history_builder.stage_due(task)
    history_builder.now += 1
    history_builder.end(other)
    history_builder.complete(other)
    history_builder.succeed(task, process=2)
    assert_violation(history_builder, "crash", "its process 1 went on")


def test_a_task_that_crashed_a_process_and_runs_beside_others_is_caught(history_builder: HistoryBuilder) -> None:
    task, other = history_builder.task("long"), history_builder.task("long")
    history_builder.start(task)
    history_builder.kill(1)
    history_builder.write(task, "crash", error="its process died")
    history_builder.stage_due(task)
    history_builder.start(other, process=2)
    history_builder.succeed(task, process=2)
    history_builder.end(other)
    history_builder.complete(other)
    assert_violation(history_builder, "poison", f"in process 2 beside {other}")
