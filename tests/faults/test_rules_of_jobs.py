"""The rules about the jobs of queue clients, each on a history in which one thing is wrong."""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.faults.final_tables import FinalAttempt, FinalTask
from tests.faults.history_builder import HistoryBuilder, assert_violation

FIRST, SECOND = "client-1", "client-2"


class JobHistory:
    """What two queue clients do, one of process 1 and one of process 2."""

    def __init__(self, builder: HistoryBuilder) -> None:
        self.builder = builder
        builder.add_event("opened", connection=FIRST, server=101)
        builder.add_event("opened", connection=SECOND, server=102)

    def put(self, ttr: int = 600) -> int:
        """A job is put, and the client has its id."""
        job = self.put_without_answer(ttr)
        self.builder.add_event("inserted", task=job, key=f"job-{job}", connection=FIRST)
        return job

    def put_without_answer(self, ttr: int = 600) -> int:
        builder = self.builder
        job = len(builder.crashed) + 1
        key = f"job-{job}"
        builder.add_event("unsure", key=key)
        builder.task("", key=f"{key}/")  # with a slash, so that it is not `enqueued`
        builder.changes[-1].details = json.dumps({"key": key, "ttr": ttr})
        return job

    def reserve(self, job: int, connection: str = FIRST) -> None:
        """A client reserves a job, and is told of it."""
        self.builder.claim(job, 1 if connection == FIRST else 2)
        self.builder.add_event("reserved", task=job, connection=connection)

    def release(self, job: int) -> None:
        """The table has the job as ready again."""
        self.builder.change(job, status="pending")

    def ask(self, job: int, action: str, connection: str = FIRST) -> None:
        self.builder.add_event("finishing", task=job, connection=connection, action=action)

    def answer(self, job: int, action: str, outcome: str, connection: str = FIRST) -> None:
        self.builder.add_event("finished", task=job, connection=connection, action=action, outcome=outcome)

    def delete(self, job: int, connection: str = FIRST) -> None:
        """A client deletes a job, and is told that it has."""
        self.ask(job, "delete", connection)
        self.builder.delete(job)
        self.answer(job, "delete", "deleted", connection)


@pytest.fixture
def jobs(history_builder: HistoryBuilder) -> JobHistory:
    return JobHistory(history_builder)


def test_jobs_that_are_reserved_released_and_deleted_break_no_rule(jobs: JobHistory) -> None:
    done, released, unanswered, late = jobs.put(), jobs.put(), jobs.put_without_answer(), jobs.put(ttr=3)
    for job in (done, unanswered):
        jobs.reserve(job)
        jobs.delete(job)
    jobs.reserve(released)
    jobs.ask(released, "release")
    jobs.release(released)
    jobs.answer(released, "release", "released")
    jobs.reserve(released, SECOND)
    jobs.delete(released, SECOND)
    jobs.reserve(late)
    jobs.builder.now += 3.0
    jobs.release(late)
    jobs.reserve(late, SECOND)
    jobs.ask(late, "delete")
    jobs.answer(late, "delete", "")
    jobs.delete(late, SECOND)
    assert jobs.builder.judge().problems == []


def test_what_a_killed_process_held_may_be_reserved_by_others(jobs: JobHistory) -> None:
    job = jobs.put()
    jobs.reserve(job)
    jobs.builder.kill(1)
    jobs.release(job)
    jobs.reserve(job, SECOND)
    jobs.builder.add_event("closed", connection=FIRST)
    jobs.delete(job, SECOND)
    report = jobs.builder.judge()
    assert report.problems == []
    assert report.counts["jobs taken back"] == 1


def test_a_job_that_was_answered_and_is_not_there_is_lost(jobs: JobHistory) -> None:
    jobs.builder.add_event("inserted", task=99, key="job-99", connection=FIRST)
    assert_violation(jobs.builder, "jobs lost", "never in the table")


def test_a_job_that_nobody_deletes_is_lost(jobs: JobHistory) -> None:
    job = jobs.put()
    jobs.reserve(job)
    assert_violation(jobs.builder, "jobs lost", "nobody has deleted it")


def test_a_job_that_is_deleted_without_its_holders_word_is_lost(jobs: JobHistory) -> None:
    job = jobs.put()
    jobs.reserve(job)
    jobs.builder.delete(job)
    assert_violation(jobs.builder, "jobs lost", "no client that held it has asked")


def test_a_job_that_is_ready_may_be_deleted_by_whoever_asks(jobs: JobHistory) -> None:
    """A deadline comes before the delete of the client."""
    asked, never_asked = jobs.put(ttr=3), jobs.put(ttr=3)
    for job in (asked, never_asked):
        jobs.reserve(job)
        jobs.builder.now += 3.0
        jobs.release(job)
    jobs.delete(asked)
    jobs.builder.delete(never_asked)
    assert_violation(jobs.builder, "jobs lost", "no client has asked")
    assert [problem.task for problem in jobs.builder.judge().problems] == [never_asked]


def test_a_job_that_is_deleted_by_a_stale_holder_is_lost(jobs: JobHistory) -> None:
    """The first client's deadline has come, the second one holds the job, and the first one's delete is executed."""
    job = jobs.put(ttr=3)
    jobs.reserve(job)
    jobs.builder.now += 3.0
    jobs.release(job)
    jobs.reserve(job, SECOND)
    jobs.ask(job, "delete", FIRST)
    jobs.builder.delete(job)
    assert_violation(jobs.builder, "jobs lost", "no client that held it has asked")


def test_an_answer_that_a_job_is_deleted_is_true(jobs: JobHistory) -> None:
    job = jobs.put()
    jobs.reserve(job)
    jobs.ask(job, "delete")
    jobs.answer(job, "delete", "deleted")
    jobs.builder.now += 1.0
    jobs.builder.delete(job)
    assert_violation(jobs.builder, "jobs lost", "was told that it is deleted")


def test_a_reservation_that_is_given_to_two_clients_is_found(jobs: JobHistory) -> None:
    job = jobs.put()
    jobs.builder.add_event("opened", connection="client-3", server=101)
    jobs.reserve(job)
    jobs.builder.add_event("reserved", task=job, connection="client-3")
    jobs.delete(job)
    assert_violation(jobs.builder, "jobs held", "was given to")


def test_a_reservation_that_is_taken_from_a_living_process_is_found(jobs: JobHistory) -> None:
    job = jobs.put()
    jobs.reserve(job)
    jobs.release(job)
    jobs.builder.now += 2.0
    jobs.reserve(job, SECOND)
    jobs.delete(job, SECOND)
    assert_violation(jobs.builder, "jobs held", "too early")


@pytest.mark.parametrize("counted", ["attempts", "crashes", "an attempt's row"])
def test_a_reservation_that_is_counted_is_found(jobs: JobHistory, counted: str) -> None:
    builder = jobs.builder
    job = jobs.put()
    jobs.reserve(job)
    builder.kill(1)
    if counted == "attempts":
        builder.change(job, status="pending", attempts=1)
        builder.rows[job] = msgspec.structs.replace(builder.rows[job], attempts=1)
    elif counted == "crashes":
        builder.crashed[job] = 1
        jobs.release(job)
    else:
        jobs.release(job)
        row: FinalTask = builder.rows[job]
        builder.attempts.append(
            FinalAttempt(task_id=job, lease=row.lease, outcome="crash", number=1, process_id=1, error="killed")
        )
    jobs.reserve(job, SECOND)
    jobs.delete(job, SECOND)
    assert_violation(builder, "jobs counted", "")
