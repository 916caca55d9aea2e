"""The tubes that connections of this process use or watch, their counters, and their pauses.

A tube lives while a connection uses or watches it, or it holds jobs; `default` always lives. Whether it holds jobs is
known to the table, so a tube that no connection of this process needs is forgotten only when the table has no job of
it.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

DEFAULT_TUBE: Final = "default"


class Tube:
    """What this process knows about a tube."""

    __slots__ = ("deletes", "name", "pauses", "puts", "using", "watching")

    def __init__(self, name: str) -> None:
        self.name = name
        self.using = 0
        self.watching = 0
        self.puts = 0
        self.deletes = 0
        self.pauses = 0

    @property
    def is_needed(self) -> bool:
        """Whether a connection of this process keeps it alive."""
        return bool(self.using or self.watching) or self.name == DEFAULT_TUBE


class Tubes:
    """The tubes by name, in the order in which this process met them."""

    def __init__(self) -> None:
        self._tubes: dict[str, Tube] = {}
        self._taken_out: Counter[str] = Counter()
        self.get_or_create(DEFAULT_TUBE)

    def get(self, name: str) -> Tube | None:
        """A tube that this process knows."""
        return self._tubes.get(name)

    def get_or_create(self, name: str) -> Tube:
        """A tube, which is known from now on."""
        tube = self._tubes.get(name)
        if tube is None:
            tube = self._tubes[name] = Tube(name)
        return tube

    def needed(self) -> list[str]:
        """The names of the tubes that connections of this process keep alive."""
        return [name for name, tube in self._tubes.items() if tube.is_needed]

    def unneeded(self) -> list[str]:
        """The names of the tubes that no connection of this process keeps alive."""
        return [name for name, tube in self._tubes.items() if not tube.is_needed]

    def take_out(self, name: str) -> Tube | None:
        """Remove a tube that no connection needs: one that is used again meanwhile begins with counters of its own."""
        tube = self._tubes.get(name)
        if tube is None or tube.is_needed:
            return None
        self._taken_out[name] += 1
        return self._tubes.pop(name)

    def depends_on_jobs(self, name: str) -> bool:
        """Whether a tube lives only as long as it has jobs, or it is not known yet whether it has."""
        tube = self._tubes.get(name)
        return name in self._taken_out or (tube is not None and not tube.is_needed)

    def forget(self, taken: Tube) -> None:
        """Forget a tube that was taken out and has no jobs."""
        self._taken_out[taken.name] -= 1
        if not self._taken_out[taken.name]:
            del self._taken_out[taken.name]

    def put_back(self, taken: Tube) -> None:
        """Put back a tube that was taken out and has jobs, with its counters."""
        self.forget(taken)
        tube = self.get_or_create(taken.name)
        tube.puts += taken.puts
        tube.deletes += taken.deletes
        tube.pauses += taken.pauses

    # ---------------------------------------------------------------- what connections do

    def use(self, name: str, previous: str | None = None) -> Tube | None:
        """Count a connection that uses a tube instead of another; return a tube that may end."""
        self.get_or_create(name).using += 1
        return None if previous is None else self.stop_using(previous)

    def stop_using(self, name: str) -> Tube | None:
        """Count a connection less; return the tube, taken out, if no connection of this process needs it any more."""
        self.get_or_create(name).using -= 1
        return self.take_out(name)

    def watch(self, name: str) -> None:
        """Count a connection that watches a tube."""
        self.get_or_create(name).watching += 1

    def ignore(self, name: str) -> Tube | None:
        """Count a connection less; return the tube, taken out, if no connection of this process needs it any more."""
        self.get_or_create(name).watching -= 1
        return self.take_out(name)
