"""Why a part, or a whole upload, is sent again."""

from __future__ import annotations


class UploadSourceChanged(Exception):
    """A file has changed since its upload was begun."""


class BytesDiffer(Exception):
    """The bytes of an upload are others than those of its source."""


class PartDamaged(Exception):
    """The bytes of a part were damaged on their way: it is sent again."""


class DiskTakesNoMore(Exception):
    """The disk of an upload is full, or has failed."""

    def __init__(self, upload_id: str, problem: str) -> None:
        self.problem = problem
        super().__init__(upload_id, problem)
