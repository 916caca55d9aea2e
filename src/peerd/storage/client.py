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
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from http import HTTPStatus
from http.client import HTTPResponse
from pathlib import Path
from typing import IO, Any, Final, Self

from sqlalchemy.engine import Connection

from peerd.domain.access import Actor
from peerd.domain.file_errors import (
    ContentDiffers,
    FileConditionFailed,
    FileReplaced,
    NoClusterSecret,
    NoNodeTakes,
    PutRefused,
)
from peerd.domain.files import StoredFile
from peerd.doorbell.datagram import ClusterClock
from peerd.storage.auditing import REMOVE, FileAuditor, actor_query, state_of
from peerd.storage.failed_nodes import FailedNodes
from peerd.storage.file_headers import PutOptions, put_headers
from peerd.storage.file_reader import FileReader, save
from peerd.storage.node_requests import check_put, json_of, readable_urls, target_of, writable_urls
from peerd.storage.progress import Progress
from peerd.storage.put_body import Body, opened_body
from peerd.storage.transfer.errors import SourceFailed
from peerd.storage.transfer.node_http import NodeHttp
from peerd.storage.transfer.node_signature import NodeSigner
from peerd.storage.uploading.node_uploads import NodeUploads
from peerd.storage.uploading.sending import put_file, put_stream
from peerd.storage.uploading.upload_requests import UploadRequests
from peerd.store.connection.database import Database
from peerd.store.files.buckets import get_bucket
from peerd.store.files.versions import Condition as VersionCondition
from peerd.store.files.versions import delete_file, find_file, get_file, get_version

RETRIED: Final = (HTTPStatus.INSUFFICIENT_STORAGE, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.INTERNAL_SERVER_ERROR)
"""Responses after which another node may do it."""
FINAL: Final = ("TooFewDurable",)
"""But not after these errors, with which every node would answer, after a long time."""


