"""The outcome of a single attempt, written as a worker writes those of many."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from peerd.domain.outcome import Outcome
from peerd.store.outcomes.recording import ClaimId, record_outcomes


def record_outcome(connection: Connection, process_id: int, held: ClaimId, outcome: Outcome) -> bool:
    """Write it; False when it was refused, because the task is not held any more."""
    result = record_outcomes(connection, process_id, {held: outcome})
    assert not result.locked, "another session has locked the row"
    return not result.refused
