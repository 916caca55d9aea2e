"""Names of buckets and keys, and which of them a request is for."""

from __future__ import annotations

import re
from typing import Final

from peerd.domain.files import BUCKET_NAME, IP_ADDRESS
from peerd.storage.s3.errors import S3Code, S3Error
from peerd.storage.s3.http_request import S3HttpRequest

MAX_KEY: Final = 1024
"""The longest key, in bytes of UTF-8."""


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