class ContentTransfer(ABC):
    """Puts and gets contents; closed at the end of ``with``."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def put(
        self,
        source: str | os.PathLike[str] | IO[bytes],
        bucket: str,
        key: str,
        options: PutOptions,
        progress: Progress | None = None,
        *,
        parts_above: int | None = None,
    ) -> StoredFile:
        """Store a content as a file, which replaces the one that the key has.

        Args:
            source: the path of a regular file, or what has ``read``. A file is hashed first, so that other bytes are
                refused, and is sent again when a node fails. Of what can only be read once, the hash is compared
                afterwards.
            bucket: its name.
            key: of the file.
            options: what is stored with it.
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
        if parts_above is not None and options.blake3 is None:
            stored = self._put_by_parts(source, bucket, key, options, progress, parts_above)
            if stored is not None:
                return stored
        with opened_body(source, options) as body:
            return self._put(body, bucket, key, options, progress)

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

    @abstractmethod
    def open(self, bucket: str, key: str) -> FileReader:
        """Open a file for reading; the reader closes the connections.

        Raises:
            BucketNotFound, FileMissing: there is no such bucket, or file.
        """

    @abstractmethod
    def uploads(self, bucket: str, key: str, options: PutOptions) -> UploadRequests:
        """Requests about the uploads of a key, which are put with these options."""

    def _put_by_parts(
        self,
        source: str | os.PathLike[str] | IO[bytes],
        bucket: str,
        key: str,
        options: PutOptions,
        progress: Progress | None,
        parts_above: int,
    ) -> StoredFile | None:
        """Send a content in parts; None: it is to be sent as one body, and nothing of it was read."""
        uploads = self.uploads(bucket, key, options)
        if isinstance(source, str | os.PathLike):
            status = Path(source).stat()
            if not stat.S_ISREG(status.st_mode) or status.st_size <= parts_above:
                return None
            with Path(source).open("rb", buffering=0) as opened:
                uploads.check(status.st_size)
                return put_file(uploads, Path(source), opened, progress)
        elif options.size is None or options.size > parts_above:
            uploads.check(options.size)
            return put_stream(
                uploads, source, progress, lambda body: self._put(body, bucket, key, options, progress), parts_above
            )
        return None

    @abstractmethod
    def _put(self, body: Body, bucket: str, key: str, options: PutOptions, progress: Progress | None) -> StoredFile:
        """Send a body; see `put`."""


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
        self._database = database
        self._actor = actor
        self._failed = failed or FailedNodes()
        self._http = NodeHttp(NodeSigner(secret, ClusterClock()))

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def open(self, bucket: str, key: str) -> FileReader:
        """Open a file for reading."""
        file = self._database.read(_find_file, bucket, key)
        return FileReader(file, _NodeSources(self._database, self._http, file))

    def uploads(self, bucket: str, key: str, options: PutOptions) -> NodeUploads:
        """Requests about the uploads of a key to nodes."""
        return NodeUploads(self._database, self._http, self._actor, self._failed, (bucket, key), options)

    def _put(self, body: Body, bucket: str, key: str, options: PutOptions, progress: Progress | None) -> StoredFile:
        self._database.read(check_put, bucket, key, options, body.size)
        headers = put_headers(body.announced_in(options))
        problems: list[str] = []
        for url in self._failed.last(self._database.read(writable_urls, body.size or 0)):
            if not body.rewind():
                break
            try:
                answer = self._send(url, (bucket, key), headers, body, progress)
            except SourceFailed as error:
                self._failed.note(url)
                problems.append(str(error))
                continue
            except FileConditionFailed:
                stored = self._stored_by_lost_answer(bucket, key, body) if problems else None
                if stored is None:
                    raise
                return stored
            return self._accept(bucket, key, answer, body)
        raise NoNodeTakes(f"{bucket}/{key}", problems)

    def _send(
        self, url: str, place: tuple[str, str], headers: Mapping[str, str], body: Body, progress: Progress | None
    ) -> dict[str, Any]:
        """Send the body to one node, and return its answer. Raises SourceFailed where another one may do it."""
        target = f"{target_of(*place)}?{actor_query(self._actor)}"
        with self._http.upload(url, target, body.blocks(progress), headers) as response:
            answer = json_of(response)
            if response.status == HTTPStatus.CREATED:
                return answer
            status = response.status
        problem = str(answer.get("error") or f"it answers with status {status}")
        code = str(answer.get("code") or status)
        if status in RETRIED and code not in FINAL:
            raise SourceFailed(url, problem)
        if status == HTTPStatus.PRECONDITION_FAILED:
            raise FileConditionFailed(*place, "there is a file of this key")
        if code == "BodyDiffers":
            raise ContentDiffers("/".join(place), f"the source has changed while it was sent ({problem})")
        raise PutRefused(url, code, problem)

    def _stored_by_lost_answer(self, bucket: str, key: str, body: Body) -> StoredFile | None:
        """The current version, if it is this body: a node has stored it, and the connection ended before its answer."""
        found = self._database.read(lambda connection: find_file(connection, get_bucket(connection, bucket), key))
        return found if found is not None and found.blake3 == body.blake3 else None

    def _accept(self, bucket: str, key: str, answer: Mapping[str, Any], body: Body) -> StoredFile:
        file_id, stored_hash = int(str(answer["id"]), 16), str(answer["blake3"])
        if stored_hash != body.blake3:
            self._database.run(_remove_version, bucket, key, stored_hash, FileAuditor(actor=self._actor))
            problem = (
                f"the node received other bytes (BLAKE3 {stored_hash}) than were sent ({body.blake3}); put it again"
            )
            raise ContentDiffers(f"{bucket}/{key}", problem)
        stored = self._database.read(get_version, file_id)
        if stored is None:
            raise FileReplaced(f"{bucket}/{key}")
        return stored


class _NodeSources:
    """The nodes that have copies of a file, and others, which read it from these."""

    def __init__(self, database: Database, http: NodeHttp, file: StoredFile) -> None:
        self._database = database
        self._http = http
        self._file = file
        self._target = target_of(file.bucket, file.key)

    def urls(self) -> list[str]:
        return self._database.read(readable_urls, self._file.id)

    def request(self, url: str, headers: Mapping[str, str]) -> AbstractContextManager[HTTPResponse]:
        return self._http.request("GET", url, self._target, headers=headers)

    def refusal(self, response: HTTPResponse) -> Exception:
        if response.status in {HTTPStatus.PRECONDITION_FAILED, HTTPStatus.NOT_FOUND}:
            return FileReplaced(f"{self._file.bucket}/{self._file.key}")
        problem = str(json_of(response).get("error") or f"it answers with status {response.status}")
        return SourceFailed("", problem)

    def close(self) -> None:
        self._http.close()


def _find_file(connection: Connection, bucket: str, key: str) -> StoredFile:
    return get_file(connection, get_bucket(connection, bucket), key)


def _remove_version(connection: Connection, bucket: str, key: str, tag: str, auditor: FileAuditor) -> None:
    with contextlib.suppress(FileConditionFailed):
        deleted = delete_file(connection, get_bucket(connection, bucket), key, VersionCondition(tag=tag))
        if deleted is not None:
            auditor.write(connection, REMOVE, f"{bucket}/{key}", state_of(deleted), None)
