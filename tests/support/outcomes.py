"""The outcome of a single attempt, written as a worker writes those of many."""

from __future__ import annotations

from sqlalchemy.engine import Connection

from peerd.domain.outcome import Outcome
from peerd.store.outcomes import ClaimId, record_outcomes


def record_outcome(connection: Connection, process_id: int, held: ClaimId, outcome: Outcome) -> bool:
    result = record_outcomes(connection, process_id, {held: outcome})
    assert not result.locked, "another session has locked the row"
    return not result.refused
