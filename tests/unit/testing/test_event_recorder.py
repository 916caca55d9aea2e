from __future__ import annotations

import asyncio
import threading

import pytest

from peerd.runtime.observability.events import ChoreRan, EventBus, TasksClaimed
from peerd.testing import EventRecorder


@pytest.fixture
def recorder() -> EventRecorder:
    return EventRecorder()


def test_an_event_before_the_query_counts(recorder: EventRecorder) -> None:
    EventBus(recorder).emit(ChoreRan(chore="expire", count=3))
    assert recorder.wait(ChoreRan, timeout=0) == ChoreRan(chore="expire", count=3)
    assert recorder.of(ChoreRan, count=4) == []
    recorder.clear()
    assert (len(recorder), list(recorder)) == (0, [])


def test_waiting_ends_with_an_event_of_another_thread(recorder: EventRecorder) -> None:
    events = EventBus(recorder)
    go_on = threading.Event()

    def emit() -> None:
        events.emit(ChoreRan(chore="expire", count=1))
        go_on.wait(10)
        events.emit(ChoreRan(chore="expire", count=2))

    emitting = threading.Thread(target=emit)
    emitting.start()
    assert recorder.wait(ChoreRan).count == 1
    go_on.set()
    assert recorder.wait(ChoreRan, chore="expire", times=2).count == 2
    emitting.join()


async def test_the_event_loop_continues_during_the_wait(recorder: EventRecorder) -> None:
    asyncio.get_running_loop().call_later(0.01, recorder, TasksClaimed(count=1, milliseconds=0.5))
    assert (await recorder.seen(TasksClaimed, count=1)).milliseconds == 0.5
    with pytest.raises(AssertionError, match=r"ChoreRan\(\) among what happened:\n  TasksClaimed"):
        await recorder.seen(ChoreRan, timeout=0.01)


def test_a_missing_event_is_reported_with_the_recorded_ones(recorder: EventRecorder) -> None:
    with pytest.raises(AssertionError, match=r"ChoreRan\(chore='x'\) among what happened: nothing"):
        recorder.wait(ChoreRan, chore="x", timeout=0)


def test_a_figure_that_such_events_do_not_have_is_refused_at_once(recorder: EventRecorder) -> None:
    with pytest.raises(TypeError, match="ChoreRan has no 'seconds'; it has chore, count"):
        recorder.wait(ChoreRan, seconds=1)
