"""The errors of transfers between nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from peerd.domain import file_errors
from peerd.domain.errors import PeerdError


class SourceFailed(PeerdError):
    """A source did not give a content, or not all of it; another one may."""

    def __init__(self, url: str, problem: str) -> None:
        self.url = url
        self.problem = problem
        super().__init__(f"{url}: {problem}")


class SourceHasOther(SourceFailed):
    """The content of a source is damaged, or missing: its copy is to be verified."""


class NoSourceLeft(PeerdError):
    """No source gave a content; the task is tried again later."""

    def __init__(self, content: str, problems: Sequence[str]) -> None:
        self.content = content
        self.problems = list(dict.fromkeys(problems))
        tried = "; ".join(self.problems) or "it has no readable copy"
        remedy = "; start the nodes that have it (peerd files disks list)"
        text = f"the content {content} cannot be read from any node: {tried}"
        super().__init__(text if text.endswith(remedy) else text + remedy)  # another node has said it


class TransferStopped(PeerdError):
    """A transfer was stopped by its caller; what was received is kept, to be resumed."""


def error_data(error: Exception) -> dict[str, Any] | None:
    """What an error of files was made with, by name: each keeps it in attributes of these names. None: another error.

    >>> error_data(file_errors.UploadGone("a")), error_data(ValueError("a"))
    ({'upload_id': 'a'}, None)
    """
    return vars(error) if type(error).__module__ == file_errors.__name__ else None


def error_from_data(code: str, data: object) -> PeerdError | None:
    """The error of files of a code and what it was made with; None for what is none.

    >>> error_from_data("UploadGone", {"upload_id": "a"})
    UploadGone("there is no upload 'a': it was completed or aborted, or never began")
    >>> error_from_data("UploadGone", {"upload": "a"}), error_from_data("quoted", {"value": "a"})
    (None, None)
    """
    kind = vars(file_errors).get(code)
    if not (isinstance(kind, type) and issubclass(kind, PeerdError) and isinstance(data, dict)):
        return None
    try:
        return kind(**data)
    except (TypeError, ValueError):
        return None
