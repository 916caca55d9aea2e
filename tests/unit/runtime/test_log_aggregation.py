from __future__ import annotations

from peerd.runtime.observability.events import AttemptEnded, Event, TasksDone
from peerd.runtime.observability.log_aggregation import MAX_EACH_SPAN, SPAN_SECONDS, SuccessAggregator
from peerd.runtime.observability.log_messages import log_message_of
from peerd.testing import eventually_async


def ended(task_id: int, outcome: str = "done", name: str = "send") -> AttemptEnded:
    return AttemptEnded(task_id=task_id, queue="mail", name=name, outcome=outcome, seconds=0.25)


async def test_the_first_of_a_second_are_reported_each_and_the_rest_together() -> None:
    seen: list[Event] = []
    aggregate = SuccessAggregator(seen.append)
    for task_id in range(MAX_EACH_SPAN + 3):
        aggregate(ended(task_id, name="send" if task_id % 2 else ""))
    assert [event.task_id for event in seen if isinstance(event, AttemptEnded)] == list(range(MAX_EACH_SPAN))
    await eventually_async(lambda: isinstance(seen[-1], TasksDone), timeout=20 * SPAN_SECONDS)
    assert seen[-1] == TasksDone(count=3, seconds=0.75, by_handler={"mail.send": 2, "mail": 1})
    figures = {"tasks": 3, "of": "mail.send 2, mail 1", "ms_each": 250.0}
    assert log_message_of(seen[-1]) == ("info", "tasks done", figures)


async def test_failures_are_reported_one_by_one_and_a_new_interval_begins_when_one_is_over() -> None:
    seen: list[Event] = []
    aggregate = SuccessAggregator(seen.append)
    failures = [ended(task_id, "failure") for task_id in range(2 * MAX_EACH_SPAN)]
    for failure in failures:
        aggregate(failure)
    assert seen == failures
    for task_id in range(MAX_EACH_SPAN + 1):
        aggregate(ended(task_id))
    aggregate.flush()
    aggregate(ended(99))
    assert seen[-2:] == [TasksDone(count=1, seconds=0.25, by_handler={"mail.send": 1}), ended(99)]
