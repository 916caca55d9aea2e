"""The rules of tasks catch what they are there for: tasks lost, written twice, or changed as they may not be."""

from __future__ import annotations

import pytest

from tests.faults.history_builder import Script, caught

# -------------------------------------------------------------------- lost


def test_an_acknowledged_task_that_was_never_in_the_table_is_lost(script: Script) -> None:
    script.succeed(script.task())
    script.tell("enqueued", task=99, queue="work", name="short", key="99")
    caught(script, "lost", "never in the table")


def test_a_task_that_has_not_ended_is_lost(script: Script) -> None:
    script.claim(script.task())
    caught(script, "lost", "it is working")


def test_a_task_that_ends_as_it_should_not_is_lost(script: Script) -> None:
    task = script.task()
    script.start(task)
    script.end(task, "failure")
    script.write(task, "dead")
    caught(script, "lost", "ends as done, and this one is dead")


def test_a_row_that_nobody_deleted_and_that_is_gone_is_lost(script: Script) -> None:
    task = script.task()
    script.succeed(task)
    del script.rows[task]
    caught(script, "lost", "its row is gone")


@pytest.mark.parametrize("status", ["pending", "done"])
def test_a_task_that_no_rule_deletes_is_lost(script: Script, status: str) -> None:
    task = script.task()
    if status == "done":
        script.succeed(task)
    script.delete(task)
    caught(script, "lost", f"deleted while it was {status}")


# -------------------------------------------------------------------- keys, transactions


def test_a_key_that_is_written_twice_is_caught(script: Script) -> None:
    for _ in range(2):
        script.succeed(script.task(key="same"))
    caught(script, "keys", "written 2 times")


def test_a_task_that_nobody_has_enqueued_is_caught(script: Script) -> None:
    script.succeed(script.task())
    script.events = [event for event in script.events if event.event != "enqueued"]
    caught(script, "keys", "nobody has enqueued")


def test_an_answer_that_names_another_task_is_caught(script: Script) -> None:
    one, two = script.task(), script.task()
    for task in (one, two):
        script.succeed(task)
    first = next(event for event in script.events if event.task == one)
    first.task = two
    caught(script, "keys", "was acknowledged for the key 1")


def test_business_data_without_their_task_are_caught(script: Script) -> None:
    task = script.task("parent")
    script.succeed(task)
    script.ledger.append((task, "1/1/0"))
    caught(script, "transaction", "no task has that key")


def test_a_child_without_its_business_data_is_caught(script: Script) -> None:
    script.succeed(script.task("parent"))
    script.succeed(script.task(key="1/1/0"))
    caught(script, "transaction", "the ledger does not know")


# -------------------------------------------------------------------- lifecycle, leases


def test_a_way_that_the_lifecycle_does_not_know_is_caught(script: Script) -> None:
    task = script.task()
    script.change(task, status="failure")
    script.arrive(task)
    script.succeed(task)
    caught(script, "lifecycle", "no way from pending to failure")


def test_a_write_that_nobody_wrote_down_is_caught(script: Script) -> None:
    task = script.task("failing")
    script.fail(task)
    script.arrive(task)
    script.succeed(task, process=2)
    del script.changes[3]
    caught(script, "lifecycle", "does not lead on from")


def test_a_row_that_is_not_as_it_was_left_is_caught(script: Script) -> None:
    task = script.task()
    script.succeed(task)
    script.rows[task].attempts = 5
    caught(script, "lifecycle", "not as its last change left it")


def test_a_claim_that_does_not_raise_the_lease_by_one_is_caught(script: Script) -> None:
    task = script.task()
    script.change(task, status="working", lease=2, process_id=1)
    script.begin(task)
    script.end(task)
    script.complete(task)
    caught(script, "lease", "raised the lease by 2")


def test_a_claim_of_a_task_that_is_held_is_caught(script: Script) -> None:
    task = script.task()
    script.claim(task)
    script.change(task, status="working", process_id=2)
    script.begin(task)
    script.end(task)
    script.complete(task)
    assert "lease" in {problem.rule for problem in script.judge().problems}


def test_a_lease_that_nobody_may_raise_is_caught(script: Script) -> None:
    task = script.task("failing")
    script.fail(task)
    script.change(task, status="pending", lease=2)
    script.succeed(task)
    caught(script, "lease", "nobody who may do so raised its lease")


def test_a_claim_by_another_node_than_the_tasks_is_caught(script: Script) -> None:
    task = script.task()
    script.claim(task, node_id=2, worker_node_id=1)
    script.begin(task)
    script.end(task)
    script.complete(task)
    caught(script, "lease", "may run on node 2 only")


def test_a_claim_before_its_time_is_caught(script: Script) -> None:
    task = script.task()
    script.claim(task, start_at=script.now + 5)
    script.begin(task)
    script.end(task)
    script.complete(task)
    caught(script, "lease", "before its start_at")


def test_a_claim_after_its_time_is_caught(script: Script) -> None:
    task = script.task(finish_at=script.now + 1)
    script.now += 20
    script.succeed(task)
    caught(script, "lease", "after its finish_at")
