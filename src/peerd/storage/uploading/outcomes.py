"""Why a part, or a whole upload, is sent again."""

from __future__ import annotations


class UploadSourceChanged(Exception):
    """A file has changed since its upload was begun."""


class BytesDiffer(Exception):
    """The bytes of an upload are others than those of its source."""


class PartDamaged(Exception):
    """The bytes of a part were damaged on their way: it is sent again."""
