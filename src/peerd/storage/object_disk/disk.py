"""A part of a bucket in an object store as a disk (what it promises: `peerd.storage.object_disk`)."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import islice
from threading import Lock
from typing import Final

from peerd.domain.quoting import quoted
from peerd.storage.disk.content_id import ContentId, is_content_id, parse_content_id
from peerd.storage.disk.digest import (
    ContentReading,
    ContentVerifier,
    Digest,
    compared_chunk,
)
from peerd.storage.disk.errors import ContentMismatch, ContentMissing, DiskNotEmpty, NotADisk, WrongDisk
from peerd.storage.disk.identity import IDENTITY_FILE, DiskIdentity, encoded_identity, parsed_identity
from peerd.storage.disk.open_disk import DiskUsage, OpenContent, OpenDisk, Piece, SmallContents
from peerd.storage.disk.walk import REASON, StoredContent
from peerd.storage.object_disk.bucket import ObjectBucket, ObjectStatus
from peerd.storage.object_disk.errors import ObjectStoreThrottled
from peerd.storage.object_disk.options import ObjectDiskOptions
from peerd.storage.object_disk.unfinished import ObjectUploads
from peerd.storage.object_disk.writer import ObjectWriter

CONTENTS: Final = "contents"
QUARANTINE: Final = "quarantine"
CHECK_EVERY: Final = 30.0
"""Seconds for which the identity is not read again: each reading is a request that costs money."""
BUSY_FOR: Final = 4.0
"""Seconds for which an object store that takes no more requests is not looked at again."""
BLOCK: Final = 8 * 1024 * 1024
"""Bytes of one request that reads."""
COPIED_AT_ONCE: Final = 5 * 1024**3
"""Bytes up to which an object store copies an object by itself."""
WRITTEN_AT_ONCE: Final = 8
"""Small contents."""


def create_object_disk(bucket: ObjectBucket, cluster: str) -> DiskIdentity:
    """Make a disk where a bucket has nothing below the prefix.

    Args:
        bucket: with the prefix.
        cluster: the id of the cluster, 32 hexadecimal digits.

    Raises:
        DiskNotEmpty: something is there, perhaps a disk.
        DiskError: it could not be written.
    """
    identity = DiskIdentity(secrets.token_hex(16), cluster)
    for found in islice(bucket.walk(""), 1):
        raise DiskNotEmpty(bucket.place, found.name)
    if not bucket.write_new(IDENTITY_FILE, encoded_identity(identity)):
        raise DiskNotEmpty(bucket.place, IDENTITY_FILE)
    if read_object_identity(bucket) != identity:  # another process has made one at the same moment
        raise DiskNotEmpty(bucket.place, IDENTITY_FILE)
    return identity


def create_or_find_object_disk(options: ObjectDiskOptions, cluster: str) -> DiskIdentity:
    """Make a disk, or find the one that the cluster has made there; see `create_object_disk`."""
    bucket = ObjectBucket(options)
    try:
        return create_object_disk(bucket, cluster)
    except DiskNotEmpty as error:
        with contextlib.suppress(NotADisk):
            found = read_object_identity(bucket)
            if found.cluster == cluster:
                return found
        raise error from None


def read_object_identity(bucket: ObjectBucket) -> DiskIdentity:
    """Which disk a part of a bucket is.

    Raises:
        NotADisk: it is none.
        DiskError: it could not be read.
    """
    text = bucket.read(IDENTITY_FILE)
    if text is None:
        raise NotADisk(bucket.place, f"it has no {IDENTITY_FILE}")
    return parsed_identity(text, bucket.place)


def object_name(content: ContentId) -> str:
    """The name of a content, below the prefix.

    >>> object_name(ContentId(0x0191B2C3D4E5F607))
    'contents/0191/b2c/0191b2c3d4e5f607'
    """
    return "/".join((CONTENTS, *content.folders, str(content)))


class ObjectContent(OpenContent):
    """A content in an object store; each reading of it is a request.

    Args:
        bucket: where it is.
        status: as it was found.
        content: its id.
    """

    def __init__(self, bucket: ObjectBucket, status: ObjectStatus, content: ContentId) -> None:
        self.size = status.size
        self.status = status
        self._bucket = bucket
        self._content = content

    def read(self, position: int, count: int) -> bytes:
        count = min(count, self.size - position)
        if count <= 0:
            return b""
        data = self._bucket.read_range(self.status.name, position, count)
        if data is None:
            raise ContentMissing(self._bucket.place, str(self._content))
        return data

    def verify(self, expected: Digest, reading: ContentReading | None = None) -> None:
        if self.size != expected.size:
            problem = f"it has {self.size} bytes, expected are {expected.size}"
            raise ContentMismatch(problem, content=str(self._content))
        verifier = ContentVerifier(expected)
        (reading or ContentReading()).feed_from(lambda position: self.read(position, BLOCK), verifier)
        verifier.refuse_difference(str(self._content))

    def verified_piece(self, expected: Digest, index: int, start: int, stop: int) -> Piece:
        positions = expected.chunk_range(index)
        chunk = compared_chunk(self.read(positions.start, len(positions)), expected, index)
        return chunk[start - positions.start : stop - positions.start]

    def pieces(self, start: int, stop: int) -> Iterator[Piece]:
        for position in range(start, stop, BLOCK):
            yield self.read(position, min(BLOCK, stop - position))

    def close(self) -> None:
        """Nothing is open."""


class SmallObjects(SmallContents):
    """Small contents of an object store, which wait in memory until they are published.

    Args:
        disk: where they are written.
    """

    def __init__(self, disk: ObjectDisk) -> None:
        self._disk = disk
        self._writers: list[ObjectWriter] = []

    def write(self, content: ContentId, data: bytes | memoryview, expected: Digest) -> None:
        with contextlib.ExitStack() as refused:
            writer = refused.enter_context(self._disk.begin(content, expected.size, expected=expected))
            writer.write(data)
            writer.checked_digest(None)
            refused.pop_all()
        self._writers.append(writer)

    def publish(self) -> list[ContentId]:
        with ThreadPoolExecutor(WRITTEN_AT_ONCE, thread_name_prefix="peerd-put") as pool:
            for _ in pool.map(ObjectWriter.publish, self._writers):
                pass
        published = [writer.content for writer in self._writers]
        self._writers.clear()
        return published

    def close(self) -> None:
        for writer in self._writers:
            writer.close()
        self._writers.clear()


class ObjectDisk(OpenDisk):
    """A part of a bucket as a disk.

    Args:
        bucket: with the prefix.
        identity: that it has.
        options: how much it holds, and how often it is verified.
        used: finds the bytes of all copies on the disk of this identity, by the catalogue.
    """

    is_remote = True
    is_reserved = False

    def __init__(
        self, bucket: ObjectBucket, identity: DiskIdentity, options: ObjectDiskOptions, used: Callable[[str], int]
    ) -> None:
        self.name = bucket.place
        self.identity = identity
        self.verify_every = options.verify_every
        self._bucket = bucket
        self._unfinished = ObjectUploads(options)
        self._capacity = options.capacity
        self._used = used
        self._checked_at = time.monotonic()
        self._busy: tuple[float, ObjectStoreThrottled] | None = None
        self._lock = Lock()

    def check(self, *, writable: bool = False) -> None:
        """Read the identity, if that is half a minute ago; whether it can be written, only a write shows."""
        with self._lock:
            present = time.monotonic()
            if present - self._checked_at < CHECK_EVERY:
                return
            if self._busy is not None and present < self._busy[0]:
                raise self._busy[1]
        try:
            self._check_identity()
        except ObjectStoreThrottled as error:
            with self._lock:
                self._busy = time.monotonic() + BUSY_FOR, error
            raise

    def usage(self) -> DiskUsage:
        return DiskUsage(self._capacity, max(0, self._capacity - self._used(self.identity.disk)), None)

    def open(self, content: ContentId) -> ObjectContent:
        return ObjectContent(self._bucket, self._status(content), content)

    def begin(self, content: ContentId, size: int | None = None, *, expected: Digest | None = None) -> ObjectWriter:
        return ObjectWriter(self._bucket, object_name(content), content, size, expected)

    def begin_small(self) -> SmallObjects:
        return SmallObjects(self)

    def remove(self, content: ContentId) -> None:
        self._bucket.remove(self._status(content).name)

    def quarantine(self, content: ContentId, reason: str, now: float, *, found: OpenContent | None = None) -> str:
        if not REASON.fullmatch(reason):
            raise ValueError(f"{quoted(reason)} is no reason: 1 to 32 lower-case letters, digits and hyphens")
        status = self._status(content)
        if isinstance(found, ObjectContent) and (found.status.etag, found.status.changed_at) != status[2:]:
            raise ContentMissing(self.name, str(content))
        name = f"{content}.{reason}.{int(now)}"
        self._move(status, f"{QUARANTINE}/{name}", content)
        return name

    def restore(self, content: ContentId, expected: Digest, reading: ContentReading | None = None) -> bool:
        for status in self._bucket.walk(QUARANTINE):
            if not status.name.startswith(f"{QUARANTINE}/{content}."):
                continue
            with contextlib.suppress(ContentMismatch):
                ObjectContent(self._bucket, status, content).verify(expected, reading)
                self._move(status, object_name(content), content)
                return True
        return False

    @contextlib.contextmanager
    def without_writer(self, content: ContentId) -> Iterator[None]:
        """Object stores have no locks; what this leaves open is in docs/storage.md."""
        yield

    def walk(self, *, batch: int) -> Iterator[list[StoredContent]]:
        found = self._contents()
        while some := list(islice(found, batch)):
            yield some

    def remove_old_parts(self, before: float) -> int:
        """Abort the uploads that were begun before a time; those of other objects below the prefix are left."""
        begun_before = datetime.fromtimestamp(before, UTC)
        old = [one for one in self._unfinished.list() if one.begun_at < begun_before and _is_of_disk(one.name)]
        for upload in old:
            self._unfinished.abort(upload)
        return len(old)

    def discard_part(self, content: ContentId) -> None:
        """Nothing is left of an earlier writer."""

    def quarantined(self) -> list[str]:
        return [status.name.removeprefix(f"{QUARANTINE}/") for status in self._bucket.walk(QUARANTINE)]

    def remove_from_quarantine(self, name: str) -> None:
        self._bucket.remove(f"{QUARANTINE}/{name}")

    def _status(self, content: ContentId) -> ObjectStatus:
        status = self._bucket.status(object_name(content))
        if status is None:
            # Where the bucket or the disk is another one, nothing is known of the content: no copy is bad for that.
            self._check_identity()
            raise ContentMissing(self.name, str(content))
        return status

    def _move(self, source: ObjectStatus, target: str, content: ContentId) -> None:
        """Give an object another name; a large one, which object stores do not copy at once, is written anew."""
        if source.size <= COPIED_AT_ONCE:
            self._bucket.copy(source.name, target)
        else:
            opened = ObjectContent(self._bucket, source, content)
            with ObjectWriter(self._bucket, target, content, source.size) as writer:
                for position in range(0, source.size, BLOCK):
                    writer.write(opened.read(position, BLOCK))
                writer.publish()
        self._bucket.remove(source.name)

    def _check_identity(self) -> None:
        found = read_object_identity(self._bucket)
        if found != self.identity:
            raise WrongDisk(self.name, str(self.identity), str(found))
        with self._lock:
            self._checked_at = time.monotonic()

    def _contents(self) -> Iterator[StoredContent]:
        for status in self._bucket.walk(CONTENTS):
            content = _content_of(status.name)
            if content is not None:
                yield StoredContent(content, status.size)


def _content_of(name: str) -> ContentId | None:
    """The id of the content that an object is; None: it is none."""
    text = name.rpartition("/")[2]
    if is_content_id(text) and name == object_name(parse_content_id(text)):
        return parse_content_id(text)
    return None


def _is_of_disk(name: str) -> bool:
    """Whether a disk writes objects of this name in parts."""
    return _content_of(name) is not None or name.startswith(f"{QUARANTINE}/")


def open_object_disk(options: ObjectDiskOptions, cluster: str, used: Callable[[str], int]) -> ObjectDisk:
    """Open the disk of a place. Nothing is written.

    Args:
        options: where it is.
        cluster: the identity that its cluster must have.
        used: see `ObjectDisk`.

    Raises:
        NotADisk, WrongDisk: there is no disk, or one of another cluster.
        DiskError: it could not be read.
    """
    bucket = ObjectBucket(options)
    identity = read_object_identity(bucket)
    if identity.cluster != cluster:
        raise WrongDisk(bucket.place, f"a disk of cluster {cluster}", str(identity))
    return ObjectDisk(bucket, identity, options, used)
