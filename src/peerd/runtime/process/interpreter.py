"""The interpreter of a process: the settings of its garbage collector, and the places that it imports from."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

# Python's own are 700, 10 and 10, with which a process that runs ten thousand tasks a second spends a third of its time
# in the collector: measured in drains of MariaDB and SQLite, 66 → 47 and 89 → 58 µs of processor time for a task.
THRESHOLDS: Final = (20_000, 20, 50)
"""The thresholds of the three generations."""
STANDARD_LIBRARY: Final = os.path.dirname(os.__file__)  # noqa: PTH120 - pathlib costs a process's start


def disable_gc() -> None:
    """Collect nothing until `freeze_and_enable_gc`: imports make little garbage, and a collection visits it all."""
    gc.disable()


def freeze_and_enable_gc() -> None:
    """Exclude all loaded modules and classes from collection. Call it once, at the start of the process."""
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)
    gc.enable()


def add_project_folder(folder: str) -> None:
    """Make the project's modules importable.

    The folder stands after the standard library and before installed packages. Before the standard library, a project's
    ``queue.py`` or ``logging.py`` would be imported by every library that needs the standard one.
    """
    sys.path.insert(project_position(sys.path, STANDARD_LIBRARY), folder)


def project_position(path: Sequence[str], standard_library: str) -> int:
    """The position of the project's folder: behind the last folder of the standard library.

    >>> project_position(["/lib/python311.zip", "/lib/python3.11", "/lib/python3.11/lib-dynload", "/site-packages"],
    ...          "/lib/python3.11")
    3
    >>> project_position(["/somewhere"], "/lib/python3.11")
    1
    """
    standard = {standard_library, f"{standard_library}/lib-dynload"}
    found = [number for number, folder in enumerate(path) if folder in standard]
    return found[-1] + 1 if found else len(path)


@contextmanager
def blocked_import(package: str) -> Iterator[None]:
    """Make a package unimportable meanwhile, as if it were not installed, unless it is loaded already.

    >>> with blocked_import("imaplib"):
    ...     import imaplib
    Traceback (most recent call last):
    ModuleNotFoundError: import of imaplib halted; None in sys.modules
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]  # the import system's marker for a missing module
    try:
        yield
    finally:
        del sys.modules[package]
