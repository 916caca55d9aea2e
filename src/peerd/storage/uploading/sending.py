"""Putting a content in parts: each is durable when the next one is sent.

When a connection ends, or a node is started again, the put goes on behind the last durable part, after pauses that
grow. So does the next put of the same file: an upload is found again by its key, and by the size and the time of change
of its source. A file is read once, because its BLAKE3 goes with the completion; what was received by an earlier process
is read again to be hashed. Of a stream, whose bytes come once, those of one part are in memory.

If the node of an upload does not come back, a file is sent to another one, from its beginning.
"""

from __future__ import annotations

import contextlib
import io
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.domain.file_errors import (
    ContentDiffers,
    DiskTakesNoMore,
    NoNodeTakes,
    UploadBroken,
    UploadGone,
    UploadPositionDiffers,
)
from peerd.domain.files import StoredFile
from peerd.storage.file_headers import PutTarget
from peerd.storage.put_body import Body, Progress
from peerd.storage.transfer.errors import SourceFailed
from peerd.storage.transfer.node_http import PUT_TIMEOUT
from peerd.storage.upload_protocol import UploadState
from peerd.storage.uploading.sources import FileSource, PartSource, StreamSource, UploadSourceChanged
from peerd.storage.upstream import Upstream

FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 10.0
"""Seconds between two tries."""
GIVEN_UP_AFTER: Final = PUT_TIMEOUT
"""Seconds without a byte that became durable, after which a put fails."""
ELSEWHERE_AFTER: Final = 60.0
"""Seconds, of those, after which a file is sent to another node."""
MOST_BEGUN: Final = 5
"""How often a file is begun anew, because it changes, or its node fails."""


def put_file(
    upstream: Upstream, target: PutTarget, path: Path, opened: IO[bytes], progress: Progress | None
) -> StoredFile | None:
    """Put a regular file in parts, from where an earlier put of it has ended.

    Returns:
        the version; None: no node takes an upload, as where there are object stores only.

    Raises:
        ContentDiffers: it changes again and again.
        UploadBroken: nothing of it became durable for long.
        PeerdError: it cannot be stored.
    """
    source = FileSource(path, opened, target.options, progress)
    upload = _find(upstream, target, source.name)
    for number in range(MOST_BEGUN):
        if upload is None:
            try:
                upload = upstream.begin(target, source.size, source.name)
            except NoNodeTakes:
                _abort_unused(upstream, target, source.name)
                if number:
                    raise
                return None
        if progress is not None and upload.received:
            progress(upload.received, source.size)
        begun: UploadState | None = None
        try:
            stored = Sending(upstream, target, source, upload.id, can_begin_anew=True).run()
            _abort_unused(upstream, target, source.name)
            return stored
        except (UploadSourceChanged, ContentDiffers):
            upstream.abort(target, upload.id)
        except BegunElsewhere as error:
            upstream.abort(target, upload.id)
            begun = error.begun
        except UploadGone:
            completed = upstream.completed(target, upload.id)
            if completed is not None and source.is_all_of(completed):
                return completed
        source.look()
        upload = begun
    raise ContentDiffers(target.path, "the source has changed while it was sent, again and again")


def put_stream(
    upstream: Upstream,
    target: PutTarget,
    opened: IO[bytes],
    progress: Progress | None,
    put_body: Callable[[Body], StoredFile],
    parts_above: int,
) -> StoredFile:
    """Put what can be read once in parts; a short one as one body.

    Args:
        upstream: what is asked.
        target: where it is put.
        opened: what has ``read``.
        progress: called while it is sent.
        put_body: puts a body.
        parts_above: bytes to which it is put as one body, at most those of a part.

    Raises:
        UploadBroken: nothing of it became durable for long, or the node has lost what it had.
        PeerdError: it cannot be stored.
    """
    source = StreamSource(opened, progress, target.options.size)
    first = source.first
    if first is not None and len(first) <= parts_above:
        return put_body(Body(io.BytesIO(first), len(first), source.digest(), is_repeatable=True))
    name = f"stream-{secrets.token_hex(16)}"
    try:
        upload = upstream.begin(target, target.options.size, name)
    except NoNodeTakes:
        _abort_unused(upstream, target, name)
        return put_body(Body(source.rest(), target.options.size))
    try:
        stored = Sending(upstream, target, source, upload.id, can_begin_anew=False).run()
    except (UploadSourceChanged, ContentDiffers, UploadGone) as error:
        completed = upstream.completed(target, upload.id)
        if completed is not None and completed.blake3 == source.digest():
            return completed  # the answer to its completion was lost
        upstream.abort(target, upload.id)
        raise UploadBroken(target.path, str(error) or "the node has lost a part of it", 1) from error
    except BaseException:
        with contextlib.suppress(PeerdError):
            upstream.abort(target, upload.id)  # its source ends with this process
        raise
    _abort_unused(upstream, target, name)
    return stored


