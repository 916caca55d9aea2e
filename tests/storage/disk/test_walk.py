from __future__ import annotations

import random
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.folder import DiskFolder
from tests.storage.disk.contents import path_of

COUNT = 8_000


def place(root: Path, content: ContentId, size: int) -> None:
    path = path_of(root, content)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def test_a_walk_is_complete_in_order_resumable_and_needs_little_memory(disk: DiskFolder, disk_path: Path) -> None:
    """Contents of folders with many and with one."""
    numbers = random.Random(5)
    ids = {ContentId(numbers.randrange(2**63)) for _ in range(500)}
    while len(ids) < COUNT:
        begin = numbers.randrange(2**63 - 2**29) >> 28 << 28
        ids |= {ContentId(begin + numbers.randrange(2**28)) for _ in range(500)}
    sizes = {content: numbers.randrange(10**9) for content in sorted(ids)[:COUNT]}
    for content in numbers.sample(list(sizes), COUNT):
        place(disk_path, content, sizes[content])
    assert [found for batch in disk.walk() for found in batch] == list(sizes.items())
    assert [len(batch) for batch in disk.walk(batch=3000)] == [3000, 3000, 2000]
    listed = list(sizes)
    for last in [listed[0], listed[4_999], listed[-2], ContentId(listed[5000].number - 1)]:
        rest = [found.content for batch in disk.walk(last) for found in batch]
        assert rest == [content for content in listed if content > last]
    assert list(disk.walk(listed[-1])) == []
    tracemalloc.start()
    for _ in disk.walk(batch=100):
        pass
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 500_000  # all of them are 1.6 MB
    assert list(disk.unknown_entries()) == []


def test_a_walk_goes_on_while_contents_and_folders_are_removed(disk: DiskFolder, disk_path: Path) -> None:
    ids = [ContentId(number << 28) for number in range(1, 60)]
    for content in ids:
        place(disk_path, content, 1)
    found = []
    for (one,) in disk.walk(batch=1):
        found.append(one.content)
        if one.content.number >> 28 < 57:
            disk.remove(ContentId(one.content.number + (3 << 28)))  # of a folder that was listed already
            if one.content.number >> 28 == 3:
                break
    assert found == ids[:3]
    assert [one.content for batch in disk.walk(found[-1]) for one in batch] == ids[6:]


def test_threads_that_list_one_folder_at_the_same_time_find_all_of_it(disk: DiskFolder, disk_path: Path) -> None:
    names = sorted(f"{number:05}" for number in range(2000))
    for name in names:
        (disk_path / "parts" / name).touch()
    with ThreadPoolExecutor(4) as pool:
        listed = list(pool.map(lambda _: disk.parts.names(), range(80)))
    assert all(found == names for found in listed)
