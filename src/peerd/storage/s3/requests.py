"""Makes an operation of an HTTP request.

`_ROUTES` is the table of operations: by method and by what the request is for, and by the query parameter that selects
one. A parameter that the operation does not know is refused with NotImplemented, never ignored: to ignore ``?acl``
would store an access control list as the object. So is a header that changes what is stored, or who may read it; each
SDK has others of its own, which are ignored.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from peerd.domain.quoting import quoted
from peerd.storage.s3.checksums import CHECKSUM_SIZES
from peerd.storage.s3.conditions import ANY, Conditions, RequestedRange, conditions_of, parsed_range, range_of
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.http_request import (
    AUTHORIZATION_PARAMETERS,
    S3HttpRequest,
    percent_decoded,
    with_headers_of_query,
)
from peerd.storage.s3.names import S3Target, check_bucket_name, checked_key, checked_text, target_of
from peerd.storage.s3.operations import (
    CHECKSUM_ALGORITHM,
    CHECKSUM_TYPE,
    AbortMultipartUpload,
    Checksum,
    ChecksumKind,
    CompleteMultipartUpload,
    CopyObject,
    CopySource,
    CreateBucket,
    CreateMultipartUpload,
    DeleteBucket,
    DeleteObject,
    DeleteObjects,
    GetBucketLocation,
    GetBucketVersioning,
    GetObject,
    HeadBucket,
    HeadObject,
    ListBuckets,
    ListMultipartUploads,
    ListObjects,
    ListObjectsV2,
    ListObjectVersions,
    ListParts,
    ObjectHeaders,
    PutObject,
    S3Operation,
    UploadPart,
    UploadPartCopy,
)

MAX_METADATA: Final = 2048
"""How many bytes the names and values of a user's metadata may have together."""
MAX_PART_NUMBER: Final = 10_000
MAX_LISTED: Final = 1000
"""How many entries a page of a list has at the most; a client that wants more gets so many."""

_KEPT_HEADERS: Final = (
    "cache-control", "content-disposition", "content-encoding", "content-language", "content-type", "expires",
)  # fmt: skip
_OVERRIDES: Final = {f"response-{name}".encode(): name for name in _KEPT_HEADERS}
_WITHOUT_MEANING: Final = {b"x-id"}
"""SDKs add the operation's name."""

_ONLY_TYPES: Final = {"crc64nvme": "FULL_OBJECT", "sha1": "COMPOSITE", "sha256": "COMPOSITE"}
"""The type of the checksum of an upload, by its algorithm; others have either."""

_AWS_CHUNKED: Final = re.compile(r"(^|,)\s*aws-chunked\s*(?=,|$)", re.IGNORECASE)
_PRINTABLE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_TOKEN: Final = re.compile(r"[A-Z0-9_]{1,64}")
_UPLOAD_ID: Final = re.compile(r"[A-Za-z0-9._~-]{1,128}")
_METADATA_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")

_HEEDED_HEADERS: Final = {
    CHECKSUM_ALGORITHM, CHECKSUM_TYPE, "x-amz-checksum-mode",
    "x-amz-copy-source-if-match", "x-amz-copy-source-if-modified-since", "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-if-unmodified-since", "x-amz-copy-source-range",
    *(f"x-amz-checksum-{name}" for name in CHECKSUM_SIZES),
}  # fmt: skip
_NOT_TO_IGNORE: Final = re.compile(
    r"x-amz-(acl|bucket-namespace|bucket-object-lock-.*|checksum-.*|copy-source-.*|expected-.*|grant-.*|if-.*|mfa|"
    r"object-if-.*|object-lock-.*|object-ownership|rename-source.*|server-side-encryption.*|source-expected-.*|tagging.*|"
    r"website-.*|write-offset-.*)"
)
"""Headers that change what is stored, under which condition, or who may read it. Others of S3 are for what this server
does not have, such as the payer of a request, or tell it about the client."""
_ONLY_VALUES: Final[Mapping[str, tuple[str, ...]]] = {
    "x-amz-acl": ("private", "bucket-owner-full-control", "bucket-owner-read"),
    "x-amz-bucket-object-lock-enabled": ("false",),
    "x-amz-object-ownership": ("BucketOwnerEnforced",),
    "x-amz-tagging-directive": ("COPY",),
}
"""Headers that may be sent as long as they ask for what is done anyway."""


