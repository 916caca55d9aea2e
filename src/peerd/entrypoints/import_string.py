"""What an entry ``module:name`` of the config names."""

from __future__ import annotations

import sys
from importlib import import_module

from peerd.runtime.process.uncaught_exceptions import user_frames


class ImportStringError(Exception):
    """It cannot be imported, or is not there; the text says which."""


def import_object(entry: str) -> object:
    """The object that an entry names.

    Raises:
        ImportStringError: there is none.
    """
    module_name, _, attribute = entry.partition(":")
    try:
        found: object = import_module(module_name)
    except Exception as error:
        said = f"{type(error).__name__}: {error}{_location_of(error)}"
        raise ImportStringError(f"importing {module_name} failed: {said}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ImportStringError(f"{module_name} has no {attribute}{_stdlib_hint(module_name)}")
        found = getattr(found, part)
    return found


def _location_of(error: Exception) -> str:
    """The line of the user's code that an exception has come from; nothing where the error names one itself."""
    frames = [] if isinstance(error, SyntaxError) else user_frames(error)
    return f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""


def _stdlib_hint(module_name: str) -> str:
    """What to do where the module is not the project's, although a file of the project may have its name."""
    if module_name.partition(".")[0] not in sys.stdlib_module_names:
        return ""
    return (
        f": {module_name} is a module of the standard library, which is found first; "
        "give the project's file another name"
    )
