"""What a forked process must have anew: the connections, threads and locks that are its parent's.

Python copies them all. A connection that two processes use answers one with what the other has asked, a thread exists
in the parent only, and a lock that another thread held is never released. gunicorn with ``--preload``, Celery's prefork
pool and `multiprocessing` fork after an application was imported, so after it may have used its client.
"""

from __future__ import annotations

import os
import weakref
from typing import Final, Protocol


class Forkable(Protocol):
    """Something that a forked process has anew."""

    def before_fork(self) -> None:
        """Give up, in the process that forks, what must not be open in another one."""
        ...

    def reset_after_fork(self) -> None:
        """Make anew, in the forked process, what belongs to its parent; nothing of that is closed or waited for."""
        ...


_registered: Final[dict[int, weakref.ref[Forkable]]] = {}


def register_fork_hooks(instance: Forkable) -> None:
    """Call its methods at each fork, as long as it lives."""
    number = id(instance)
    _registered[number] = weakref.ref(instance, lambda _: _registered.pop(number, None))


def _live_instances() -> list[Forkable]:
    return [instance for reference in list(_registered.values()) if (instance := reference()) is not None]


def _before_fork() -> None:
    for instance in _live_instances():
        instance.before_fork()


def _after_fork_in_child() -> None:
    for instance in _live_instances():
        instance.reset_after_fork()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
