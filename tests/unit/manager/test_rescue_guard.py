from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from peerd.manager.service import RescueGuard

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
NEEDED, GAP = 30.0, 5.0

steps = st.lists(
    st.tuples(
        st.floats(0.01, 12.0),  # by the monotonic clock
        st.one_of(st.just(0.0), st.just(0.0), st.just(0.0), st.floats(-20.0, 20.0)),  # the database's deviation
    ),
    max_size=60,
)


def guard_after(history: list[tuple[float, float]]) -> tuple[RescueGuard, float, float]:
    """A guard after a history of heartbeats; the monotonic times of its latest heartbeat and of its latest fault."""
    guard = RescueGuard(needed=NEEDED, gap=GAP)
    monotonic, database = 100.0, MIDNIGHT
    guard.record_heartbeat(monotonic, database)
    fault = monotonic
    for passed, difference in history:
        monotonic += passed
        database += timedelta(seconds=passed + difference)
        guard.record_heartbeat(monotonic, database)
        if passed > GAP or abs(difference) > GAP:
            fault = monotonic
    return guard, monotonic, fault


@given(steps, st.floats(0.0, 20.0))
def test_rescue_needs_heartbeats_without_gap_or_step(history: list[tuple[float, float]], later: float) -> None:
    guard, last, fault = guard_after(history)
    allowed = guard.may_rescue(last + later)
    if allowed:
        assert last - fault >= NEEDED - 1e-6
        assert later <= GAP + 1e-6
    if last - fault >= NEEDED + 1e-6 and later <= GAP - 1e-6:
        assert allowed


def test_silence_is_counted_from_the_latest_heartbeat_and_a_gap_is_given_as_the_reason() -> None:
    guard = RescueGuard(needed=NEEDED, gap=GAP)
    assert (guard.last_heartbeat, guard.may_rescue(1e9)) == (None, False)
    guard, _, _ = guard_after([(1.0, 0.0), (9.0, 0.0)])
    assert (guard.last_heartbeat, guard.reason) == (MIDNIGHT + timedelta(seconds=10), "no heartbeat for 9.0 s")
