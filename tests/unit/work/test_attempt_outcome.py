from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path
from typing import Any

from peerd import Cancel, Dead, Queue, Retry, Snooze, Status, Task, TaskWorker
from peerd.domain.outcome import Canceled, Done, Failed, Outcome, Snoozed
from peerd.runtime.observability.events import AttemptHookFailed
from peerd.testing import make_task, run_inline, run_row
from peerd.work import attempt_execution
from peerd.work.active_attempt import attempt_ended_event
from tests.support.rows import rows
from tests.unit.work.run_execution import execution

REQUESTED = [
    (Retry("10s", "not yet"), Failed(error="not yet", retry_in=10.0)),
    (Retry(), Failed(error="the handler asked for another attempt", retry_in=300.0)),
    (Snooze("1h", "tired"), Snoozed(3600.0, "tired")), (Cancel("unwanted"), Canceled("unwanted")),
    (Cancel(), Canceled("the handler canceled it")), (Dead("no video"), Failed(error="no video")),
]  # fmt: skip


def queue_of(outcome: object, *, thread: bool, raises: bool = True) -> Queue:
    """A queue whose handler raises or returns this, in a thread or as a coroutine."""
    queue = Queue("q")

    def plain() -> object:
        if raises:
            assert isinstance(outcome, BaseException)
            raise outcome
        return outcome

    async def coroutine() -> object:
        return plain()

    queue.task(name="it")(plain if thread else coroutine)
    return queue


@rows("requested, outcome", REQUESTED)
async def test_an_outcome_counts_whether_it_is_returned_or_raised(requested: Exception, outcome: Outcome) -> None:
    for raises, thread in product((False, True), repeat=2):
        queue = queue_of(requested, thread=thread, raises=raises)
        assert await execution(queue, "it").outcome() == outcome


class Odd:
    @property
    def __dataclass_fields__(self) -> Any:
        raise OverflowError("odd")


@rows("value, message", [
    (object(), "not JSON"), ("\ud800", "not JSON"), (Odd(), "not JSON"), ("x" * (1 << 20), "more than 1048576"),
    (Dead, "class Dead"),
])  # fmt: skip
async def test_a_result_that_cannot_be_stored_makes_the_task_dead_with_a_message(value: object, message: str) -> None:
    ran = await run_inline(queue_of(value, thread=False, raises=False).handlers["it"].with_args())
    assert ran.status is Status.DEAD
    assert message in str(ran.error)
    done = queue_of({"n": 3, "at": Path("/a")}, thread=False, raises=False)
    assert await execution(done, "it").outcome() == Done('{"n":3,"at":"/a"}')


async def test_an_exception_is_retried_with_its_traceback_according_to_retry_on_and_discard_on() -> None:
    queue = Queue("q")

    @queue.task(retry_on=(OSError,))
    async def it(kind: str) -> None:
        raise {"os": OSError, "value": ValueError}[kind]("boom")

    retried = await run_inline(it.with_args("os"))
    assert (retried.status, retried.retry_in, retried.error) == (Status.FAILURE, 300.0, "OSError: boom")
    assert "in it" in str(retried.traceback)
    assert (await run_inline(it.with_args("value"))).status is Status.DEAD
    assert (await run_inline(it.with_args("os"), attempts=2)).status is Status.DEAD


async def test_a_worker_of_whole_rows_may_say_how_long_a_retry_waits() -> None:
    class Own(TaskWorker):
        queues = ("legacy",)
        delay_ratio = "10s"

        async def handle_task(self, task: Task) -> None:
            raise ValueError("no")

    class Slow(Own):
        def delay(self, task: Task) -> float:
            return 1000.0 + task.attempts

    assert [(await run_row(Own(), attempts=n)).retry_in for n in (0, 1)] == [10.0, 20.0]
    assert (await run_row(Slow())).retry_in == 1001.0


@rows("delay", [float("nan"), "soon", None, ZeroDivisionError])
async def test_a_delay_that_is_invalid_or_raises_does_not_lose_the_task(delay: Any) -> None:
    queue = Queue("q")
    queue.task(name="it", backoff=lambda _: 1 / 0 if delay is ZeroDivisionError else delay)(lambda: 1 / 0)
    ran = await run_inline(queue.handlers["it"].with_args())
    assert ran.status is Status.FAILURE
    assert (ran.retry_in, ran.error) == (attempt_execution.FALLBACK_DELAY, "ZeroDivisionError: division by zero")
    assert [event.hook for event in ran.events if isinstance(event, AttemptHookFailed)] == ["delay"]


