"""Lists of files: by prefix, in the order of the bytes of keys, with a delimiter as folders, page by page."""

from __future__ import annotations

import random
from itertools import product

import sqlalchemy as sa

from peerd.domain.files import FileState
from peerd.store.connection.database import Database
from peerd.store.files.buckets import Bucket
from peerd.store.files.listing import FileList, list_files
from peerd.store.schema.tables import files
from tests.store.file_steps import HASH, Catalogue
from tests.store.plans import recorded_statements

LETTERS = ["a", "b", "/", "%", "_", "\\", "ä", "\uffff", "\U0010ffff", "Z", " ", "'", "//"]


def fill(store: Database, bucket: Bucket, keys: list[str]) -> None:
    values = {"bucket_id": bucket.id, "class_name": "default", "size": 1, "blake3": HASH}
    current = {"state": FileState.STORED.value, "is_current": 1, "version": 1}
    gone = {"state": FileState.DELETED.value, "is_current": None, "version": 1}
    rows = [{"id": number, "file_key": key, **values, **current} for number, key in enumerate(keys, 1)]
    rows += [{"id": -number, "file_key": key, **values, **gone} for number, key in enumerate(keys[::3], 1)]
    store.run(lambda connection: connection.execute(sa.insert(files), rows).close())


def expected(keys: list[str], prefix: str, after: str, delimiter: str) -> list[str]:
    """The entries of a list, files and prefixes, in order."""
    entries: list[str] = []
    for key in sorted(keys, key=str.encode):
        if not key.startswith(prefix) or key <= after:
            continue
        at = key.find(delimiter, len(prefix)) if delimiter else -1
        entry = key if at < 0 else key[: at + len(delimiter)]
        if at >= 0 and after == entry:
            continue
        if entry not in entries[-1:]:
            entries.append(entry)
    return entries


def entries_of(page: FileList) -> list[str]:
    return sorted([*(file.key for file in page.files), *page.prefixes], key=str.encode)


def test_lists_are_those_of_a_simple_model_whatever_the_keys_and_the_pages(store: Database) -> None:
    random_one = random.Random(20)
    catalogue = Catalogue(store)
    bucket, other = catalogue.bucket(), catalogue.bucket("other")
    keys = sorted({"".join(random_one.choices(LETTERS, k=random_one.randint(1, 5))) for _ in range(700)})
    fill(store, bucket, keys)
    assert store.read(list_files, other) == FileList([], [])
    prefixes = ["", "a", "a/", "ä", "\U0010ffff", "%", "_", "\\", "b//", "nothing"]
    for prefix, delimiter, limit in product(prefixes, ["", "/", "//", "ä"], [1, 3, 50, 1000]):
        after, found = random_one.choice(["", "", "a", "a/", "b/b"]), []
        wanted = expected(keys, prefix, after, delimiter)
        for _ in range(4):
            page = store.read(list_files, bucket, prefix=prefix, after=after, delimiter=delimiter, limit=limit)
            assert len(entries_of(page)) <= limit
            found += entries_of(page)
            if page.next_after is None:
                assert found == wanted
                break
            after = page.next_after
        assert found == wanted[: len(found)], (prefix, delimiter, limit)


def test_a_list_of_folders_skips_what_is_in_each(store: Database) -> None:
    bucket = Catalogue(store).bucket()
    fill(store, bucket, [f"folder-{number % 5}/{number:06}" for number in range(200)])
    with recorded_statements(store) as statements:
        page = store.read(list_files, bucket, delimiter="/")
    assert page.prefixes == [f"folder-{number}/" for number in range(5)]
    assert sum(sent[0].startswith("SELECT") for sent in statements) == 6
