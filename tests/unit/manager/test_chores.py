"""The table of chores."""

from __future__ import annotations

from peerd.manager.chores import CHORES


def test_each_chore_has_a_name_of_its_own_and_comes_in_the_first_round() -> None:
    names = [chore.name for chore in CHORES]
    assert len(set(names)) == len(names)
    assert all(chore.periods >= 1 for chore in CHORES)
