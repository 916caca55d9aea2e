"""Quarantined tasks: which processes empty themselves for one, and when."""

from __future__ import annotations

import pytest
import sqlalchemy as sa

from peerd.store.claim.claimer import Claimer
from peerd.store.claim.quarantined import should_empty_for_quarantined
from peerd.store.nodes import nodes, processes
from peerd.store.schema.sql_clock import seconds_from_now
from peerd.store.schema.tables import limits
from tests.store.world import World

pytestmark = pytest.mark.every_database

WAIT = 10.0


def emptying_processes(world: World, *claimers: Claimer) -> list[int]:
    """Indexes of the claimers whose processes are to empty themselves."""
    numbered = enumerate(claimers)
    return [number for number, claimer in numbered if world.read(should_empty_for_quarantined, claimer, WAIT)]


def test_one_process_after_another_empties_the_oldest_first_and_half_of_them_never(world: World) -> None:
    claimers = [world.claimer(), world.claimer(node="b"), world.claimer(), world.claimer(), world.claimer(node="b")]
    task_id = world.insert(crashes=1)
    for waited, number in ((11, 1), (19, 1), (21, 2), (39, 2), (41, 3), (9_999, 3)):
        world.set(task_id, created_at=seconds_from_now(-waited))
        assert emptying_processes(world, *claimers) == [0, 1, 2][:number], waited


def test_a_process_that_cannot_empty_first_is_not_waited_for(world: World) -> None:
    ended, other_kind = world.claimer(), world.claimer(kind="thumbnails")
    draining, silent, mine = world.claimer(node="b"), world.claimer(node="c"), world.claimer()
    world.insert(crashes=1, created_at=seconds_from_now(-11))
    world.run(processes.end_process, ended.process_id, "killed by SIGKILL")
    assert emptying_processes(world, mine) == []
    world.run(nodes.set_draining, "b", draining=True)
    assert emptying_processes(world, mine) == []
    world.run(nodes.deregister_node, "c", world.incarnation("c"))
    assert emptying_processes(world, mine) == [0]
    assert emptying_processes(world, draining, silent, other_kind) == [2]


def test_no_process_empties_for_a_task_that_may_not_start(world: World) -> None:
    claimer = world.claimer()
    world.insert(crashes=1, limit_key="a", created_at=seconds_from_now(-60))
    assert emptying_processes(world, claimer) == [0]
    beside = world.insert(limit_key="a", status="done", process_id=claimer.process_id)
    for limited in ("a", "*", ""):
        world.execute(sa.insert(limits).values(queue="q", limit_key=limited, running=1))
        for status, expected in (("done", [0]), ("working", []), ("done", [0])):
            world.set(beside, status=status)
            assert emptying_processes(world, claimer) == expected, (limited, status)
        world.execute(sa.delete(limits))
