"""Pulling contents from other nodes onto a disk.

One content is read by ranges, from one source after another: what has arrived stays, and the next source goes on behind
it. Many small ones come in one response. Nothing is published before its BLAKE3 equals the catalogue's.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from http.client import HTTPResponse
from typing import Final, Self

import msgspec

from peerd.storage.disk.content_id import ContentId
from peerd.storage.disk.digest import Digest
from peerd.storage.disk.errors import ContentExists, ContentMismatch, ContentMissing, PartInUse
from peerd.storage.disk.open_disk import ContentWriter, OpenDisk, SmallContents
from peerd.storage.transfer.errors import NoSourceLeft, SourceFailed, SourceHasOther, TransferStopped
from peerd.storage.transfer.frames import FrameReader, InvalidFrame
from peerd.storage.transfer.node_http import NodeHttp

BLOCK: Final = 1024 * 1024
MAX_TRIES: Final = 8
"""Tries to get one content, over all sources, that end without a new byte."""


class Wanted(msgspec.Struct, frozen=True):
    """A content that is to be pulled: its id, and the digest that it has by the catalogue."""

    id: ContentId
    digest: Digest


class TransferControl(msgspec.Struct, kw_only=True):
    """How fast, how long, and what is called meanwhile.

    Attributes:
        bytes_per_second: at most; None: as fast as it goes.
        progress: called with the bytes that have arrived.
        stop: set to end the transfer; what has arrived is kept.
    """

    bytes_per_second: float | None = None
    progress: Callable[[int], None] | None = None
    stop: threading.Event = msgspec.field(default_factory=threading.Event)
    _begun: float | None = None
    _received: int = 0

    def but(self, *, progress: Callable[[int], None]) -> TransferControl:
        """Make a control with these limits, and another function for progress."""
        return TransferControl(bytes_per_second=self.bytes_per_second, progress=progress, stop=self.stop)

    def received(self, count: int, position: int) -> None:
        """Count bytes; wait if they came too fast. Raises TransferStopped."""
        self._begun = self._begun or time.monotonic()
        self._received += count
        if self.progress is not None:
            self.progress(position)
        ahead = 0.0
        if self.bytes_per_second:
            ahead = self._received / self.bytes_per_second - (time.monotonic() - self._begun)
        if self.stop.wait(ahead) if ahead > 0 else self.stop.is_set():
            raise TransferStopped


class Pulled(msgspec.Struct):
    """What became of contents that were pulled together.

    Attributes:
        stored: they are on the disk now, or were there already, and verified.
        failed: the others, each with the reason.
        bad: contents that a source has otherwise than the catalogue, by the source's address.
        unavailable: those of the failed ones that a source may have, but could not read now.
    """

    stored: list[ContentId] = msgspec.field(default_factory=list)
    failed: dict[ContentId, str] = msgspec.field(default_factory=dict)
    bad: list[tuple[str, ContentId]] = msgspec.field(default_factory=list)
    unavailable: set[ContentId] = msgspec.field(default_factory=set)


def pull_content(
    http: NodeHttp, disk: OpenDisk, wanted: Wanted, sources: Sequence[str], control: TransferControl
) -> Pulled:
    """Pull one content.

    Args:
        http: to other nodes.
        disk: where it is stored.
        wanted: the content.
        sources: addresses of nodes that have it, the preferred ones first.
        control: how fast.

    Raises:
        NoSourceLeft: no source gave all of it; what has arrived is kept for the next try.
        TransferStopped: it was stopped.
        DiskError: the disk did not take it.
    """
    return _Pull(http, disk, wanted, control).run(list(sources))


class _Pull:
    """The pull of one content; see `pull_content`."""

    def __init__(self, http: NodeHttp, disk: OpenDisk, wanted: Wanted, control: TransferControl) -> None:
        self._http = http
        self._disk = disk
        self._wanted = wanted
        self._control = control
        self._result = Pulled()
        self._problems: list[str] = []
        self._mismatches = 0
        self._given: list[tuple[str, range]] = []
        """Which source gave which bytes."""

    def run(self, sources: list[str]) -> Pulled:
        """Pull until the content is published, or no source is left."""
        while True:
            try:
                part = self._disk.begin(self._wanted.id, self._wanted.digest.size, expected=self._wanted.digest)
            except ContentExists:
                if keep_if_whole(self._disk, self._wanted):
                    self._result.stored.append(self._wanted.id)
                    return self._result
                continue
            with part:
                self._given.clear()
                try:
                    self._fill(part, sources)
                    part.publish(self._wanted.digest)
                except ContentMismatch as error:
                    part.discard()
                    self._blame(error, sources)
                except NoSourceLeft:
                    if not part.position:
                        part.discard()
                    raise
                else:
                    self._result.stored.append(self._wanted.id)
                    return self._result

    def _fill(self, part: ContentWriter, sources: list[str]) -> None:
        """Write all that is missing, from one source after another."""
        tries, number = 0, 0
        while part.position < self._wanted.digest.size:
            if not sources or tries >= MAX_TRIES:
                raise NoSourceLeft(str(self._wanted.id), self._problems)
            source, begin = sources[number % len(sources)], part.position
            try:
                self._read_range(part, source)
            except SourceHasOther as error:
                self._drop(source, sources, str(error))
            except SourceFailed as error:
                self._problems.append(str(error))
                number += 1
            if part.position > begin:
                self._given.append((source, range(begin, part.position)))
                tries = 0
            else:
                tries += 1

    def _read_range(self, part: ContentWriter, source: str) -> None:
        size, begin = self._wanted.digest.size, part.position
        headers = {"range": f"bytes={begin}-"}
        with self._http.request("GET", source, f"/contents/{self._wanted.id}", headers=headers) as response:
            check_status(response, source)
            if response.getheader("content-range") != f"bytes {begin}-{size - 1}/{size}":
                raise SourceHasOther(source, "its content has another size")
            with _BlockWriter(part) as writer:
                position = begin
                while position < size:
                    buffer = writer.free_buffer(min(BLOCK, size - position))
                    count = response.readinto(buffer)
                    if not count:
                        raise SourceFailed(source, f"the response ended at byte {position} of {size}")
                    writer.write(buffer[:count])
                    position += count
                    self._control.received(count, position)
            response.read()

    def _blame(self, error: ContentMismatch, sources: list[str]) -> None:
        """Use no source again that gave all of a wrong chunk.

        Of a chunk that was put together from several, or from an earlier try, it is unknown which bytes were wrong.
        """
        digest = self._wanted.digest
        wrong = [digest.chunk_range(index) for index in error.chunks] or [range(digest.size)]
        for source in {source for source, given in self._given if any(_has_all(given, one) for one in wrong)}:
            self._drop(source, sources, f"{source}: its content is damaged")
        self._mismatches += 1
        if self._mismatches > MAX_TRIES:
            raise NoSourceLeft(str(self._wanted.id), self._problems)

    def _drop(self, source: str, sources: list[str], problem: str) -> None:
        self._problems.append(problem)
        self._result.bad.append((source, self._wanted.id))
        sources.remove(source)


class _BlockWriter:
    """Writes and hashes each block of a part in a thread while the next block is received.

    The part is used by one thread at a time: a block is begun when the one before it is written. At the end of
    ``with`` all blocks are written, also after an error.

    Args:
        part: that is written.
    """

    def __init__(self, part: ContentWriter) -> None:
        self._part = part
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="peerd-write")
        self._writing: Future[None] | None = None
        self._buffers: list[memoryview] = []

    def free_buffer(self, size: int) -> memoryview:
        """Memory for so many bytes that no thread writes from. What an earlier call gave is in use."""
        if len(self._buffers) < 2:
            self._buffers.append(memoryview(bytearray(size)))
        else:
            self._buffers.reverse()
        return self._buffers[-1][:size]

    def write(self, block: memoryview) -> None:
        """Begin to write a block, when the one before is written. Raises the DiskError of that."""
        self._wait()
        self._writing = self._thread.submit(self._part.write, block)

    def _wait(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._wait()
        finally:
            self._thread.shutdown()


def _has_all(given: range, chunk: range) -> bool:
    return given.start <= chunk.start and chunk.stop <= given.stop


def keep_if_whole(disk: OpenDisk, wanted: Wanted) -> bool:
    """Whether a disk has a content as it is wanted; if it has another one of its id, that goes to quarantine.

    Raises:
        DiskError: it could not be read.
    """
    try:
        opened = disk.open(wanted.id)
    except ContentMissing:
        return False
    with opened:
        try:
            opened.verify(wanted.digest)
        except ContentMismatch:
            with contextlib.suppress(ContentMissing):
                disk.quarantine(wanted.id, "mismatch", time.time(), found=opened)
            return False
    return True


def check_status(response: HTTPResponse, source: str) -> None:
    """Raise SourceFailed, or SourceHasOther where the copy itself is at fault, unless the response has a content."""
    if response.status in {200, 206}:
        return
    problem = response.read(500).decode(errors="replace").strip()
    if response.status in {404, 412, 416}:
        raise SourceHasOther(source, f"{response.status}: {problem}")
    with contextlib.suppress(OSError):
        response.close()
    raise SourceFailed(source, f"{response.status}: {problem}")


def pull_many(
    http: NodeHttp, disk: OpenDisk, wanted: Sequence[Wanted], source: str, control: TransferControl
) -> Pulled:
    """Pull many small contents from one node by one request, and publish them together.

    Those that fail are to be pulled one by one: another source may have them.

    Raises:
        SourceFailed: the request failed; what has arrived before is stored.
        TransferStopped, DiskError: see `pull_content`.
    """
    result = Pulled()
    body = msgspec.json.encode([str(one.id) for one in wanted])
    with disk.begin_small() as small:
        try:
            with http.request("POST", source, "/contents", body=body) as response:
                check_status(response, source)
                frames = FrameReader(response.read1 if response.chunked else response.read)
                for one in wanted:
                    _receive_small(frames, disk, small, one, source, result, control)
                response.read()
        except InvalidFrame as error:
            raise SourceFailed(source, str(error)) from error
        finally:
            result.stored += small.publish()
    return result


def _receive_small(
    frames: FrameReader,
    disk: OpenDisk,
    small: SmallContents,
    wanted: Wanted,
    source: str,
    result: Pulled,
    control: TransferControl,
) -> None:
    """Read one content of a response, and write it, unless it is missing, wrong, or there already."""
    head = frames.head()
    if head.content_id != wanted.id.number:
        raise InvalidFrame("the contents are not in the order of the request")
    data = frames.exactly(head.size)
    control.received(head.size, head.size)
    if not head.is_available:
        result.failed[wanted.id] = f"{source}: it cannot read its disk now"
        result.unavailable.add(wanted.id)
        return
    if not head.is_present:
        result.bad.append((source, wanted.id))
        result.failed[wanted.id] = "the source has it no more"
        return
    try:
        small.write(wanted.id, data, wanted.digest)
    except ContentMismatch:
        result.bad.append((source, wanted.id))
        result.failed[wanted.id] = "the source has it otherwise"
    except PartInUse as error:
        result.failed[wanted.id] = str(error)
    except ContentExists:
        if keep_if_whole(disk, wanted):
            result.stored.append(wanted.id)
        else:
            result.failed[wanted.id] = "another content had its id; it is in quarantine"


def group_by_source(wanted: Sequence[Wanted], sources: Mapping[ContentId, Sequence[str]]) -> dict[str, list[Wanted]]:
    """Each content with its preferred source; those without one are left out."""
    groups: dict[str, list[Wanted]] = {}
    for one in wanted:
        if sources.get(one.id):
            groups.setdefault(sources[one.id][0], []).append(one)
    return groups
