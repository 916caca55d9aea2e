"""Versions of files: one is current, whatever happens at the same moment, and what was current is a tombstone."""

from __future__ import annotations

from functools import partial

import pytest

from peerd.domain.file_errors import FileConditionFailed, FileMissing, InvalidFile, QuotaExceeded
from peerd.domain.files import FileState
from peerd.store.files import buckets, versions
from peerd.store.files.buckets import Usage
from peerd.store.files.versions import Condition
from peerd.store.schema.tables import file_checks, file_chunks, files
from peerd.store.schema.types import seconds_from_now
from tests.store.file_steps import HASH, Catalogue
from tests.store.world import at_once


def test_a_put_is_current_with_its_copy_its_hash_and_its_metadata(catalogue: Catalogue) -> None:
    disk, films = catalogue.disk("a"), catalogue.bucket()
    key, metadata = "ä/日本 😀 %_\\.mov", {"director": "Ünal"}
    put = catalogue.put(films, key, disk, 7, content_type="video/quicktime", metadata=metadata, expires_in=60.0)
    assert catalogue.find(films, key) == put
    assert (put.key, put.version, put.state, put.metadata) == (key, 1, FileState.STORED, metadata)
    assert put.expires_at is not None
    assert catalogue.copies(put.id) == {disk: "stored"}
    assert catalogue.count(file_checks) == 1, "a second copy has to be made"
    large = catalogue.put(films, "large", disk, 3 * 2**20, chunk_size=2**20, chunks=bytes(96))
    hashes = [catalogue.count(file_chunks), catalogue.count(file_chunks, file_chunks.c.file_id == large.id)]
    assert hashes == [1, 1], "of chunks, for large contents alone"


def test_a_staged_version_is_not_seen_until_it_is_published_and_can_be_discarded(catalogue: Catalogue) -> None:
    disk, films = catalogue.disk("a"), catalogue.bucket()
    old, new, never = catalogue.put(films, "a", disk), catalogue.new("a", disk, 20), catalogue.new("a", disk, 30)
    catalogue.store.run(versions.stage, films, new)
    catalogue.store.run(versions.stage, films, never)
    assert catalogue.find(films, "a") == old
    assert catalogue.publish(films, new).version == 2
    for staged in (never, new):
        catalogue.store.run(versions.discard_staged, staged.id)
    discarded, current = catalogue.store.read(versions.get_version, never.id), catalogue.find(films, "a")
    assert (discarded and discarded.state, current and current.size) == (FileState.DELETED, 20)


def test_conditions_of_a_put_hold_or_nothing_changes(catalogue: Catalogue) -> None:
    disk, films = catalogue.disk("a"), catalogue.bucket()
    is_absent = Condition(is_absent=True)
    first = catalogue.put(films, "a", disk, condition=is_absent, etag="tag-1")
    for condition in (is_absent, Condition(tag="another")):
        with pytest.raises(FileConditionFailed, match=r"films/a.*nothing was changed"):
            catalogue.put(films, "a", disk, condition=condition)
    with pytest.raises(FileConditionFailed, match="there is no file of this key"):
        catalogue.put(films, "b", disk, condition=Condition(tag="tag-1"))
    assert catalogue.find(films, "a") == first
    assert catalogue.count(files) == 1, "what was refused left no row"
    assert catalogue.put(films, "a", disk, condition=Condition(tag="tag-1")).version == 2
    assert catalogue.put(films, "a", disk, condition=Condition(tag=HASH)).version == 3
    earlier = catalogue.store.read(versions.get_version, first.id)
    assert earlier is not None
    assert (earlier.state, catalogue.copies(first.id)) == (FileState.DELETED, {disk: "stored"}), "until it is removed"


def test_a_quota_is_of_current_files_and_a_put_that_exceeds_it_leaves_nothing(catalogue: Catalogue) -> None:
    disk, films = catalogue.disk("a"), catalogue.bucket(quota=100)
    catalogue.put(films, "a", disk, 60)
    with pytest.raises(QuotaExceeded, match=r"films.*has 60 B of 100 B, and the file has 41 B"):
        catalogue.put(films, "b", disk, 41)
    assert catalogue.find(films, "b") is None
    assert catalogue.put(films, "b", disk, 40).size == 40
    catalogue.store.run(versions.delete_file, films, "a")
    assert catalogue.put(films, "c", disk, 50).size == 50
    assert catalogue.put(films, "c", disk, 60).version == 2, "it needs room for the difference alone"
    with pytest.raises(QuotaExceeded):
        catalogue.put(films, "c", disk, 61)


def test_a_deleted_file_is_a_tombstone_at_once_and_deleting_it_again_does_nothing(catalogue: Catalogue) -> None:
    disk, films = catalogue.disk("a"), catalogue.bucket()
    put = catalogue.put(films, "a", disk)
    with pytest.raises(FileConditionFailed):
        catalogue.store.run(versions.delete_file, films, "a", Condition(tag="another"))
    deleted = catalogue.store.run(versions.delete_file, films, "a")
    assert deleted is not None
    assert (deleted.id, catalogue.find(films, "a")) == (put.id, None)
    with pytest.raises(FileMissing, match="there is no file 'films/a'"):
        catalogue.store.read(versions.get_file, films, "a")
    assert catalogue.store.run(versions.delete_file, films, "a") is None
    assert catalogue.put(films, "a", disk).version == 1


