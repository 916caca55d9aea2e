"""Requests about uploads to the nodes that have disks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

import msgspec
from sqlalchemy.engine import Connection

from peerd.domain.access import Actor
from peerd.domain.file_errors import (
    DiskNotFound,
    DiskTakesNoMore,
    FileConditionFailed,
    FileReplaced,
    NoNodeTakes,
    PutRefused,
    UploadGone,
    UploadPositionDiffers,
)
from peerd.domain.files import DiskState, StoredFile
from peerd.storage.auditing import actor_query
from peerd.storage.failed_nodes import FailedNodes
from peerd.storage.file_headers import PutOptions, put_headers
from peerd.storage.node_requests import check_put, json_of, target_of, writable_urls
from peerd.storage.transfer.errors import SourceFailed
from peerd.storage.transfer.node_http import NodeHttp
from peerd.storage.upload_bounds import DIGEST
from peerd.storage.uploading.outcomes import BytesDiffer
from peerd.storage.uploading.upload_requests import FoundUpload, OpenUpload
from peerd.store.connection.database import Database
from peerd.store.files.buckets import get_bucket
from peerd.store.files.disks import get_disk
from peerd.store.files.uploads import (
    Upload,
    find_completed_version,
    get_resumable,
    mark_aborted,
    quota_exceeded,
    uploads_of_key,
)
from peerd.store.files.versions import get_version

DISK_CODES: Final = frozenset({"NoDiskHasRoom", "DiskOutOfSpace", "DiskReadOnly", "DiskFailed"})
"""Errors with which the disk of an upload takes no more of it."""


class _Asked(NamedTuple):
    """What a node was asked for: with an upload about it, with an offset about so many bytes there."""

    url: str
    upload: OpenUpload | None = None
    offset: int = 0
    size: int = 0


class NodeUploads:
    """Requests about the uploads of one key to the nodes that have disks; see `UploadRequests`.

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
        self._disks: dict[str, int] = {}
        """Those of the uploads that were begun or found: an upload that has ended has no row that names its disk."""

    def check(self, size: int | None) -> None:
        self._database.read(check_put, *self.place, self.options, size)

    def of_key(self) -> list[FoundUpload]:
        found = self._database.read(self._of_key)
        self._disks |= {upload.id: upload.disk_id for upload, _ in found}
        return [FoundUpload(upload.id, upload.source, upload.received, url is None) for upload, url in found]

    def open(self, upload_id: str) -> OpenUpload:
        """An upload of the key that another object has begun. Raises UploadGone."""
        upload = self._database.read(get_resumable, upload_id)
        if (upload.bucket, upload.key) != self.place:
            raise UploadGone(upload_id)
        self._disks[upload.id] = upload.disk_id
        return OpenUpload(upload.id, upload.received)

    def begin(self, size: int | None, source: str | None, instead_of: OpenUpload | None = None) -> OpenUpload:
        bucket, key = self.place
        more = {"size": size, "source": source}
        query = urlencode({name: value for name, value in more.items() if value is not None})
        target = f"{target_of(bucket, key).replace('/files/', '/uploads/', 1)}?{actor_query(self._actor)}&{query}"
        headers = put_headers(msgspec.structs.replace(self.options, size=None, blake3=None))
        avoided = None if instead_of is None else self._database.read(_url_of_disk, self._disks[instead_of.id])
        problems: list[str] = []
        for url in self._failed.last(self._database.read(writable_urls, size or 0)):
            if url == avoided:
                continue
            try:
                answer = self._answer("POST", _Asked(url, size=size or 0), target, headers)
                return self.open(answer["id"])
            except SourceFailed as error:
                self._failed.note(url)
                problems.append(str(error))
        raise NoNodeTakes(self.path, problems)

    def received(self, upload: OpenUpload) -> int:
        return int(self._answer("GET", _Asked(self._url_of(upload), upload), f"/uploads/{upload.id}")["received"])

    def send(self, upload: OpenUpload, offset: int, count: int, body: Iterator[bytes]) -> int:
        url = self._url_of(upload)
        headers = {"content-length": str(count + DIGEST)}
        with self._http.upload(url, f"/uploads/{upload.id}?offset={offset}", body, headers) as response:
            answer = json_of(response)
        if response.status == HTTPStatus.OK:
            return int(answer["received"])
        raise self._error(_Asked(url, upload, offset, count), response.status, answer)

    def complete(self, upload: OpenUpload, size: int, digest: str) -> StoredFile | None:
        query = f"{actor_query(self._actor)}&size={size}&blake3={digest}"
        answer = self._answer("POST", _Asked(self._url_of(upload), upload, size), f"/uploads/{upload.id}?{query}")
        if "blake3" not in answer:
            return None
        if answer["blake3"] != digest:
            raise BytesDiffer(f"the node has stored BLAKE3 {answer['blake3']}, sent was {digest}")
        stored = self._database.read(get_version, int(str(answer["id"]), 16))
        if stored is None:
            raise FileReplaced(self.path)
        return stored

    def completed(self, upload: OpenUpload) -> StoredFile | None:
        return self._database.read(find_completed_version, upload.id)

    def abort(self, upload_id: str) -> None:
        try:
            self._database.run(mark_aborted, upload_id)
        except UploadGone:
            return

    def _of_key(self, connection: Connection) -> list[tuple[Upload, str | None]]:
        bucket, key = self.place
        return [
            (upload, _url_of_disk(connection, upload.disk_id))
            for upload in uploads_of_key(connection, get_bucket(connection, bucket), key)
        ]

    def _url_of(self, upload: OpenUpload) -> str:
        """Where the node with the disk is now: it may have another address since. Raises UploadGone for a lost disk."""
        url = self._database.read(_url_of_disk, self._disks[upload.id])
        if url is None:
            raise UploadGone(upload.id)
        return url

    def _answer(
        self, method: str, asked: _Asked, target: str, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        with self._http.request(method, asked.url, target, headers=headers) as response:
            answer = json_of(response)
            response.read()
        if response.status in {HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.ACCEPTED}:
            return answer
        raise self._error(asked, response.status, answer)

    def _error(self, asked: _Asked, status: int, answer: Mapping[str, Any]) -> Exception:
        """The error of a response that is none of success."""
        problem = str(answer.get("error") or f"it answers with status {status}")
        code = str(answer.get("code") or status)
        if asked.upload is not None and (error := self._error_of_upload(asked, asked.upload.id, code, problem)):
            return error
        if code == "QuotaExceeded" and (exceeded := self._database.read(quota_exceeded, self.place[0], asked.size)):
            return exceeded
        if status == HTTPStatus.PRECONDITION_FAILED:
            return FileConditionFailed(*self.place, "there is a file of this key")
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR and code != "TooFewDurable":
            return SourceFailed(asked.url, problem)
        return PutRefused(asked.url, code, problem)

    def _error_of_upload(self, asked: _Asked, upload_id: str, code: str, problem: str) -> Exception | None:
        """The error of an upload that has begun; None: it is one of any put."""
        if code == "UploadGone":
            return UploadGone(upload_id)
        if code == "UploadPositionDiffers":
            received = self._database.read(get_resumable, upload_id).received
            return UploadPositionDiffers(upload_id, asked.offset, received)
        if code in DISK_CODES:
            return DiskTakesNoMore(upload_id, problem)
        return BytesDiffer(problem) if code == "BodyDiffers" else None


def _url_of_disk(connection: Connection, disk_id: int) -> str | None:
    """Where the node with a disk is; None: the disk is lost."""
    try:
        row = get_disk(connection, disk_id)
    except DiskNotFound:
        return None
    return None if row.state == DiskState.LOST.value else row.url
