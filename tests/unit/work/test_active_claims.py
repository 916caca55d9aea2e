"""What a process holds, seen from its loop and from its touch thread."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peerd.store.outcomes.recording import Held
from peerd.store.outcomes.touch import Progress
from peerd.work.claims.active_claims import Holdings

claims = st.builds(Held, st.integers(1, 5), st.integers(1, 3))


def test_a_claim_that_is_in_flight_is_not_stray_although_its_rows_are_not_known_yet() -> None:
    holdings = Holdings()
    holdings.begin_claim(7)
    assert holdings.strays({Held(1, 1): 7, Held(2, 1): None}) == [Held(2, 1)]


def test_rows_of_a_claim_that_was_answered_without_them_are_stray() -> None:
    holdings = Holdings()
    holdings.begin_claim(7)
    holdings.end_claim(7, [Held(1, 1)])
    assert holdings.strays({Held(1, 1): 7, Held(2, 1): 7}) == [Held(2, 1)]


def test_an_older_lease_of_a_task_that_is_held_anew_is_stray() -> None:
    holdings = Holdings()
    holdings.begin_claim(7)
    holdings.end_claim(7, [Held(1, 2)])
    assert holdings.strays({Held(1, 1): 6}) == [Held(1, 1)]


@given(st.sets(claims), st.sets(claims))
def test_strays_are_what_is_found_and_not_held(held: set[Held], found: set[Held]) -> None:
    holdings = Holdings()
    holdings.begin_claim(1)
    holdings.end_claim(1, held)
    assert set(holdings.strays(dict.fromkeys(found))) == found - held
    assert holdings.all() == held
    for one in held:
        holdings.drop([one])
    assert len(holdings) == 0


def test_only_the_newest_progress_of_what_is_held_is_kept() -> None:
    holdings = Holdings()
    holdings.begin_claim(1)
    holdings.end_claim(1, [Held(1, 1)])
    for fraction in (0.1, 0.2):
        holdings.report(Held(1, 1), Progress(fraction))
        holdings.report(Held(2, 1), Progress(fraction))
    taken = holdings.take_progress()
    assert taken == {Held(1, 1): Progress(0.2)}
    assert holdings.take_progress() == {}
    holdings.report(Held(1, 1), Progress(0.3))
    holdings.keep_progress(taken | {Held(2, 1): Progress(0.9)})  # it could not be written
    assert holdings.take_progress() == {Held(1, 1): Progress(0.3)}
