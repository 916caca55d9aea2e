"""The nodes that have disks, as what the requests of a client go to: which are asked, and what their answers mean."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Sequence
from http import HTTPStatus
from http.client import HTTPResponse
from typing import Any, Final

from sqlalchemy.engine import Connection

from peerd.domain.access import Actor
from peerd.domain.errors import PeerdError
from peerd.domain.file_errors import (
    ContentDiffers,
    DiskNotFound,
    DiskTakesNoMore,
    FileConditionFailed,
    NoNodeTakes,
    PutRefused,
    UploadGone,
)
from peerd.domain.files import DiskState, StoredFile, check_key
from peerd.storage.auditing import REMOVE, FileAuditor, actor_query, state_of
from peerd.storage.failed_nodes import FailedNodes
from peerd.storage.file_headers import PutTarget
from peerd.storage.placement.brake import ONLINE_WITHIN
from peerd.storage.transfer.errors import SourceFailed, error_from_data
from peerd.storage.transfer.node_http import NodeHttp, read_body
from peerd.storage.upload_protocol import UploadState, begin_headers, begin_path
from peerd.storage.upstream import Upstream
from peerd.store.connection.database import Database
from peerd.store.files.buckets import check_quota, get_bucket, get_bucket_and_class
from peerd.store.files.copies import find_sources
from peerd.store.files.disks import get_disk, list_disks, read_disks
from peerd.store.files.uploads import find_completed_version, get_resumable, mark_aborted, uploads_of_key
from peerd.store.files.versions import Condition, delete_file, find_file, get_file

MAX_ERROR_BODY: Final = 64 * 1024
FINAL: Final = "TooFewDurable"
"""An error with which every node would answer, after a long time."""
DISK_CODES: Final = frozenset({"NoDiskHasRoom", "DiskOutOfSpace", "DiskReadOnly", "DiskFailed"})
"""Errors with which the disk of an upload takes no more of it."""


class Nodes(Upstream):
    """The nodes of a cluster, whose addresses the catalogue has.

    Args:
        database: with the catalogue.
        http: to the nodes.
        actor: what puts are done by.
        failed: nodes that have failed lately.
    """

    def __init__(self, database: Database, http: NodeHttp, actor: Actor, failed: FailedNodes) -> None:
        self.http = http
        self.actor = actor_query(actor)
        self._database = database
        self._auditor = FileAuditor(actor=actor)
        self._failed = failed
        self._disks: dict[str, int] = {}
        """Disks of the uploads that were begun or found: an upload that has ended has no row that names its disk."""

    def close(self) -> None:
        self.http.close()

    def find(self, bucket: str, key: str) -> StoredFile:
        return self._database.read(lambda connection: get_file(connection, get_bucket(connection, bucket), key))

    def check(self, target: PutTarget, size: int | None) -> None:
        self._database.read(_check_put, target, size)

    def takers(self, size: int) -> list[str]:
        return self._failed.last(self._database.read(_writable_urls, size))

    def holders(self, file: StoredFile) -> list[str]:
        return self._failed.last(self._database.read(_readable_urls, file.id))

    def note_failure(self, url: str) -> None:
        self._failed.note(url)

    def put_failed(self, path: str, failures: Sequence[PeerdError]) -> PeerdError:
        return NoNodeTakes(path, list(map(str, failures)))

    def take_back(self, stored: StoredFile) -> None:
        self._database.run(_remove_version, stored, self._auditor)

    def begin(
        self, target: PutTarget, size: int | None, source: str | None, instead_of: str | None = None
    ) -> UploadState:
        path, headers = begin_path(target, size=size, source=source), begin_headers(target)
        avoided = None if instead_of is None else self._address_of(self._disk_of(instead_of, target))
        failures: list[PeerdError] = []
        for url in self.takers(size or 0):
            if url == avoided:
                continue
            try:
                begun = self.ask("POST", url, path, UploadState, about=target.path, headers=headers)
            except SourceFailed as error:
                self.note_failure(url)
                failures.append(error)
            else:
                self._disk_of(begun.id, target)
                return begun
        raise self.put_failed(target.path, failures)

    def uploads_of(self, target: PutTarget) -> list[UploadState]:
        def read(connection: Connection) -> list[UploadState]:
            found = uploads_of_key(connection, get_bucket(connection, target.bucket), target.key)
            self._disks |= {upload.id: upload.disk_id for upload in found}
            return [
                UploadState(one.id, one.received, one.source, is_lost=_url_of_disk(connection, one.disk_id) is None)
                for one in found
            ]

        return self._database.read(read)

    def completed(self, target: PutTarget, upload_id: str) -> StoredFile | None:
        return self._database.read(find_completed_version, upload_id)

    def abort(self, target: PutTarget, upload_id: str) -> None:
        with contextlib.suppress(UploadGone):
            self._database.run(mark_aborted, upload_id)

    def address_of(self, upload_id: str) -> str:
        """Where the node with the disk is now: it may have another address since. Raises UploadGone for a lost disk."""
        url = self._address_of(self._disk_of(upload_id))
        if url is None:
            raise UploadGone(upload_id)
        return url

    def _ask_about(
        self, method: str, target: PutTarget, upload_id: str, query: str = "", **request: Any
    ) -> UploadState:
        """Ask about an upload. The catalogue answers for one that was completed: its node may be away."""
        try:
            return super()._ask_about(method, target, upload_id, query, **request)
        except UploadGone:
            stored = None if method == "PUT" else self.completed(target, upload_id)
            if stored is None:
                raise
            return UploadState(upload_id, stored.size, file=stored)

    def error_of(self, url: str, response: HTTPResponse, path: str, upload_id: str | None = None) -> Exception:
        answer = _json_of(response)
        code = str(answer.get("code") or response.status)
        problem = str(answer.get("error") or f"it answers with status {response.status}")
        if upload_id is not None and code in DISK_CODES:
            return DiskTakesNoMore(upload_id, problem)
        if code == "BodyDiffers":
            changed = problem if upload_id is not None else f"the source has changed while it was sent ({problem})"
            return ContentDiffers(path, changed)
        if response.status >= HTTPStatus.INTERNAL_SERVER_ERROR and code != FINAL:
            return SourceFailed(url, problem)
        return error_from_data(code, answer.get("data")) or PutRefused(url, code, problem)

    def unexpected(self, url: str, problem: str) -> Exception:
        return SourceFailed(url, problem)

    def _disk_of(self, upload_id: str, target: PutTarget | None = None) -> int:
        """The disk of an upload. Raises UploadGone, also for one of another key than the target's."""
        if upload_id not in self._disks:
            upload = self._database.read(get_resumable, upload_id)
            if target is not None and (upload.bucket, upload.key) != (target.bucket, target.key):
                raise UploadGone(upload_id)
            self._disks[upload_id] = upload.disk_id
        return self._disks[upload_id]

    def _address_of(self, disk_id: int) -> str | None:
        return self._database.read(_url_of_disk, disk_id)


