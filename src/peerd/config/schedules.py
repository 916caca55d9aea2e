"""The sections [schedules.NAME] as schedules of `peerd.domain.schedule`, and their problems."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from peerd.config.settings import ScheduleSettings, Settings
from peerd.domain.errors import InvalidSchedule, InvalidTask
from peerd.domain.quoting import quoted
from peerd.domain.schedule import Schedule
from peerd.domain.task import NON_FINITE_PROBLEM, contains_non_finite

if TYPE_CHECKING:
    from peerd.config.problems import Problem
    from peerd.config.source import ConfigSource

MAX_DEFINITION_LENGTH = 128 * 1024
"""Characters of JSON: half of the limit of a message to a worker process."""


def schedules_for_node(settings: Settings) -> list[Schedule]:
    """The schedules of this node: those for its environment.

    Raises:
        InvalidSchedule: one is invalid; `peerd.config.load` refuses it.
    """
    return [to_schedule(name, given) for name, given in settings.schedules.items() if applies_to_node(given, settings)]


def applies_to_node(given: ScheduleSettings, settings: Settings) -> bool:
    """Whether a schedule is for the environment of this node."""
    return given.environments is None or settings.node.environment in given.environments


def to_schedule(name: str, given: ScheduleSettings) -> Schedule:
    """A section ``[schedules.NAME]`` as a schedule.

    Raises:
        InvalidSchedule: its keys contradict each other; the error names one of them.
    """
    own = {
        key: getattr(given, key) for key in given.known_keys() if key not in ("environments", "task", "body", "args")
    }
    if given.task is not None:
        own["task"] = given.task
    if given.body is not None:
        own["body"] = _to_json(given.body, "body")
    if given.args is not None:
        own["args"] = json.loads(_to_json(given.args, "args"))
    try:
        return Schedule(name=name, **own)
    except InvalidTask as error:
        raise InvalidSchedule({"name": "task"}.get(error.field, error.field), error.problem) from None


def find_schedule_problems(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """Problems of schedules beyond those of single keys."""
    for name, given in settings.schedules.items():
        key_path = ("schedules", name)
        try:
            to_schedule(name, given)
        except InvalidSchedule as error:
            if source.has_valid(*((*key_path, key) for key in ScheduleSettings.known_keys())):
                yield source.problem((*key_path, error.field), error.problem)
        kinds = sorted([*source.table_names("workers"), *source.table_names("web")])
        for kind in given.workers or ():
            if kind not in kinds:
                known = ", ".join(kinds) or "none"
                yield source.problem((*key_path, "workers"), f"there is no [workers.{kind}]", f"there are: {known}")


def find_schedule_warnings(settings: Settings, source: ConfigSource) -> Iterator[Problem]:
    """Schedules for certain environments on a node that has none."""
    for name, given in settings.schedules.items():
        if given.environments is not None and settings.node.environment is None:
            wanted = ", ".join(quoted(environment) for environment in given.environments)
            problem = f"it is for {wanted}, and this node has no environment: it does not have it"
            yield source.problem(("schedules", name, "environments"), problem, "set node.environment")


def _to_json(value: Any, field: str) -> str:
    try:
        text = json.dumps(value, default=_encode_datetime, separators=(",", ":"), ensure_ascii=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSchedule(field, f"cannot be written as JSON: {error}") from None
    if contains_non_finite(value):
        raise InvalidSchedule(field, NON_FINITE_PROBLEM)
    if len(text) > MAX_DEFINITION_LENGTH:
        raise InvalidSchedule(field, f"is larger than {MAX_DEFINITION_LENGTH // 1024} KiB of JSON; give it an address")
    return text


def _encode_datetime(value: Any) -> str:
    """Dates and times exist in TOML, not in JSON."""
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    raise TypeError(f"{type(value).__name__} has no JSON form")
