"""What requests to put a content say: the file in the path, and in headers what is stored with it."""

from __future__ import annotations

import re
from typing import Annotated, Final
from urllib.parse import unquote_to_bytes

from fastapi import Path, Request
from starlette.convertors import Convertor, register_url_convertor

from peerd.domain.file_errors import InvalidFile
from peerd.domain.files import MAX_KEY_BYTES
from peerd.storage import file_headers
from peerd.storage.file_headers import PutOptions
from peerd.storage.server.ranges import ANY, tags_of

WRONG_PERCENT: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
BINARY: Final = {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}


class KeyConvertor(Convertor[str]):
    """A key in a path: as Starlette's `path`, and with line feeds."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("key", KeyConvertor())
BucketName = Annotated[str, Path(min_length=1, max_length=63, examples=["films"])]
FileKey = Annotated[str, Path(min_length=1, max_length=MAX_KEY_BYTES, examples=["2026/one.mov"])]


def path_of(request: Request, bucket: str, key: str) -> str:
    """The name of a file. Raises InvalidFile for a key that is not UTF-8: the server has replaced what is not.

    A wrong percent-encoding is refused, as by S3: servers and proxies differ in what they make of it.
    """
    raw: bytes = request.scope.get("raw_path") or b""
    if WRONG_PERCENT.search(raw):
        raise InvalidFile("key", "a % of its address is not followed by two hexadecimal digits; write %25")
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise InvalidFile("key", "it is not UTF-8") from None
    return f"{bucket}/{key}"


def options_of(request: Request) -> PutOptions:
    """What the headers of a put say. Raises InvalidFile."""
    refuse_conditions(request, "if-match", "if-unmodified-since")
    if tags_of(request.headers.get("if-none-match", ANY)) != (ANY,):
        raise InvalidFile("if-none-match", "a put knows no other condition than If-None-Match: *")
    return file_headers.options_of(request.headers)


def refuse_conditions(request: Request, *names: str) -> None:
    """Raise InvalidFile for a request with conditions that would not be heeded."""
    for name in names:
        if name in request.headers:
            raise InvalidFile(name, "changes of files know no condition, but for If-None-Match: * of a put")