def _json_of(response: HTTPResponse) -> dict[str, Any]:
    """The object in a short response; empty for what is none."""
    try:
        found = json.loads(read_body(response, MAX_ERROR_BODY))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _check_put(connection: Connection, target: PutTarget, size: int | None) -> None:
    """Refuse what nodes would refuse; see `Upstream.check`."""
    check_key(target.key)
    bucket, _ = get_bucket_and_class(connection, target.bucket, target.options.class_name)
    replaced = find_file(connection, bucket, target.key)
    if target.options.only_new and replaced is not None:
        raise FileConditionFailed(target.bucket, target.key, "there is a file of this key")
    if size is not None:
        check_quota(connection, bucket, size, 0 if replaced is None else replaced.size)


def _writable_urls(connection: Connection, size: int) -> list[str]:
    """Where nodes with an online disk take a content of this size; those with more room are more often the first."""
    urls = {row.id: row.url for row in list_disks(connection)}
    room: dict[str, int] = {}
    for disk in read_disks(connection).disks:
        url = urls.get(disk.id)
        is_usable = disk.state is DiskState.ACTIVE and disk.problem is None and disk.silent_for <= ONLINE_WITHIN
        if url is not None and is_usable and disk.free >= size:
            room[url] = max(room.get(url, 1), disk.free)
    return sorted(room, key=lambda url: random.expovariate(room[url]))


def _readable_urls(connection: Connection, file_id: int) -> list[str]:
    """Where nodes can be asked for a file: those with a copy first; the others read it from these."""
    with_copy = [source.url for source in find_sources(connection, [file_id])[file_id] if source.url is not None]
    urls = {row.id: row.url for row in list_disks(connection) if row.url is not None}
    reported = [disk.id for disk in read_disks(connection, counted=False).disks if disk.silent_for <= ONLINE_WITHIN]
    online = {urls[number] for number in reported if number in urls}
    others = sorted(online - set(with_copy))
    random.shuffle(others)
    first = [url for url in dict.fromkeys(with_copy) if url in online]
    random.shuffle(first)
    return [*first, *others]


def _url_of_disk(connection: Connection, disk_id: int) -> str | None:
    """Where the node with a disk is; None: the disk is lost."""
    try:
        row = get_disk(connection, disk_id)
    except DiskNotFound:
        return None
    return None if row.state == DiskState.LOST.value else row.url


def _remove_version(connection: Connection, stored: StoredFile, auditor: FileAuditor) -> None:
    with contextlib.suppress(FileConditionFailed):
        bucket, condition = get_bucket(connection, stored.bucket), Condition(tag=stored.blake3)
        deleted = delete_file(connection, bucket, stored.key, condition)
        if deleted is not None:
            auditor.write(connection, REMOVE, f"{stored.bucket}/{stored.key}", state_of(deleted), None)
