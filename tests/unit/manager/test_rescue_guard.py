"""The rule against mass rescue, for any history of beats."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from peerd.manager.rescue_guard import RescueGuard

MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)
NEEDED, GAP = 30.0, 5.0

steps = st.lists(
    st.tuples(
        st.floats(0.01, 12.0),  # by the monotonic clock
        st.one_of(st.just(0.0), st.just(0.0), st.just(0.0), st.floats(-20.0, 20.0)),  # how far the database's parts
    ),
    max_size=60,
)


def beaten(history: list[tuple[float, float]]) -> tuple[RescueGuard, float, float]:
    """A pulse with a history; the monotonic time of its latest beat, and of its latest fault."""
    guard = RescueGuard(needed=NEEDED, gap=GAP)
    monotonic, database = 100.0, MIDNIGHT
    guard.record_heartbeat(monotonic, database)
    fault = monotonic
    for here, parted in history:
        monotonic += here
        database += timedelta(seconds=here + parted)
        guard.record_heartbeat(monotonic, database)
        if here > GAP or abs(parted) > GAP:
            fault = monotonic
    return guard, monotonic, fault


@given(steps, st.floats(0.0, 20.0))
def test_it_may_rescue_only_after_it_has_beaten_for_so_long_without_gap_or_step(
    history: list[tuple[float, float]], later: float
) -> None:
    guard, last, fault = beaten(history)
    may = guard.may_rescue(last + later)
    if may:
        assert last - fault >= NEEDED - 1e-6
        assert later <= GAP + 1e-6
    if last - fault >= NEEDED + 1e-6 and later <= GAP - 1e-6:
        assert may


def test_it_may_not_before_its_first_heartbeat() -> None:
    guard = RescueGuard(needed=0.0, gap=GAP)
    assert guard.last_heartbeat is None
    assert not RescueGuard(needed=NEEDED, gap=GAP).may_rescue(1e9)


def test_silence_is_counted_back_from_its_latest_heartbeat() -> None:
    guard, _, _ = beaten([(1.0, 0.0), (1.0, 0.0)])
    assert guard.last_heartbeat == MIDNIGHT + timedelta(seconds=2)


def test_a_gap_is_given_as_the_reason() -> None:
    guard, _, _ = beaten([(1.0, 0.0), (9.0, 0.0)])
    assert guard.reason == "no heartbeat for 9.0 s"
