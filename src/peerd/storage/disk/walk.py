"""Listing what is on a disk, folder by folder: the memory that it takes does not grow with the disk."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

from peerd.storage.disk.content_id import FOLDER_NAMES, ContentId, is_content_id, parse_content_id
from peerd.storage.disk.errors import UnexpectedEntry
from peerd.storage.disk.held_folder import HeldFolder
from peerd.storage.disk.identity import FOLDERS, IDENTITY_FILE, NEW_IDENTITY_FILE, PERMITTED

PART_SUFFIX: Final = ".part"
REASON: Final = re.compile(r"[a-z][a-z0-9-]{0,31}")
_QUARANTINED: Final = re.compile(rf"([0-9a-f]{{16}})\.{REASON.pattern}\.\d{{1,12}}")
_KINDS: Final = {stat.S_IFREG: "file", stat.S_IFDIR: "folder", stat.S_IFLNK: "link"}


class StoredContent(NamedTuple):
    """A content that was found on a disk, with its bytes."""

    content: ContentId
    size: int


class StoredPart(NamedTuple):
    """An incomplete content that was found on a disk, with its bytes and when it was last written (Unix time)."""

    content: ContentId
    size: int
    changed_at: float


class UnknownEntry(NamedTuple):
    """A name that belongs to no disk: its path below the root, and whether it is a file, a folder, a link or other.

    A name that is no UTF-8 has surrogates, as `os.fsdecode` makes them: write it with ``ascii()``.
    """

    path: str
    kind: str


def walk_contents(contents: HeldFolder, after: ContentId | None, batch: int) -> Iterator[list[StoredContent]]:
    """The contents with greater ids than `after`, in order of id, in lists of `batch`, the last one shorter.

    What is no content is left out; contents that come or go meanwhile may be in it or not.
    """
    found = _contents(contents, after)
    while some := list(islice(found, batch)):
        yield some


def _contents(contents: HeldFolder, after: ContentId | None) -> Iterator[StoredContent]:
    first_after, second_after = after.folders if after else ("", "")
    for first in _folders(contents, FOLDER_NAMES[0], first_after):
        with first:
            outer = os.path.basename(first.entry)  # noqa: PTH119 - no path of the system
            for second in _folders(first, FOLDER_NAMES[1], second_after if outer == first_after else ""):
                with second:
                    yield from _contents_in(second, after)


def _contents_in(folder: HeldFolder, after: ContentId | None) -> Iterator[StoredContent]:
    for name in folder.names():
        if not is_content_id(name) or not folder.entry.endswith("/".join(parse_content_id(name).folders)):
            continue
        content = parse_content_id(name)
        if after is not None and content <= after:
            continue
        status = folder.status(name)
        if status is not None and stat.S_ISREG(status.st_mode):
            yield StoredContent(content, status.st_size)


def _folders(above: HeldFolder, names: re.Pattern[str], first: str) -> Iterator[HeldFolder]:
    for name in above.names():
        if names.fullmatch(name) and name >= first:
            try:
                folder = above.enter(name)
            except UnexpectedEntry:
                continue
            if folder is not None:
                yield folder


def stored_parts(parts: HeldFolder) -> Iterator[StoredPart]:
    """The parts on a disk, in order of id."""
    for name in parts.names():
        if not _is_part(name):
            continue
        status = parts.status(name)
        if status is not None and stat.S_ISREG(status.st_mode):
            yield StoredPart(parse_content_id(name.removesuffix(PART_SUFFIX)), status.st_size, status.st_mtime)


def unknown_entries(root: HeldFolder) -> Iterator[UnknownEntry]:
    """The names on a disk that no part of peerd has made; nothing in them is read."""
    for name in root.names():
        if name in FOLDERS:
            yield from _unless(root, name, stat.S_IFDIR)
        elif name in {IDENTITY_FILE, NEW_IDENTITY_FILE}:
            yield from _unless(root, name, stat.S_IFREG)
        elif name not in PERMITTED:
            yield from _unless(root, name, None)
    for folder in _folders(root, re.compile("|".join(FOLDERS)), ""):
        with folder:
            yield from _UNKNOWN_IN[folder.entry](folder)


def _unknown_contents(contents: HeldFolder) -> Iterator[UnknownEntry]:
    yield from _unknown_folders(contents, FOLDER_NAMES[0])
    for first in _folders(contents, FOLDER_NAMES[0], ""):
        with first:
            yield from _unknown_folders(first, FOLDER_NAMES[1])
            for second in _folders(first, FOLDER_NAMES[1], ""):
                with second:
                    for name in second.names():
                        yield from _unless(second, name, stat.S_IFREG if _belongs_in(second, name) else None)


def _unknown_folders(above: HeldFolder, names: re.Pattern[str]) -> Iterator[UnknownEntry]:
    for name in above.names():
        yield from _unless(above, name, stat.S_IFDIR if names.fullmatch(name) else None)


def _unknown_parts(parts: HeldFolder) -> Iterator[UnknownEntry]:
    for name in parts.names():
        yield from _unless(parts, name, stat.S_IFREG if _is_part(name) else None)


def _unknown_quarantined(quarantine: HeldFolder) -> Iterator[UnknownEntry]:
    for name in quarantine.names():
        found = _QUARANTINED.fullmatch(name)
        yield from _unless(quarantine, name, stat.S_IFREG if found and is_content_id(found[1]) else None)


_UNKNOWN_IN: Final = {
    "contents": _unknown_contents,
    "parts": _unknown_parts,
    "quarantine": _unknown_quarantined,
}


def _unless(folder: HeldFolder, name: str, kind: int | None) -> Iterator[UnknownEntry]:
    """The entry, unless it is of the kind that belongs there; None: nothing of that name belongs there."""
    status = folder.status(name)
    if status is not None and stat.S_IFMT(status.st_mode) != kind:
        yield UnknownEntry(folder.path_of(name), _KINDS.get(stat.S_IFMT(status.st_mode), "other"))


def _belongs_in(folder: HeldFolder, name: str) -> bool:
    return is_content_id(name) and folder.entry.endswith("/".join(parse_content_id(name).folders))


def _is_part(name: str) -> bool:
    return name.endswith(PART_SUFFIX) and is_content_id(name.removesuffix(PART_SUFFIX))
