"""Hooks that renew, in a forked process, the connections, threads and locks of its parent.

Python copies them all, but a connection of two processes mixes up their replies, a thread exists in the parent only,
and a lock that another thread held is never released. gunicorn with ``--preload``, Celery's prefork pool and
`multiprocessing` fork after an application was imported, and so perhaps after it has used its client.
"""

from __future__ import annotations

import os
import weakref
from threading import Lock
from typing import Final, Protocol


class Forkable(Protocol):
    """An object with resources that must not be shared with a forked process."""

    def before_fork(self) -> None:
        """In the parent: close what must not be open in another process."""

    def reset_after_fork(self) -> None:
        """In the child: replace the parent's resources, without closing them or waiting for them."""


_registered: Final[dict[int, weakref.ref[Forkable]]] = {}


def register_fork_hooks(instance: Forkable) -> None:
    """Call the instance's methods at each fork, as long as it lives."""
    number = id(instance)
    _registered[number] = weakref.ref(instance, lambda _: _registered.pop(number, None))


class ForkSafeLock:
    """A lock that a forked process finds free, also where another thread of its parent held it.

    >>> lock = ForkSafeLock()
    >>> with lock:
    ...     pass
    """

    def __init__(self) -> None:
        self.reset_after_fork()
        register_fork_hooks(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def before_fork(self) -> None:
        """A fork does not wait for the lock."""

    def reset_after_fork(self) -> None:
        """Create the lock anew, since the thread that may have held it has stayed in the parent."""
        self._lock = Lock()


def _live_instances() -> list[Forkable]:
    return [instance for reference in list(_registered.values()) if (instance := reference()) is not None]


def _before_fork() -> None:
    for instance in _live_instances():
        instance.before_fork()


def _after_fork_in_child() -> None:
    for instance in _live_instances():
        instance.reset_after_fork()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)
