"""When a process takes a turn: between its other work, between queues, and after turns in vain."""

from __future__ import annotations

from peerd.work.turn_taking import TurnTaking


class Seconds:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_queues_of_the_same_priority_take_turns() -> None:
    turns = TurnTaking(Seconds(), lambda: 10.0)
    served = []
    for _ in range(6):
        turns.saw({"a": -10, "b": -10, "c": -10})
        queue = turns.next_queue(before_others=False)
        assert queue is not None
        served.append(queue)
        turns.took(queue, 1, 1, None)
    assert served == ["a", "b", "c", "a", "b", "c"]


def test_a_queue_with_a_higher_priority_goes_first_each_time() -> None:
    turns = TurnTaking(Seconds(), lambda: 10.0)
    for _ in range(3):
        turns.saw({"a": -10, "b": -20})
        assert turns.next_queue(before_others=False) == "b"
        turns.took("b", 1, 1, None)


def test_what_a_rate_lets_start_soon_is_not_asked_for_before_the_next_look() -> None:
    seconds = Seconds()
    turns = TurnTaking(seconds, lambda: 10.0)
    turns.saw({"a": -10})
    turns.took("a", 5, 0, 0.001)
    seconds.now += 0.002
    pause = turns.pause()
    assert pause is not None
    assert pause > 0.01
    seconds.now += pause - 0.001
    assert not turns.look_is_due
    seconds.now += 0.002
    assert (turns.look_is_due, turns.pause()) == (True, 0.0)
