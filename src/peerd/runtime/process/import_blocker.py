"""Loading a library without another one, which it takes along wherever that is installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def blocked_import(package: str) -> Iterator[None]:
    """A package that cannot be imported meanwhile, as if it were not installed, unless it is loaded already.

    >>> with blocked_import("wsgiref.simple_server"):
    ...     import wsgiref.simple_server
    Traceback (most recent call last):
    ModuleNotFoundError: import of wsgiref.simple_server halted; None in sys.modules
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # the import system's word for "there is none"
    try:
        yield
    finally:
        del sys.modules[package]
