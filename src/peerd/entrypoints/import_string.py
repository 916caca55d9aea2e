"""Imports the object that an entry ``module:name`` of the configuration names."""

from __future__ import annotations

import sys
from importlib import import_module

from peerd.domain.errors import PeerdError
from peerd.runtime.process.uncaught_exceptions import user_frames


class ImportStringError(Exception):
    """The object cannot be imported; the text says why."""


class InvalidEntry(PeerdError):
    """The object that an entry of a section, such as ``workers.video``, names does not exist or cannot be used."""

    def __init__(self, section: str, entry: str, problem: str) -> None:
        super().__init__(f"[{section}] {entry}: {problem}")


def import_object(entry: str) -> object:
    """Return the object that an entry names.

    Raises:
        ImportStringError: it cannot be imported.
    """
    module_name, _, attribute = entry.partition(":")
    try:
        found: object = import_module(module_name)
    except Exception as error:
        cause = f"{type(error).__name__}: {error}{_location_of(error)}"
        raise ImportStringError(f"importing {module_name} failed: {cause}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ImportStringError(f"{module_name} has no {attribute}{_stdlib_hint(module_name)}")
        found = getattr(found, part)
    return found


def import_entry(section: str, entry: str) -> object:
    """Return the object that an entry of a section names.

    Raises:
        InvalidEntry: it cannot be imported.
    """
    try:
        return import_object(entry)
    except ImportStringError as error:
        raise InvalidEntry(section, entry, str(error)) from error


def _location_of(error: Exception) -> str:
    """Return the line of user code that raised an exception; a SyntaxError contains it already."""
    frames = [] if isinstance(error, SyntaxError) else user_frames(error)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _stdlib_hint(module_name: str) -> str:
    if module_name.partition(".")[0] not in sys.stdlib_module_names:
        return ""
    return f": {module_name} is a module of the standard library, which is found first; rename the project's file"
