"""Requests of clients to nodes: which nodes are asked, the target of a file, and what a short answer says."""

from __future__ import annotations

import json
import random
from http.client import HTTPResponse
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy.engine import Connection

from peerd.domain.file_errors import FileConditionFailed
from peerd.domain.files import DiskState, check_key
from peerd.storage.file_headers import PutOptions
from peerd.storage.placement.brake import ONLINE_WITHIN
from peerd.storage.transfer.node_http import read_body
from peerd.store.files.buckets import check_quota, get_bucket_and_class
from peerd.store.files.copies import find_sources
from peerd.store.files.disks import list_disks, read_disks
from peerd.store.files.versions import find_file

MAX_ERROR_BODY: Final = 64 * 1024


def target_of(bucket: str, key: str) -> str:
    """The target of a file in a request, below whatever serves files."""
    return f"/files/{quote(bucket, safe='')}/{quote(key, safe='')}"


def json_of(response: HTTPResponse) -> dict[str, Any]:
    """The object in a short response; empty for what is none."""
    try:
        found = json.loads(read_body(response, MAX_ERROR_BODY))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def check_put(connection: Connection, bucket: str, key: str, options: PutOptions, size: int | None) -> None:
    """Refuse what nodes would refuse, before anything is sent.

    Raises:
        InvalidFile, BucketNotFound, FileClassNotFound, QuotaExceeded, FileConditionFailed: it cannot be stored so.
    """
    check_key(key)
    found, _ = get_bucket_and_class(connection, bucket, options.class_name)
    replaced = find_file(connection, found, key)
    if options.only_new and replaced is not None:
        raise FileConditionFailed(bucket, key, "there is a file of this key")
    if size is not None:
        check_quota(connection, found, size, 0 if replaced is None else replaced.size)


def writable_urls(connection: Connection, size: int) -> list[str]:
    """Where nodes with an online disk take a content of this size; those with more room are more often the first."""
    urls = {row.id: row.url for row in list_disks(connection)}
    room: dict[str, int] = {}
    for disk in read_disks(connection).disks:
        url = urls.get(disk.id)
        is_usable = disk.state is DiskState.ACTIVE and disk.problem is None and disk.silent_for <= ONLINE_WITHIN
        if url is not None and is_usable and disk.free >= size:
            room[url] = max(room.get(url, 1), disk.free)
    return sorted(room, key=lambda url: random.expovariate(room[url]))


def readable_urls(connection: Connection, file_id: int) -> list[str]:
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
