"""Many successes are told together."""

from __future__ import annotations

from peerd.runtime.observability.events import AttemptEnded, Fact, TasksDone
from peerd.runtime.observability.log_aggregation import EACH, SPAN, Condensed
from peerd.runtime.observability.log_messages import worded
from peerd.testing import eventually_async


def ended(task_id: int, outcome: str = "done", name: str = "send") -> AttemptEnded:
    return AttemptEnded(task_id=task_id, queue="mail", name=name, outcome=outcome, seconds=0.25)


async def test_the_first_of_a_second_are_told_each_and_the_rest_together() -> None:
    seen: list[Fact] = []
    tell = Condensed(seen.append)
    for task_id in range(EACH + 3):
        tell(ended(task_id, name="send" if task_id % 2 else ""))
    assert [fact.task_id for fact in seen if isinstance(fact, AttemptEnded)] == list(range(EACH))
    await eventually_async(lambda: isinstance(seen[-1], TasksDone), timeout=20 * SPAN)
    assert seen[-1] == TasksDone(count=3, seconds=0.75, by_handler={"mail.send": 2, "mail": 1})
    assert worded(seen[-1]) == ("info", "tasks done", {"tasks": 3, "of": "mail.send 2, mail 1", "ms_each": 250.0})


async def test_what_went_wrong_is_told_each() -> None:
    seen: list[Fact] = []
    tell = Condensed(seen.append)
    failures = [ended(task_id, "failure") for task_id in range(2 * EACH)]
    for failure in failures:
        tell(failure)
    assert seen == failures


async def test_a_new_span_begins_when_one_is_over() -> None:
    seen: list[Fact] = []
    tell = Condensed(seen.append)
    for task_id in range(EACH + 1):
        tell(ended(task_id))
    tell.flush()
    tell(ended(99))
    assert seen[-2:] == [TasksDone(count=1, seconds=0.25, by_handler={"mail.send": 1}), ended(99)]


def test_without_an_event_loop_nothing_is_kept_back() -> None:
    seen: list[Fact] = []
    tell = Condensed(seen.append)
    for task_id in range(2 * EACH):
        tell(ended(task_id))
    assert len(seen) == 2 * EACH
