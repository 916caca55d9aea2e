"""What requests to put a content say: the file in the path, and in headers what is stored with it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final
from urllib.parse import unquote

import msgspec
from fastapi import Path, Request
from starlette.convertors import Convertor, register_url_convertor

from peerd.domain.errors import InvalidTask
from peerd.domain.file_errors import InvalidFile
from peerd.domain.files import MAX_KEY_BYTES, StoredFile
from peerd.operate import validation
from peerd.storage.put_options import PutOptions
from peerd.storage.server.ranges import tags_of

WRONG_PERCENT: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
METADATA: Final = "x-peerd-meta-"
MAX_METADATA: Final = 8 * 1024
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
    if "\ufffd" in key and b"%ef%bf%bd" not in raw.lower():
        raise InvalidFile("key", "it is not UTF-8")
    return f"{bucket}/{key}"


def options_of(request: Request) -> PutOptions:
    """What the headers of a put say. Raises InvalidFile."""
    headers = request.headers
    if "if-match" in headers or tags_of(headers.get("if-none-match", "*")) != {"*"}:
        raise InvalidFile("if-none-match", "a put knows no other condition than If-None-Match: *")
    length = headers.get("content-length", "")
    return PutOptions(
        class_name=headers.get("x-peerd-class"),
        content_type=headers.get("content-type"),
        metadata=_metadata_of(headers),
        expires_in=_expiry_of(headers.get("x-peerd-expires-in")),
        only_new="if-none-match" in headers,
        size=int(length) if length.isascii() and length.isdigit() else None,
        blake3=headers.get("x-peerd-blake3"),
    )


def _metadata_of(headers: Mapping[str, str]) -> dict[str, str]:
    found = {
        name.removeprefix(METADATA): unquote(value) for name, value in headers.items() if name.startswith(METADATA)
    }
    if sum(len(name) + len(value) for name, value in found.items()) > MAX_METADATA:
        raise InvalidFile("metadata", f"it is larger than {MAX_METADATA} bytes")
    return found


def _expiry_of(text: str | None) -> float | None:
    try:
        return None if text is None else validation.seconds("expires_in", text)
    except InvalidTask as error:
        raise InvalidFile("expires_in", error.problem) from None


def file_as_json(stored: StoredFile) -> dict[str, Any]:
    """A version as answers have it; its id is a text."""
    fields: dict[str, Any] = msgspec.to_builtins(stored)
    return fields | {"id": str(stored.id)}
