"""One HTTP request as S3 sees it, and the percent encoding of its path and query."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

import msgspec

from peerd.domain.quoting import quoted
from peerd.storage.s3.errors import S3Code, S3Error

MAX_URI: Final = 16 * 1024
"""The longest path, and the longest query, in bytes as sent: a key of 1,024 bytes has 3,072 when it is encoded."""
MAX_HEADERS: Final = 32 * 1024
"""The size of all headers together, in bytes."""
MAX_PARAMETERS: Final = 200
AUTHORIZATION_PARAMETERS: Final = {
    b"x-amz-algorithm", b"x-amz-credential", b"x-amz-date", b"x-amz-expires", b"x-amz-signedheaders",
    b"x-amz-signature", b"x-amz-content-sha256", b"x-amz-security-token",
}  # fmt: skip
"""The query parameters of a presigned URL that are no headers, in lower case."""

_CHECKSUM_VALUE: Final = re.compile(rb"x-amz-checksum-(?!algorithm$|mode$|type$).*")
_BAD_PERCENT: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


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

    The value of a checksum is dropped, as by S3: the SDK for JavaScript signs that of an empty body, since it has none
    yet when it makes the URL.

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