def test_a_file_is_moved_without_its_content_also_over_another_one_and_to_another_bucket(catalogue: Catalogue) -> None:
    disk, films, stills = catalogue.disk("a"), catalogue.bucket(), catalogue.bucket("stills", quota=15)
    one, two = catalogue.put(films, "one", disk, 10), catalogue.put(films, "two", disk, 20)
    moved = catalogue.store.run(versions.move_file, (films, "one"), (films, "two"))
    assert (moved.id, moved.key, moved.version, catalogue.find(films, "one")) == (one.id, "two", 2, None)
    buried = catalogue.store.read(versions.get_version, two.id)
    assert (buried and buried.state) is FileState.DELETED
    moved = catalogue.store.run(versions.move_file, (films, "two"), (stills, "one"))
    assert (moved.id, moved.bucket) == (one.id, "stills")
    assert catalogue.store.read(buckets.bucket_usage, films.id) == Usage(0, 0)
    assert catalogue.store.read(buckets.bucket_usage, stills.id) == Usage(1, 10)
    assert catalogue.store.run(versions.move_file, (stills, "one"), (stills, "one")) == moved, "to where it is"
    with pytest.raises(FileMissing):
        catalogue.store.run(versions.move_file, (films, "one"), (stills, "two"))
    catalogue.put(films, "large", disk, 10)
    with pytest.raises(QuotaExceeded):
        catalogue.store.run(versions.move_file, (films, "large"), (stills, "large"))


def test_two_files_that_are_moved_to_each_other_at_the_same_moment_do_not_lock_each_other_out(
    catalogue: Catalogue,
) -> None:
    disk, films = catalogue.disk("a"), catalogue.bucket()
    for key in "ab":
        catalogue.put(films, key, disk)

    def move(source: str, target: str) -> int:
        try:
            return catalogue.store.run(versions.move_file, (films, source), (films, target)).version
        except FileMissing:
            return 0

    assert max(at_once([partial(move, "a", "b"), partial(move, "b", "a")])) == 2
    assert catalogue.count(files, files.c.is_current == 1) == 1
    assert catalogue.store.read(buckets.bucket_usage, films.id).files == 1


def test_a_file_that_is_moved_while_others_are_put_is_found_and_nothing_is_lost(catalogue: Catalogue) -> None:
    disk, films = catalogue.disk("a"), catalogue.bucket()
    for number in range(4):
        source, target = f"from-{number}", f"to-{number}"
        catalogue.put(films, source, disk)

        def move(source: str = source, target: str = target) -> str:
            try:
                return catalogue.store.run(versions.move_file, (films, source), (films, target)).key
            except FileConditionFailed as error:
                return error.problem

        outcomes = at_once([move, *(lambda key=key: catalogue.put(films, key, disk).key for key in (source, target))])
        assert outcomes[0] in {target, "a file was put there in the same moment"}
        current = catalogue.count(files, files.c.is_current == 1, files.c.file_key.in_([source, target]))
        assert current in {1, 2}
    counted = catalogue.store.read(buckets.bucket_usage, films.id).files
    assert counted == catalogue.count(files, files.c.is_current == 1)


def test_what_has_expired_is_deleted_by_the_clock_of_the_database(catalogue: Catalogue) -> None:
    disk, films = catalogue.disk("a"), catalogue.bucket()
    soon, later = (catalogue.put(films, key, disk, expires_in=3600.0) for key in ("soon", "later"))
    catalogue.put(films, "never", disk)
    assert catalogue.store.run(versions.delete_expired, 10) == []
    catalogue.change(files, files.c.id == soon.id, expires_at=seconds_from_now(-1))
    assert catalogue.store.run(versions.delete_expired, 10) == [soon.id]
    assert catalogue.store.run(versions.delete_expired, 10) == []
    assert catalogue.find(films, "soon") is None
    assert catalogue.find(films, "later") == later


def test_a_key_that_nothing_can_store_is_refused_and_others_are_compared_byte_by_byte(catalogue: Catalogue) -> None:
    disk, films = catalogue.disk("a"), catalogue.bucket()
    for key in ("", "a" * 1025, "ä" * 513, "nul\0", "\udc80"):
        with pytest.raises(InvalidFile, match="key: "):
            catalogue.put(films, key, disk)
    keys = ["a", "A", "a ", "ä", "a\u0308", " a", "a\n", "\U0001f600" * 256]
    assert [catalogue.put(films, key, disk).version for key in keys] == [1] * len(keys)
    assert catalogue.count(files, files.c.is_current == 1) == len(keys)
    for key in keys:
        found = catalogue.find(films, key)
        assert (found and found.key) == key
