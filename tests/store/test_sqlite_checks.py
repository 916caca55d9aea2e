"""SQLite's CHECKs apply to what others write; what claims and completions write meets them without being checked."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from peerd.domain.task import NewTask
from peerd.store.claim import claim
from peerd.store.enqueue import enqueue
from peerd.store.outcomes import complete
from peerd.store.outcomes.recording import ClaimId
from peerd.store.schema.tables import tasks
from peerd.store.statements.token import new_token
from tests.store.world import World

pytestmark = pytest.mark.parametrize("store", ["sqlite"], indirect=True)

BAD = sa.update(tasks).values(updated_at=sa.literal_column("'yesterday'"))


def test_what_claims_and_completions_write_meets_every_check(world: World) -> None:
    news = [NewTask(queue="q", priority=n, finish_in=60.0) for n in range(6)]
    world.run(enqueue.enqueue_many, news)
    claimer = world.claimer()
    won = world.store.run_autocommit(claim.claim, claimer, token=new_token(), limit=4).tasks
    results = {ClaimId(task.id, task.lease): '{"n":1}' if task.priority % 2 else None for task in won[:2]}
    assert not world.store.run_autocommit(complete.complete, claimer.process_id, results)
    reported = world.read(lambda connection: connection.exec_driver_sql("PRAGMA integrity_check").scalars().all())
    assert reported == ["ok"]


def test_integrity_is_broken_by_what_a_check_forbids_and_other_writes_are_checked(world: World) -> None:
    """Proves that the test above can fail."""
    world.add()
    with pytest.raises(sa.exc.IntegrityError, match="updated_at_form"):
        world.execute(BAD)  # all other writes are checked
    world.store.run_autocommit(lambda connection: connection.execute(BAD))
    reported = world.read(lambda connection: connection.exec_driver_sql("PRAGMA integrity_check").scalars().all())
    assert reported == ["CHECK constraint failed in tasks"]