class S3RequestParser:
    """Makes operations of requests.

    Arguments: ``base_domain``: the domain below which the names of hosts begin with a bucket (``films.s3.example`` for
    ``s3.example``); None if buckets are in paths only.

    >>> parser = S3RequestParser("s3.example")
    >>> parser.parse(S3HttpRequest("GET", b"/a", b"", [(b"host", b"films.s3.example"), (b"range", b"bytes=5-")])).range
    RequestedRange(first=5, last=None)
    """

    def __init__(self, base_domain: str | None = None) -> None:
        self._base_domain = base_domain

    def parse(self, request: S3HttpRequest) -> S3Operation:
        """The operation that a request is for; the body is not looked at.

        Raises S3Error: NotImplemented for an operation, a query parameter or a header that this server does not have,
        MethodNotAllowed, InvalidBucketName, KeyTooLongError, InvalidArgument and others.
        """
        request = with_headers_of_query(request)
        target = target_of(request, self._base_domain)
        _check_headers(request)
        routes = _ROUTES.get((request.method, _level(target)))
        if routes is None:
            raise _refusal(request)
        present = _operation_parameters(request)
        route = next((route for route in routes if route.selector is None or route.selector in present), None)
        if route is None:
            raise S3Error(S3Code.NotImplemented, _sub_resource(request, present, set()))
        if present - route.parameters:
            raise S3Error(S3Code.NotImplemented, _sub_resource(request, present, route.parameters))
        return route.make(request, target)


class _Route(NamedTuple):
    """An operation: the parameter that selects it, all parameters that it knows, and what makes it."""

    selector: bytes | None
    parameters: frozenset[bytes]
    make: Callable[[S3HttpRequest, S3Target], S3Operation]


def _level(target: S3Target) -> str:
    if target.key is not None:
        return "object"
    return "service" if target.bucket is None else "bucket"


def _refusal(request: S3HttpRequest) -> Exception:
    if request.method in {"GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS"}:
        return S3Error(S3Code.NotImplemented, f"{request.method} is not available for this resource")
    return S3Error(S3Code.MethodNotAllowed, Method=request.method[:32])


def _operation_parameters(request: S3HttpRequest) -> set[bytes]:
    return {
        parameter.name
        for parameter in request.parameters
        if parameter.name.lower() not in AUTHORIZATION_PARAMETERS and parameter.name not in _WITHOUT_MEANING
    }


def _sub_resource(request: S3HttpRequest, present: set[bytes], known: frozenset[bytes] | set[bytes]) -> str:
    names = ", ".join(quoted(name.decode("latin-1")) for name in sorted(present - known)[:5])
    return f"{request.method} with {names or 'this resource'} is not available on this server"


def _check_headers(request: S3HttpRequest) -> None:
    for name_bytes, value_bytes in request.headers:
        name, value = name_bytes.decode("latin-1"), value_bytes.decode("latin-1")
        if _NOT_TO_IGNORE.fullmatch(name) is None or name in _HEEDED_HEADERS:
            continue
        if value in _ONLY_VALUES.get(name, ()):
            continue
        if name == "x-amz-acl" or name.startswith("x-amz-grant-"):
            raise S3Error(S3Code.AccessControlListNotSupported)
        if name == "x-amz-server-side-encryption":
            raise S3Error(
                S3Code.NotImplemented,
                f"contents are not encrypted by this server: leave {name} out, and encrypt its disks",
                Header=name,
            )
        raise S3Error(
            S3Code.NotImplemented,
            f"the header {quoted(name)} with this value is not available on this server",
            Header=name,
        )


# ---------------------------------------------------------------- parameters and headers


def _text(request: S3HttpRequest, name: bytes) -> str:
    return checked_text(request.parameter(name) or b"")


def _number(request: S3HttpRequest, name: bytes, default: int, highest: int = 2**31 - 1) -> int:
    value = request.parameter(name)
    if value is None:
        return default
    if not (value.isdigit() and len(value) <= 10 and int(value) <= highest):
        raise S3Error(
            S3Code.InvalidArgument, f"{name.decode()} is not a number from 0 to {highest}", ArgumentName=name.decode()
        )
    return int(value)


def _is_url_encoded(request: S3HttpRequest) -> bool:
    value = request.parameter(b"encoding-type")
    if value not in (None, b"url"):
        raise S3Error(S3Code.InvalidArgument, "encoding-type must be 'url'", ArgumentName="encoding-type")
    return value is not None


