"""The schedules of an agent: of the configuration, of the user's code, and those that were created at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from peerd.config.parsing import InvalidSection, parse_section
from peerd.config.schedules import to_schedule
from peerd.config.settings import ScheduleSettings
from peerd.domain.errors import InvalidSchedule
from peerd.domain.quoting import quoted
from peerd.domain.schedule import Schedule

MAX_NAME_LENGTH = 191
"""Characters, as of a name in the configuration."""


class ScheduleRegistry:
    """Schedules by name. Use it on the agent's event loop.

    Args:
        schedules: the initial ones.

    >>> registry = ScheduleRegistry([])
    >>> registry.register("refresh", run="studio.jobs:refresh", interval="10s")
    >>> [schedule.interval for schedule in registry]
    [10.0]
    """

    def __init__(self, schedules: Iterable[Schedule]) -> None:
        self._schedules = {schedule.name: schedule for schedule in schedules}
        self._stored: dict[str, Schedule] = {}
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change."""

    def register(self, name: str, **keys: object) -> None:
        """Add a schedule, or replace the one of this name.

        Call it in the agent's setup, which every agent of a node runs: a schedule is identified by its name, so an
        ``immediate`` run is not repeated and its ticks continue.

        Args:
            name: unique in the cluster.
            keys: as in ``[schedules.NAME]`` of peerd.toml.

        Raises:
            InvalidSchedule: a key is wrong; it is named.
        """
        if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
            raise InvalidSchedule("name", f"{quoted(name)} is not a text of 1 to {MAX_NAME_LENGTH} characters")
        self._schedules[name] = to_schedule(name, _parse(keys))
        self.on_change()

    def unregister(self, name: str) -> None:
        """Remove a schedule, if it is there; its current runs continue."""
        if self._schedules.pop(name, None) is not None:
            self.on_change()

    def set_stored(self, schedules: Iterable[Schedule]) -> list[str]:
        """Replace the schedules that were created at run time.

        Returns:
            the names that the node has itself: its own schedules count.
        """
        self._stored = {schedule.name: schedule for schedule in schedules}
        return sorted(self._stored.keys() & self._schedules.keys())

    def is_stored(self, name: str) -> bool:
        """Whether the schedule of a name was created at run time."""
        return name in self._stored and name not in self._schedules

    def get(self, name: str) -> Schedule | None:
        """The schedule of a name."""
        return self._schedules.get(name) or self._stored.get(name)

    def __iter__(self) -> Iterator[Schedule]:
        """All schedules; the registry may change meanwhile."""
        return iter(list((self._stored | self._schedules).values()))


def _parse(keys: dict[str, object]) -> ScheduleSettings:
    try:
        return parse_section(ScheduleSettings, keys)
    except InvalidSection as error:
        path, message, remedy = error.mistakes[0]
        raise InvalidSchedule(".".join(path), "; ".join(filter(None, [message, remedy]))) from None
