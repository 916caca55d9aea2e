"""One HTTP request as S3 sees it: parameters and headers, percent encoding, and the bucket and key that it is for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from peerd.domain.files import BUCKET_NAME, IP_ADDRESS
from peerd.domain.quoting import quoted
from peerd.storage.s3.checksums import CHECKSUM_ALGORITHM, CHECKSUM_PREFIX, CHECKSUM_SIZES, CHECKSUM_TYPE
from peerd.storage.s3.errors import S3Code, S3Error

MAX_URI: Final = 16 * 1024
"""The longest path, and the longest query, in bytes as sent: a key of 1,024 bytes has 3,072 when it is encoded."""
MAX_HEADERS: Final = 32 * 1024
"""The size of all headers together, in bytes."""
MAX_PARAMETERS: Final = 200
MAX_KEY: Final = 1024
"""The longest key, in bytes of UTF-8."""
AUTHORIZATION_PARAMETERS: Final = {
    b"x-amz-algorithm", b"x-amz-credential", b"x-amz-date", b"x-amz-expires", b"x-amz-signedheaders",
    b"x-amz-signature", b"x-amz-content-sha256", b"x-amz-security-token",
}  # fmt: skip
"""The query parameters of a presigned URL that are no headers, in lower case."""

_CHECKSUM_VALUE: Final = re.compile(rb"x-amz-checksum-(?!algorithm$|mode$|type$).*")
_BAD_PERCENT: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")

_HEEDED_HEADERS: Final = {
    CHECKSUM_ALGORITHM, CHECKSUM_TYPE, "x-amz-checksum-mode",
    "x-amz-copy-source-if-match", "x-amz-copy-source-if-modified-since", "x-amz-copy-source-if-none-match",
    "x-amz-copy-source-if-unmodified-since", "x-amz-copy-source-range",
    *(f"{CHECKSUM_PREFIX}{name}" for name in CHECKSUM_SIZES),
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


class QueryParameter(msgspec.Struct, frozen=True, order=True):
    """A parameter of a query, decoded."""

    name: bytes
    value: bytes


class S3HttpRequest:
    """An HTTP request without its body: what a connection has received, byte for byte.

    Arguments: ``method`` in capitals; ``raw_path``: the path as sent, without the query and not decoded; ``query``:
    what follows the ``?``, not decoded; ``headers``: names in any case with their values, in the order of the request.

    Raises S3Error: InvalidURI for a path or a query that cannot be decoded, InvalidArgument for headers that are too
    large, MethodNotAllowed.

    >>> request = S3HttpRequest("GET", b"/films/a%20b.mp4", b"versionId=null", [(b"Host", b"s3.example")])
    >>> request.path, request.parameters, request.header("host")
    (b'/films/a b.mp4', (QueryParameter(name=b'versionId', value=b'null'),), 's3.example')
    """

    def __init__(self, method: str, raw_path: bytes, query: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        if not (method.isascii() and method.isalpha()):
            raise S3Error(S3Code.MethodNotAllowed)
        self.method = method
        self.headers = tuple((name.lower(), value.strip(b" \t")) for name, value in headers)
        if sum(len(name) + len(value) for name, value in self.headers) > MAX_HEADERS:
            raise S3Error(S3Code.InvalidArgument, f"the headers have more than {MAX_HEADERS} bytes")
        self.path = percent_decoded(raw_path)
        self.parameters = tuple(_parameters(query))

    def header_values(self, name: bytes) -> list[bytes]:
        """The values of all headers of this name, which is in lower case."""
        return [value for known, value in self.headers if known == name]

    def header(self, name: str) -> str | None:
        """The value of a header that may occur once; None if there is none. Bytes are read as Latin-1.

        Raises S3Error: InvalidArgument if it occurs more than once.
        """
        values = self.header_values(name.encode())
        if len(values) > 1:
            raise S3Error(S3Code.InvalidArgument, f"the header {name} occurs {len(values)} times", ArgumentName=name)
        return values[0].decode("latin-1") if values else None

    def parameter(self, name: bytes) -> bytes | None:
        """The value of a query parameter that may occur once; None if there is none.

        Raises S3Error: InvalidArgument if it occurs more than once.
        """
        values = [parameter.value for parameter in self.parameters if parameter.name == name]
        if len(values) > 1:
            raise S3Error(
                S3Code.InvalidArgument, f"the query parameter {quoted(name.decode('latin-1'))} occurs more than once"
            )
        return values[0] if values else None


def with_headers_of_query(request: S3HttpRequest) -> S3HttpRequest:
    """The request with the headers of S3 that a presigned URL carries in its query, where the signature covers them.

    The value of a checksum is dropped, as by S3: the SDK for JavaScript signs an empty body's, since it has none yet
    when it makes the URL.

    >>> url = S3HttpRequest("PUT", b"/films/a", b"X-Amz-Signature=0&x-amz-meta-a=film", [])
    >>> with_headers_of_query(url).headers
    ((b'x-amz-meta-a', b'film'),)
    """
    if request.parameter(b"X-Amz-Signature") is None:
        return request
    moved = [
        parameter
        for parameter in request.parameters
        if parameter.name.lower().startswith(b"x-amz-") and parameter.name.lower() not in AUTHORIZATION_PARAMETERS
    ]
    if not moved:
        return request
    added = [(one.name, one.value) for one in moved if not _CHECKSUM_VALUE.fullmatch(one.name.lower())]
    whole = S3HttpRequest(request.method, b"/", b"", (*request.headers, *added))
    whole.path = request.path
    whole.parameters = tuple(parameter for parameter in request.parameters if parameter not in moved)
    return whole


def percent_decoded(text: bytes) -> bytes:
    """The bytes that a percent-encoded text stands for. Raises S3Error: InvalidURI if it is too long, or malformed.

    >>> percent_decoded(b"a%2Fb+c")
    b'a/b+c'
    """
    if len(text) > MAX_URI:
        raise S3Error(
            S3Code.InvalidURI, f"a path or query of {len(text)} bytes is too long; at most {MAX_URI} are taken"
        )
    if _BAD_PERCENT.search(text):
        raise S3Error(S3Code.InvalidURI, "a percent sign is not followed by two hex digits")
    return unquote_to_bytes(text)


def percent_encoded(data: bytes, *, safe: str = "") -> bytes:
    """What Signature Version 4 calls UriEncode: all bytes but ``A-Z a-z 0-9 - . _ ~`` and ``safe`` as %XX.

    >>> percent_encoded("ä b".encode()), percent_encoded(b"a/b", safe="/")
    (b'%C3%A4%20b', b'a/b')
    """
    return quote_from_bytes(data, safe=safe).encode()


def _parameters(query: bytes) -> Iterator[QueryParameter]:
    if len(query) > MAX_URI:
        raise S3Error(S3Code.InvalidURI, f"a query of {len(query)} bytes is too long; at most {MAX_URI} are taken")
    pieces = [piece for piece in query.split(b"&") if piece]
    if len(pieces) > MAX_PARAMETERS:
        raise S3Error(S3Code.InvalidURI, f"a query has {len(pieces)} parameters; at most {MAX_PARAMETERS} are taken")
    for piece in pieces:
        name, _, value = piece.replace(b"+", b" ").partition(b"=")
        yield QueryParameter(percent_decoded(name), percent_decoded(value))


def check_headers(request: S3HttpRequest) -> None:
    """Raise S3Error for a header that changes what is stored, or who may read it, and that this server does not have.

    Such a header is refused, never ignored; each SDK has others of its own, which are ignored.
    """
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


# ---------------------------------------------------------------- buckets and keys


def target_of(request: S3HttpRequest, base_domain: str | None) -> tuple[str, str]:
    """The bucket and the key of a request, in path style, or in the host's name below ``base_domain``.

    The key is empty for a bucket, and both are empty for the service.

    Raises S3Error: InvalidBucketName, KeyTooLongError and InvalidURI.

    >>> target_of(S3HttpRequest("GET", b"/films//a", b"", [(b"host", b"s3.example")]), "s3.example")
    ('films', '/a')
    >>> target_of(S3HttpRequest("GET", b"/a/b", b"", [(b"host", b"films.s3.example:80")]), "s3.example")
    ('films', 'a/b')
    """
    if not request.path.startswith(b"/"):
        raise S3Error(S3Code.InvalidURI, "the path does not begin with '/'")
    bucket = _bucket_of_host(request.header("host") or "", base_domain)
    path = request.path[1:]
    if bucket is None:
        name, _, path = path.partition(b"/")
        if not name:
            if path:
                raise S3Error(S3Code.InvalidBucketName)
            return "", ""
        bucket = name.decode("latin-1")
    check_bucket_name(bucket)
    return bucket, checked_key(path)


def check_bucket_name(name: str) -> None:
    """Raise S3Error: InvalidBucketName for a name that no bucket can have.

    >>> check_bucket_name("films.2026")
    """
    if BUCKET_NAME.fullmatch(name) is None or IP_ADDRESS.fullmatch(name):
        raise S3Error(S3Code.InvalidBucketName, BucketName=name[:128])


def checked_key(key: bytes) -> str:
    """The key as text. Raises S3Error: KeyTooLongError, and as `checked_text`."""
    if len(key) > MAX_KEY:
        raise S3Error(S3Code.KeyTooLongError, Size=str(len(key)), MaxSizeAllowed=str(MAX_KEY))
    return checked_text(key)


def checked_text(text: bytes) -> str:
    """A prefix or the like as text. Raises S3Error: InvalidURI if it is not UTF-8, InvalidArgument if it has U+0000."""
    if b"\0" in text:  # no database stores it everywhere, and no XML can hold it
        raise S3Error(S3Code.InvalidArgument, "keys and prefixes must not contain U+0000")
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise S3Error(S3Code.InvalidURI, "the text is not UTF-8") from error


def _bucket_of_host(host: str, base_domain: str | None) -> str | None:
    if base_domain is None:
        return None
    name = re.sub(r":\d*$", "", host.lower())
    suffix = f".{base_domain.lower()}"
    return name.removesuffix(suffix) if name.endswith(suffix) else None
