"""Requests about uploads to the nodes that have disks."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import urlencode

from sqlalchemy.engine import Connection

from peerd.domain.access import Actor
from peerd.domain.file_errors import (
    DiskNotFound,
    FileConditionFailed,
    FileReplaced,
    NoNodeTakes,
    PutRefused,
    UploadGone,
    UploadPositionDiffers,
)
from peerd.domain.files import DiskState, StoredFile
from peerd.storage.auditing import actor_query
from peerd.storage.client import (
    Body,
    json_of,
    put_headers,
    target_of,
    writable_urls,
)
from peerd.storage.failed_nodes import FailedNodes
from peerd.storage.put_options import PutOptions
from peerd.storage.transfer.errors import SourceFailed
from peerd.storage.transfer.node_http import NodeHttp
from peerd.storage.uploading.outcomes import BytesDiffer, DiskTakesNoMore
from peerd.store.connection.database import Database
from peerd.store.files.buckets import get_bucket
from peerd.store.files.disks import get_disk
from peerd.store.files.resumable_uploads import ResumableUpload, get_resumable, mark_aborted, uploads_of_key
from peerd.store.files.uploads import find_completed_upload
from peerd.store.files.versions import get_version

DISK_CODES: Final = frozenset({"NoDiskHasRoom", "DiskOutOfSpace", "DiskReadOnly", "DiskFailed"})
"""Errors with which the disk of an upload takes no more of it."""


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
        for url in self._failed.last(self._database.read(writable_urls, size or 0)):
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
            BytesDiffer: the bytes have another BLAKE3; the upload is aborted.
        """
        query = f"{actor_query(self._actor)}&size={size}&blake3={digest}"
        answer = self._answer("POST", self._url_of(upload), f"/uploads/{upload.id}?{query}", upload=upload)
        if "blake3" not in answer:
            return None
        if answer["blake3"] != digest:
            raise BytesDiffer(f"the node has stored BLAKE3 {answer['blake3']}, sent was {digest}")
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
            return DiskTakesNoMore(upload_id, problem) if code != "UploadGone" else UploadGone(upload_id)
        if code == "UploadPositionDiffers":
            return UploadPositionDiffers(upload_id, 0, 0)
        if code == "BodyDiffers" and upload is not None:
            return BytesDiffer(problem)
        if status == HTTPStatus.PRECONDITION_FAILED:
            return FileConditionFailed(*self.place, "there is a file of this key")
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR and code != "TooFewDurable":
            return SourceFailed(url, problem)
        return PutRefused(url, code, problem)


def _url_of_disk(connection: Connection, disk_id: int) -> str | None:
    """Where the node with a disk is; None: the disk is lost."""
    try:
        row = get_disk(connection, disk_id)
    except DiskNotFound:
        return None
    return None if row.state == DiskState.LOST.value else row.url


def _find_disk_of(connection: Connection, upload_id: str) -> int:
    return get_resumable(connection, upload_id).disk_id