def _check_version(request: S3HttpRequest) -> None:
    if request.parameter(b"versionId") not in (None, b"null"):
        raise S3Error(
            S3Code.NotImplemented, "objects have no versions on this server: versionId must be left out, or 'null'"
        )


def _writable(name: str, value: str) -> str:
    """A value that a response may have as a header. Raises S3Error: InvalidArgument for one that would end the line."""
    if _PRINTABLE.fullmatch(value) is None:
        raise S3Error(S3Code.InvalidArgument, f"{name} has control characters", ArgumentName=name)
    return value


def _object_headers(request: S3HttpRequest) -> ObjectHeaders:
    headers = {}
    for name in _KEPT_HEADERS:
        value = request.header(name)
        if value is not None and name == "content-encoding":
            value = _AWS_CHUNKED.sub("", value).strip(", ")
        if value:
            headers[name] = _writable(name, value)
    return ObjectHeaders(headers=headers, metadata=_metadata(request))


def _metadata(request: S3HttpRequest) -> dict[str, str]:
    metadata: dict[str, str] = {}
    for header, value in request.headers:
        name = header.decode("latin-1")
        if name.startswith("x-amz-meta-"):
            name, text = name.removeprefix("x-amz-meta-"), _writable("metadata", value.decode("latin-1"))
            if _METADATA_NAME.fullmatch(name) is None:
                raise S3Error(
                    S3Code.InvalidArgument,
                    "the name of a user's metadata cannot be a header",
                    ArgumentName="x-amz-meta-",
                )
            metadata[name] = f"{metadata[name]},{text}" if name in metadata else text
    if (size := sum(len(name) + len(value) for name, value in metadata.items())) > MAX_METADATA:
        raise S3Error(S3Code.MetadataTooLarge, Size=str(size), MaxSizeAllowed=str(MAX_METADATA))
    return metadata


def _storage_class(request: S3HttpRequest) -> str | None:
    value = request.header("x-amz-storage-class")
    if value is not None and _TOKEN.fullmatch(value) is None:
        raise S3Error(S3Code.InvalidStorageClass)
    return value


def _write_conditions(request: S3HttpRequest) -> Conditions:
    """S3 takes ``If-None-Match: *`` and ``If-Match: <etag>`` for a write."""
    conditions = conditions_of(request)
    if conditions.if_none_match not in (None, (ANY,)):
        raise S3Error(S3Code.NotImplemented, "If-None-Match must be '*' for a write")
    if conditions.if_none_match is not None and conditions.if_match is not None:
        raise S3Error(S3Code.InvalidRequest, "a write takes If-Match or If-None-Match, not both")
    if conditions.if_modified_since is not None or conditions.if_unmodified_since is not None:
        raise S3Error(S3Code.NotImplemented, "a write takes no conditions on times")
    return conditions


def _copy_source(request: S3HttpRequest) -> CopySource:
    text = request.header("x-amz-copy-source") or ""
    path, _, version = text.partition("?")
    if version not in ("", "versionId=null"):
        raise S3Error(
            S3Code.NotImplemented, "objects have no versions on this server: name the source without versionId"
        )
    try:
        decoded = percent_decoded(path.encode("latin-1"))
        bucket, slash, key = decoded.removeprefix(b"/").partition(b"/")
        if not slash or not key:
            raise S3Error(
                S3Code.InvalidArgument, "x-amz-copy-source is not BUCKET/KEY", ArgumentName="x-amz-copy-source"
            )
        name = bucket.decode("latin-1")
        check_bucket_name(name)
        return CopySource(bucket=name, key=checked_key(key), conditions=conditions_of(request, "x-amz-copy-source-"))
    except S3Error as error:
        if error.code is not S3Code.InvalidURI:
            raise
        raise S3Error(
            S3Code.InvalidArgument, "x-amz-copy-source cannot be decoded", ArgumentName="x-amz-copy-source"
        ) from error


def _source_range(request: S3HttpRequest) -> RequestedRange | None:
    text = request.header("x-amz-copy-source-range")
    if text is None:
        return None
    found = parsed_range(text)
    if found is None or found.first is None or found.last is None:
        raise S3Error(
            S3Code.InvalidArgument,
            "x-amz-copy-source-range is not bytes=FIRST-LAST",
            ArgumentName="x-amz-copy-source-range",
        )
    return found