def _find(upstream: Upstream, target: PutTarget, source: str) -> UploadState | None:
    """The upload of this source that was begun before; those of other states of the same source are aborted."""
    origin, _, state = source.partition("-")
    found = upstream.uploads_of(target)
    for upload in found:
        if (upload.source or "").startswith(f"{origin}-") and upload.source != source:
            upstream.abort(target, upload.id)
    for upload in found:
        if not (upload.source or "").endswith(f"-{state}"):
            continue
        if not upload.is_lost:
            return upload
        upstream.abort(target, upload.id)
    return None


def _abort_unused(upstream: Upstream, target: PutTarget, source: str) -> None:
    """Abort uploads of a source that have no bytes: the answers to their beginning were lost."""
    with contextlib.suppress(PeerdError):  # what is left has no bytes, and is aborted after a week
        for upload in upstream.uploads_of(target):
            if upload.source == source and not upload.received:
                upstream.abort(target, upload.id)


class BegunElsewhere(Exception):
    """The node of an upload does not come back, and another one has begun it."""

    def __init__(self, begun: UploadState) -> None:
        self.begun = begun
        super().__init__()


@dataclass(slots=True)
class Sending:
    """The parts of one upload, and its completion.

    Args:
        upstream: what is asked.
        target: where it is put.
        source: what is sent.
        upload_id: of the upload, which has begun.
        can_begin_anew: whether the source can be sent to another node.
    """

    upstream: Upstream
    target: PutTarget
    source: PartSource
    upload_id: str
    can_begin_anew: bool
    _received: int = 0
    _is_known: bool = False
    _tries: int = 0
    _failing_since: float | None = None
    _node_failing_since: float | None = None
    _asked_at: float = float("-inf")
    _pause: float = FIRST_PAUSE

    def run(self) -> StoredFile:
        """Send all parts, and complete the upload. Raises as `put_file` says."""
        while True:
            try:
                stored = self._step()
            except (SourceFailed, UploadPositionDiffers, DatabaseUnavailable) as error:
                self._is_known = False
                self._failed(error)
            except DiskTakesNoMore as error:
                if self.can_begin_anew:
                    self._go_elsewhere()
                raise NoNodeTakes(self.target.path, [error.problem]) from error
            else:
                if stored is not None:
                    return stored
                self._failing_since, self._node_failing_since, self._pause = None, None, FIRST_PAUSE

    def _step(self) -> StoredFile | None:
        """Send the next part, or complete the upload: then the version is returned."""
        if not self._is_known:
            found = self.upstream.received(self.target, self.upload_id)
            if found > self._received:
                self._failing_since = self._node_failing_since = None
            self._received, self._is_known = found, True
        if self.source.is_ended(self._received):
            return self.upstream.complete(self.target, self.upload_id, self._received, self.source.digest())
        count, body = self.source.part(self._received)
        try:
            sent = self.upstream.send(self.target, self.upload_id, self._received, count, body)
        except ContentDiffers as error:  # on its way: it is sent again
            raise SourceFailed(self.target.path, error.problem) from error
        self._received = sent.received
        self.source.accept(self._received)
        return None

    def _failed(self, problem: Exception) -> None:
        """Wait before the next try.

        Raises:
            UploadBroken: nothing became durable for a long time.
            BegunElsewhere: another node has begun it.
        """
        self._tries += 1
        present = time.monotonic()
        self._failing_since = self._failing_since or present
        if present - self._failing_since > GIVEN_UP_AFTER:
            raise UploadBroken(self.target.path, str(problem), max(2, self._tries))
        if isinstance(problem, DatabaseUnavailable):  # which says nothing about the node
            self._node_failing_since = None
        else:
            self._node_failing_since = self._node_failing_since or present
            is_away = present - self._node_failing_since > ELSEWHERE_AFTER
            if self.can_begin_anew and is_away and present - self._asked_at > ELSEWHERE_AFTER:
                self._go_elsewhere()
        time.sleep(self._pause)
        self._pause = min(LONGEST_PAUSE, self._pause * 2)

    def _go_elsewhere(self) -> None:
        """Begin the upload on another node, if one takes it. Raises BegunElsewhere."""
        self._asked_at = time.monotonic()
        source = self.source
        assert isinstance(source, FileSource)
        try:
            begun = self.upstream.begin(self.target, source.size, source.name, instead_of=self.upload_id)
        except (NoNodeTakes, DatabaseUnavailable):
            return
        raise BegunElsewhere(begun)
