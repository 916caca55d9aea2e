"""Loops in which one item that fails does not keep the others from their turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from peerd.domain.errors import DatabaseUnavailable
from peerd.storage.disk.errors import HashingStopped, RemoteDiskError

T = TypeVar("T")


def do_each(items: Iterable[T], do: Callable[[T], object]) -> None:
    """Do something with each item, also with those behind one that fails; then raise the first error.

    What would fail with each of them ends it at once: no database, a disk over a network that does not answer, a stop.

    >>> done = []
    >>> do_each([1, 0, 2], lambda number: done.append(6 // number))
    Traceback (most recent call last):
    ZeroDivisionError: integer division or modulo by zero
    >>> done
    [6, 3]
    """
    first: Exception | None = None
    for item in items:
        try:
            do(item)
        except (DatabaseUnavailable, HashingStopped, RemoteDiskError):
            raise
        except Exception as error:  # noqa: BLE001 - raised below
            first = first or error
    if first is not None:
        raise first