def _upload_id(request: S3HttpRequest) -> str:
    text = (request.parameter(b"uploadId") or b"").decode("latin-1")
    if _UPLOAD_ID.fullmatch(text) is None:
        raise S3Error(S3Code.NoSuchUpload)
    return text


def _part_number(request: S3HttpRequest) -> int:
    number = _number(request, b"partNumber", 0, MAX_PART_NUMBER)
    if number < 1:
        raise S3Error(S3Code.InvalidArgument, f"partNumber must be 1 to {MAX_PART_NUMBER}", ArgumentName="partNumber")
    return number


def _object_checksum(request: S3HttpRequest) -> Checksum | None:
    """The checksum of a whole object, of which its parts were uploaded."""
    named = [(name, request.header(f"x-amz-checksum-{name}")) for name in CHECKSUM_SIZES]
    found = [Checksum(name, value) for name, value in named if value is not None]
    if len(found) > 1:
        raise S3Error(S3Code.InvalidRequest, "a request takes one checksum")
    return found[0] if found else None


def _checksum_algorithm(request: S3HttpRequest) -> str | None:
    value = request.header(CHECKSUM_ALGORITHM)
    if value is not None and value.lower() not in CHECKSUM_SIZES:
        raise S3Error(
            S3Code.InvalidRequest, f"the checksum {quoted(value)} is not one of {', '.join(CHECKSUM_SIZES).upper()}"
        )
    return None if value is None else value.lower()


def _checksum_type(request: S3HttpRequest) -> str | None:
    value = request.header(CHECKSUM_TYPE)
    if value not in (None, "COMPOSITE", "FULL_OBJECT"):
        raise S3Error(S3Code.InvalidRequest, "x-amz-checksum-type must be COMPOSITE or FULL_OBJECT")
    return value


def _checksum_kind(request: S3HttpRequest) -> ChecksumKind | None:
    algorithm, kind = _checksum_algorithm(request), _checksum_type(request)
    if algorithm is None:
        if kind is not None:
            raise S3Error(S3Code.InvalidRequest, "x-amz-checksum-type needs x-amz-checksum-algorithm")
        return None
    only = _ONLY_TYPES.get(algorithm)
    if only is not None and kind not in (None, only):
        raise S3Error(S3Code.InvalidRequest, f"the checksum {algorithm.upper()} of an upload is {only}")
    return ChecksumKind(algorithm, is_of_parts=(only or kind or "COMPOSITE") == "COMPOSITE")


def token_after(after: str) -> str:
    """The continuation token of a list that goes on behind ``after``.

    >>> after_token(token_after("films/ä"))
    'films/ä'
    """
    return urlsafe_b64encode(b"1" + after.encode()).decode()


def after_token(token: str) -> str:
    """What `token_after` has made a token of. Raises S3Error: InvalidArgument for another text."""
    try:
        data = urlsafe_b64decode(token.encode("ascii"))
        after = data[1:].decode()
    except (Base64Error, ValueError) as error:
        raise S3Error(S3Code.InvalidArgument, "the continuation token is not one of this server") from error
    if data[:1] != b"1" or "\0" in after or token_after(after) != token:
        raise S3Error(S3Code.InvalidArgument, "the continuation token is not one of this server")
    return after


# ---------------------------------------------------------------- what makes the operations


def _list_buckets(request: S3HttpRequest, _: S3Target) -> S3Operation:
    token = _text(request, b"continuation-token")
    return ListBuckets(
        prefix=_text(request, b"prefix"),
        after=after_token(token) if token else "",
        max_buckets=min(_number(request, b"max-buckets", MAX_LISTED, 10_000), MAX_LISTED),
    )


def _listed(request: S3HttpRequest, target: S3Target) -> dict[str, Any]:
    """What all lists of objects have: which objects, and how many at the most."""
    return {
        "bucket": target.bucket,
        "prefix": _text(request, b"prefix"),
        "delimiter": _text(request, b"delimiter"),
        "is_url_encoded": _is_url_encoded(request),
        "max_keys": min(_number(request, b"max-keys", MAX_LISTED), MAX_LISTED),
    }


def _list_objects(request: S3HttpRequest, target: S3Target) -> S3Operation:
    return ListObjects(
        **_listed(request, target),
        marker=_text(request, b"marker"),
    )


