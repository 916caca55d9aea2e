"""Putting and getting contents of files, from a program or a command: over HTTP, to and from the nodes that have disks.

Addresses come from the catalogue, and each request is signed with the cluster's secret. Several nodes are tried. What
has been received of a file stays when a node fails: another one goes on behind it, and in the end the BLAKE3 of all
bytes must be the catalogue's. Of a body only blocks of a mebibyte are in memory. Large files are put in parts, see
`peerd.storage.uploading`.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import IO, Self

from peerd.domain.access import Actor
from peerd.domain.errors import DatabaseUnavailable, PeerdError
from peerd.domain.file_errors import ContentDiffers, FileConditionFailed, NoClusterSecret, NoNodeTakes
from peerd.domain.files import StoredFile
from peerd.doorbell.datagram import ClusterClock
from peerd.storage.failed_nodes import FailedNodes
from peerd.storage.file_headers import PutTarget, put_headers
from peerd.storage.file_reader import FileReader, save
from peerd.storage.node_upstream import Nodes
from peerd.storage.put_body import Body, Progress, opened_body
from peerd.storage.transfer.errors import SourceFailed
from peerd.storage.transfer.node_http import NodeHttp
from peerd.storage.transfer.node_signature import NodeSigner
from peerd.storage.upload_protocol import path_of
from peerd.storage.uploading.sending import put_file, put_stream
from peerd.storage.upstream import Upstream
from peerd.store.connection.database import Database


class ContentTransfer:
    """Puts and gets contents; closed at the end of ``with``.

    Args:
        upstream: what it asks.
    """

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream

    def close(self) -> None:
        """Close the connections."""
        self.upstream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def put(
        self,
        source: str | os.PathLike[str] | IO[bytes],
        target: PutTarget,
        progress: Progress | None = None,
        *,
        parts_above: int | None = None,
    ) -> StoredFile:
        """Store a content as a file, which replaces the one that the key has.

        Args:
            source: the path of a regular file, or what has ``read``. A file is hashed first, so that other bytes are
                refused, and is sent again when a node fails. Of what can only be read once, the hash is compared
                afterwards.
            target: where it is put, and what is stored with it.
            progress: called while it is sent.
            parts_above: bytes above which it is sent in parts, and goes on behind the last one when a node fails: a
                file is read once then; None: it is never.

        Raises:
            BucketNotFound, FileClassNotFound, InvalidFile, QuotaExceeded, FileConditionFailed: it cannot be stored so.
            NoNodeTakes: no node could be reached, or had room.
            PutRefused: a node has refused it.
            UploadBroken: the connection to a server has ended.
            ContentDiffers: the source has changed meanwhile, or other bytes have arrived.
        """
        if parts_above is not None and target.options.blake3 is None:
            stored = self._put_by_parts(source, target, progress, parts_above)
            if stored is not None:
                return stored
        with opened_body(source, target.options) as body:
            return self._put(body, target, progress)

    def get(
        self,
        bucket: str,
        key: str,
        target: str | os.PathLike[str] | IO[bytes],
        progress: Progress | None = None,
    ) -> StoredFile:
        """Write the content of a file to a path or to what has ``write``.

        Args:
            bucket: its name.
            key: of the file.
            target: a path gets the whole file or stays as it was: it is written beside it, and renamed. A folder gets a
                file with the last part of the key as its name.
            progress: called while it is read.

        Raises:
            BucketNotFound, FileMissing: there is no such bucket, or file.
            NoSourceLeft: no node has it, or can be reached.
            FileReplaced: it was replaced or removed meanwhile.
            ContentDiffers: other bytes have arrived.
            OSError: the target cannot be written.
        """
        with self.open(bucket, key) as reader:
            return save(reader, target, progress)

    def open(self, bucket: str, key: str) -> FileReader:
        """Open a file for reading; the reader closes the connections.

        Raises:
            BucketNotFound, FileMissing: there is no such bucket, or file.
        """
        return FileReader(self.upstream.find(bucket, key), self.upstream)

    def _put_by_parts(
        self, source: str | os.PathLike[str] | IO[bytes], target: PutTarget, progress: Progress | None, parts_above: int
    ) -> StoredFile | None:
        """Send a content in parts; None: it is to be sent as one body, and nothing of it was read."""
        size = target.options.size
        if isinstance(source, str | os.PathLike):
            status = Path(source).stat()
            if not stat.S_ISREG(status.st_mode) or status.st_size <= parts_above:
                return None
            with Path(source).open("rb", buffering=0) as opened:
                self.upstream.check(target, status.st_size)
                return put_file(self.upstream, target, Path(source), opened, progress)
        elif size is None or size > parts_above:
            self.upstream.check(target, size)
            return put_stream(
                self.upstream, target, source, progress, lambda body: self._put(body, target, progress), parts_above
            )
        return None

    def _put(self, body: Body, target: PutTarget, progress: Progress | None) -> StoredFile:
        """Send a body, to one address after another as long as they fail; see `put`."""
        upstream, failures = self.upstream, list[PeerdError]()
        upstream.check(target, body.size)
        headers, path = put_headers(body.announced_in(target.options)), path_of("files", target.bucket, target.key)
        for url in upstream.takers(body.size or 0):
            if not body.rewind():
                break
            blocks = body.blocks(progress)
            try:
                stored = upstream.ask("PUT", url, path, StoredFile, about=target.path, headers=headers, body=blocks)
            except (SourceFailed, DatabaseUnavailable, NoNodeTakes) as error:
                upstream.note_failure(url)
                failures.append(error)
            except FileConditionFailed:
                found = self._stored_by_lost_answer(target, body) if failures else None
                if found is None:
                    raise
                return found
            else:
                return self._accept(stored, body)
        raise upstream.put_failed(target.path, failures)

    def _stored_by_lost_answer(self, target: PutTarget, body: Body) -> StoredFile | None:
        """The current version, if it is this body: it was stored, and the connection ended before the answer."""
        with contextlib.suppress(PeerdError):  # such as the refusal of a token that may not read
            found = self.upstream.find(target.bucket, target.key)
            return found if found.blake3 == body.blake3 else None
        return None

    def _accept(self, stored: StoredFile, body: Body) -> StoredFile:
        if stored.blake3 != body.blake3:
            self.upstream.take_back(stored)
            problem = f"other bytes were received (BLAKE3 {stored.blake3}) than were sent ({body.blake3}); put it again"
            raise ContentDiffers(f"{stored.bucket}/{stored.key}", problem)
        return stored


class FilesTransfer(ContentTransfer):
    """To and from the nodes that have disks.

    Args:
        database: with the catalogue.
        secret: of the cluster; None raises `NoClusterSecret`.
        actor: what puts are done by, for the audit log.
        failed: nodes that other transfers have found to fail.
    """

    def __init__(self, database: Database, secret: str | None, actor: Actor, failed: FailedNodes | None = None) -> None:
        if secret is None:
            raise NoClusterSecret
        http = NodeHttp(NodeSigner(secret, ClusterClock()))
        super().__init__(Nodes(database, http, actor, failed or FailedNodes()))
