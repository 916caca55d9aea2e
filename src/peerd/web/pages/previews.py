"""Images and videos that the result of a task names, below folders that the site may show.

A result is what a handler has returned, and may name any path: a file is shown only if it really lies below one of the
folders, after all links were followed, and if the end of its name says that it is an image or a video that browsers
show. SVG is left out: it is a program.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from stat import S_ISREG
from typing import Any, Final

import msgspec
from starlette.responses import FileResponse, Response

from peerd.web.pages.headers import FILE_HEADERS

MEDIA_TYPES: Final = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".avif": "image/avif",
    ".mp4": "video/mp4",
    ".m4v": "video/mp4",
    ".webm": "video/webm",
}
"""By the end of a name."""
MOST_PREVIEWS: Final = 12
MOST_TEXTS: Final = 200
"""Texts of a result that are looked at."""
MOST_RESULT: Final = 200_000
"""Characters of a result that is parsed."""


class Preview(msgspec.Struct, frozen=True):
    """A file that is shown.

    Attributes:
        path: where it really is.
        media_type: by the end of its name.
        size: in bytes.
    """

    path: Path
    media_type: str
    size: int

    @property
    def is_video(self) -> bool:
        """Whether it is a video, and not an image."""
        return self.media_type.startswith("video/")


def find_previews(result: str | None, folders: Sequence[Path]) -> list[Preview]:
    """The files that a result names.

    Args:
        result: JSON.
        folders: absolute; a path that is not absolute is below one of them.
    """
    if result is None or len(result) > MOST_RESULT:
        return []
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return []
    found: dict[Path, Preview] = {}
    for number, text in enumerate(_texts_of(value)):
        if number >= MOST_TEXTS or len(found) >= MOST_PREVIEWS:
            break
        preview = _find(text, folders)
        if preview is not None:
            found[preview.path] = preview
    return list(found.values())


def preview_response(preview: Preview) -> Response:
    """The file; a part of it, if that is asked for: browsers read videos in parts."""
    return FileResponse(preview.path, media_type=preview.media_type, headers=FILE_HEADERS)


def _texts_of(value: Any) -> Iterator[str]:
    """All texts of a JSON value, in their order.

    >>> list(_texts_of({"a": ["x.png", 1, {"b": "y.mp4"}]}))
    ['x.png', 'y.mp4']
    """
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            pending += reversed(one.values())
        elif isinstance(one, list):
            pending += reversed(one)


def _find(text: str, folders: Sequence[Path]) -> Preview | None:
    media_type = MEDIA_TYPES.get(Path(text[-10:]).suffix.lower())
    if media_type is None or len(text) > 4096 or "\x00" in text:
        return None
    for folder in folders:
        try:
            base = folder.resolve(strict=True)
            path = (base / text).resolve(strict=True)
            facts = path.stat()
        except (OSError, RuntimeError, ValueError):
            continue
        is_named_so = MEDIA_TYPES.get(path.suffix.lower()) == media_type  # a link may lead to a file of another kind
        if is_named_so and path.is_relative_to(base) and S_ISREG(facts.st_mode):
            return Preview(path, media_type, facts.st_size)
    return None
