"""The rules of processes catch what they are there for: the living taken for dead, and poison among others."""

from __future__ import annotations

from tests.faults.history_builder import Script, caught


def test_a_rescue_from_a_living_process_is_caught(script: Script) -> None:
    task = script.task("long")
    script.start(task)
    touched = script.now
    script.now += 10
    script.write(task, "rescued", error="its process died", checked_at=touched)
    script.arrive(task)
    script.succeed(task, process=2)
    caught(script, "rescue", "6.0 s without trouble")


def test_a_rescue_long_after_an_outage_is_caught(script: Script) -> None:
    task = script.task("long")
    script.start(task)
    touched = script.now
    script.tell("fault", kind="kill server", target="server", effect="cut", everyone=True, lingers=1.0)
    script.now += 2
    script.tell("healed", kind="kill server", target="server")
    script.now += 6
    script.write(task, "rescued", error="its process died", checked_at=touched)
    script.arrive(task)
    script.succeed(task, process=2)
    caught(script, "rescue", "without trouble")


def test_a_rescue_too_early_is_caught(script: Script) -> None:
    task = script.task("long")
    script.start(task)
    script.kill(1)
    script.now += 8
    script.write(task, "rescued", error="its process died", checked_at=script.now - 3)
    script.arrive(task)
    script.succeed(task, process=2)
    caught(script, "rescue", "after its last touch")


def test_a_crash_of_a_process_that_nothing_has_hurt_is_caught(script: Script) -> None:
    task = script.task("long")
    script.start(task)
    script.write(task, "crash", error="its process died")
    script.arrive(task)
    script.succeed(task, process=2)
    caught(script, "crash", "nothing has hurt its process")


def test_a_process_that_goes_on_after_its_tasks_were_taken_back_is_caught(script: Script) -> None:
    task, other = script.task("long"), script.task("long")
    for one in (task, other):
        script.start(one)
    script.tell("fault", kind="kill master", target="two/master", effect="dead", pids=(9,))
    script.write(task, "crash", error="its process died")
    script.arrive(task)
    script.now += 1
    script.end(other)
    script.complete(other)
    script.succeed(task, process=2)
    caught(script, "crash", "its process 1 went on")


def test_a_task_that_crashed_a_process_and_runs_beside_others_is_caught(script: Script) -> None:
    task, other = script.task("long"), script.task("long")
    script.start(task)
    script.kill(1)
    script.write(task, "crash", error="its process died")
    script.arrive(task)
    script.start(other, process=2)
    script.succeed(task, process=2)
    script.end(other)
    script.complete(other)
    caught(script, "poison", f"in process 2 beside {other}")