def _list_objects_v2(request: S3HttpRequest, target: S3Target) -> S3Operation:
    if request.parameter(b"list-type") != b"2":
        raise S3Error(S3Code.InvalidArgument, "list-type must be 2", ArgumentName="list-type")
    token = None if request.parameter(b"continuation-token") is None else _text(request, b"continuation-token")
    start_after = _text(request, b"start-after")
    return ListObjectsV2(
        **_listed(request, target),
        continuation_token=token,
        start_after=start_after,
        after=start_after if token is None else after_token(token),
        fetch_owner=request.parameter(b"fetch-owner") == b"true",
    )


def _list_versions(request: S3HttpRequest, target: S3Target) -> S3Operation:
    return ListObjectVersions(
        **_listed(request, target),
        marker=_text(request, b"key-marker"),
        version_id_marker=_text(request, b"version-id-marker") or None,
    )


def _list_uploads(request: S3HttpRequest, target: S3Target) -> S3Operation:
    assert target.bucket is not None
    return ListMultipartUploads(
        bucket=target.bucket,
        prefix=_text(request, b"prefix"),
        delimiter=_text(request, b"delimiter"),
        is_url_encoded=_is_url_encoded(request),
        key_marker=_text(request, b"key-marker"),
        upload_id_marker=_text(request, b"upload-id-marker"),
        max_uploads=min(_number(request, b"max-uploads", MAX_LISTED), MAX_LISTED),
    )


def _put(request: S3HttpRequest, target: S3Target) -> S3Operation:
    assert target.bucket is not None
    assert target.key is not None
    storage_class, conditions = _storage_class(request), _write_conditions(request)
    if request.header("x-amz-copy-source") is None:
        return PutObject(
            bucket=target.bucket,
            key=target.key,
            object_headers=_object_headers(request),
            conditions=conditions,
            storage_class=storage_class,
        )
    directive = request.header("x-amz-metadata-directive") or "COPY"
    if directive not in ("COPY", "REPLACE"):
        raise S3Error(S3Code.InvalidArgument, "x-amz-metadata-directive must be COPY or REPLACE")
    source = _copy_source(request)
    is_same = (source.bucket, source.key) == (target.bucket, target.key)
    if is_same and directive == "COPY" and storage_class is None:
        raise S3Error(
            S3Code.InvalidRequest, "an object is copied onto itself only to replace its metadata or its storage class"
        )
    return CopyObject(
        bucket=target.bucket,
        key=target.key,
        source=source,
        object_headers=_object_headers(request) if directive == "REPLACE" else None,
        conditions=conditions,
        storage_class=storage_class,
        checksum_algorithm=_checksum_algorithm(request),
    )


def _get(request: S3HttpRequest, target: S3Target) -> S3Operation:
    assert target.bucket is not None
    assert target.key is not None
    _check_version(request)
    overrides = {
        header: _writable(name.decode(), value.decode("latin-1"))
        for name, header in _OVERRIDES.items()
        if (value := request.parameter(name)) is not None
    }
    operation = HeadObject if request.method == "HEAD" else GetObject
    number = None if request.parameter(b"partNumber") is None else _part_number(request)
    if number is not None and request.header("range") is not None:
        raise S3Error(S3Code.InvalidRequest, "a request takes the header Range or partNumber, not both")
    return operation(
        bucket=target.bucket,
        key=target.key,
        range=range_of(request),
        if_range=request.header("if-range"),
        part_number=number,
        conditions=conditions_of(request),
        overrides=overrides,
        wants_checksum=request.header("x-amz-checksum-mode") == "ENABLED",
    )


def _delete(request: S3HttpRequest, target: S3Target) -> S3Operation:
    assert target.bucket is not None
    assert target.key is not None
    _check_version(request)
    return DeleteObject(bucket=target.bucket, key=target.key, conditions=_write_conditions(request))


def _begin_upload(request: S3HttpRequest, target: S3Target) -> S3Operation:
    assert target.bucket is not None
    assert target.key is not None
    return CreateMultipartUpload(
        bucket=target.bucket,
        key=target.key,
        object_headers=_object_headers(request),
        storage_class=_storage_class(request),
        checksum_kind=_checksum_kind(request),
    )


