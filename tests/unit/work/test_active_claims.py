from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from peerd.store.outcomes.recording import ClaimId
from peerd.store.outcomes.touch import TaskProgress
from peerd.work.claims.active_claims import ActiveClaims

claims = st.builds(ClaimId, st.integers(1, 5), st.integers(1, 3))


@given(st.sets(claims), st.sets(claims))
def test_unknown_claims_are_rows_that_are_found_and_not_held(held: set[ClaimId], found: set[ClaimId]) -> None:
    active_claims = ActiveClaims()
    active_claims.begin_claim(1)
    in_flight = dict.fromkeys(found, 1)
    assert active_claims.unknown_among(in_flight | {ClaimId(9, 1): None}) == [ClaimId(9, 1)]
    active_claims.end_claim(1, held)
    assert (
        set(active_claims.unknown_among(in_flight))
        == set(active_claims.unknown_among(dict.fromkeys(found)))
        == found - held
    )
    assert active_claims.all() == held
    for one in held:
        active_claims.drop([one])
    assert len(active_claims) == 0


def test_only_the_newest_progress_of_held_tasks_is_kept() -> None:
    active_claims = ActiveClaims()
    active_claims.begin_claim(1)
    active_claims.end_claim(1, [ClaimId(1, 1)])
    for fraction in (0.1, 0.2):
        active_claims.report(ClaimId(1, 1), TaskProgress(fraction))
        active_claims.report(ClaimId(2, 1), TaskProgress(fraction))
    taken = active_claims.take_progress()
    assert taken == {ClaimId(1, 1): TaskProgress(0.2)}
    assert active_claims.take_progress() == {}
    active_claims.report(ClaimId(1, 1), TaskProgress(0.3))
    active_claims.restore_progress(taken | {ClaimId(2, 1): TaskProgress(0.9)})  # it could not be written
    assert active_claims.take_progress() == {ClaimId(1, 1): TaskProgress(0.3)}
