"""Who claims, for what, and what a claim brings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
import sqlalchemy as sa

from peerd.domain.task import Task

Lanes = tuple[int, int]
HandlerKey = tuple[str, str]
"""A handler: its queue, and its name there; two queues may each have one of the same name."""
MaxAttemptsDefaults = tuple[int, tuple[tuple[HandlerKey, int], ...]]
"""max_attempts where the row has none: of all tasks, and of those whose handler has its own."""


class Claimer(msgspec.Struct, frozen=True, kw_only=True):
    """Who claims, and what it serves.

    ``default_attempts`` is written as max_attempts where the row has none and ``attempts_of`` does not name its
    handler.
    """

    node_id: int
    incarnation: str
    process_id: int
    queues: tuple[str, ...]
    default_attempts: int = 3
    attempts_of: Mapping[HandlerKey, int] = msgspec.field(default_factory=dict)


class ClaimResult(msgspec.Struct, frozen=True):
    """What a claim brought: the tasks in their order, and whether others took some that it wanted."""

    tasks: list[Task]
    lost_candidates: bool = False


NODE_PARAMETER: Final = sa.bindparam("node", type_=sa.Integer())


def claimer_parameters(claimer: Claimer) -> dict[str, Any]:
    """The parameters that every statement of a claimer has."""
    return {"node": claimer.node_id, "incarnation": claimer.incarnation, "process": claimer.process_id}


def lanes_for(claimer: Claimer, *, quarantined: bool) -> Lanes:
    """The lanes that a claimer may take from: those of tasks that have crashed a process, or those of all others."""
    return (-1, -1 - claimer.node_id) if quarantined else (0, claimer.node_id)


def max_attempts_defaults(claimer: Claimer) -> MaxAttemptsDefaults:
    """What it writes as max_attempts where a row has none."""
    return claimer.default_attempts, tuple(sorted(claimer.attempts_of.items()))