def _upload_part(request: S3HttpRequest, target: S3Target) -> S3Operation:
    assert target.bucket is not None
    assert target.key is not None
    number, upload_id = _part_number(request), _upload_id(request)
    if request.header("x-amz-copy-source") is None:
        return UploadPart(bucket=target.bucket, key=target.key, upload_id=upload_id, part_number=number)
    return UploadPartCopy(
        bucket=target.bucket,
        key=target.key,
        upload_id=upload_id,
        part_number=number,
        source=_copy_source(request),
        range=_source_range(request),
    )


def _complete_upload(request: S3HttpRequest, target: S3Target) -> S3Operation:
    assert target.bucket is not None
    assert target.key is not None
    size = request.header("x-amz-mp-object-size")
    if size is not None and not (size.isascii() and size.isdigit() and len(size) <= 19):
        raise S3Error(
            S3Code.InvalidArgument, "x-amz-mp-object-size is not a number of bytes", ArgumentName="x-amz-mp-object-size"
        )
    return CompleteMultipartUpload(
        bucket=target.bucket,
        key=target.key,
        upload_id=_upload_id(request),
        conditions=_write_conditions(request),
        checksum=_object_checksum(request),
        checksum_type=_checksum_type(request),
        object_size=None if size is None else int(size),
    )


def _abort_upload(request: S3HttpRequest, target: S3Target) -> S3Operation:
    assert target.bucket is not None
    assert target.key is not None
    return AbortMultipartUpload(bucket=target.bucket, key=target.key, upload_id=_upload_id(request))


def _list_parts(request: S3HttpRequest, target: S3Target) -> S3Operation:
    assert target.bucket is not None
    assert target.key is not None
    return ListParts(
        bucket=target.bucket,
        key=target.key,
        upload_id=_upload_id(request),
        marker=_number(request, b"part-number-marker", 0),
        max_parts=min(_number(request, b"max-parts", MAX_LISTED), MAX_LISTED),
        is_url_encoded=_is_url_encoded(request),
    )


def _plain(operation: Callable[..., S3Operation]) -> Callable[[S3HttpRequest, S3Target], S3Operation]:
    """Makes an operation that needs a bucket and nothing else."""
    return lambda _, target: operation(bucket=target.bucket)


def _route(
    selector: str | None, make: Callable[[S3HttpRequest, S3Target], S3Operation], parameters: str = ""
) -> _Route:
    names = {name.encode() for name in (*parameters.split(), *([selector] if selector else []))}
    return _Route(selector.encode() if selector else None, frozenset(names), make)


_READING: Final = f"versionId partNumber {' '.join(name.decode() for name in _OVERRIDES)}"
_LISTING: Final = "prefix delimiter encoding-type"

_ROUTES: Final[Mapping[tuple[str, str], tuple[_Route, ...]]] = {
    ("GET", "service"): (_route(None, _list_buckets, "prefix continuation-token max-buckets"),),
    ("PUT", "bucket"): (_route(None, _plain(CreateBucket)),),
    ("DELETE", "bucket"): (_route(None, _plain(DeleteBucket)),),
    ("HEAD", "bucket"): (_route(None, _plain(HeadBucket)),),
    ("GET", "bucket"): (
        _route("location", _plain(GetBucketLocation)),
        _route("versioning", _plain(GetBucketVersioning)),
        _route("uploads", _list_uploads, f"{_LISTING} key-marker upload-id-marker max-uploads"),
        _route("versions", _list_versions, f"{_LISTING} key-marker version-id-marker max-keys"),
        _route("list-type", _list_objects_v2, f"{_LISTING} continuation-token start-after max-keys fetch-owner"),
        _route(None, _list_objects, f"{_LISTING} marker max-keys"),
    ),
    ("POST", "bucket"): (_route("delete", _plain(DeleteObjects)),),
    ("PUT", "object"): (
        _route("uploadId", _upload_part, "partNumber"),
        _route(None, _put),
    ),
    ("GET", "object"): (
        _route("uploadId", _list_parts, "part-number-marker max-parts encoding-type"),
        _route(None, _get, _READING),
    ),
    ("HEAD", "object"): (_route(None, _get, _READING),),
    ("DELETE", "object"): (
        _route("uploadId", _abort_upload),
        _route(None, _delete, "versionId"),
    ),
    ("POST", "object"): (
        _route("uploads", _begin_upload),
        _route("uploadId", _complete_upload),
    ),
}
