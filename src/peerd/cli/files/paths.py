"""Files as words of a command line: bucket/key, a prefix that ends with a slash, or a pattern with * ? [ ]."""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import translate
from pathlib import Path
from typing import Final

from peerd.cli.errors import CommandError, UsageError
from peerd.domain.files import StoredFile
from peerd.operate.client import Client

WILDCARD: Final = re.compile(r"[*?\[]")
PAGE: Final = 1_000


def split_path(path: str) -> tuple[str, str]:
    """The bucket, and the rest: a key, a prefix or nothing.

    >>> split_path("films/2026/"), split_path("films")
    (('films', '2026/'), ('films', ''))
    """
    bucket, _, rest = path.partition("/")
    if not bucket:
        raise UsageError(f"{path!r} names no bucket", "write BUCKET/KEY")
    return bucket, rest


def is_folder(path: str) -> bool:
    """Whether a path stands for all keys below it: a bucket alone, or what ends with a slash."""
    return "/" not in path or path.endswith("/")


def is_pattern(path: str) -> bool:
    """Whether a path has characters that stand for others."""
    return WILDCARD.search(path) is not None


def below(client: Client, path: str) -> Iterator[StoredFile]:
    """All files whose keys begin with a prefix."""
    bucket, prefix = split_path(path)
    after: str | None = ""
    while after is not None:
        page = client.files.list(bucket, prefix, after=after, limit=PAGE)
        yield from page.files
        after = page.next_after


def matching(client: Client, pattern: str) -> Iterator[StoredFile]:
    """The files that a pattern matches; a * matches no slash."""
    bucket, keys = split_path(pattern)
    matches = re.compile(_expression(keys)).fullmatch
    for file in below(client, f"{bucket}/{_plain_start(keys)}"):
        if matches(file.key):
            yield file


def expand(client: Client, path: str, *, recursive: bool) -> Iterator[tuple[str, str]]:
    """The files that a word stands for: the bucket and key of each, with its name below the word's folder.

    Raises:
        CommandError: it stands for many, and ``--recursive`` was not given; or for none.
    """
    bucket, key = split_path(path)
    if is_pattern(path):
        yield from _named(client, path, matching(client, path), _plain_start(key).rpartition("/")[0])
    elif is_folder(path):
        if not recursive:
            raise UsageError(f"{path} stands for all files below it", "give --recursive")
        yield from _named(client, path, below(client, path), key.rstrip("/"))
    else:
        yield f"{bucket}/{key}", key.rpartition("/")[2]


def _plain_start(pattern: str) -> str:
    """The part of a pattern before the first character that stands for others."""
    return WILDCARD.split(pattern, maxsplit=1)[0]


def _named(client: Client, word: str, found: Iterator[StoredFile], base: str) -> Iterator[tuple[str, str]]:
    is_empty = True
    for file in found:
        is_empty = False
        yield f"{file.bucket}/{file.key}", file.key[len(base) :].removeprefix("/") if base else file.key
    if is_empty:
        client.files.list(split_path(word)[0], limit=1)  # names a bucket that does not exist
        raise CommandError(f"there is no file {word}", f"peerd files ls {split_path(word)[0]}")


def local_name(folder: Path, name: str) -> Path:
    """Where a file with this name below a prefix is written.

    Raises:
        CommandError: it would be outside of the folder, or has no name there.

    >>> local_name(Path("films"), "2026/a.mov").as_posix()
    'films/2026/a.mov'
    """
    parts = name.split("/")
    if any(part in {"", ".", ".."} or "\0" in part for part in parts):
        remedy = "get it alone, with a name of its own as the target"
        raise CommandError(f"the key {name!r} cannot be a path below {folder}", remedy)
    return folder.joinpath(*parts)


def target_key(target: str, name: str) -> str:
    """The name of the file that is put or moved to a target; below a folder it keeps its last part.

    >>> target_key("films/2026/", "a.mov"), target_key("films", "a.mov"), target_key("films/b.mov", "a.mov")
    ('films/2026/a.mov', 'films/a.mov', 'films/b.mov')
    """
    if not is_folder(target):
        return target
    return f"{target.rstrip('/')}/{name}"


def _expression(pattern: str) -> str:
    """A regular expression: as in file names, a * and a ? match no slash.

    >>> bool(re.fullmatch(_expression("2026/*.mov"), "2026/a.mov"))
    True
    >>> bool(re.fullmatch(_expression("2026/*.mov"), "2026/b/a.mov"))
    False
    """
    pieces = re.split(r"(\*+|\?)", pattern)
    return "".join(
        "[^/]" + ("*" if piece[0] == "*" else "") if piece and piece[0] in "*?" else _literal(piece) for piece in pieces
    )


def _literal(piece: str) -> str:
    """What `fnmatch` makes of a piece without * and ?: sets of characters, and the rest as it is."""
    return translate(piece).removeprefix("(?s:").removesuffix(")\\Z").removesuffix(")\\z")
