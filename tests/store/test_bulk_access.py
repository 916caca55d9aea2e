"""Bulk actions of actors that are restricted to queues: on tasks of these alone, and found by no other such actor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import sqlalchemy as sa

from peerd import Actor, BulkCancel, BulkMoveToQueue, Client, NotPermitted, TaskFilter
from peerd.domain.bulk import BulkAction, BulkState
from peerd.domain.errors import BulkActionNotFound, InvalidFilter
from peerd.domain.lifecycle import Status
from peerd.store.connection.database import Database
from peerd.store.schema.tables import bulk_actions, tasks
from tests.store.bulk_steps import carry_out, chunk
from tests.store.world import World

CANCEL = BulkCancel("enough")
ON_SQLITE = pytest.mark.parametrize("store", ["sqlite"], indirect=True)
"""Of what the databases do alike."""


def of_queues(client: Client, *queues: str) -> Client:
    return client.acting_as(Actor.with_role("-".join(queues), "operator", queues=queues))


def canceled(world: World) -> set[int]:
    found = sa.select(tasks.c.id).where(tasks.c.status == Status.CANCELED)
    return set(world.scalars(found))


def put_by_hand(store: Database, task_id: int, queue: str) -> None:
    """Into another queue, and so that the task does not look changed."""
    moved = sa.update(tasks).where(tasks.c.id == task_id).values(queue=queue, updated_at=tasks.c.updated_at)
    store.run(lambda connection: connection.execute(moved))


def test_it_acts_on_tasks_of_the_queues_alone_wherever_they_are_moved_meanwhile(world: World) -> None:
    own = {world.add("mail") for _ in range(3)} | {world.add("news")}
    foreign = [world.add("video") for _ in range(2)]
    client = of_queues(Client(world.store), "mail", "news")
    preview = client.bulk.preview(CANCEL, all_tasks=True)
    assert (preview.matched, {task.id for task in preview.examples}) == (len(own), own)
    assert client.bulk.preview(CANCEL, TaskFilter(queue="video")).matched == 0
    chunk(world)  # of nothing: it only lets the clock move
    bulk = client.bulk.create(CANCEL, all_tasks=True, digest=preview.digest)
    left, came = min(own), foreign[0]
    put_by_hand(world.store, left, "video")
    put_by_hand(world.store, came, "mail")
    assert carry_out(world, bulk).state is BulkState.DONE
    assert canceled(world) == own - {left} | {came}
    aimed = carry_out(world, client.bulk.create(CANCEL, TaskFilter(queue="video")))
    assert (aimed.done, canceled(world)) == (0, own - {left} | {came})


@ON_SQLITE
def test_a_digest_is_of_the_queues_of_its_preview(world: World) -> None:
    everything = Client(world.store)
    actors = (everything, of_queues(everything, "mail"), of_queues(everything, "mail", "video"))
    for one in actors:
        digest = one.bulk.preview(CANCEL, all_tasks=True).digest
        for other in actors:
            if other is not one:
                with pytest.raises(InvalidFilter, match="preview"):
                    other.bulk.create(CANCEL, all_tasks=True, digest=digest)


def test_another_actor_of_queues_finds_those_of_its_own_queues_only(world: World) -> None:
    everything = Client(world.store)
    of_all = everything.bulk.create(CANCEL, all_tasks=True)
    mail, both, video = (of_queues(everything, *queues) for queues in (["mail"], ["mail", "video"], ["video"]))
    of_mail, of_both = (one.bulk.create(CANCEL, all_tasks=True) for one in (mail, both))
    for actor, seen in (
        (everything, [of_both, of_mail, of_all]),
        (both, [of_both, of_mail]),
        (mail, [of_mail]),
        (video, []),
    ):
        assert ids(actor.bulk.list()) == ids(seen)
        assert ids(actor.bulk.list(states=["running"], limit=1)) == ids(seen[:1])
        for bulk in (of_all, of_mail, of_both):
            for act in (actor.bulk.get, actor.bulk.pause, actor.bulk.resume):
                if bulk in seen:
                    assert act(bulk.id).id == bulk.id
                else:
                    with pytest.raises(BulkActionNotFound):
                        act(bulk.id)


def ids(found: Iterable[BulkAction]) -> list[int]:
    return [bulk.id for bulk in found]


@ON_SQLITE
def test_it_is_canceled_and_carried_out_by_its_actor_and_by_no_other(world: World) -> None:
    task = world.add("mail")
    everything = Client(world.store)
    mail, video = of_queues(everything, "mail"), of_queues(everything, "video")
    chunk(world)
    bulk = mail.bulk.create(CANCEL, TaskFilter(queue="mail"))
    for refused in (video.bulk.cancel, video.bulk.carry_out):
        with pytest.raises(BulkActionNotFound):
            refused(bulk.id)
    assert canceled(world) == set()
    chunk(world)
    mail.bulk.carry_out(bulk.id)
    assert canceled(world) == {task}
    assert mail.bulk.cancel(mail.bulk.create(CANCEL, all_tasks=True).id).state is BulkState.CANCELED
    for not_permitted in (mail.bulk.preview, mail.bulk.create):
        with pytest.raises(NotPermitted, match="the queue video is none of its queues"):
            not_permitted(BulkMoveToQueue("video"), all_tasks=True)


@ON_SQLITE
def test_a_restriction_that_was_spoiled_by_hand_lets_nothing_be_done(world: World) -> None:
    world.add("mail")
    mail = of_queues(Client(world.store), "mail")
    for queues in ('"mail"', "null", "{}", "[7]"):
        bulk = mail.bulk.create(CANCEL, all_tasks=True)
        write(world.store, bulk.id, filter=f'{{"queues":{queues}}}')
        assert mail.bulk.list() == []
        with pytest.raises(BulkActionNotFound):
            mail.bulk.get(bulk.id)
        chunk(world)
        assert canceled(world) == set()


def write(store: Database, bulk_id: int, **values: Any) -> None:
    changed = sa.update(bulk_actions).where(bulk_actions.c.id == bulk_id).values(**values)
    store.run(lambda connection: connection.execute(changed))
