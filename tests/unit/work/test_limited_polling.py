"""When a process takes a turn: between its other work, between queues, and after turns in vain."""

from __future__ import annotations

from peerd.work.claims.limited_polling import TurnTaking
from tests.support.manual_clock import Clock


def test_queues_of_the_same_priority_take_turns() -> None:
    turns = TurnTaking(Clock(100.0), lambda: 10.0)
    served = []
    for _ in range(6):
        turns.saw({"a": -10, "b": -10, "c": -10})
        queue = turns.next_queue(before_others=False)
        assert queue is not None
        served.append(queue)
        turns.took(queue, 1, 1, None)
    assert served == ["a", "b", "c", "a", "b", "c"]


def test_a_queue_with_a_higher_priority_goes_first_each_time() -> None:
    turns = TurnTaking(Clock(100.0), lambda: 10.0)
    for _ in range(3):
        turns.saw({"a": -10, "b": -20})
        assert turns.next_queue(before_others=False) == "b"
        turns.took("b", 1, 1, None)


def test_what_a_rate_lets_start_soon_is_not_asked_for_before_the_next_look() -> None:
    clock = Clock(100.0)
    turns = TurnTaking(clock, lambda: 10.0)
    turns.saw({"a": -10})
    turns.took("a", 5, 0, 0.001)
    clock.now += 0.002
    pause = turns.pause()
    assert pause is not None
    assert pause > 0.01
    clock.now += pause - 0.001
    assert not turns.look_is_due
    clock.now += 0.002
    assert (turns.look_is_due, turns.pause()) == (True, 0.0)


def until_the_next_look(turns: TurnTaking, clock: Clock) -> float:
    began = clock.now
    while not turns.look_is_due:
        clock.now += 0.005
    return round(clock.now - began, 2)


def test_looks_become_rare_where_nothing_takes_turns() -> None:
    clock = Clock(100.0)
    turns = TurnTaking(clock, lambda: 10.0)
    pauses = []
    for ranks in ({}, {}, {}, {}, {}, {}, {"a": -10}, {"a": -10}, {}):
        turns.looks()
        turns.saw(ranks)
        pauses.append(until_the_next_look(turns, clock))
    assert pauses == [0.06, 0.12, 0.24, 0.48, 0.5, 0.5, 0.03, 0.03, 0.06]


def test_a_ring_brings_a_look_at_once_where_something_takes_turns_and_in_a_moment_where_nothing_did() -> None:
    clock = Clock(100.0)
    turns = TurnTaking(clock, lambda: 10.0)
    for _ in range(6):
        turns.looks()
        turns.saw({})
    turns.may_have_changed()
    assert until_the_next_look(turns, clock) == 0.1
    clock.now += 1.0
    turns.looks()
    turns.may_have_changed()  # while it looks
    turns.saw({})
    assert until_the_next_look(turns, clock) == 0.1
    turns.looks()
    turns.saw({"a": -10})
    turns.may_have_changed()
    assert turns.look_is_due