async def test_system_exit_ends_the_attempt_and_not_the_process() -> None:
    for error, thread in product((SystemExit(3), KeyboardInterrupt()), (False, True)):
        ran = await run_inline(queue_of(error, thread=thread).handlers["it"].with_args())
        assert ran.status is Status.FAILURE
        assert type(error).__name__ in str(ran.error)


async def test_a_body_that_does_not_fit_is_dead_and_so_is_a_task_without_a_handler() -> None:
    queue = Queue("q")

    @queue.task
    async def it(height: int) -> None: ...

    outcome = await execution(queue, "it", '{"height": "tall"}').outcome()
    assert outcome == Failed(error="it: Expected `int`, got `str` - at `$.height`")
    outcome = await execution(queue, "that").outcome()
    assert outcome == Failed(error="queue q has no handler named 'that'; its handlers are: it")


class WithoutText(Exception):
    def __str__(self) -> str:
        raise ValueError("no words")

    __repr__ = __str__


LEAVING = type("Leaving", (SystemExit,), {"__str__": WithoutText.__str__})(3)


@rows("error, status, message", [
    (WithoutText(), Status.FAILURE, "WithoutText: (its __str__ raised ValueError)"),
    (LEAVING, Status.FAILURE, "(its __str__ raised ValueError)"),
    (Dead(WithoutText()), Status.DEAD, "WithoutText: (its __str__ raised ValueError)"),  # type: ignore[arg-type]
    (Dead(ValueError("no video")), Status.DEAD, "no video"),  # type: ignore[arg-type]
])  # fmt: skip
async def test_an_exception_without_a_text_is_an_outcome(error: BaseException, status: Status, message: str) -> None:
    for thread in (False, True):
        outcome = await execution(queue_of(error, thread=thread), "it").outcome()
        assert isinstance(outcome, Failed)
        assert (outcome.retry_in is None) is (status is Status.DEAD)
        assert message in outcome.error


BEGAN = datetime(2026, 1, 1, tzinfo=UTC)


def attempted(row: dict[str, Any]) -> Task:
    given = {"max_attempts": 2, "worker_started_at": BEGAN, "created_at": BEGAN, "lease": 1, **row}
    return make_task("working", queue="video", name="cut", **given)


@rows("row, failed, expected", [
    ({}, Failed(error="no", retry_in=5.0), ("failure", 5.0)),
    ({"attempts": 1}, Failed(error="no", retry_in=5.0), ("dead", None)),
    ({"attempts": 1}, Failed(error="no", retry_in=5.0, label="timeout"), ("timeout", None)),
    ({}, Failed(error="no"), ("dead", None)),
    ({"finish_at": datetime(2026, 1, 1, 0, 0, 6, tzinfo=UTC)}, Failed(error="no", retry_in=5.0), ("dead", None)),
    ({"finish_at": BEGAN.replace(hour=1)}, Failed(error="no", retry_in=5.0), ("failure", 5.0)),
    ({"worker_started_at": None}, Failed(error="no", retry_in=5.0), ("failure", 5.0)),
])  # fmt: skip
def test_a_failure_after_which_there_is_no_other_attempt_reports_it(
    row: dict[str, object], failed: Failed, expected: tuple[str, float | None]
) -> None:
    task = attempted(row)
    event = attempt_ended_event(task, failed, 2.0)
    assert (event.outcome, event.retry_in) == expected


@rows("row, expected", [
    ({"created_at": BEGAN - timedelta(seconds=7)}, 7.0),
    ({"created_at": BEGAN - timedelta(days=3), "start_at": BEGAN - timedelta(seconds=2), "lease": 4}, 2.0),
    ({"created_at": BEGAN - timedelta(days=3), "lease": 4}, None), ({"worker_started_at": None}, None),
])  # fmt: skip
def test_a_wait_begins_when_the_task_is_due(row: dict[str, object], expected: float | None) -> None:
    assert attempt_ended_event(attempted(row), Done(), 2.0).wait == expected
