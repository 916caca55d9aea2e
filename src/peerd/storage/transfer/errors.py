"""The errors of transfers between nodes."""

from __future__ import annotations

from collections.abc import Sequence

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
