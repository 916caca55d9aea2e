"""A request of S3: its bucket and object, its conditions, and its parameters and headers as values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

import msgspec

from peerd.domain.quoting import quoted
from peerd.storage.file_headers import MAX_METADATA_NAMES
from peerd.storage.s3.checksums import (
    CHECKSUM_ALGORITHM,
    CHECKSUM_PREFIX,
    CHECKSUM_SIZES,
    CHECKSUM_TYPE,
    Checksum,
    ChecksumKind,
)
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.http_request import (
    AUTHORIZATION_PARAMETERS,
    S3HttpRequest,
    check_bucket_name,
    check_headers,
    checked_key,
    checked_text,
    percent_decoded,
    percent_encoded,
    target_of,
    with_headers_of_query,
)
from peerd.storage.server import ranges
from peerd.storage.server.ranges import UNCHANGED, ContentRange, RangeNotSatisfiable

COPY_SOURCE: Final = "x-amz-copy-source"
MAX_METADATA: Final = 2048
"""How many bytes the names and values of a user's metadata may have together."""
MAX_CONTENT_TYPE: Final = 255
MAX_PART_NUMBER: Final = 10_000
MAX_ETAGS: Final = 100
"""Entity tags in a condition."""
MAX_LISTED: Final = 1000
"""How many entries a page of a list has at the most; a client that wants more gets so many."""

_KEPT_HEADERS: Final = (
    "cache-control", "content-disposition", "content-encoding", "content-language", "content-type", "expires",
)  # fmt: skip
OVERRIDES: Final = {f"response-{name}": name for name in _KEPT_HEADERS}
"""The headers of a response, by the query parameters that give them other values."""
_OPERATION_NAME: Final = b"x-id"
"""SDKs add the operation's name as this parameter."""

_ONLY_TYPES: Final = {"crc64nvme": "FULL_OBJECT", "sha1": "COMPOSITE", "sha256": "COMPOSITE"}
"""The type of the checksum of an upload, by its algorithm; others have either."""

_AWS_CHUNKED: Final = re.compile(r"(^|,)\s*aws-chunked\s*(?=,|$)", re.IGNORECASE)
_PRINTABLE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_STORAGE_CLASS: Final = re.compile(r"[A-Z0-9_]{1,64}")
_UPLOAD_ID: Final = re.compile(r"[0-9a-f]{32}")
_METADATA_NAME: Final = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")


class Conditions(ranges.Conditions, frozen=True, kw_only=True):
    """The conditions of a request of S3."""

    def failure(self, etag: str, modified: datetime) -> S3Error | None:
        """The error, PreconditionFailed or NotModified, if the conditions do not hold for an object.

        >>> Conditions(if_match=("a",)).failure("a", datetime(2026, 1, 1))
        """
        failed = self.failed({etag}, modified)
        if failed in UNCHANGED:
            return S3Error(S3Code.NotModified)
        return None if failed is None else S3Error(S3Code.PreconditionFailed, Condition=failed.title())


class RequestedRange(ranges.RequestedRange):
    """A range of an object as a client of S3 wants it."""

    def within(self, size: int) -> ContentRange:
        """The range in an object of ``size`` bytes. Raises S3Error: InvalidRange."""
        try:
            return super().within(size)
        except RangeNotSatisfiable:
            raise S3Error(S3Code.InvalidRange, ActualObjectSize=str(size)) from None


def conditions_of(request: S3HttpRequest, prefix: str = "") -> Conditions:
    """The conditions in a request's headers; ``prefix``: of the headers about a copy's source."""
    found = Conditions.of(request.header, prefix)
    if max(len(found.if_match or ()), len(found.if_none_match or ())) > MAX_ETAGS:
        raise S3Error(S3Code.InvalidArgument, f"a condition names more than {MAX_ETAGS} ETags")
    return found


def parsed_range(text: str) -> RequestedRange | None:
    """The range of a text, None if it is not one."""
    found = ranges.parse_range(text)
    return None if found is None else RequestedRange(*found)


