"""The rules of tasks catch what they are there for: tasks lost, written twice, or changed as they may not be."""

from __future__ import annotations

import pytest

from tests.faults.history_builder import HistoryBuilder, assert_violation

# -------------------------------------------------------------------- lost


def test_an_acknowledged_task_that_was_never_in_the_table_is_lost(history_builder: HistoryBuilder) -> None:
    history_builder.succeed(history_builder.task())
    history_builder.add_event("enqueued", task=99, queue="work", name="short", key="99")
    assert_violation(history_builder, "lost", "never in the table")


def test_a_task_that_has_not_ended_is_lost(history_builder: HistoryBuilder) -> None:
    history_builder.claim(history_builder.task())
    assert_violation(history_builder, "lost", "it is working")


def test_a_task_that_ends_as_it_should_not_is_lost(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.start(task)
    history_builder.end(task, "failure")
    history_builder.write(task, "dead")
    assert_violation(history_builder, "lost", "ends as done, and this one is dead")


def test_a_row_that_was_not_deleted_and_that_is_gone_is_lost(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.succeed(task)
    del history_builder.rows[task]
    assert_violation(history_builder, "lost", "its row is gone")


@pytest.mark.parametrize("status", ["pending", "done"])
def test_a_task_that_no_rule_deletes_is_lost(history_builder: HistoryBuilder, status: str) -> None:
    task = history_builder.task()
    if status == "done":
        history_builder.succeed(task)
    history_builder.delete(task)
    assert_violation(history_builder, "lost", f"deleted while it was {status}")


# -------------------------------------------------------------------- keys, transactions


def test_a_key_that_is_written_twice_is_caught(history_builder: HistoryBuilder) -> None:
    for _ in range(2):
        history_builder.succeed(history_builder.task(key="same"))
    assert_violation(history_builder, "keys", "written 2 times")


def test_a_task_that_was_never_enqueued_is_caught(history_builder: HistoryBuilder) -> None:
    history_builder.succeed(history_builder.task())
    history_builder.events = [event for event in history_builder.events if event.event != "enqueued"]
    assert_violation(history_builder, "keys", "no enqueue has its key")


def test_an_answer_that_names_another_task_is_caught(history_builder: HistoryBuilder) -> None:
    one, two = history_builder.task(), history_builder.task()
    for task in (one, two):
        history_builder.succeed(task)
    first = next(event for event in history_builder.events if event.task == one)
    first.task = two
    assert_violation(history_builder, "keys", "was acknowledged for the key 1")


def test_business_data_without_their_task_are_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("parent")
    history_builder.succeed(task)
    history_builder.ledger.append((task, "1/1/0"))
    assert_violation(history_builder, "transaction", "no task has that key")


def test_a_child_without_its_business_data_is_caught(history_builder: HistoryBuilder) -> None:
    history_builder.succeed(history_builder.task("parent"))
    history_builder.succeed(history_builder.task(key="1/1/0"))
    assert_violation(history_builder, "transaction", "the ledger does not know")


# -------------------------------------------------------------------- lifecycle, leases


def test_a_way_that_the_lifecycle_does_not_know_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.change(task, status="failure")
    history_builder.stage_due(task)
    history_builder.succeed(task)
    assert_violation(history_builder, "lifecycle", "no way from pending to failure")


def test_a_write_that_was_not_recorded_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("failing")
    history_builder.fail(task)
    history_builder.stage_due(task)
    history_builder.succeed(task, process=2)
    del history_builder.changes[3]
    assert_violation(history_builder, "lifecycle", "does not lead on from")


def test_a_row_that_is_not_as_it_was_left_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.succeed(task)
    history_builder.rows[task].attempts = 5
    assert_violation(history_builder, "lifecycle", "not as its last change left it")


def test_a_claim_that_does_not_raise_the_lease_by_one_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.change(task, status="working", lease=2, process_id=1)
    history_builder.begin(task)
    history_builder.end(task)
    history_builder.complete(task)
    assert_violation(history_builder, "lease", "raised the lease by 2")


def test_a_claim_of_a_task_that_is_held_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.claim(task)
    history_builder.change(task, status="working", process_id=2)
    history_builder.begin(task)
    history_builder.end(task)
    history_builder.complete(task)
    assert "lease" in {problem.rule for problem in history_builder.judge().problems}


def test_a_lease_that_no_claim_may_raise_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task("failing")
    history_builder.fail(task)
    history_builder.change(task, status="pending", lease=2)
    history_builder.succeed(task)
    assert_violation(history_builder, "lease", "no permitted operation raised its lease")


def test_a_claim_by_another_node_than_the_tasks_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.claim(task, node_id=2, worker_node_id=1)
    history_builder.begin(task)
    history_builder.end(task)
    history_builder.complete(task)
    assert_violation(history_builder, "lease", "may run on node 2 only")


def test_a_claim_before_its_time_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task()
    history_builder.claim(task, start_at=history_builder.now + 5)
    history_builder.begin(task)
    history_builder.end(task)
    history_builder.complete(task)
    assert_violation(history_builder, "lease", "before its start_at")


def test_a_claim_after_its_time_is_caught(history_builder: HistoryBuilder) -> None:
    task = history_builder.task(finish_at=history_builder.now + 1)
    history_builder.now += 20
    history_builder.succeed(task)
    assert_violation(history_builder, "lease", "after its finish_at")
