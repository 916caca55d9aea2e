"""The pattern of an error text: what errors of one cause have in common, beside the names in them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Final

from sqlalchemy.engine import Connection

from peerd.domain.quoting import MASKED, Masker
from peerd.operate.figures import ErrorGroup, ErrorGroups
from peerd.store.tasks.pages import FailedAttempt, list_failed_attempts

MOST_TEXT: Final = 200
"""Characters of an error that its pattern is made of."""
LEAST_TO_SEARCH: Final = 4
"""Characters of a text that is worth a search."""
_MARKS: Final = (
    (re.compile(r"\b0x[0-9a-f]+\b", re.IGNORECASE), "<address>"),
    (re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b|\[[0-9a-f:]{2,39}\](?::\d+)?", re.IGNORECASE), "<address>"),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\d+(?:\.\d+)?"), "<n>"),
)
"""Each replaces what those before it have left."""
_MARK: Final = re.compile(rf"<(?:address|id|n)>|{re.escape(MASKED)}")


def pattern_of(error: str) -> str:
    """The beginning of the first line of an error, with marks for its numbers, ids and addresses.

    Args:
        error: its text, which may be of many lines.

    >>> pattern_of("ConnectionRefusedError: [Errno 111] Connect call failed ('127.0.0.1', 5432)")
    "ConnectionRefusedError: [Errno <n>] Connect call failed ('<address>', <n>)"
    >>> pattern_of("KeyError: 'user-17'"), pattern_of("no file 5f2b9c01aa33 at 0x7f00")
    ("KeyError: 'user-<n>'", 'no file <id> at <address>')
    """
    line = error.strip().partition("\n")[0][:MOST_TEXT]
    for what, mark in _MARKS:
        line = what.sub(mark, line)
    return line


def fixed_part(pattern: str) -> str | None:
    """The longest part of a pattern that each of its errors has, which a search finds; None if it is too short.

    >>> fixed_part("ConnectionRefusedError: [Errno <n>] Connect call failed ('<address>', <n>)")
    'ConnectionRefusedError: [Errno'
    >>> fixed_part("<n>")
    """
    longest = max((part.strip() for part in _MARK.split(pattern)), key=len)
    return longest if len(longest) >= LEAST_TO_SEARCH else None


def read_error_groups(
    connection: Connection, seconds: float, queues: Collection[str] | None, name: str | None, masker: Masker | None
) -> ErrorGroups:
    """The attempts that failed in the last seconds, in groups, the greatest first.

    Args:
        connection: of any transaction.
        seconds: of time.
        queues: only those of tasks of these queues.
        name: only those of tasks with this name.
        masker: masks the texts.
    """
    found = list_failed_attempts(connection, seconds, queues, name)
    alike: dict[tuple[str, str, str], list[FailedAttempt]] = defaultdict(list)
    for attempt in found.items:
        alike[attempt.queue, attempt.name, pattern_of(_text_of(attempt, masker))].append(attempt)
    last = {attempt.task_id: attempt for attempt in reversed(found.items)}
    groups = [_group(pattern, members, last, masker) for (_, _, pattern), members in alike.items()]
    groups.sort(key=lambda group: (-group.count, group.queue, group.name, group.error))
    return ErrorGroups(groups=groups, examined=len(found.items), complete=found.complete)


def _group(
    pattern: str, members: list[FailedAttempt], last_of: Mapping[int, FailedAttempt], masker: Masker | None
) -> ErrorGroup:
    """The group of attempts, which are in order, the last one first; a task is dead by its last attempt."""
    last = members[0]
    return ErrorGroup(
        queue=last.queue,
        name=last.name,
        error=pattern,
        count=len(members),
        tasks=len({attempt.task_id for attempt in members}),
        dead=sum(attempt.is_dead and last_of[attempt.task_id] is attempt for attempt in members),
        first_at=members[-1].ended_at,
        last_at=last.ended_at,
        example=_text_of(last, masker),
        example_task=last.task_id,
        search=fixed_part(pattern),
    )


def _text_of(attempt: FailedAttempt, masker: Masker | None) -> str:
    """The error of an attempt; of a process that died, how it died: the error would name the attempt, too."""
    text = attempt.cause or attempt.error
    return text if masker is None else masker.text(text)
