from __future__ import annotations

import itertools

import pytest

from peerd.supervision.plan import Kind
from peerd.supervision.processes.slot import (
    TRANSITIONS,
    InvalidSlotTransition,
    Slot,
    SlotEvent,
    SlotState,
    backoff_delay,
)
from tests.support.rows import rows

VIDEO = Kind("video", entry="studio:video", stable_after=60.0)


def slot_after(*events: SlotEvent) -> Slot:
    slot = Slot("video-1", VIDEO)
    for event in events:
        slot.apply(event, now=0.0)
    return slot


PATHS = {
    SlotState.STOPPED: (),
    SlotState.STARTING: (SlotEvent.START,),
    SlotState.RUNNING: (SlotEvent.START, SlotEvent.READY),
    SlotState.BACKOFF: (SlotEvent.START, SlotEvent.FAIL),
    SlotState.DRAINING: (SlotEvent.START, SlotEvent.READY, SlotEvent.STOP),
    SlotState.EXITED: (SlotEvent.START, SlotEvent.READY, SlotEvent.LEAVE),
}


@rows("state, event", list(itertools.product(SlotState, SlotEvent)))
def test_a_transition_of_the_table_happens_and_others_are_refused(state: SlotState, event: SlotEvent) -> None:
    slot = slot_after(*PATHS[state])
    assert slot.state is state
    if (state, event) in TRANSITIONS:
        slot.apply(event, now=1.0)
        assert slot.state is TRANSITIONS[state, event]
        assert (slot.backoff_until is not None) == (slot.state is SlotState.BACKOFF)
    else:
        with pytest.raises(InvalidSlotTransition, match=f"slot 'video-1' is {state}"):
            slot.apply(event, now=1.0)
        assert slot.state is state


def test_each_state_can_be_stopped_and_none_but_those_that_have_a_process_needs_time_for_it() -> None:
    for state in SlotState:
        slot = slot_after(*PATHS[state])
        slot.apply(SlotEvent.STOP, now=1.0)
        assert (slot.state is SlotState.DRAINING) == (
            state in (SlotState.STARTING, SlotState.RUNNING, SlotState.DRAINING)
        )


def test_the_first_failure_is_retried_at_once_and_each_later_one_waits_longer() -> None:
    slot = slot_after(SlotEvent.START)
    waits = []
    for _ in range(9):
        slot.apply(SlotEvent.FAIL, now=100.0, jitter=0.5)
        assert slot.backoff_until is not None
        assert slot.is_due(slot.backoff_until)
        assert not slot.is_due(slot.backoff_until - 0.01)
        waits.append(slot.backoff_until - 100.0)
        slot.apply(SlotEvent.START, now=100.0)
    assert waits == [0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0]


@rows("ran, failures", [(59.0, 3), (60.0, 1)])
def test_a_stable_slot_starts_again_without_earlier_failures(ran: float, failures: int) -> None:
    slot = slot_after(SlotEvent.START, SlotEvent.FAIL, SlotEvent.START, SlotEvent.FAIL, SlotEvent.START)
    slot.apply(SlotEvent.READY, now=1000.0)
    slot.apply(SlotEvent.FAIL, now=1000.0 + ran)
    assert slot.failures == failures


def test_each_process_of_a_slot_has_a_number() -> None:
    slot = slot_after()
    assert slot.restarts == 0
    assert [slot.next_generation(), slot.next_generation()] == [1, 2]
    assert slot.restarts == 1


def test_a_retry_after_a_change_is_immediate_and_resets_the_failures() -> None:
    slot = slot_after(SlotEvent.START, SlotEvent.FAIL, SlotEvent.START, SlotEvent.FAIL, SlotEvent.START, SlotEvent.FAIL)
    assert not slot.is_due(0.5)
    slot.try_again_now(0.5)
    assert slot.is_due(0.5)
    slot.apply(SlotEvent.START, now=0.5)
    slot.apply(SlotEvent.FAIL, now=0.6)
    assert slot.is_due(0.6)


def test_a_long_boot_does_not_count_as_stability() -> None:
    slot = slot_after(SlotEvent.START, SlotEvent.FAIL, SlotEvent.START)
    slot.apply(SlotEvent.FAIL, now=1000.0)
    assert slot.failures == 2


def test_recycling_is_immediate_and_not_a_failure() -> None:
    slot = slot_after(
        SlotEvent.START, SlotEvent.FAIL, SlotEvent.START, SlotEvent.FAIL, SlotEvent.START, SlotEvent.READY
    )
    slot.apply(SlotEvent.RECYCLE, now=5.0)
    assert slot.is_due(5.0)
    assert slot.failures == 2


def test_jitter_spreads_the_wait_by_a_fifth_to_both_sides() -> None:
    assert backoff_delay(3, 0.5, 30.0, jitter=0.0) == pytest.approx(0.8)
    assert backoff_delay(3, 0.5, 30.0, jitter=1.0) == pytest.approx(1.2)
    assert backoff_delay(10_000, 0.5, 30.0, jitter=0.5) == 30.0
