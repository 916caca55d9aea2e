"""Names of files as people and programs write them: the bucket, and the key behind the first slash."""

from __future__ import annotations

from peerd.domain.file_errors import InvalidFile
from peerd.domain.files import MAX_KEY_BYTES
from peerd.domain.quoting import quoted
from peerd.operate import validation


def parse_file_path(path: object) -> tuple[str, str]:
    """The bucket and the key of a file's name.

    Raises:
        InvalidFile: it is none.

    >>> parse_file_path("films/2026/a.mov")
    ('films', '2026/a.mov')
    """
    if not isinstance(path, str):
        raise InvalidFile("path", f"{quoted(path)} is no text")
    bucket, _, key = path.partition("/")
    if not bucket or not key:
        raise InvalidFile("path", f"{quoted(path)} is no file; write BUCKET/KEY")
    validation.text("bucket", bucket)
    return bucket, key_text("key", key)


def key_text(name: str, value: object) -> str:
    """A text that can be compared with keys."""
    if not isinstance(value, str):
        raise InvalidFile(name, f"{quoted(value)} is no text")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidFile(name, "it is not text that UTF-8 can hold") from None
    if size > MAX_KEY_BYTES or "\0" in value:
        raise InvalidFile(name, f"it has a NUL character, or more than {MAX_KEY_BYTES} bytes of UTF-8")
    return value
