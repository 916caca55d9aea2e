"""The schedules that an agent has: those of the configuration, and those that its user's code has registered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from peerd.config.schedules import to_schedule
from peerd.config.settings import ScheduleSettings
from peerd.domain.errors import InvalidSchedule
from peerd.domain.quoting import quoted
from peerd.domain.schedule import Schedule

MAX_NAME_LENGTH = 191
"""Characters, as of a name in the configuration."""


class ScheduleRegistry:
    """Schedules by name. Used on the agent's event loop.

    Args:
        schedules: those that there are from the beginning.

    >>> book = ScheduleRegistry([])
    >>> book.register("refresh", run="studio.jobs:refresh", interval="10s")
    >>> [schedule.interval for schedule in book]
    [10.0]
    """

    def __init__(self, schedules: Iterable[Schedule]) -> None:
        self._schedules = {schedule.name: schedule for schedule in schedules}
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change; the clock listens."""

    def register(self, name: str, **keys: object) -> None:
        """Have a schedule from now on, in place of one of this name.

        Say it in the agent's setup, which every agent of a node runs: it is known again by its name, so that an
        ``immediate`` run is not repeated and its ticks go on.

        Args:
            name: unique in the cluster.
            keys: as in ``[schedules.NAME]`` of peerd.toml.

        Raises:
            InvalidSchedule: a key is wrong; it is named.
        """
        self._schedules[_checked_name(name)] = to_schedule(name, _settings(keys))
        self.on_change()

    def unregister(self, name: str) -> None:
        """Have a schedule no more; runs that go on are not disturbed. Nothing happens where there is none."""
        if self._schedules.pop(name, None) is not None:
            self.on_change()

    def get(self, name: str) -> Schedule | None:
        """The schedule of a name."""
        return self._schedules.get(name)

    def __iter__(self) -> Iterator[Schedule]:
        """All of them."""
        return iter(list(self._schedules.values()))

    def __len__(self) -> int:
        """How many there are."""
        return len(self._schedules)


def _settings(keys: dict[str, object]) -> ScheduleSettings:
    # Few agents read settings.
    from peerd.config.reading.models import (  # noqa: PLC0415
        ValidationError,
        describe_error,
        key_path_of,
        parse_section,
    )

    try:
        return parse_section(ScheduleSettings, keys)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(key_path_of(first)) or "schedule"
        if first["type"] == "extra_forbidden":
            raise InvalidSchedule(
                field, f"there is no such key; there are {', '.join(ScheduleSettings.known_keys())}"
            ) from None
        problem, remedy = describe_error(first)
        raise InvalidSchedule(field, "; ".join(filter(None, [problem, remedy]))) from None


def _checked_name(name: str) -> str:
    if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidSchedule("name", f"{quoted(name)} is not a text of 1 to {MAX_NAME_LENGTH} letters")
    return name
