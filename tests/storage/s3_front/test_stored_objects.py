"""Files as objects of S3."""

from __future__ import annotations

from datetime import UTC, datetime

from peerd.domain.files import FileState, StoredFile
from peerd.storage.s3.errors import S3Code
from peerd.storage.s3.requests import Conditions, ObjectHeaders
from peerd.storage.s3_front.stored_objects import checksums_of, condition_of, kept_with, object_headers_of
from peerd.store.files.buckets import Bucket
from peerd.store.files.versions import Condition
from tests.storage.s3.beginning import begin, request_of
from tests.storage.s3.refusals import refused_as

NOW = datetime(2026, 11, 26, tzinfo=UTC)
BUCKET = Bucket(id=1, name="films", class_name="default", quota=None, created_at=NOW)


def stored_file(**more: object) -> StoredFile:
    values = {"id": 1, "bucket": "films", "key": "f", "version": 1, "state": FileState.STORED, "class_name": "default"}
    return StoredFile(**{**values, "size": 1, "blake3": "0" * 64, "created_at": NOW, **more})  # type: ignore[arg-type]


def test_headers_and_metadata_come_back_as_they_were_given_and_what_cannot_be_a_header_does_not() -> None:
    utf8 = "日本".encode().decode("latin-1")
    given = ObjectHeaders(headers={"content-type": "a/b", "expires": "0"}, metadata={"name": utf8})
    found = stored_file(**kept_with(given, {"crc32": "AAAAAA=="}))
    assert (object_headers_of(found), checksums_of(found)) == (given, {"crc32": "AAAAAA=="})
    with refused_as(S3Code.InvalidArgument):
        begin(request_of("PUT", b"/films/f", headers=[(b"content-type", b"a" * 256)]))
    metadata = {"good": "x", "a b": "x", "a:b": "x", "ä": "x", "line": "a\r\nset-cookie: b", "wide": "電影"}
    assert object_headers_of(stored_file(metadata=metadata)).metadata == {"good": "x"}


def test_conditions_of_writes() -> None:
    assert condition_of(Conditions(if_none_match=("*",))) == Condition(is_absent=True)
    assert condition_of(Conditions(if_match=("0" * 64 + "-1",))) == Condition(tag="0" * 64)
    assert condition_of(Conditions(if_match=("ab-1",))) == Condition(tag="ab-1")
    for etags in (("*",), ("a", "b")):
        with refused_as(S3Code.NotImplemented):
            condition_of(Conditions(if_match=etags))