class ObjectHeaders(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept with an object and sent with it: headers of HTTP, by their names in lower case, and the user's
    metadata, by names without ``x-amz-meta-``. Values are text as Latin-1, so that their bytes remain the same.
    """

    headers: Mapping[str, str] = {}
    metadata: Mapping[str, str] = {}


class CopySource(msgspec.Struct, frozen=True, kw_only=True):
    """The object that is copied, and the conditions on it."""

    bucket: str
    key: str
    conditions: Conditions = Conditions()


class ObjectReading(msgspec.Struct, frozen=True, kw_only=True):
    """What a client wants of an object: if what holds, which part of it, and with which other headers."""

    conditions: Conditions = Conditions()
    range: RequestedRange | None = None
    if_range: str | None = None
    part_number: int | None = None
    overrides: Mapping[str, str] = {}
    wants_checksum: bool = False


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """Which keys a client wants listed: at most ``limit`` that begin with ``prefix``. Those with the same text up to
    ``delimiter`` are one common prefix.
    """

    prefix: str = ""
    delimiter: str = ""
    limit: int = MAX_LISTED
    is_url_encoded: bool = False

    @property
    def encoding(self) -> str | None:
        """The value of the element EncodingType."""
        return "url" if self.is_url_encoded else None

    def encoded(self, text: str | None) -> str | None:
        """A key, prefix or marker: percent-encoded, if the client wants that, because XML cannot hold every key."""
        if text is None or not self.is_url_encoded:
            return text
        return percent_encoded(text.encode(), safe="/").decode()


class S3Request:
    """A request; its body is not looked at. Each parameter is read, and refused if it is wrong, when it is asked for.

    Arguments: ``http``: as it was received; ``base_domain``: the domain below which the names of hosts begin with a
    bucket (``films.s3.example`` for ``s3.example``); None if buckets are in paths only.

    Attributes: ``bucket`` and ``key``: what it is for; empty if it is for the service, or for a bucket.

    Raises S3Error: NotImplemented for a header that this server does not have, InvalidBucketName, KeyTooLongError and
    others, also when an attribute is read.

    >>> http = S3HttpRequest("GET", b"/a", b"", [(b"host", b"films.s3.example"), (b"range", b"bytes=5-")])
    >>> request = S3Request(http, "s3.example")
    >>> request.bucket, request.key, request.reading.range
    ('films', 'a', RequestedRange(first=5, last=None))
    """

    def __init__(self, http: S3HttpRequest, base_domain: str | None = None) -> None:
        self.http = http
        self._http = with_headers_of_query(http)  # bodies are read with the headers as they were received
        self.bucket, self.key = target_of(self._http, base_domain)
        check_headers(self._http)

    @property
    def level(self) -> str:
        """What the request is for: the service, a bucket, or an object."""
        if self.key:
            return "object"
        return "bucket" if self.bucket else "service"

    @property
    def parameter_names(self) -> set[str]:
        """The names of the query parameters that say what is done."""
        names = {parameter.name for parameter in self._http.parameters} - {_OPERATION_NAME}
        return {name.decode("latin-1") for name in names if name.lower() not in AUTHORIZATION_PARAMETERS}

    @property
    def is_copy(self) -> bool:
        """Whether the content is copied from another object, instead of a body."""
        return bool(self._http.header_values(COPY_SOURCE.encode()))

    # ---------------------------------------------------------------- query parameters

    def text(self, name: str) -> str:
        """A query parameter; empty if there is none."""
        return checked_text(self._http.parameter(name.encode()) or b"")

    def number(self, name: str, default: int = 0, highest: int = 2**31 - 1) -> int:
        """A query parameter from 0 to ``highest``."""
        value = self._http.parameter(name.encode())
        if value is None:
            return default
        if not (value.isdigit() and len(value) <= 10 and int(value) <= highest):
            raise _invalid(name, f"{name} is not a number from 0 to {highest}")
        return int(value)

    def limit(self, name: str, highest: int = 2**31 - 1) -> int:
        """How many entries a page has at the most."""
        return min(self.number(name, MAX_LISTED, highest), MAX_LISTED)

    def listing(self, limit: str) -> Listing:
        """Which keys are to be listed; ``limit`` is the parameter that says how many."""
        encoding = self._http.parameter(b"encoding-type")
        if encoding not in (None, b"url"):
            raise _invalid("encoding-type", "encoding-type must be 'url'")
        return Listing(
            prefix=self.text("prefix"),
            delimiter=self.text("delimiter"),
            limit=self.limit(limit),
            is_url_encoded=encoding is not None,
        )

    def check_version(self) -> None:
        """Raise S3Error: NotImplemented if another version than the current one is wanted."""
        if self._http.parameter(b"versionId") not in (None, b"null"):
            problem = "objects have no versions on this server: versionId must be left out, or 'null'"
            raise S3Error(S3Code.NotImplemented, problem)

    @property
    def upload_id(self) -> str:
        """The upload in parts."""
        text = (self._http.parameter(b"uploadId") or b"").decode("latin-1")
        if _UPLOAD_ID.fullmatch(text) is None:
            raise S3Error(S3Code.NoSuchUpload)
        return text

    @property
    def part_number(self) -> int:
        """The part of an upload, 1 to 10,000."""
        number = self.number("partNumber", 0, MAX_PART_NUMBER)
        if number < 1:
            raise _invalid("partNumber", f"partNumber must be 1 to {MAX_PART_NUMBER}")
        return number

    # ---------------------------------------------------------------- headers

    @property
    def conditions(self) -> Conditions:
        """The conditions on the object."""
        return conditions_of(self._http)

    @property
    def reading(self) -> ObjectReading:
        """What a client wants of an object."""
        self.check_version()
        overrides = {
            header: _writable(name, value.decode("latin-1"))
            for name, header in OVERRIDES.items()
            if (value := self._http.parameter(name.encode())) is not None
        }
        number = None if self._http.parameter(b"partNumber") is None else self.part_number
        if number is not None and self._http.header("range") is not None:
            raise S3Error(S3Code.InvalidRequest, "a request takes the header Range or partNumber, not both")
        return ObjectReading(
            conditions=self.conditions,
            range=parsed_range(self._http.header("range") or ""),
            if_range=self._http.header("if-range"),
            part_number=number,
            overrides=overrides,
            wants_checksum=self._http.header("x-amz-checksum-mode") == "ENABLED",
        )

    @property
    def object_headers(self) -> ObjectHeaders:
        """What is kept with the object."""
        headers = {}
        for name in _KEPT_HEADERS:
            value = self._http.header(name)
            if value is not None and name == "content-encoding":
                value = _AWS_CHUNKED.sub("", value).strip(", ")
            if value:
                headers[name] = _writable(name, value)
        if len(headers.get("content-type", "")) > MAX_CONTENT_TYPE:
            problem = f"the content type is longer than {MAX_CONTENT_TYPE} characters"
            raise S3Error(S3Code.InvalidArgument, problem)
        return ObjectHeaders(headers=headers, metadata=_metadata(self._http))

    @property
    def storage_class(self) -> str | None:
        """The storage class of the object; None if the bucket says it."""
        value = self._http.header("x-amz-storage-class")
        if value is not None and _STORAGE_CLASS.fullmatch(value) is None:
            raise S3Error(S3Code.InvalidStorageClass)
        return value

    @property
    def copy_source(self) -> CopySource:
        """The object that is to be copied."""
        path, _, version = (self._http.header(COPY_SOURCE) or "").partition("?")
        if version not in ("", "versionId=null"):
            problem = "objects have no versions on this server: name the source without versionId"
            raise S3Error(S3Code.NotImplemented, problem)
        try:
            bucket, _, key = percent_decoded(path.encode("latin-1")).removeprefix(b"/").partition(b"/")
            if not key:
                raise _invalid(COPY_SOURCE, f"{COPY_SOURCE} is not BUCKET/KEY")
            name = bucket.decode("latin-1")
            check_bucket_name(name)
            return CopySource(
                bucket=name, key=checked_key(key), conditions=conditions_of(self._http, f"{COPY_SOURCE}-")
            )
        except S3Error as error:
            if error.code is not S3Code.InvalidURI:
                raise
            raise _invalid(COPY_SOURCE, f"{COPY_SOURCE} cannot be decoded") from error

    @property
    def replaced_headers(self) -> ObjectHeaders | None:
        """What is kept with a copy instead of what the source has; None if that is kept."""
        directive = self._http.header("x-amz-metadata-directive") or "COPY"
        if directive not in ("COPY", "REPLACE"):
            raise S3Error(S3Code.InvalidArgument, "x-amz-metadata-directive must be COPY or REPLACE")
        source = self.copy_source
        is_same = (source.bucket, source.key) == (self.bucket, self.key)
        if is_same and directive == "COPY" and self.storage_class is None:
            problem = "an object is copied onto itself only to replace its metadata or its storage class"
            raise S3Error(S3Code.InvalidRequest, problem)
        return self.object_headers if directive == "REPLACE" else None

    @property
    def source_range(self) -> RequestedRange | None:
        """The bytes of the source that are to be copied; None: all."""
        text = self._http.header(f"{COPY_SOURCE}-range")
        if text is None:
            return None
        found = parsed_range(text)
        if found is None or found.first is None or found.last is None:
            raise _invalid(f"{COPY_SOURCE}-range", f"{COPY_SOURCE}-range is not bytes=FIRST-LAST")
        return found

    @property
    def object_size(self) -> int | None:
        """The bytes that all parts of an upload have together, if the client names them."""
        size = self._http.header("x-amz-mp-object-size")
        if size is not None and not (size.isascii() and size.isdigit() and len(size) <= 19):
            raise _invalid("x-amz-mp-object-size", "x-amz-mp-object-size is not a number of bytes")
        return None if size is None else int(size)

    @property
    def object_checksum(self) -> Checksum | None:
        """The checksum of a whole object that was uploaded in parts."""
        named = [(name, self._http.header(f"{CHECKSUM_PREFIX}{name}")) for name in CHECKSUM_SIZES]
        found = [Checksum(name, value) for name, value in named if value is not None]
        if len(found) > 1:
            raise S3Error(S3Code.InvalidRequest, "a request takes one checksum")
        return found[0] if found else None

    @property
    def checksum_algorithm(self) -> str | None:
        """The algorithm of a checksum that the server computes."""
        value = self._http.header(CHECKSUM_ALGORITHM)
        if value is not None and value.lower() not in CHECKSUM_SIZES:
            problem = f"the checksum {quoted(value)} is not one of {', '.join(CHECKSUM_SIZES).upper()}"
            raise S3Error(S3Code.InvalidRequest, problem)
        return None if value is None else value.lower()

    @property
    def checksum_type(self) -> str | None:
        """The type of the checksum of an upload, if the client names it."""
        value = self._http.header(CHECKSUM_TYPE)
        if value not in (None, "COMPOSITE", "FULL_OBJECT"):
            raise S3Error(S3Code.InvalidRequest, "x-amz-checksum-type must be COMPOSITE or FULL_OBJECT")
        return value

    @property
    def checksum_kind(self) -> ChecksumKind | None:
        """The checksum for which an upload is begun."""
        algorithm, kind = self.checksum_algorithm, self.checksum_type
        if algorithm is None:
            if kind is not None:
                raise S3Error(S3Code.InvalidRequest, "x-amz-checksum-type needs x-amz-checksum-algorithm")
            return None
        only = _ONLY_TYPES.get(algorithm)
        if only is not None and kind not in (None, only):
            raise S3Error(S3Code.InvalidRequest, f"the checksum {algorithm.upper()} of an upload is {only}")
        return ChecksumKind(algorithm, is_of_parts=(only or kind or "COMPOSITE") == "COMPOSITE")


def _writable(name: str, value: str) -> str:
    """A value that a response may have as a header. Raises S3Error: InvalidArgument for one that would end the line."""
    if _PRINTABLE.fullmatch(value) is None:
        raise _invalid(name, f"{name} has control characters")
    return value


def _metadata(request: S3HttpRequest) -> dict[str, str]:
    metadata: dict[str, str] = {}
    for header, value in request.headers:
        name = header.decode("latin-1")
        if name.startswith("x-amz-meta-"):
            name, text = name.removeprefix("x-amz-meta-"), _writable("metadata", value.decode("latin-1"))
            if _METADATA_NAME.fullmatch(name) is None:
                raise _invalid("x-amz-meta-", "the name of a user's metadata cannot be a header")
            metadata[name] = f"{metadata[name]},{text}" if name in metadata else text
    if (size := sum(len(name) + len(value) for name, value in metadata.items())) > MAX_METADATA:
        raise S3Error(S3Code.MetadataTooLarge, Size=str(size), MaxSizeAllowed=str(MAX_METADATA))
    if len(metadata) > MAX_METADATA_NAMES:
        raise S3Error(S3Code.MetadataTooLarge, f"there are more than {MAX_METADATA_NAMES} headers x-amz-meta-*")
    return metadata


def _invalid(name: str, problem: str) -> S3Error:
    """The error of a query parameter or a header."""
    return S3Error(S3Code.InvalidArgument, problem, ArgumentName=name)
