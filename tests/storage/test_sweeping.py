"""What belongs to nothing leaves a disk, after its grace; what the catalogue knows stays, and so does a wrong disk."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from peerd.storage.disk.content_id import ContentId, new_content_id
from peerd.storage.local_disks import LocalDisk
from peerd.storage.sweeping import ALWAYS_MOVED, GRACE, PART_GRACE, QUARANTINE_GRACE, TooManyUnknown, sweep
from tests.storage.nodes import ServedNode, StorageCluster

DAY = 86_400.0


def disk_of(node: ServedNode) -> LocalDisk:
    node.node.disks.refresh()
    [disk] = node.node.disks.usable()
    return disk


def content(disk: LocalDisk, age: float) -> ContentId:
    """A content on a disk that was made some seconds ago, and that is in no catalogue."""
    made = new_content_id(time.time() - age)
    with disk.opened.begin(made) as part:
        part.write(b"bytes")
        part.publish()
    return made


def test_unknown_contents_are_quarantined_after_a_day_and_removed_after_a_month(cluster: StorageCluster) -> None:
    node = cluster.nodes["a"]
    disk, store = disk_of(node), cluster.catalogue.store
    films = cluster.catalogue.bucket()
    known, young, old = (content(disk, age) for age in (9 * DAY, GRACE - 60, GRACE + 60))
    cluster.catalogue.put(films, "known", node.disk, 5, id=known.number)
    assert sweep(store, disk, threading.Event()).contents == 1
    assert node.contents() == sorted(map(str, (known, young)))
    [moved] = disk.opened.quarantined()
    assert moved.startswith(f"{old}.unknown.")
    later = time.time() + QUARANTINE_GRACE
    assert sweep(store, disk, threading.Event(), lambda: later - 60).quarantined == 0
    assert sweep(store, disk, threading.Event(), lambda: later + 60).quarantined == 1
    assert str(known) in node.contents(), "what the catalogue knows stays, however old it is"
    for number, state in enumerate(("planned", "bad", "removing")):
        made = content(disk, 9 * DAY)
        cluster.catalogue.put(films, f"{number}", node.disk, 5, id=made.number)
        cluster.catalogue.set_copy(made.number, node.disk, state)
    assert sweep(store, disk, threading.Event()).contents == 0, "each of these is known"
    assert len(node.contents()) == 4


def test_a_part_that_is_not_written_for_a_week_is_removed_unless_a_process_has_it(cluster: StorageCluster) -> None:
    disk = disk_of(cluster.nodes["a"])
    held, left = new_content_id(time.time()), new_content_id(time.time() + 1)
    with disk.opened.begin(held) as open_part, disk.opened.begin(left) as part:
        for one in (open_part, part):
            one.write(b"bytes")
        part.close()
        for name in (held, left):
            past = time.time() - PART_GRACE - 60
            os.utime(Path(disk.opened.name) / "parts" / f"{name}.part", (past, past))
        assert sweep(cluster.catalogue.store, disk, threading.Event()).parts == 1
        assert [path.name for path in (Path(disk.opened.name) / "parts").iterdir()] == [f"{held}.part"]


def test_a_disk_of_which_the_catalogue_knows_little_is_left_alone(cluster: StorageCluster) -> None:
    node = cluster.nodes["a"]
    disk = disk_of(node)
    for _ in range(ALWAYS_MOVED + 1):
        content(disk, 9 * DAY)
    with pytest.raises(TooManyUnknown, match=r"restored from an old backup\?"):
        sweep(cluster.catalogue.store, disk, threading.Event())
    assert len(node.contents()) == ALWAYS_MOVED + 1
