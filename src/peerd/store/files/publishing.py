"""Puts: versions become current, by a few statements of one transaction, however many they are.

Each put succeeds or is refused alone. Only a put of the same new key by another transaction, which the unique index of
current versions finds, fails all of them: then they are to be published again, one by one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from peerd.domain.errors import PeerdError
from peerd.domain.file_errors import FileConditionFailed, FileMissing, InvalidFile, QuotaExceeded
from peerd.domain.files import CopyState, FileState, StoredFile, check_key
from peerd.store.files.buckets import Bucket, bucket_usage, count_in_bucket, hold_bucket
from peerd.store.files.versions import (
    UNCONDITIONAL,
    Condition,
    NewFile,
    bury,
    check_condition,
    chunks_of,
    lock_current,
    row_of,
    select_files,
)
from peerd.store.records import read_all
from peerd.store.schema.tables import file_chunks, file_copies, files
from peerd.store.schema.types import seconds_from_now

MAX_PUTS: Final = 500
_VERSIONS: Final = select_files(files.c.id.in_(sa.bindparam("ids", expanding=True)))
_MAKE_CURRENT: Final = (
    sa.update(files)
    .where(files.c.id == sa.bindparam("staged"))
    .values(state=FileState.STORED.value, is_current=1, version=sa.bindparam("next_version"))
)
_EXPIRE: Final = (
    sa.update(files)
    .where(files.c.id == sa.bindparam("expiring"))
    .values(expires_at=seconds_from_now(sa.bindparam("seconds", type_=sa.Double())))
)


class FilePut(msgspec.Struct, frozen=True):
    """A version that is to become current.

    Attributes:
        condition: that must hold.
    """

    bucket: Bucket
    new: NewFile
    condition: Condition = UNCONDITIONAL


class PublishedPut(msgspec.Struct, frozen=True, kw_only=True):
    """A version that became current.

    Attributes:
        replaced: what was current before.
        current: what is now.
        was_staged: whether its rows were there before.
        is_done: whether it became current now; not where it had been before, and the reply was lost.
    """

    current: StoredFile
    replaced: StoredFile | None = None
    was_staged: bool = False
    is_done: bool = True


def publish_many(connection: Connection, puts: Sequence[FilePut]) -> list[PublishedPut | PeerdError]:
    """Make versions whose content is stored the current ones of their keys; request checks of those they replace.

    Of the new ones the caller enters checks: it knows already what they need.

    Args:
        connection: in a transaction.
        puts: at most `MAX_PUTS`, with different ids; of one key, the first becomes current first.

    Returns:
        By put, what became of it, or why it was refused: InvalidFile for a key that cannot be stored, FileMissing where
        the bucket was deleted meanwhile, QuotaExceeded, FileConditionFailed.

    Raises:
        DatabaseBusy: other puts of a key with a condition were faster again and again.
        IntegrityError: a put of a new key by another transaction was faster.
    """
    outcomes: dict[int, PublishedPut | PeerdError] = {}
    known = _read_versions(connection, [put.new.id for put in puts])
    by_bucket: dict[int, list[FilePut]] = defaultdict(list)
    for put in puts:
        version = known.get(put.new.id)
        if version is not None and version.state is not FileState.STAGED:
            outcomes[put.new.id] = PublishedPut(current=version, is_done=False)
            continue
        try:
            check_key(put.new.key)
        except InvalidFile as error:
            outcomes[put.new.id] = error
        else:
            by_bucket[put.bucket.id].append(put)
    for bucket_id, group in sorted(by_bucket.items()):  # in this order in each transaction
        if not hold_bucket(connection, bucket_id):
            outcomes.update({put.new.id: FileMissing(put.bucket.name, put.new.key) for put in group})
            continue
        for round_of_keys in _rounds(group):
            outcomes.update(_Publishing(connection, round_of_keys[0].bucket, known).run(round_of_keys))
    return [outcomes[put.new.id] for put in puts]


def _rounds(puts: Sequence[FilePut]) -> list[list[FilePut]]:
    """Puts of different keys, one after another: a key that is put twice is current twice."""
    rounds: list[list[FilePut]] = []
    of_key: Counter[str] = Counter()
    for put in puts:
        if of_key[put.new.key] == len(rounds):
            rounds.append([])
        rounds[of_key[put.new.key]].append(put)
        of_key[put.new.key] += 1
    return rounds


class _Publishing:
    """Puts of different keys into one bucket.

    Args:
        connection: in a transaction that holds the bucket.
        bucket: of all of them.
        staged: the versions that have rows already.
    """

    def __init__(self, connection: Connection, bucket: Bucket, staged: Mapping[int, StoredFile]) -> None:
        self._connection = connection
        self._bucket = bucket
        self._staged = staged

    def run(self, puts: Sequence[FilePut]) -> dict[int, PublishedPut | PeerdError]:
        """Publish them: by id, what became of each."""
        judged = {put.new.key for put in puts if put.condition is not UNCONDITIONAL}
        replaced = lock_current(self._connection, self._bucket, [put.new.key for put in puts], judged)
        refused = self._refused(puts, replaced)
        entered = [put.new for put in puts if put.new.id not in refused]
        if not entered:
            return dict(refused)
        versions = {new.id: 1 + (replaced[new.key].version if new.key in replaced else 0) for new in entered}
        buried = [replaced[new.key] for new in entered if new.key in replaced]
        if buried:
            bury(self._connection, [version.id for version in buried])
        self._insert([new for new in entered if new.id not in self._staged], versions)
        for new in entered:
            if new.id in self._staged:
                self._connection.execute(_MAKE_CURRENT, {"staged": new.id, "next_version": versions[new.id]})
        size = sum(new.size for new in entered) - sum(version.size for version in buried)
        count_in_bucket(self._connection, self._bucket.id, entered[0].id, len(entered) - len(buried), size)
        current = _read_versions(self._connection, [new.id for new in entered])
        self._insert_contents([new for new in entered if new.id not in self._staged], current)
        published = {
            new.id: PublishedPut(
                current=current[new.id], replaced=replaced.get(new.key), was_staged=new.id in self._staged
            )
            for new in entered
        }
        return {**refused, **published}

    def _refused(self, puts: Sequence[FilePut], replaced: Mapping[str, StoredFile]) -> dict[int, PeerdError]:
        refused: dict[int, PeerdError] = {}
        quota = self._bucket.quota
        used = 0 if quota is None else bucket_usage(self._connection, self._bucket.id).bytes
        for put in puts:
            current, size = replaced.get(put.new.key), put.new.size
            added = size - (0 if current is None else current.size)
            try:
                check_condition(self._bucket.name, put.new.key, current, put.condition)
            except FileConditionFailed as error:
                refused[put.new.id] = error
                continue
            if quota is not None and used + added > quota:
                refused[put.new.id] = QuotaExceeded(self._bucket.name, quota, used, size)
            else:
                used += added
        return refused

    def _insert(self, new_files: Sequence[NewFile], versions: Mapping[int, int]) -> None:
        if not new_files:
            return
        rows = [
            {**row_of(new, self._bucket), "state": FileState.STORED.value, "is_current": 1, "version": versions[new.id]}
            for new in new_files
        ]
        self._connection.execute(sa.insert(files), rows)
        for new in new_files:
            if new.expires_in is not None:
                self._connection.execute(_EXPIRE, {"expiring": new.id, "seconds": new.expires_in})

    def _insert_contents(self, new_files: Sequence[NewFile], current: Mapping[int, StoredFile]) -> None:
        """Enter their chunks and their first copies, which were verified when they were written: just now."""
        if not new_files:
            return
        chunked = [chunks_of(new) for new in new_files if new.chunks]
        if chunked:
            self._connection.execute(sa.insert(file_chunks), chunked)
        copies = [
            {
                "file_id": new.id,
                "disk_id": new.disk_id,
                "size": new.size,
                "state": CopyState.STORED.value,
                "verified_at": current[new.id].created_at,
            }
            for new in new_files
        ]
        self._connection.execute(sa.insert(file_copies), copies)


def _read_versions(connection: Connection, ids: Sequence[int]) -> dict[int, StoredFile]:
    return {version.id: version for version in read_all(connection, StoredFile, _VERSIONS, {"ids": list(ids)})}
