from __future__ import annotations

import asyncio
import threading

import pytest

from peerd.runtime.observability.events import ChoreRan, EventBus, TasksClaimed
from peerd.testing import EventRecorder


def test_an_event_is_waited_for_whether_it_was_before_or_comes_from_another_thread() -> None:
    recorder = EventRecorder()
    EventBus(recorder).emit(ChoreRan(chore="expire", count=3))
    assert recorder.wait(ChoreRan, timeout=0) == ChoreRan(chore="expire", count=3)
    assert recorder.of(ChoreRan, count=4) == []
    threading.Timer(0.01, recorder, (ChoreRan(chore="expire", count=2),)).start()
    assert recorder.wait(ChoreRan, chore="expire", times=2).count == 2
    recorder.clear()
    assert (len(recorder), list(recorder)) == (0, [])


async def test_the_event_loop_continues_during_the_wait() -> None:
    recorder = EventRecorder()
    asyncio.get_running_loop().call_later(0.01, recorder, TasksClaimed(count=1, milliseconds=0.5))
    assert (await recorder.seen(TasksClaimed, count=1)).milliseconds == 0.5
    with pytest.raises(AssertionError, match=r"ChoreRan\(\) among what happened:\n  TasksClaimed"):
        await recorder.seen(ChoreRan, timeout=0.01)


def test_what_is_missing_or_impossible_is_reported() -> None:
    with pytest.raises(AssertionError, match=r"ChoreRan\(chore='x'\) among what happened: nothing"):
        EventRecorder().wait(ChoreRan, chore="x", timeout=0)
    with pytest.raises(TypeError, match="ChoreRan has no 'seconds'; it has chore, count"):
        EventRecorder().wait(ChoreRan, seconds=1)
