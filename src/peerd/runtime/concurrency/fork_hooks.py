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

    def begin_anew(self) -> None:
        """Make anew, in the forked process, what belongs to its parent; nothing of that is closed or waited for."""
        ...


_known: Final[dict[int, weakref.ref[Forkable]]] = {}


def look_after(one: Forkable) -> None:
    """Call its methods at each fork, as long as it lives."""
    number = id(one)
    _known[number] = weakref.ref(one, lambda _: _known.pop(number, None))


def _living() -> list[Forkable]:
    return [one for reference in list(_known.values()) if (one := reference()) is not None]


def _before() -> None:
    for one in _living():
        one.before_fork()


def _in_child() -> None:
    for one in _living():
        one.begin_anew()


os.register_at_fork(before=_before, after_in_child=_in_child)
