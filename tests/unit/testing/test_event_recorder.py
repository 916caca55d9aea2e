from __future__ import annotations

import asyncio
import threading

import pytest

from peerd.runtime.observability.events import ChoreRan, Events, TasksClaimed
from peerd.testing import Facts


@pytest.fixture
def facts() -> Facts:
    return Facts()


def test_a_fact_counts_that_happened_before_one_asked(facts: Facts) -> None:
    Events(facts).emit(ChoreRan(chore="expire", count=3))
    assert facts.wait(ChoreRan, timeout=0) == ChoreRan(chore="expire", count=3)
    assert facts.of(ChoreRan, count=4) == []
    facts.clear()
    assert (len(facts), list(facts)) == (0, [])


def test_one_waits_for_a_fact_from_another_thread(facts: Facts) -> None:
    events = Events(facts)
    go_on = threading.Event()

    def emit() -> None:
        events.emit(ChoreRan(chore="expire", count=1))
        go_on.wait(10)
        events.emit(ChoreRan(chore="expire", count=2))

    emitting = threading.Thread(target=emit)
    emitting.start()
    assert facts.wait(ChoreRan).count == 1
    go_on.set()
    assert facts.wait(ChoreRan, chore="expire", times=2).count == 2
    emitting.join()


async def test_the_event_loop_goes_on_while_one_waits(facts: Facts) -> None:
    asyncio.get_running_loop().call_later(0.01, facts, TasksClaimed(count=1, milliseconds=0.5))
    assert (await facts.seen(TasksClaimed, count=1)).milliseconds == 0.5
    with pytest.raises(AssertionError, match=r"ChoreRan\(\) among what happened:\n  TasksClaimed"):
        await facts.seen(ChoreRan, timeout=0.01)


def test_what_did_not_happen_is_told_with_what_did(facts: Facts) -> None:
    with pytest.raises(AssertionError, match=r"ChoreRan\(chore='x'\) among what happened: nothing"):
        facts.wait(ChoreRan, chore="x", timeout=0)


def test_a_figure_that_such_facts_do_not_have_is_refused_at_once(facts: Facts) -> None:
    with pytest.raises(TypeError, match="ChoreRan has no 'seconds'; it has chore, count"):
        facts.wait(ChoreRan, seconds=1)
