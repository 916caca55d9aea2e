"""Failed attempts in groups of one handler and one kind of error: what fails most."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from sqlalchemy.engine import Connection

from peerd.domain.error_pattern import fixed_part, pattern_of
from peerd.domain.masking import Masker
from peerd.operate.figures import ErrorGroup, ErrorGroups
from peerd.store.tasks.failed_attempts import FailedAttempt, list_failed_attempts


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
    """Its error; of a process that died, how it died, for the error says too which attempt it was."""
    text = attempt.cause or attempt.error
    return text if masker is None else masker.text(text)
