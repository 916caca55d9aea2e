"""Putting a content in parts, each of which is durable when the next one is sent.

When a connection ends, or a node is started again, the put goes on behind the last durable part, after pauses that
grow. So does the next put of the same file: an upload is found again by its key, and by the size and the time of change
of its source. A file is read once, because its BLAKE3 goes with the completion; what was received by an earlier process
is read again to be hashed. Of a stream, whose bytes come once, those of one part are in memory.

If the node of an upload does not come back, a file is sent to another one, from its beginning.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import socket
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any, Final, cast
from urllib.parse import urlencode

from blake3 import blake3
from sqlalchemy.engine import Connection

from peerd.domain.access import Actor
from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.domain.file_errors import (
    ContentDiffers,
    DiskNotFound,
    FileConditionFailed,
    FileReplaced,
    NoNodeTakes,
    PutRefused,
    UploadBroken,
    UploadGone,
    UploadPositionDiffers,
)
from peerd.domain.files import DiskState, StoredFile
from peerd.storage.auditing import actor_query
from peerd.storage.client import (
    BLOCK,
    Body,
    Progress,
    _writable_urls,
    json_of,
    put_headers,
    target_of,
)
from peerd.storage.failed_nodes import FailedNodes
from peerd.storage.put_options import PutOptions
from peerd.storage.transfer.errors import SourceFailed
from peerd.storage.transfer.node_http import PUT_TIMEOUT, NodeHttp
from peerd.store.connection.database import Database
from peerd.store.files.buckets import get_bucket
from peerd.store.files.disks import get_disk
from peerd.store.files.resumable_uploads import ResumableUpload, get_resumable, mark_aborted, uploads_of_key
from peerd.store.files.uploads import find_completed_upload
from peerd.store.files.versions import get_version

MIB: Final = 1024**2
FILE_PART: Final = 32 * MIB
"""Bytes of the first parts of a file, and the least."""
MOST_OF_PART: Final = 1024 * MIB
PART_TAKES: Final = 3.0
"""Seconds: after a part that took less, the next one is twice as large. So a fast disk seldom waits for an fsync and a
commit, and not much more than these seconds are sent again after a failure."""
STREAM_PART: Final = 16 * MIB
"""Bytes of each part of a stream, which are in memory."""
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0
"""Seconds between two tries."""
GIVEN_UP_AFTER: Final = PUT_TIMEOUT
"""Seconds without a byte that became durable, after which a put fails."""
ELSEWHERE_AFTER: Final = 60.0
"""Seconds, of those, after which a file is sent to another node."""
MOST_BEGUN: Final = 5
"""How often a file is begun anew, because it changes, or its node fails."""
DISK_CODES: Final = frozenset({"NoDiskHasRoom", "DiskOutOfSpace", "DiskReadOnly", "DiskFailed"})
"""Errors with which the disk of an upload takes no more of it."""


class _SourceChanged(Exception):
    """A file has changed since its upload was begun."""


class _BytesDiffer(Exception):
    """The bytes of an upload are others than those of its source."""


class _PartDamaged(Exception):
    """The bytes of a part were damaged on their way: it is sent again."""


@dataclass(slots=True)
class OpenUpload:
    """An upload that a node has begun.

    Attributes:
        id: of it.
        disk: that has its bytes.
        url: of the node that has the disk, when it was begun.
        received: bytes that are durable.
    """

    id: str
    disk: int
    url: str
    received: int = 0


class NodeUploads:
    """Requests about the uploads of one key to the nodes that have disks.

    Args:
        database: with the catalogue.
        http: to the nodes.
        actor: what puts are done by.
        failed: nodes that have failed lately.
        place: bucket and key.
        options: what is stored with it.
    """

    def __init__(
        self,
        database: Database,
        http: NodeHttp,
        actor: Actor,
        failed: FailedNodes,
        place: tuple[str, str],
        options: PutOptions,
    ) -> None:
        self.place = place
        self.path = "/".join(place)
        self.options = options
        self._database = database
        self._http = http
        self._actor = actor
        self._failed = failed

    def find(self, source: str) -> OpenUpload | None:
        """The upload of this source that was begun before; those of other states of the same source are aborted."""
        origin, _, state = source.partition("-")
        found = self._database.read(self._of_key)
        for upload, _ in found:
            if (upload.source or "").startswith(f"{origin}-") and upload.source != source:
                self.abort(upload.id)
        for upload, url in found:
            if not (upload.source or "").endswith(f"-{state}"):
                continue
            if url is not None:
                return OpenUpload(upload.id, upload.disk_id, url, upload.received)
            self.abort(upload.id)  # its disk is lost
        return None

    def abort_unused(self, source: str) -> None:
        """Abort uploads of a source that have no bytes: the answers to their beginning were lost."""
        for upload, _ in self._database.read(self._of_key):
            if upload.source == source and not upload.received:
                self.abort(upload.id)

    def begin(self, size: int | None, source: str | None, avoided: frozenset[str] = frozenset()) -> OpenUpload:
        """Begin an upload on a node that takes it.

        Args:
            size: bytes of the whole, if they are known.
            source: by which it is found again.
            avoided: addresses of nodes that are not asked.

        Raises:
            NoNodeTakes: no node does.
            FileConditionFailed, PutRefused: it cannot be stored so.
        """
        bucket, key = self.place
        more = {"size": size, "source": source}
        query = urlencode({name: value for name, value in more.items() if value is not None})
        target = f"{target_of(bucket, key).replace('/files/', '/uploads/', 1)}?{actor_query(self._actor)}&{query}"
        headers = put_headers(self.options, Body(io.BytesIO()))
        problems: list[str] = []
        for url in self._failed.last(self._database.read(_writable_urls, size or 0)):
            if url in avoided:
                continue
            try:
                answer = self._answer("POST", url, target, headers)
                upload = self._database.read(_find_disk_of, answer["id"])
            except SourceFailed as error:
                self._failed.note(url)
                problems.append(str(error))
                continue
            return OpenUpload(answer["id"], upload, url)
        raise NoNodeTakes(self.path, problems)

    def received(self, upload: OpenUpload) -> int:
        """How many bytes of an upload are durable. Raises SourceFailed, UploadGone."""
        return int(self._answer("GET", self._url_of(upload), f"/uploads/{upload.id}")["received"])

    def send(self, upload: OpenUpload, offset: int, count: int, body: Iterator[bytes]) -> int:
        """Send a part: its bytes, and their BLAKE3; return how many bytes are durable now.

        Raises:
            SourceFailed: it can be sent again, when it is known how many bytes are durable.
            UploadGone, UploadPositionDiffers, PutRefused: the node has refused it.
        """
        url = self._url_of(upload)
        headers = {"content-length": str(count + 32)}
        with self._http.upload(url, f"/uploads/{upload.id}?offset={offset}", body, headers) as response:
            answer = json_of(response)
        if response.status == HTTPStatus.OK:
            return int(answer["received"])
        raise self._error(url, response.status, answer, upload)

    def complete(self, upload: OpenUpload, size: int, digest: str) -> StoredFile | None:
        """Make a file of an upload; None: that still runs.

        Raises:
            SourceFailed, UploadGone, UploadPositionDiffers, FileConditionFailed, PutRefused: as `send`.
            _BytesDiffer: the bytes have another BLAKE3; the upload is aborted.
        """
        query = f"{actor_query(self._actor)}&size={size}&blake3={digest}"
        answer = self._answer("POST", self._url_of(upload), f"/uploads/{upload.id}?{query}", upload=upload)
        if "blake3" not in answer:
            return None
        if answer["blake3"] != digest:
            raise _BytesDiffer(f"the node has stored BLAKE3 {answer['blake3']}, sent was {digest}")
        stored = self._database.read(get_version, int(str(answer["id"]), 16))
        if stored is None:
            raise FileReplaced(self.path)
        return stored

    def completed(self, upload: OpenUpload) -> StoredFile | None:
        """The version that an upload has become, if another put of the same source has completed it."""

        def find(connection: Connection) -> StoredFile | None:
            found = find_completed_upload(connection, upload.id)
            return None if found is None else get_version(connection, int(found.etag, 16))

        return self._database.read(find)

    def abort(self, upload_id: str) -> None:
        """Abort an upload, if it has not ended; its node removes the bytes."""
        try:
            self._database.run(mark_aborted, upload_id)
        except UploadGone:
            return

    def _of_key(self, connection: Connection) -> list[tuple[ResumableUpload, str | None]]:
        bucket, key = self.place
        return [
            (upload, _url_of_disk(connection, upload.disk_id))
            for upload in uploads_of_key(connection, get_bucket(connection, bucket), key)
        ]

    def _url_of(self, upload: OpenUpload) -> str:
        """Where the node with the disk is now: it may have another address since. Raises UploadGone for a lost disk."""
        url = self._database.read(_url_of_disk, upload.disk)
        if url is None:
            raise UploadGone(upload.id)
        return url

    def _answer(
        self,
        method: str,
        url: str,
        target: str,
        headers: Mapping[str, str] | None = None,
        upload: OpenUpload | None = None,
    ) -> dict[str, Any]:
        with self._http.request(method, url, target, headers=headers) as response:
            answer = json_of(response)
            response.read()
        if response.status in {HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED}:
            return answer
        raise self._error(url, response.status, answer, upload)

    def _error(self, url: str, status: int, answer: Mapping[str, Any], upload: OpenUpload | None) -> Exception:
        """The error of a response that is none of success."""
        problem = str(answer.get("error") or f"it answers with status {status}")
        code = str(answer.get("code") or status)
        upload_id = "" if upload is None else upload.id
        if code == "UploadGone" or (code in DISK_CODES and upload is not None):
            return _DiskTakesNoMore(upload_id, problem) if code != "UploadGone" else UploadGone(upload_id)
        if code == "UploadPositionDiffers":
            return UploadPositionDiffers(upload_id, 0, 0)
        if code == "BodyDiffers" and upload is not None:
            return _BytesDiffer(problem)
        if status == HTTPStatus.PRECONDITION_FAILED:
            return FileConditionFailed(*self.place, "there is a file of this key")
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR and code != "TooFewDurable":
            return SourceFailed(url, problem)
        return PutRefused(url, code, problem)


class _DiskTakesNoMore(Exception):
    """The disk of an upload is full, or has failed."""

    def __init__(self, upload_id: str, problem: str) -> None:
        self.problem = problem
        super().__init__(upload_id, problem)


class _Source(ABC):
    """What is sent in parts, in order, and hashed on the way.

    Attributes:
        size: bytes, if they are known.
    """

    size: int | None = None

    @abstractmethod
    def is_ended(self, received: int) -> bool:
        """Whether there is no byte behind those that were received. Raises OSError."""

    @abstractmethod
    def part(self, received: int) -> tuple[int, Iterator[bytes]]:
        """The next part: how many bytes it has, and these, with their BLAKE3 behind them.

        Raises:
            _SourceChanged: it is not what it was.
        """

    @abstractmethod
    def accept(self, received: int) -> None:
        """The bytes to here are durable."""

    @abstractmethod
    def digest(self) -> str:
        """The BLAKE3 of all bytes, in hex."""


class _FileSource(_Source):
    """A regular file.

    Args:
        path: of it.
        opened: without a buffer.
        options: what is stored with it; an upload with others is another one.
        progress: called while it is sent.
    """

    def __init__(self, path: Path, opened: IO[bytes], options: PutOptions, progress: Progress | None) -> None:
        self._opened = cast("io.FileIO", opened)
        self._path = path
        self._options = options
        self._progress = progress
        self._buffer = memoryview(bytearray(BLOCK))
        self.look()

    def look(self) -> None:
        """Take the file as it is now, from its beginning."""
        status = os.fstat(self._opened.fileno())
        self.size: int = status.st_size
        self._changed_at = status.st_mtime_ns
        self._whole, self._hashed = blake3(), 0
        self._next: tuple[Any, int] | None = None
        self._part_size = FILE_PART
        self._part_begun = 0.0

    @property
    def name(self) -> str:
        """By which its upload is found again: of the file, and of its state and what is stored with it."""
        options = self._options
        state = json.dumps([
            self.size, self._changed_at, options.class_name, options.content_type, sorted(options.metadata.items()),
            options.expires_in, options.only_new,
        ])  # fmt: skip
        origin = f"{socket.gethostname()}:{self._path.absolute()}"
        return f"{_short_hash(origin)[:16]}-{_short_hash(state)}"

    def is_ended(self, received: int) -> bool:
        if received < self.size:
            return False
        self._hash_to(received)
        self._refuse_change()
        return True

    def part(self, received: int) -> tuple[int, Iterator[bytes]]:
        self._hash_to(received)
        self._refuse_change()
        count = min(self._part_size, self.size - received)
        self._part_begun = time.monotonic()
        return count, self._blocks(received, count)

    def _blocks(self, start: int, count: int) -> Iterator[bytes]:
        whole, digest, sent = self._whole.copy(), blake3(), 0
        while sent < count:
            data = self._read(start + sent, count - sent)
            whole.update(data)
            digest.update(data)
            sent += len(data)
            yield cast("bytes", data)
            if self._progress is not None:
                self._progress(start + sent, self.size)
        self._next = whole, start + sent
        yield digest.digest()

    def accept(self, received: int) -> None:
        if self._next is not None and self._next[1] == received:
            self._whole, self._hashed = self._next
        self._next = None
        took = time.monotonic() - self._part_begun
        if took < PART_TAKES:
            self._part_size = min(MOST_OF_PART, self._part_size * 2)
        elif took > 2 * PART_TAKES:
            self._part_size = max(FILE_PART, self._part_size // 2)

    def digest(self) -> str:
        return str(self._whole.hexdigest())

    def is_all_of(self, stored: StoredFile) -> bool:
        """Whether a version has the bytes of this file; it is read to its end."""
        if stored.size != self.size:
            return False
        self._hash_to(self.size)
        return self.digest() == stored.blake3

    def _hash_to(self, position: int) -> None:
        """Hash what was received, as far as it was not hashed when it was sent."""
        if position < self._hashed:
            self._whole, self._hashed = blake3(), 0
        while self._hashed < position:
            data = self._read(self._hashed, position - self._hashed)
            self._whole.update(data)
            self._hashed += len(data)

    def _read(self, position: int, count: int) -> memoryview:
        found = os.preadv(self._opened.fileno(), [self._buffer[:count]], position)
        if not found:
            raise _SourceChanged
        return self._buffer[:found]

    def _refuse_change(self) -> None:
        status = os.fstat(self._opened.fileno())
        if (status.st_size, status.st_mtime_ns) != (self.size, self._changed_at):
            raise _SourceChanged


class _StreamSource(_Source):
    """What can be read once: a part of it is in memory.

    Args:
        opened: what has ``read``.
        progress: called while it is sent.
        size: bytes, if they are announced.
    """

    def __init__(self, opened: IO[bytes], progress: Progress | None, size: int | None) -> None:
        self.size = size
        self._opened = opened
        self._progress = progress
        self._part = bytearray()
        self._start = 0
        self._whole = blake3()
        self._is_at_end = False
        self._fill()

    @property
    def first(self) -> bytes | None:
        """All of it, if that is one part."""
        return bytes(self._part) if self._is_at_end else None

    def rest(self) -> IO[bytes]:
        """All of it, as it can be read once: when nothing was sent."""
        return cast("IO[bytes]", _Rest(bytes(self._part), self._opened))

    def is_ended(self, received: int) -> bool:
        self._go_to(received)
        return not self._part

    def part(self, received: int) -> tuple[int, Iterator[bytes]]:
        self._go_to(received)
        return len(self._part), self._blocks()

    def _blocks(self) -> Iterator[bytes]:
        view = memoryview(self._part)
        for begin in range(0, len(view), BLOCK):
            yield cast("bytes", view[begin : begin + BLOCK])
            if self._progress is not None:
                self._progress(self._start + min(begin + BLOCK, len(view)), self.size)
        yield blake3(view).digest()

    def accept(self, received: int) -> None:
        self._go_to(received)

    def digest(self) -> str:
        return str(self._whole.hexdigest())

    def _go_to(self, received: int) -> None:
        if received == self._start:
            return
        if received != self._start + len(self._part):
            raise _SourceChanged  # its bytes are gone
        self._start = received
        self._fill()

    def _fill(self) -> None:
        self._part = bytearray()
        while len(self._part) < STREAM_PART and not self._is_at_end:
            data = self._opened.read(min(BLOCK, STREAM_PART - len(self._part)))
            self._is_at_end = not data
            self._part += data
        self._whole.update(self._part)


class _Rest:
    """Bytes that were read, and then what follows them."""

    def __init__(self, first: bytes, opened: IO[bytes]) -> None:
        self._first = io.BytesIO(first)
        self._opened = opened

    def read(self, count: int) -> bytes:
        return self._first.read(count) or self._opened.read(count)


def put_file(uploads: NodeUploads, path: Path, opened: IO[bytes], progress: Progress | None) -> StoredFile | None:
    """Put a regular file in parts, from where an earlier put of it has ended.

    Returns:
        the version; None: no node takes an upload, as where there are object stores only.

    Raises:
        ContentDiffers: it changes again and again.
        UploadBroken: nothing of it became durable for long.
        PeerdError: it cannot be stored.
    """
    source = _FileSource(path, opened, uploads.options, progress)
    upload = uploads.find(source.name)
    for number in range(MOST_BEGUN):
        if upload is None:
            try:
                upload = uploads.begin(source.size, source.name)
            except NoNodeTakes:
                uploads.abort_unused(source.name)
                if number:
                    raise
                return None
        if progress is not None and upload.received:
            progress(upload.received, source.size)
        begun: OpenUpload | None = None
        try:
            stored = _Sending(uploads, source, upload, can_begin_anew=True).run()
            uploads.abort_unused(source.name)
            return stored
        except (_SourceChanged, _BytesDiffer):
            uploads.abort(upload.id)
        except _Elsewhere as error:
            uploads.abort(upload.id)
            begun = error.begun
        except UploadGone:
            completed = uploads.completed(upload)
            if completed is not None and source.is_all_of(completed):
                return completed
        source.look()
        upload = begun
    raise ContentDiffers(uploads.path, "the source has changed while it was sent, again and again")


def put_stream(
    uploads: NodeUploads,
    opened: IO[bytes],
    progress: Progress | None,
    put_body: Callable[[Body], StoredFile],
    parts_above: int,
) -> StoredFile:
    """Put what can be read once in parts; a short one as one body.

    Args:
        uploads: of the key.
        opened: what has ``read``.
        progress: called while it is sent.
        put_body: puts a body.
        parts_above: bytes to which it is put as one body, at most those of a part.

    Raises:
        UploadBroken: nothing of it became durable for long, or the node has lost what it had.
        PeerdError: it cannot be stored.
    """
    source = _StreamSource(opened, progress, uploads.options.size)
    first = source.first
    if first is not None and len(first) <= parts_above:
        return put_body(Body(io.BytesIO(first), len(first), source.digest(), is_repeatable=True))
    name = f"stream-{secrets.token_hex(16)}"
    try:
        upload = uploads.begin(uploads.options.size, name)
    except NoNodeTakes:
        uploads.abort_unused(name)
        return put_body(Body(source.rest(), uploads.options.size))
    try:
        stored = _Sending(uploads, source, upload, can_begin_anew=False).run()
    except (_SourceChanged, _BytesDiffer, UploadGone) as error:
        uploads.abort(upload.id)
        raise UploadBroken(uploads.path, str(error) or "the node has lost a part of it", 1) from error
    except BaseException:
        with contextlib.suppress(PeerdError):
            uploads.abort(upload.id)  # its source ends with this process
        raise
    uploads.abort_unused(name)
    return stored


class _Elsewhere(Exception):
    """The node of an upload does not come back, and another one has begun it."""

    def __init__(self, begun: OpenUpload) -> None:
        self.begun = begun
        super().__init__()


@dataclass(slots=True)
class _Sending:
    """The parts of one upload, and its completion.

    Args:
        uploads: of the key.
        source: what is sent.
        upload: which has begun.
        can_begin_anew: whether the source can be sent to another node.
    """

    uploads: NodeUploads
    source: _Source
    upload: OpenUpload
    can_begin_anew: bool
    _received: int = 0
    _is_known: bool = False
    _tries: int = 0
    _failing_since: float | None = None
    _asked_at: float = float("-inf")
    _pause: float = FIRST_PAUSE

    def run(self) -> StoredFile:
        """Send all parts, and complete the upload. Raises as `put_file` says."""
        while True:
            try:
                stored = self._step()
            except (SourceFailed, UploadPositionDiffers, DatabaseUnavailable, _PartDamaged) as error:
                self._is_known = False
                self._failed(str(error))
            except _DiskTakesNoMore as error:
                if self.can_begin_anew:
                    self._go_elsewhere()
                raise NoNodeTakes(self.uploads.path, [error.problem]) from error
            else:
                if stored is not None:
                    return stored
                self._failing_since, self._pause = None, FIRST_PAUSE

    def _step(self) -> StoredFile | None:
        """Send the next part, or complete the upload: then the version is returned."""
        if not self._is_known:
            found = self.uploads.received(self.upload)
            if found > self._received:
                self._failing_since = None
            self._received, self._is_known = found, True
        if self.source.is_ended(self._received):
            return self.uploads.complete(self.upload, self._received, self.source.digest())
        count, body = self.source.part(self._received)
        try:
            self._received = self.uploads.send(self.upload, self._received, count, body)
        except _BytesDiffer as error:
            raise _PartDamaged(str(error)) from error
        self.source.accept(self._received)
        return None

    def _failed(self, problem: str) -> None:
        """Wait before the next try.

        Raises:
            UploadBroken: nothing became durable for a long time.
            _Elsewhere: another node has begun it.
        """
        self._tries += 1
        present = time.monotonic()
        self._failing_since = self._failing_since or present
        failing_for = present - self._failing_since
        if failing_for > GIVEN_UP_AFTER:
            raise UploadBroken(self.uploads.path, problem, max(2, self._tries))
        if self.can_begin_anew and failing_for > ELSEWHERE_AFTER and present - self._asked_at > ELSEWHERE_AFTER:
            self._go_elsewhere()
        time.sleep(self._pause)
        self._pause = min(LONGEST_PAUSE, self._pause * 2)

    def _go_elsewhere(self) -> None:
        """Begin the upload on another node, if one takes it. Raises _Elsewhere."""
        self._asked_at = time.monotonic()
        source = self.source
        assert isinstance(source, _FileSource)
        try:
            begun = self.uploads.begin(source.size, source.name, frozenset({self.upload.url}))
        except (NoNodeTakes, DatabaseUnavailable):
            return
        raise _Elsewhere(begun)


def _short_hash(text: str) -> str:
    return str(blake3(text.encode(errors="surrogateescape")).hexdigest()[:32])


def _url_of_disk(connection: Connection, disk_id: int) -> str | None:
    """Where the node with a disk is; None: the disk is lost."""
    try:
        row = get_disk(connection, disk_id)
    except DiskNotFound:
        return None
    return None if row.state == DiskState.LOST.value else row.url


def _find_disk_of(connection: Connection, upload_id: str) -> int:
    return get_resumable(connection, upload_id).disk_id
