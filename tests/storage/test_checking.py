"""Checks: what a file needs is planned in one transaction, once, whoever checks it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from random import Random
from typing import Any

import sqlalchemy as sa

from peerd.domain.files import FileClass
from peerd.storage.checking import MAX_BYTES_OF_TASK, Checked, check_files, read_disk_view
from peerd.storage.placement.decision import FileHealth
from peerd.store.files import copies, versions
from peerd.store.files.checks import count_checks, lock_due_checks, request_checks
from peerd.store.files.classes import set_class
from peerd.store.schema.tables import file_checks, file_copies, files, tasks
from peerd.store.schema.types import seconds_from_now
from tests.store.file_steps import GIGABYTE, Catalogue
from tests.store.world import at_once


def check(catalogue: Catalogue, limit: int = 1000, seed: int = 1) -> Checked:
    """Check the files that are due, as a node would."""
    view = catalogue.store.read(read_disk_view)

    def operation(connection: sa.Connection) -> Checked:
        return check_files(connection, lock_due_checks(connection, limit), view, Random(seed))

    return catalogue.store.run(operation)


def make_due(catalogue: Catalogue) -> None:
    catalogue.change(file_checks, sa.true(), due_at=seconds_from_now(-1))


def enqueued(catalogue: Catalogue) -> list[dict[str, Any]]:
    """The tasks of the queue `storage`, with their bodies decoded."""
    columns = tasks.c.id, tasks.c.name, tasks.c.node_id, tasks.c.priority, tasks.c.body, tasks.c.status
    found = sa.select(*columns).where(tasks.c.queue == "storage").order_by(tasks.c.id)
    rows = catalogue.store.read(lambda connection: connection.execute(found).mappings().all())
    return [{**row, "body": json.loads(row["body"])} for row in rows]


def ids_of(task: dict[str, Any]) -> list[int]:
    return [int(text, 16) for text in task["body"]["files"]]


def store_copies(catalogue: Catalogue, file_ids: Sequence[int]) -> None:
    """Make what was planned, as the tasks would."""
    for file_id in file_ids:
        for disk, state in catalogue.copies(file_id).items():
            if state == "planned":
                assert catalogue.store.run(copies.copies_stored, disk, [file_id]) == {file_id}


def test_a_new_file_gets_a_task_on_the_node_of_another_disk_and_is_settled_with_its_copy(catalogue: Catalogue) -> None:
    here, there = catalogue.disk("a"), catalogue.disk("b")
    put = catalogue.put(catalogue.bucket(), "a", here)
    checked = check(catalogue)
    assert (checked.tasks, checked.decisions[put.id].copy_to) == (1, (there,))
    assert catalogue.copies(put.id) == {here: "stored", there: "planned"}
    [task] = enqueued(catalogue)
    assert (task["name"], task["node_id"], task["priority"]) == ("copy", catalogue.node("b"), 30)
    assert task["body"] == {"disk": there, "files": [f"{put.id:016x}"]}
    make_due(catalogue)
    assert check(catalogue).tasks == 0, "its task is still to run"
    store_copies(catalogue, [put.id])
    make_due(catalogue)
    assert check(catalogue).decisions[put.id].health is FileHealth.WHOLE
    assert catalogue.count(file_checks) == 0
    assert check(catalogue).decisions == {}


def test_a_copy_on_a_disk_that_was_added_after_the_disks_were_read_is_not_forgotten(catalogue: Catalogue) -> None:
    catalogue.disk("a")
    earlier = catalogue.store.read(read_disk_view)
    added = catalogue.disk("b")
    put = catalogue.put(catalogue.bucket(), "f", added)

    checked = catalogue.store.run(lambda c: check_files(c, lock_due_checks(c, 10), earlier, Random(1)))
    assert (checked.decisions[put.id].health, checked.decisions[put.id].forget) == (FileHealth.AT_RISK, ())
    assert catalogue.copies(put.id)[added] == "stored"


def test_a_file_that_is_checked_by_several_nodes_at_once_is_planned_once(catalogue: Catalogue) -> None:
    here = catalogue.disk("a")
    for name in "bcde":
        catalogue.disk(name)
    bucket = catalogue.bucket()
    put = [catalogue.put(bucket, f"{number}", here) for number in range(20)]
    at_once([partial(check, catalogue, seed=number) for number in range(5)])
    for file in put:
        assert sorted(catalogue.copies(file.id).values()) == ["planned", "stored"]
    assert sorted(number for task in enqueued(catalogue) for number in ids_of(task)) == sorted(file.id for file in put)


def test_a_planned_copy_whose_task_has_ended_without_it_is_planned_anew(catalogue: Catalogue) -> None:
    here, there = catalogue.disk("a"), catalogue.disk("b")
    put = catalogue.put(catalogue.bucket(), "a", here)
    check(catalogue)
    for number, ended in enumerate(("dead", "canceled", "gone"), 1):
        latest = enqueued(catalogue)[-1]["id"]
        if ended == "gone":
            catalogue.store.run(lambda c, one: c.execute(sa.delete(tasks).where(tasks.c.id == one)).close(), latest)
        else:
            catalogue.change(tasks, tasks.c.id == latest, status=ended)
        make_due(catalogue)
        assert check(catalogue).tasks == 1, ended
        assert len({task["id"] for task in enqueued(catalogue)} | {latest}) == number + 1
    assert catalogue.copies(put.id) == {here: "stored", there: "planned"}
    catalogue.change(tasks, sa.true(), status="dead")
    catalogue.store.run(copies.copies_bad, here, [put.id])
    lost = check(catalogue)
    assert (lost.decisions[put.id].health, lost.tasks) == (FileHealth.LOST, 0), "there is nothing to copy"
    catalogue.store.run(copies.copies_restored, here, [put.id])
    assert check(catalogue).tasks == 1


def test_small_files_share_a_task_and_a_large_one_has_its_own(catalogue: Catalogue) -> None:
    here, there = catalogue.disk("a"), catalogue.disk("b")
    bucket = catalogue.bucket()
    small = [catalogue.put(bucket, f"{number}", here, 1_000).id for number in range(60)]
    large = catalogue.put(bucket, "large", here, MAX_BYTES_OF_TASK).id
    check(catalogue)
    assert [ids_of(task) for task in enqueued(catalogue)] == [small, [large]]
    assert {task["body"]["disk"] for task in enqueued(catalogue)} == {there}


def test_files_of_one_check_do_not_all_go_to_the_disk_that_had_the_most_room(catalogue: Catalogue) -> None:
    here, one, two = catalogue.disk("a"), catalogue.disk("b", free=1_000), catalogue.disk("c", free=900)
    bucket = catalogue.bucket()
    put = [catalogue.put(bucket, f"{number}", here, 100).id for number in range(15)]
    check(catalogue)
    planned = [set(catalogue.copies(file_id)) - {here} for file_id in put]
    assert planned.count({one}) <= 10
    assert planned.count({two}) <= 9
    assert all(planned), "the room is enough for all"


def test_surplus_copies_of_one_check_do_not_all_leave_the_disk_that_was_the_fullest(one_catalogue: Catalogue) -> None:
    catalogue = one_catalogue
    full, other = (catalogue.disk(name, free=GIGABYTE - less) for name, less in (("a", 30_000_000), ("b", 0)))
    catalogue.store.run(set_class, FileClass(name="default", copies=1))
    bucket = catalogue.bucket()
    for number in range(20):
        put = catalogue.put(bucket, f"{number}", full, 10_000_000)
        catalogue.store.run(copies.plan_copies, other, {put.id: put.size}, 1)
        catalogue.store.run(copies.copies_stored, other, [put.id])
    check(catalogue)
    removed = [(task["node_id"], len(ids_of(task))) for task in enqueued(catalogue) if task["name"] == "remove"]
    counts = dict(removed)
    assert sum(counts.values()) == 20
    assert 10 <= counts[catalogue.node("a")] <= 13, "the fuller one keeps a few less"


def test_the_most_endangered_files_are_checked_first(catalogue: Catalogue) -> None:
    here, there = catalogue.disk("a"), catalogue.disk("b")
    bucket = catalogue.bucket()
    put = [catalogue.put(bucket, f"{number}", here).id for number in range(3)]
    catalogue.store.run(request_checks, {put[0]: 9, put[1]: 2, put[2]: 1})
    assert list(check(catalogue, limit=2).decisions) == [put[2], put[1]]
    assert there in catalogue.copies(put[2])


def test_what_cannot_be_done_is_tried_again_later_and_later_with_the_reason(catalogue: Catalogue) -> None:
    put = catalogue.put(catalogue.bucket(), "a", catalogue.disk("a"))
    pauses = []
    for _ in range(3):
        check(catalogue)
        row = catalogue.store.read(
            lambda connection: connection.execute(sa.select(file_checks, seconds_from_now(0).label("present"))).one()
        )
        assert (row.health, row.blocked) == ("at-risk", "no other node has a disk with room for 1 more")
        pauses.append((row.due_at - row.present).total_seconds())
        make_due(catalogue)
    assert pauses[0] < pauses[1] < pauses[2]
    assert catalogue.store.read(count_checks) == [{"danger": 1, "health": "at-risk", "files": 1}]
    assert put.id > 0


def test_a_deleted_file_leaves_its_disks_and_then_the_catalogue(catalogue: Catalogue) -> None:
    here, there = catalogue.disk("a"), catalogue.disk("b")
    bucket = catalogue.bucket()
    put = catalogue.put(bucket, "a", here)
    check(catalogue)
    store_copies(catalogue, [put.id])
    catalogue.store.run(versions.delete_file, bucket, "a")
    assert check(catalogue).tasks == 2
    assert catalogue.copies(put.id) == {here: "removing", there: "removing"}
    removals = [(task["body"]["disk"], task["node_id"]) for task in enqueued(catalogue) if task["name"] == "remove"]
    assert removals == [(here, catalogue.node("a")), (there, catalogue.node("b"))]
    catalogue.store.run(copies.copies_removed, here, [put.id])
    make_due(catalogue)
    assert check(catalogue).decisions[put.id].health is FileHealth.DELETED
    catalogue.store.run(copies.copies_removed, there, [put.id])
    make_due(catalogue)
    assert check(catalogue).decisions[put.id].health is FileHealth.GONE
    assert (catalogue.count(files), catalogue.count(file_copies), catalogue.count(file_checks)) == (0, 0, 0)
    copied = catalogue.put(bucket, "while it is copied", here)
    check(catalogue)
    catalogue.store.run(versions.delete_file, bucket, copied.key)
    check(catalogue)
    assert catalogue.copies(copied.id) == {here: "removing", there: "removing"}
    assert catalogue.store.run(copies.copies_stored, there, [copied.id]) == set(), "the copy task removes what it made"


def test_a_staged_version_is_copied_but_not_settled_before_it_is_published(catalogue: Catalogue) -> None:
    here, there = catalogue.disk("a"), catalogue.disk("b")
    bucket = catalogue.bucket()
    new = catalogue.new("a", here)
    catalogue.store.run(versions.stage, bucket, new)
    check(catalogue)
    assert catalogue.copies(new.id) == {here: "stored", there: "planned"}
    store_copies(catalogue, [new.id])
    make_due(catalogue)
    check(catalogue)
    assert catalogue.count(file_checks) == 1
    catalogue.publish(bucket, new)
    make_due(catalogue)
    check(catalogue)
    assert catalogue.count(file_checks) == 0
