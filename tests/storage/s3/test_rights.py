"""What an access key may do: each operation, and keys with each right and each scope."""

from __future__ import annotations

import msgspec

from peerd.domain.access import FileRights
from peerd.storage.s3_front.front import _OPERATIONS, operation_of
from tests.storage.s3.beginning import KEY, request_of

KEYS = {
    "all": KEY,
    "reads": msgspec.structs.replace(KEY, rights=FileRights.READ),
    "writes": msgspec.structs.replace(KEY, rights=FileRights.WRITE),
    "films": msgspec.structs.replace(KEY, scopes=("films",)),
    "own": msgspec.structs.replace(KEY, scopes=("films/own/",)),
    "music": msgspec.structs.replace(KEY, scopes=("music",)),
}
OBJECT, UPLOAD = "/films/own/a", f"/films/own/a?uploadId={'0' * 32}"
TABLE = {
    "ListBuckets": [("GET /", "all reads writes films own music")],
    "CreateBucket": [("PUT /films", "all writes films")],
    "DeleteBucket": [("DELETE /films", "all writes films")],
    "HeadBucket": [("HEAD /films", "all reads writes films own")],
    "GetBucketLocation": [("GET /films?location", "all reads writes films own")],
    "GetBucketVersioning": [("GET /films?versioning", "all reads writes films own")],
    "ListObjects": [("GET /films", "all reads films"), ("GET /films?prefix=own/", "all reads films own")],
    "ListObjectsV2": [
        ("GET /films?list-type=2", "all reads films"),
        ("GET /films?list-type=2&prefix=own/", "all reads films own"),
        ("GET /films?list-type=2&prefix=ow", "all reads films"),
    ],
    "ListObjectVersions": [
        ("GET /films?versions", "all reads films"),
        ("GET /films?versions&prefix=own/", "all reads films own"),
    ],
    "ListMultipartUploads": [
        ("GET /films?uploads", "all writes films"),
        ("GET /films?uploads&prefix=own/", "all writes films own"),
    ],
    "DeleteObjects": [("POST /films?delete", "all writes films own")],
    "PutObject": [(f"PUT {OBJECT}", "all writes films own"), ("PUT /films/a", "all writes films")],
    "CopyObject": [
        (f"PUT {OBJECT} films/own/b", "all films own"),
        (f"PUT {OBJECT} films/b", "all films"),
        ("PUT /films/a films/own/b", "all films"),
        (f"PUT {OBJECT} music/b", "all"),
    ],
    "GetObject": [(f"GET {OBJECT}", "all reads films own"), ("GET /films/a", "all reads films")],
    "HeadObject": [(f"HEAD {OBJECT}", "all reads films own"), ("HEAD /films/a", "all reads films")],
    "DeleteObject": [(f"DELETE {OBJECT}", "all writes films own"), ("DELETE /films/a", "all writes films")],
    "CreateMultipartUpload": [(f"POST {OBJECT}?uploads", "all writes films own")],
    "UploadPart": [(f"PUT {UPLOAD}&partNumber=1", "all writes films own")],
    "UploadPartCopy": [
        (f"PUT {UPLOAD}&partNumber=1 films/own/b", "all films own"),
        (f"PUT {UPLOAD}&partNumber=1 films/b", "all films"),
    ],
    "CompleteMultipartUpload": [(f"POST {UPLOAD}", "all writes films own")],
    "AbortMultipartUpload": [(f"DELETE {UPLOAD}", "all writes films own")],
    "ListParts": [(f"GET {UPLOAD}", "all writes films own")],
}


def test_each_operation_needs_its_right_and_its_scope() -> None:
    for name, rows in TABLE.items():
        for text, permitted in rows:
            method, target, *source = text.split()
            path, _, query = target.partition("?")
            headers = [(b"x-amz-copy-source", one.encode()) for one in source]
            request = request_of(method, path.encode(), query.encode(), headers)
            operation = operation_of(request)
            assert operation.name == name, text
            assert [one for one, key in KEYS.items() if operation.is_permitted(key, request)] == permitted.split(), text
    assert {operation.name for operations in _OPERATIONS.values() for operation in operations} == TABLE.keys()
